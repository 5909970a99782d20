//! Taking the path of a Unix socket: a leftover of an agent that died gives way, everything else does not.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use tokio::net::UnixStream;

/// Why the socket cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// There is something at the path that no agent made.
    #[error("{path} exists and is no socket: remove it, or choose another path for the socket")]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// Somebody listens there.
    #[error(
        "{path} is in use by {owner}: stop it first (another agent, or istio-cni), because a node can have one agent \
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

impl BindError {
    /// Names the operation and the path of an error of the kernel.
    pub fn io(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io {
            operation,
            path,
            source,
        }
    }
}

/// Makes way for a socket of this type at `path`: creates the folder, with `folder_mode` if it is new, and removes a
/// socket file that nobody listens on. The file of a socket stays when its listener goes; the next agent removes it.
/// Needs a running Tokio runtime.
///
/// # Errors
/// When the path is in use, or is not a socket, or the kernel refuses.
pub fn make_way(path: &Path, kind: SocketType, folder_mode: u32) -> Result<(), BindError> {
    if let Some(folder) = path.parent() {
        let mut builder = fs::DirBuilder::new();
        builder
            .recursive(true)
            .mode(folder_mode)
            .create(folder)
            .map_err(BindError::io("creating the folder of", path))?;
    }
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => remove_stale(path, kind),
        Ok(_) => Err(BindError::NotASocket {
            path: path.to_owned(),
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(BindError::io("looking at", path)(error)),
    }
}

/// Connects to a socket that listens, without waiting for room in its backlog. Needs a running Tokio runtime.
///
/// # Errors
/// What connect(2) says.
pub fn dial(path: &Path, kind: SocketType) -> io::Result<UnixStream> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, kind, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    UnixStream::from_std(socket.into())
}

/// Whether somebody listens on this socket, of whatever kind it is: one that nobody has open refuses connections.
#[must_use]
pub fn is_listened_on(path: &Path) -> bool {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let dialled = SocketAddrUnix::new(path).and_then(|address| {
        connect(
            &socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?,
            &address,
        )
    });
    matches!(dialled, Ok(()) | Err(Errno::PROTOTYPE | Errno::AGAIN))
}

/// Removes the socket file unless somebody listens on it, which only a connection attempt tells.
fn remove_stale(path: &Path, kind: SocketType) -> Result<(), BindError> {
    let in_use = |owner| {
        Err(BindError::InUse {
            path: path.to_owned(),
            owner,
        })
    };
    let error = match dial(path, kind) {
        Ok(stream) => return in_use(owner(&stream)),
        Err(error) => error,
    };
    match Errno::from_io_error(&error) {
        Some(Errno::CONNREFUSED) => {}
        Some(Errno::AGAIN) => return in_use("a process that does not accept its connections".to_owned()),
        Some(Errno::PROTOTYPE) => {
            return in_use("a process that listens with a socket of another type".to_owned());
        }
        _ => return Err(BindError::io("connecting to", path)(error)),
    }
    fs::remove_file(path).map_err(BindError::io("removing the stale socket", path))
}

/// Names the process that listens (`SO_PEERCRED`, socket(7)).
fn owner(stream: &UnixStream) -> String {
    match stream.peer_cred().map(|peer| peer.pid().unwrap_or_default()) {
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
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;

    use super::*;

    fn way(path: &Path) -> Result<(), BindError> {
        make_way(path, SocketType::STREAM, 0o750)
    }

    #[tokio::test]
    async fn the_folder_is_made_and_a_stale_socket_gives_way() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("deep/er/socket");
        way(&path).expect("a new folder");
        let mode = fs::metadata(path.parent().expect("a parent"))
            .expect("it is there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o750);
        drop(UnixListener::bind(&path).expect("first"));
        assert!(path.exists(), "the file of the first listener is left");
        way(&path).expect("nobody listens");
        let _second = UnixListener::bind(&path).expect("second");
    }

    #[tokio::test]
    async fn a_live_socket_is_refused_and_its_owner_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let first = UnixListener::bind(&path).expect("first");
        let error = way(&path).expect_err("in use").to_string();
        assert!(
            error.contains(&format!("process {}", std::process::id())),
            "{error}"
        );
        dial(&path, SocketType::STREAM).expect("the first one still listens");
        first.accept().expect("and accepts");
    }

    #[tokio::test]
    async fn a_live_socket_of_another_type_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let _stream = UnixListener::bind(&path).expect("a stream socket");
        let error = make_way(&path, SocketType::SEQPACKET, 0o755)
            .expect_err("in use")
            .to_string();
        assert!(error.contains("another type"), "{error}");
    }

    #[tokio::test]
    async fn what_is_no_socket_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        fs::write(&path, "precious").expect("a file");
        let error = way(&path).expect_err("no socket");
        assert!(matches!(error, BindError::NotASocket { .. }), "{error}");
        assert_eq!(fs::read_to_string(&path).expect("still there"), "precious");
    }
}
