//! An API server in a few lines of HTTP on loopback, which answers as a script says.

use std::collections::HashMap;
use std::time::Duration;

use agent_core::ids::NodeRef;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::view::View;
use crate::source::connection::Connection;
use crate::source::kube::KubeSource;

/// What the server answers.
pub(super) enum Answer {
    /// A status and a body.
    Body(u16, Value),
    /// Lines of a watch, after which it ends.
    Ends(Vec<Value>),
    /// Lines of a watch that stays open.
    Stays(Vec<Value>),
}

/// Chooses the answer to the n-th (from 0) request of a kind, such as `watch pods`.
pub(super) type Script = fn(kind: &str, nth: usize) -> Answer;

/// A server and a source that reads from it.
pub(super) struct Fixture {
    pub(super) view: View,
    /// Request targets, as they come.
    requests: mpsc::UnboundedReceiver<String>,
    _folder: TempDir,
}

impl Fixture {
    pub(super) async fn new(script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (log, requests) = mpsc::unbounded_channel();
        tokio::spawn(serve(listener, script, log));
        let folder = TempDir::new().unwrap();
        let view = source(&folder, &address.to_string());
        Self {
            view,
            requests,
            _folder: folder,
        }
    }

    /// The next request whose target has all these parts.
    pub(super) async fn request(&mut self, parts: &[&str]) -> String {
        loop {
            let target = timeout(Duration::from_secs(20), self.requests.recv())
                .await
                .expect("a request")
                .unwrap();
            if parts.iter().all(|part| target.contains(part)) {
                return target;
            }
        }
    }
}

/// Follows node n1 at an API server.
pub(super) fn source(folder: &TempDir, address: &str) -> View {
    let kubeconfig = folder.path().join("config");
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": format!("http://{address}")}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    });
    std::fs::write(&kubeconfig, text.to_string()).unwrap();
    let (facts, view) = mpsc::channel(64);
    let node = NodeRef {
        cluster: "Kubernetes".into(),
        name: "n1".into(),
    };
    tokio::spawn(KubeSource::new(Connection::new(Some(kubeconfig)), node).run(facts));
    View::new(view)
}

pub(super) async fn serve(listener: TcpListener, script: Script, log: mpsc::UnboundedSender<String>) {
    let mut counts = HashMap::<String, usize>::new();
    let mut open = Vec::new();
    while let Ok((mut stream, _)) = listener.accept().await {
        let target = target(&mut stream).await;
        let resource = if target.contains("/pods?") {
            "pods"
        } else if target.contains("/nodes?") {
            "nodes"
        } else {
            "namespaces"
        };
        let kind = format!(
            "{} {resource}",
            if target.contains("watch=true") {
                "watch"
            } else {
                "list"
            }
        );
        let nth = counts.entry(kind.clone()).or_default();
        let stays = reply(&mut stream, script(&kind, *nth)).await;
        *nth += 1;
        if stays {
            open.push(stream);
        }
        let _ = log.send(target);
    }
}

async fn target(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head)
        .unwrap()
        .split(' ')
        .nth(1)
        .unwrap()
        .to_owned()
}

/// Answers on a connection of its own and says whether it stays open.
async fn reply(stream: &mut TcpStream, answer: Answer) -> bool {
    let (code, body, stays) = match answer {
        Answer::Body(code, body) => (code, body.to_string(), false),
        Answer::Ends(lines) => (200, text(&lines), false),
        Answer::Stays(lines) => (200, text(&lines), true),
    };
    let head = format!("HTTP/1.1 {code} X\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n");
    stream.write_all((head + &body).as_bytes()).await.unwrap();
    stays
}

fn text(lines: &[Value]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

pub(super) fn pod(name: &str, version: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "uid": format!("uid-{name}"), "resourceVersion": version},
        "spec": {"nodeName": "n1", "containers": []}, "status": {"podIP": "10.0.0.1"},
    })
}

pub(super) fn list(version: &str, items: &[Value]) -> Answer {
    Answer::Body(
        200,
        json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": version},
                             "items": items}),
    )
}

pub(super) fn refusal(code: u16, message: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": "", "code": code})
}

pub(super) fn bookmark(version: &str) -> Value {
    json!({"type": "BOOKMARK", "object": {"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": version}}})
}

/// An object of which only the metadata is asked for.
pub(super) fn metadata(name: &str) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
           "metadata": {"name": name, "labels": {"x": "y"}}})
}

/// What a healthy server with node `n1` and its pod `a` answers.
pub(super) fn healthy(kind: &str) -> Answer {
    match kind {
        "list pods" => list("5", &[pod("a", "1")]),
        "list namespaces" => list("5", &[metadata("shop")]),
        "list nodes" => list("5", &[metadata("n1")]),
        _ => Answer::Stays(vec![]),
    }
}
