//! The socket with plugins of plain text: what is answered to what, and that nobody holds up the others.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::*;

const EVENT: &str = r#"{"Netns":"/n","PodName":"web","PodNamespace":"shop","IPs":null}"#;

#[derive(Debug, thiserror::Error)]
#[error("no proxy is connected")]
struct NoProxy;

/// A socket that serves.
struct Agent {
    path: PathBuf,
    task: JoinHandle<Infallible>,
    _folder: tempfile::TempDir,
}

impl Agent {
    fn start<F>(admit: impl Fn(Event) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<(), NoProxy>> + Send + 'static,
    {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run/pluginevent.sock");
        let socket = PluginSocket::bind(&path, Box::new(|_| ())).unwrap();
        Self {
            path,
            task: tokio::spawn(socket.serve(Counters::default(), admit)),
            _folder: folder,
        }
    }

    async fn dial(&self) -> UnixStream {
        UnixStream::connect(&self.path).await.unwrap()
    }

    /// Sends a request in HTTP/1.0 and returns status line and body.
    async fn ask(&self, request: &str, body: &str) -> (String, String) {
        let mut stream = self.dial().await;
        let request = format!(
            "{request} HTTP/1.0\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.lines().next().unwrap().to_owned(), body.to_owned())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Admits pods named `web`.
async fn only_web(event: Event) -> Result<(), NoProxy> {
    (event.pod.name == "web").then_some(()).ok_or(NoProxy)
}

#[tokio::test]
async fn each_event_has_the_status_of_istio() {
    let agent = Agent::start(only_web);
    let other = EVENT.replace("web", "other");
    let long = "x".repeat(SERVICE.longest + 1);
    for (request, body, status, text) in [
        ("POST /cmdadd", EVENT, "200 OK", ""),
        ("PUT /cmdadd", EVENT, "200 OK", ""),
        ("GET /cmdadd", EVENT, "200 OK", ""),
        (
            "POST /cmdadd",
            &other,
            "500 Internal Server Error",
            "no proxy is connected",
        ),
        ("POST /cmdadd", "", "400 Bad Request", "not JSON"),
        ("POST /cmdadd", "{", "400 Bad Request", "not JSON"),
        ("POST /cmdadd", "{}", "400 Bad Request", "PodNamespace is missing"),
        ("POST /cmdadd", &long, "400 Bad Request", "length limit"),
        ("POST /cmddel", EVENT, "404 Not Found", "only /cmdadd"),
    ] {
        let (line, said) = agent.ask(request, body).await;
        assert!(line.ends_with(status), "{request} {body}: {line} {said}");
        assert!(said.contains(text), "{request} {body}: {said}");
        assert_eq!(said.is_empty(), text.is_empty(), "{request} {body}: {said}");
    }
}

#[tokio::test]
async fn a_connection_can_be_used_again_as_go_does() {
    let agent = Agent::start(only_web);
    let mut stream = agent.dial().await;
    for _ in 0..2 {
        let request = format!(
            "POST /cmdadd HTTP/1.1\r\nHost: unix\r\nContent-Length: {}\r\n\r\n{EVENT}",
            EVENT.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            answer.push(stream.read_u8().await.unwrap());
        }
        assert!(answer.starts_with(b"HTTP/1.1 200 OK"), "{answer:?}");
    }
}

#[tokio::test]
async fn the_socket_has_the_modes_of_istio() {
    let agent = Agent::start(only_web);
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&agent.path), 0o666);
    assert_eq!(mode(agent.path.parent().unwrap()), 0o750);
}

#[tokio::test]
async fn a_live_socket_is_not_taken_and_a_stale_one_is() {
    let agent = Agent::start(only_web);
    let error = PluginSocket::bind(&agent.path, Box::new(|_| ())).unwrap_err();
    assert!(matches!(error, BindError::InUse { .. }), "{error}");
    assert_eq!(agent.ask("POST /cmdadd", EVENT).await.0, "HTTP/1.0 200 OK");
    let folder = tempfile::tempdir().unwrap();
    let stale = folder.path().join("pluginevent.sock");
    drop(PluginSocket::bind(&stale, Box::new(|_| ())).unwrap());
    PluginSocket::bind(&stale, Box::new(|_| ())).unwrap();
}

#[tokio::test]
async fn a_plugin_that_says_nothing_and_one_that_waits_hold_up_nobody() {
    let (started, mut begun) = mpsc::unbounded_channel();
    let agent = Agent::start(move |event| {
        let started = started.clone();
        async move {
            if event.pod.name == "slow" {
                started.send(()).unwrap();
                std::future::pending::<()>().await;
            }
            Ok(())
        }
    });
    let _silent = agent.dial().await;
    let mut slow = agent.dial().await;
    let body = EVENT.replace("web", "slow");
    let request = format!(
        "POST /cmdadd HTTP/1.0\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    slow.write_all(request.as_bytes()).await.unwrap();
    begun.recv().await.unwrap();
    assert_eq!(agent.ask("POST /cmdadd", EVENT).await.0, "HTTP/1.0 200 OK");
}

#[tokio::test]
async fn a_plugin_that_hangs_up_is_forgotten() {
    let (held, mut dropped) = mpsc::channel::<()>(1);
    let (started, mut begun) = mpsc::unbounded_channel();
    let held = std::sync::Mutex::new(Some(held));
    let agent = Agent::start(move |_| {
        let guard = held.lock().unwrap().take();
        started.send(()).unwrap();
        async move {
            let _guard = guard;
            std::future::pending::<Result<(), NoProxy>>().await
        }
    });
    let mut stream = agent.dial().await;
    let request = format!(
        "POST /cmdadd HTTP/1.0\r\nContent-Length: {}\r\n\r\n{EVENT}",
        EVENT.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    begun.recv().await.unwrap();
    drop(stream);
    assert_eq!(dropped.recv().await, None, "its admission is dropped");
}
