//! The control socket, by which root changes a running agent: one line of request, one line of answer. Only root can
//! open it, and nothing that it can do touches a pod.

use std::convert::Infallible;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::SocketType;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use super::log::Log;
use crate::kept_socket::{KeptSocket, Place};
use crate::socket_file::BindError;

/// Longest request in bytes.
const LONGEST: u64 = 4096;
/// How long either side may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Of the socket's folder, if it is new.
const FOLDER_MODE: u32 = 0o755;
/// Of the socket: whoever may write to it may connect.
const SOCKET_MODE: u32 = 0o600;
/// Pause after an error of `accept`, which comes from a lack of descriptors or memory.
const ACCEPT_RETRY: Duration = Duration::from_secs(1);

/// Request for the log's levels; followed by a space and levels it sets them.
const LOG_LEVEL: &str = "log-level";

/// The socket, open.
#[derive(Debug)]
pub struct Control(KeptSocket);

impl Control {
    /// Where the socket of an agent with this run dir is.
    #[must_use]
    pub fn path(run_dir: &Path) -> PathBuf {
        run_dir.join("control.sock")
    }

    /// Opens it. Needs a running Tokio runtime.
    ///
    /// # Errors
    /// When the path is in use or cannot be used.
    pub fn bind(run_dir: &Path) -> Result<Self, BindError> {
        let place = Place {
            path: Self::path(run_dir),
            kind: SocketType::STREAM,
            folder_mode: FOLDER_MODE,
            mode: Some(SOCKET_MODE),
        };
        KeptSocket::bind(place, Box::new(|_| ())).map(Self)
    }

    /// Answers one request after the other, for ever.
    pub async fn serve(mut self, log: Log) -> Infallible {
        loop {
            match self.0.accept().await {
                Ok(stream) => {
                    // Who does not ask in time is forgotten.
                    let _ = tokio::time::timeout(PATIENCE, converse(stream, &log)).await;
                }
                Err(error) => {
                    tracing::error!(%error, "accepting on the control socket failed, trying again");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            }
        }
    }
}

async fn converse(mut stream: UnixStream, log: &Log) -> std::io::Result<()> {
    let mut request = String::new();
    (&mut stream).take(LONGEST).read_to_string(&mut request).await?;
    let answer = match answer(request.trim(), log) {
        Ok(answer) => format!("ok {answer}\n"),
        Err(error) => format!("error {error}\n"),
    };
    stream.write_all(answer.as_bytes()).await
}

fn answer(request: &str, log: &Log) -> Result<String, String> {
    let unknown =
        || format!("unknown request {request:?}: the agent is of another version than this command");
    match request.strip_prefix(LOG_LEVEL).ok_or_else(unknown)? {
        "" => Ok(log.levels()),
        levels if levels.starts_with(' ') => {
            let levels = log.set(levels).map_err(|error| error.to_string())?;
            tracing::info!("the log's levels are now {levels}");
            Ok(levels)
        }
        _ => Err(unknown()),
    }
}

/// Why a running agent did not do as asked.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// There is no socket, or it does not answer.
    #[error("{path}: {source}; does an agent run with this --run-dir?")]
    Away {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It refused.
    #[error("{0}")]
    Refused(String),
}

/// Asks the running agent for its log's levels, after changing them to `levels` if given. Returns what they are.
///
/// # Errors
/// When no agent runs there, or it refuses.
pub fn ask(run_dir: &Path, levels: Option<&str>) -> Result<String, ControlError> {
    let path = Control::path(run_dir);
    let request = levels.map_or_else(|| LOG_LEVEL.to_owned(), |levels| format!("{LOG_LEVEL} {levels}"));
    let answer = exchange(&path, &request).map_err(|source| ControlError::Away { path, source })?;
    match answer.trim().split_once(' ') {
        Some(("ok", levels)) => Ok(levels.to_owned()),
        Some(("error", why)) => Err(ControlError::Refused(why.to_owned())),
        _ => Err(ControlError::Refused(format!("answered {answer:?}"))),
    }
}

fn exchange(path: &Path, request: &str) -> std::io::Result<String> {
    let mut stream = std::os::unix::net::UnixStream::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(request.as_bytes())?;
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
