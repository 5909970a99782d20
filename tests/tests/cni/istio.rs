//! The plugin against an agent that answers as Istio's does, and the agent against the bytes that Istio's plugin sends.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tests::cni::Plugin;
use tests::{Node, Pod, PodSpec, requires};

use crate::scene::{Scene, assert_passed};

/// Answers requests as Go's server does, one after the other; returns what was asked.
fn istios_agent(
    listener: UnixListener,
    answers: Vec<(&'static str, &'static str)>,
) -> thread::JoinHandle<Result<Vec<String>>> {
    thread::spawn(move || {
        let answer = |(status, text): (&str, &str)| {
            let (mut stream, _) = listener.accept()?;
            let request = request(&mut stream)?;
            let length = text.len();
            // Who posts a log does not wait for the answer.
            let _ = write!(
                stream,
                "HTTP/1.0 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\n\
                 Date: Tue, 01 Dec 2026 05:50:02 GMT\r\nContent-Length: {length}\r\n\r\n{text}"
            );
            Ok(request)
        };
        answers.into_iter().map(answer).collect()
    })
}

/// A request, to the end of its body.
fn request(stream: &mut UnixStream) -> Result<String> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let count = stream.read(&mut buffer)?;
        bytes.extend_from_slice(&buffer[..count]);
        let text = String::from_utf8_lossy(&bytes);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("Content-Length: "));
            if body.len() >= length.context("a length")?.parse()? || count == 0 {
                return Ok(text.into_owned());
            }
        }
    }
}

#[test]
fn the_plugin_works_with_istios_agent() -> Result<()> {
    if !requires::root("the_plugin_works_with_istios_agent") {
        return Ok(());
    }
    let node = Node::new()?;
    let plugin = Plugin::new(&node)?;
    std::fs::create_dir_all(plugin.run_dir())?;
    let agent = istios_agent(
        UnixListener::bind(node.plugin_socket())?,
        vec![
            ("200 OK", ""),
            (
                "500 Internal Server Error",
                "pod default/web is unexpectedly not eligible for ambient enrollment\n",
            ),
            (
                "500 Internal Server Error",
                "failed to get pod default/web: pod \"web\" not found\n",
            ),
            ("400 Bad Request", "unexpected end of JSON input\n"),
        ],
    );
    let log = istios_agent(
        UnixListener::bind(plugin.run_dir().join("log.sock"))?,
        vec![("200 OK", ""); 2],
    );
    let pod = node.sandbox(PodSpec::new("web").ambient())?;
    assert_passed(&plugin.add(&pod)?, &pod);
    // It asks about all pods, and takes this for what it means.
    assert_passed(&plugin.add(&pod)?, &pod);
    let unknown = plugin.add(&pod)?;
    assert_eq!(unknown.printed["code"], 11);
    assert!(
        unknown.error().contains(r#"pod "web" not found"#),
        "{}",
        unknown.error()
    );
    assert_eq!(plugin.add(&pod)?.printed["code"], 100);
    let asked = agent.join().expect("it does not panic")?;
    for request in &asked {
        let (head, body) = request.split_once("\r\n\r\n").context("a request")?;
        assert!(head.starts_with("POST /cmdadd HTTP/1."), "{head}");
        let event: Value = serde_json::from_str(body)?;
        assert_eq!(
            (&event["PodName"], &event["PodNamespace"]),
            (&json!("web"), &json!("default"))
        );
        assert_eq!(
            event["IPs"][0]["Address"],
            json!({"IP": pod.v4(), "Mask": "////AA=="})
        );
    }
    let logged = log.join().expect("it does not panic")?;
    for request in logged {
        let (head, body) = request.split_once("\r\n\r\n").context("a request")?;
        assert!(head.starts_with("POST /log HTTP/1."), "{head}");
        let lines: Vec<String> = serde_json::from_str(body)?;
        let line: Value = serde_json::from_str(&lines[0])?;
        assert_eq!(line["level"], "error");
    }
    Ok(())
}

/// What Istio's plugin posts: Go's names, a mask in base64, an IPv4 address as text, no UID.
fn event_of_go(pod: &Pod) -> String {
    format!(
        r#"{{"Netns":"{}","PodName":"{}","PodNamespace":"{}","IPs":[{{"Interface":0,"Address":{{"IP":"{}","Mask":"////AA=="}},"Gateway":"10.0.0.1"}},{{"Interface":null,"Address":{{"IP":"{}","Mask":"//////////8AAAAAAAAAAA=="}},"Gateway":""}}]}}"#,
        pod.netns().path().display(),
        pod.name(),
        pod.namespace(),
        pod.v4(),
        pod.v6(),
    )
}

/// Posts as Go's client does, over one connection that stays open, and returns the status line.
fn post_as_go(stream: &mut UnixStream, path: &str, body: &str) -> Result<String> {
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nHost: unix\r\nUser-Agent: Go-http-client/1.1\r\nContent-Length: {}\r\n\
         Content-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        answer.push(byte[0]);
    }
    let text = String::from_utf8_lossy(&answer);
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

#[test]
fn the_agent_works_with_istios_plugin() -> Result<()> {
    if !requires::root("the_agent_works_with_istios_plugin") {
        return Ok(());
    }
    let mut scene = Scene::new()?;
    let server = scene.node.pod("server")?;
    let _server = server.serve(&["--listen", "[::]:80"])?;
    let mut pod = scene.sandbox("web")?;
    let mut stream = UnixStream::connect(scene.node.plugin_socket())?;
    assert_eq!(
        post_as_go(&mut stream, "/cmdadd", &event_of_go(&pod))?,
        "HTTP/1.1 200 OK"
    );
    pod.start()?;
    scene.assert_captured(&pod, &server, 80)?;
    let mut log = UnixStream::connect(scene.plugin.run_dir().join("log.sock"))?;
    let lines = r#"["{\"level\":\"info\",\"time\":\"2026-12-01T05:50:02.1Z\",\"msg\":\"a line of Go\",\"pod\":\"default/web\"}\n"]"#;
    assert_eq!(post_as_go(&mut log, "/log", lines)?, "HTTP/1.1 200 OK");
    let said = scene.agent.log();
    assert!(
        said.contains("CNI plugin: a line of Go") && said.contains("default/web"),
        "{said}"
    );
    Ok(())
}
