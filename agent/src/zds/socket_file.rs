//! Taking the path of the socket: a leftover of an agent that died gives way, everything else does not.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::seqpacket::{Channel, Listener};

/// Why the socket cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// There is something at the path that no agent made.
    #[error("{path} exists and is no socket: remove it, or choose another path for the ZDS socket")]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// Somebody listens there.
    #[error(
        "{path} is in use by {owner}: stop it first (another agent, or istio-cni), because a proxy can have one agent \
         only"
    )]
    InUse {
        /// The path.
        path: PathBuf,
        /// Who listens, as well as it can be told.
        owner: String,
    },
    /// The kernel refuses.
    #[error("{operation} {path}: {source}")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Creates the folder of `path`, removes a socket file that nobody listens on, and listens there. The file stays when
/// the listener goes, as for every Unix socket; the next agent removes it. Needs a running Tokio runtime.
///
/// # Errors
/// When the path is in use, or is not a socket, or the kernel refuses.
pub(super) fn claim(path: &Path) -> Result<Listener, BindError> {
    let fail = |operation| {
        move |source: io::Error| BindError::Io {
            operation,
            path: path.to_owned(),
            source,
        }
    };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(fail("creating the folder of"))?;
    }
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => remove_stale(path)?,
        Ok(_) => {
            return Err(BindError::NotASocket {
                path: path.to_owned(),
            });
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(fail("looking at")(error)),
    }
    Listener::bind(path).map_err(fail("listening on"))
}

/// Removes the socket file unless somebody listens on it, which only a connection attempt tells.
fn remove_stale(path: &Path) -> Result<(), BindError> {
    let in_use = |owner| {
        Err(BindError::InUse {
            path: path.to_owned(),
            owner,
        })
    };
    let error = match Channel::connect(path) {
        Ok(channel) => return in_use(owner(&channel)),
        Err(error) => error,
    };
    match Errno::from_io_error(&error) {
        Some(Errno::CONNREFUSED) => {}
        Some(Errno::AGAIN) => return in_use("a process that does not accept its connections".to_owned()),
        Some(Errno::PROTOTYPE) => {
            return in_use("a process that listens with a socket of another type".to_owned());
        }
        _ => {
            return Err(BindError::Io {
                operation: "connecting to",
                path: path.to_owned(),
                source: error,
            });
        }
    }
    fs::remove_file(path).map_err(|source| BindError::Io {
        operation: "removing the stale socket",
        path: path.to_owned(),
        source,
    })
}

/// Names the process that listens.
fn owner(channel: &Channel) -> String {
    match channel.peer_pid() {
        Ok(0) => "a process in another PID namespace".to_owned(),
        Ok(pid) => {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            format!("process {pid} {}", name.trim()).trim_end().to_owned()
        }
        Err(error) => format!("a process that cannot be told ({error})"),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[tokio::test]
    async fn the_folder_is_made_and_a_stale_socket_gives_way() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("deep/er/zds.sock");
        drop(claim(&path).expect("first"));
        assert!(path.exists(), "the file of the first listener is left");
        let _second = claim(&path).expect("second");
        Channel::connect(&path).expect("the second one listens");
    }

    #[tokio::test]
    async fn a_live_socket_is_refused_and_its_owner_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("zds.sock");
        let first = claim(&path).expect("first");
        let error = claim(&path).expect_err("in use").to_string();
        assert!(
            error.contains(&format!("process {}", std::process::id())),
            "{error}"
        );
        Channel::connect(&path).expect("the first one still listens");
        first.accept().await.expect("and accepts");
    }

    #[tokio::test]
    async fn a_live_socket_of_another_type_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("zds.sock");
        let _stream = UnixListener::bind(&path).expect("a stream socket");
        let error = claim(&path).expect_err("in use").to_string();
        assert!(error.contains("another type"), "{error}");
    }

    #[tokio::test]
    async fn what_is_no_socket_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("zds.sock");
        fs::write(&path, "precious").expect("a file");
        let error = claim(&path).expect_err("no socket");
        assert!(matches!(error, BindError::NotASocket { .. }), "{error}");
        assert_eq!(fs::read_to_string(&path).expect("still there"), "precious");
    }

    #[tokio::test]
    async fn a_path_that_is_too_long_for_a_socket_is_an_error_with_the_path() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x".repeat(120));
        let error = claim(&path).expect_err("too long").to_string();
        assert!(error.contains("listening on") && error.contains("xxx"), "{error}");
    }
}
