//! The way to the agent: posts an event over its socket, again and again until it answers or the time is over. An agent
//! that restarts in the middle costs a moment, not a sandbox: to say the same twice does no harm.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::http::{self, Response};

/// First pause before the next attempt; doubles each time.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// Longest pause.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// What is read of an answer; the agent's are one line.
const LONGEST_ANSWER: u64 = 1 << 20;

/// The agent did not answer. Its `Display` is for the operator.
#[derive(Debug)]
pub(crate) struct NoAnswer {
    socket: PathBuf,
    waited: Duration,
    cause: io::Error,
}

impl std::fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "the node agent did not answer at {} within {:.1} s ({}): is its pod running on this node?",
            self.socket.display(),
            self.waited.as_secs_f64(),
            self.cause
        )
    }
}

/// Posts an event and returns the agent's answer, whatever that is.
///
/// # Errors
/// When there is none within `limit`.
pub(crate) fn post(socket: &Path, limit: Duration, path: &str, body: &str) -> Result<Response, NoAnswer> {
    let request = http::post(path, body);
    persist(socket, limit, |stream, deadline| {
        exchange(stream, deadline, &request)
    })
}

/// Posts something and does not wait for the answer: the kernel keeps what was sent until the agent reads it.
///
/// # Errors
/// When nobody listens, or does not make room within `limit`.
pub(crate) fn drop_off(socket: &Path, limit: Duration, path: &str, body: &str) -> io::Result<()> {
    let mut stream = dial(socket)?;
    stream.set_write_timeout(Some(limit))?;
    stream.write_all(http::post(path, body).as_bytes())
}

/// Waits until the agent listens.
///
/// # Errors
/// When it does not within `limit`.
pub(crate) fn reach(socket: &Path, limit: Duration) -> Result<(), NoAnswer> {
    persist(socket, limit, |_, _| Ok(()))
}

/// Connects and talks until that succeeds, fails for good, or the time is over.
fn persist<T>(
    socket: &Path,
    limit: Duration,
    talk: impl Fn(UnixStream, Instant) -> io::Result<T>,
) -> Result<T, NoAnswer> {
    let start = Instant::now();
    let deadline = start + limit;
    let mut pause = FIRST_PAUSE;
    loop {
        let error = match dial(socket).and_then(|stream| talk(stream, deadline)) {
            Ok(said) => return Ok(said),
            Err(error) => error,
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if !is_passing(error.kind()) || left.is_zero() {
            return Err(NoAnswer {
                socket: socket.to_owned(),
                waited: start.elapsed(),
                cause: error,
            });
        }
        sleep(pause.min(left));
        pause = LONGEST_PAUSE.min(pause * 2);
    }
}

/// Whether an agent that starts or restarts looks like this: no socket yet, an old one that nobody listens on, a full
/// backlog, a connection that ends too early.
fn is_passing(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::NotFound
            | ErrorKind::ConnectionRefused
            | ErrorKind::WouldBlock
            | ErrorKind::BrokenPipe
            | ErrorKind::ConnectionReset
            | ErrorKind::UnexpectedEof
    )
}

/// Connects without waiting for room in the backlog: connect(2) on a blocking socket would wait without a limit for an
/// agent that hangs.
fn dial(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Sends the request and reads the answer to its end.
fn exchange(mut stream: UnixStream, deadline: Instant, request: &str) -> io::Result<Response> {
    stream.set_write_timeout(Some(left(deadline)?))?;
    stream.write_all(request.as_bytes()).map_err(in_words)?;
    let mut answer = Vec::new();
    let mut limited = (&stream).take(LONGEST_ANSWER);
    let mut buffer = [0; 4096];
    loop {
        stream.set_read_timeout(Some(left(deadline)?))?;
        match limited.read(&mut buffer).map_err(in_words)? {
            0 => break,
            count => answer.extend_from_slice(&buffer[..count]),
        }
    }
    http::response(&answer)
        .ok_or_else(|| io::Error::new(ErrorKind::UnexpectedEof, "the connection ended before the answer"))
}

/// The time that is left.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(too_late()) } else { Ok(left) }
}

/// The kernel says EAGAIN when the time limit of a socket is over (socket(7), `SO_RCVTIMEO`).
fn in_words(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::WouldBlock => too_late(),
        _ => error,
    }
}

fn too_late() -> io::Error {
    io::Error::new(ErrorKind::TimedOut, "it listens, but says nothing")
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    const LONG: Duration = Duration::from_secs(20);
    const SHORT: Duration = Duration::from_millis(150);

    /// Answers each connection with the next of these texts, after its request has come.
    fn agent(listener: UnixListener, answers: Vec<&'static str>) -> thread::JoinHandle<Vec<String>> {
        thread::spawn(move || {
            let answer = |text: &str| {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 512];
                let count = stream.read(&mut request).unwrap();
                stream.write_all(text.as_bytes()).unwrap();
                String::from_utf8_lossy(&request[..count]).into_owned()
            };
            answers.into_iter().map(answer).collect()
        })
    }

    #[test]
    fn the_answer_is_returned_whatever_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let agent = agent(
            UnixListener::bind(&path).unwrap(),
            vec!["HTTP/1.0 500 Oh\r\n\r\nno proxy\n"],
        );
        let answer = post(&path, LONG, "/cmdadd", "{}").unwrap();
        assert_eq!((answer.status, answer.text.as_str()), (500, "no proxy"));
        assert_eq!(agent.join().unwrap(), [http::post("/cmdadd", "{}")]);
    }

    #[test]
    fn an_agent_that_dies_before_it_answers_is_asked_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let agent = agent(
            UnixListener::bind(&path).unwrap(),
            vec!["", "HTTP/1.1 2", "HTTP/1.1 200 OK\r\n\r\n"],
        );
        assert_eq!(post(&path, LONG, "/cmdadd", "{}").unwrap().status, 200);
        assert_eq!(agent.join().unwrap().len(), 3);
    }

    #[test]
    fn a_socket_that_comes_late_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        // What an agent that was killed leaves behind.
        drop(UnixListener::bind(&path).unwrap());
        thread::scope(|scope| {
            let plugin = scope.spawn(|| reach(&path, LONG));
            std::fs::remove_file(&path).unwrap();
            let _listener = UnixListener::bind(&path).unwrap();
            plugin.join().unwrap().unwrap();
        });
    }

    #[test]
    fn an_absent_and_a_silent_agent_are_errors_when_the_time_is_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let error = reach(&path, SHORT).unwrap_err();
        assert!(error.waited >= SHORT, "{error}");
        assert!(error.to_string().contains("No such file"), "{error}");
        // It listens, and never accepts.
        let _listener = UnixListener::bind(&path).unwrap();
        let error = post(&path, SHORT, "/cmdadd", "{}").unwrap_err();
        assert!(error.waited >= SHORT, "{error}");
        assert!(error.to_string().contains("says nothing"), "{error}");
    }

    #[test]
    fn what_will_not_pass_is_an_error_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x".repeat(200));
        let error = reach(&path, LONG).unwrap_err();
        assert!(error.waited < LONG / 2, "{error}");
    }
}
