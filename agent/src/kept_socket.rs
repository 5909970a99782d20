//! A Unix socket that listens and stays: when its file goes, or another takes the place, the socket is opened again. Who
//! connects finds an agent by nothing but that file.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::inotify::WatchFlags;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use tokio::net::{UnixListener, UnixStream};

use crate::inotify::Inotify;
use crate::socket_file::{BindError, make_way};

/// Connections that wait for `accept`: more than a node has pods.
const BACKLOG: i32 = 1024;
/// Pause after a try that failed: who is in the way goes without telling.
const RETRY: Duration = Duration::from_secs(1);
/// What may take the file away, or the folder.
const CHANGES: WatchFlags = WatchFlags::DELETE
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR);

/// Where a socket is, and of what kind.
#[derive(Clone, Debug)]
pub struct Place {
    /// Path of its file.
    pub path: PathBuf,
    /// Stream or packets.
    pub kind: SocketType,
    /// Mode of its folder, if that is new.
    pub folder_mode: u32,
    /// Mode of its file; `None`: what the umask leaves.
    pub mode: Option<u32>,
}

/// Is told what keeps the socket from being open, and `None` when it is open again.
pub type Tell = Box<dyn Fn(Option<&str>) + Send + Sync>;

/// The socket.
pub struct KeptSocket {
    place: Place,
    open: Open,
    /// The file is not that of the socket any more.
    is_lost: bool,
    tell: Tell,
}

/// A socket and its file, as they were made.
struct Open {
    listener: UnixListener,
    /// Device and inode.
    file: (u64, u64),
    changes: Inotify,
}

impl fmt::Debug for KeptSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptSocket")
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

impl KeptSocket {
    /// Opens it; who connects waits for [`KeptSocket::accept`]. Needs a running Tokio runtime.
    ///
    /// # Errors
    /// When the path is in use, by istio-cni for example, or cannot be used.
    pub fn bind(place: Place, tell: Tell) -> Result<Self, BindError> {
        let open = Open::new(&place)?;
        tell(None);
        Ok(Self {
            place,
            open,
            is_lost: false,
            tell,
        })
    }

    /// The next connection. Safe to cancel.
    ///
    /// # Errors
    /// What accept(2) says: a lack of descriptors or memory.
    pub async fn accept(&mut self) -> io::Result<UnixStream> {
        loop {
            if self.is_lost {
                self.open_again().await;
            }
            let Open {
                listener,
                file,
                changes,
            } = &self.open;
            tokio::select! {
                accepted = listener.accept() => return accepted.map(|(stream, _)| stream),
                changed = changes.changes(|_| ()) => {
                    changed?;
                    self.is_lost = identity(&self.place.path).ok() != Some(*file);
                }
            }
        }
    }

    async fn open_again(&mut self) {
        let path = self.place.path.display();
        tracing::warn!(socket = %path, "the file of a socket that is in use was removed: the socket is opened again");
        loop {
            match Open::new(&self.place) {
                Ok(open) => {
                    self.open = open;
                    self.is_lost = false;
                    (self.tell)(None);
                    tracing::info!(socket = %path, "the socket is open again");
                    return;
                }
                Err(error) => (self.tell)(Some(&error.to_string())),
            }
            tokio::time::sleep(RETRY).await;
        }
    }
}

impl Open {
    fn new(place: &Place) -> Result<Self, BindError> {
        let Place {
            path,
            kind,
            folder_mode,
            mode,
        } = place;
        make_way(path, *kind, *folder_mode)?;
        let listening = BindError::io("listening on", path);
        let listener = listen_on(path, *kind).map_err(listening)?;
        if let Some(mode) = mode {
            fs::set_permissions(path, fs::Permissions::from_mode(*mode))
                .map_err(BindError::io("setting the mode of", path))?;
        }
        let watching = BindError::io("watching the folder of", path);
        let changes = watch(path).map_err(watching)?;
        // After the watch began, so that nothing is missed in between.
        let file = identity(path).map_err(BindError::io("looking at", path))?;
        Ok(Self {
            listener,
            file,
            changes,
        })
    }
}

fn listen_on(path: &Path, kind: SocketType) -> io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, kind, flags, None)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, BACKLOG)?;
    UnixListener::from_std(socket.into())
}

fn watch(path: &Path) -> io::Result<Inotify> {
    let inotify = Inotify::new()?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    inotify.watch(folder.unwrap_or(Path::new(".")), CHANGES)?;
    Ok(inotify)
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let file = fs::symlink_metadata(path)?;
    Ok((file.dev(), file.ino()))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::socket_file::dial;

    fn place(path: &Path) -> Place {
        Place {
            path: path.to_owned(),
            kind: SocketType::SEQPACKET,
            folder_mode: 0o750,
            mode: Some(0o600),
        }
    }

    #[tokio::test]
    async fn it_is_open_again_when_its_file_its_folder_or_its_place_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        let path = run.join("socket");
        let mut socket = KeptSocket::bind(place(&path), Box::new(|_| ())).unwrap();
        type Harm<'a> = &'a dyn Fn() -> io::Result<()>;
        let harms: [(&str, Harm<'_>); 4] = [
            ("nothing", &|| Ok(())),
            ("its file", &|| fs::remove_file(&path)),
            ("its folder", &|| fs::remove_dir_all(&run)),
            ("its folder moved", &|| {
                fs::rename(&run, folder.path().join("elsewhere"))
            }),
        ];
        for (what, harm) in harms {
            harm().unwrap();
            // The first look finds the change, if there is one.
            let accepted = tokio::join!(socket.accept(), async {
                until(|| dial(&path, SocketType::SEQPACKET).ok()).await
            });
            accepted.0.unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600, "{what}");
        }
    }

    #[tokio::test]
    async fn who_takes_its_place_is_told_until_that_is_free() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let told: Arc<Mutex<Option<String>>> = Arc::default();
        let tell = {
            let told = told.clone();
            Box::new(move |trouble: Option<&str>| *told.lock().unwrap() = trouble.map(str::to_owned))
        };
        let mut socket = KeptSocket::bind(place(&path), tell).unwrap();
        fs::rename(&path, folder.path().join("aside")).unwrap();
        let other = listen_on(&path, SocketType::SEQPACKET).unwrap();
        let reopened = tokio::spawn(async move { socket.accept().await.map(drop) });
        let trouble = until(|| told.lock().unwrap().clone()).await;
        assert!(trouble.contains("in use by process"), "{trouble}");
        drop(other);
        let _connected = until(|| dial(&path, SocketType::SEQPACKET).ok()).await;
        reopened.await.unwrap().unwrap();
        assert_eq!(*told.lock().unwrap(), None);
    }

    /// Asks again until there is an answer.
    async fn until<T>(mut ask: impl FnMut() -> Option<T>) -> T {
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(answer) = ask() {
                return answer;
            }
            assert!(std::time::Instant::now() < deadline, "waited 20 s");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
