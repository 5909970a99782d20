//! The socket with plugins of plain text, and a log that is read.

use std::io;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tracing::instrument::WithSubscriber;
use tracing_subscriber::fmt;

use super::*;

/// What is written to a log.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The log that comes of a body.
fn said_of(body: &[u8], counters: &Counters) -> (Answer, String) {
    let written = Written::default();
    let writer = written.clone();
    let log = fmt()
        .json()
        .with_max_level(tracing::Level::DEBUG)
        .with_writer(move || writer.clone())
        .finish();
    let answer = tracing::subscriber::with_default(log, || take(body, counters));
    let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
    (answer, text)
}

#[test]
fn a_line_is_said_again_with_its_level_target_time_and_labels() {
    let body = br#"["{\"level\":\"warn\",\"time\":\"2026-12-01T05:50:02Z\",\"msg\":\"slow\",\"pod\":\"web\",\"namespace\":\"shop\",\"try\":2}"]"#;
    let (answer, text) = said_of(body, &Counters::default());
    assert_eq!(answer, (StatusCode::OK, String::new()));
    let said: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&said["level"], &said["target"]),
        (&"WARN".into(), &"cni-plugin".into())
    );
    let expected = serde_json::json!({
        "message": "CNI plugin: slow", "time": "2026-12-01T05:50:02Z", "pod": "web", "namespace": "shop", "labels": "try=2",
    });
    assert_eq!(said["fields"], expected);
}

#[test]
fn what_cannot_be_read_is_counted() {
    let counters = Counters::default();
    for (body, status, dropped) in [
        (&b"garbage"[..], StatusCode::BAD_REQUEST, 1),
        (
            br#"["garbage", "{}", "{\"level\":\"info\",\"msg\":\"good\"}"]"#,
            StatusCode::OK,
            3,
        ),
        (b"[]", StatusCode::OK, 3),
    ] {
        let (answer, _) = said_of(body, &counters);
        assert_eq!(answer.0, status);
        assert_eq!(counters.subscribe().borrow().dropped_lines, dropped);
    }
}

#[tokio::test]
async fn a_plugin_that_does_not_wait_for_the_answer_is_heard() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.sock");
    let socket = LogSocket::bind(&path).unwrap();
    let counters = Counters::default();
    let mut stats = counters.subscribe();
    let task = tokio::spawn(socket.serve(counters).with_current_subscriber());
    let dial = async || UnixStream::connect(&path).await.unwrap();
    dial()
        .await
        .write_all(b"POST /log HTTP/1.0\r\nContent-Length: 7\r\n\r\n[\"bad\"]")
        .await
        .unwrap();
    stats.wait_for(|stats| stats.dropped_lines == 1).await.unwrap();
    let mut waits = dial().await;
    waits
        .write_all(b"POST /log HTTP/1.0\r\nContent-Length: 2\r\n\r\n[]")
        .await
        .unwrap();
    let mut answer = String::new();
    waits.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.0 200 OK"), "{answer}");
    task.abort();
}
