//! A node for tests: a server on a socket of its own, pods, and a proc file system that knows this process.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agent_core::ids::{PodRef, PodUid};
use futures::FutureExt;
use tempfile::TempDir;
use tokio::sync::broadcast;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::ports::{PortError, Proxy, Workload};
use crate::zds::{Config, Event, OnConnect, Pace, Zds};

/// Longer than anything takes, shorter than the patience of who runs the tests.
const PATIENCE: Duration = Duration::from_secs(60);

/// The server and what surrounds it.
pub(super) struct Node {
    pub(super) zds: Zds,
    pub(super) events: broadcast::Receiver<Event>,
    folder: TempDir,
}

impl Node {
    /// A server whose gate is open.
    pub(super) fn start() -> Self {
        let node = Self::start_closed(Box::new(|_| async { Ok(()) }.boxed()));
        node.zds.open_gate();
        node
    }

    /// A server whose gate is closed, with a hook.
    pub(super) fn start_closed(on_connect: OnConnect) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let process = folder.path().join("proc").join(std::process::id().to_string());
        fs::create_dir_all(&process).expect("a process");
        fs::write(process.join("cgroup"), "0::/kubepods/ztunnel\n").expect("its cgroup");
        let config = Config {
            socket: folder.path().join("ztunnel.sock"),
            proc_root: folder.path().join("proc"),
            cgroup_root: PathBuf::from("/cg"),
            pace: Pace {
                burst: 10_000,
                per_second: 10_000.0,
            },
        };
        let zds = Zds::bind(config, on_connect, Box::new(|_| ())).expect("a server");
        Self {
            events: zds.events(),
            zds,
            folder,
        }
    }

    /// Drops the handle; the folder lives on.
    pub(super) fn close(self) -> TempDir {
        self.folder
    }

    /// Path of the socket.
    pub(super) fn socket(&self) -> PathBuf {
        self.folder.path().join("ztunnel.sock")
    }

    /// Makes the node forget that this process exists.
    pub(super) fn hide_this_process(&self) {
        fs::remove_dir_all(self.folder.path().join("proc")).expect("removed");
    }

    /// A descriptor that stands for a network namespace, with an inode of its own.
    pub(super) fn netns(&self) -> Arc<OwnedFd> {
        Arc::new(tempfile::tempfile_in(self.folder.path()).expect("a file").into())
    }

    /// Adds pod `uid` with a namespace, and returns what becomes of it.
    pub(super) async fn add(&self, uid: &str) -> Result<(), PortError> {
        in_time(self.zds.add(workload(uid), Some(self.netns()))).await
    }

    /// Adds a pod in a task of its own.
    pub(super) fn spawn_add(&self, uid: &str) -> Call {
        let (zds, pod, netns) = (self.zds.clone(), workload(uid), self.netns());
        Call(tokio::spawn(async move { zds.add(pod, Some(netns)).await }))
    }

    /// Deletes a pod in a task of its own.
    pub(super) fn spawn_del(&self, uid: &str) -> Call {
        let (zds, uid) = (self.zds.clone(), PodUid::from(uid));
        Call(tokio::spawn(async move { zds.del(&uid).await }))
    }

    /// Waits until so many connections are listed, greeting ones too.
    pub(super) async fn connections(&self, number: usize) {
        in_time(async {
            while self.zds.connections().len() != number {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    /// Remembers pods while nobody is connected.
    pub(super) async fn remember(&self, uids: &[&str]) {
        for uid in uids {
            self.add(uid).await.expect_err("nobody is connected");
        }
    }

    /// The next event.
    pub(super) async fn event(&mut self) -> Event {
        in_time(self.events.recv()).await.expect("an event")
    }

    /// Waits until a snapshot is done; returns its generation and what was refused.
    pub(super) async fn snapshot_done(&mut self) -> (u64, Vec<(PodUid, String)>) {
        loop {
            if let Event::SnapshotDone { generation, refused } = self.event().await {
                return (generation, refused);
            }
        }
    }

    /// Waits until a connection is over; returns its generation.
    pub(super) async fn disconnected(&mut self) -> u64 {
        loop {
            if let Event::Disconnected { generation, .. } = self.event().await {
                return generation;
            }
        }
    }
}

/// A call that is under way.
pub(super) struct Call(JoinHandle<Result<(), PortError>>);

impl Call {
    /// Whether it has returned.
    pub(super) fn is_over(&self) -> bool {
        self.0.is_finished()
    }

    /// What becomes of it.
    pub(super) async fn outcome(self) -> Result<(), PortError> {
        in_time(self.0).await.expect("no panic")
    }
}

/// Fails, rather than to wait for ever.
pub(super) async fn in_time<T>(work: impl Future<Output = T>) -> T {
    timeout(PATIENCE, work).await.expect("not in time")
}

/// Measures a deadline with Tokio's clock, which stands still from a moment on and then jumps to the next deadline
/// whenever all tasks wait. What happens before that moment takes true time, which a busy machine makes long.
pub(super) struct StoppedClock {
    before: Instant,
    stopped: Instant,
}

impl StoppedClock {
    /// Stops the clock now; what is measured began after `before`.
    pub(super) fn since(before: Instant) -> Self {
        tokio::time::pause();
        Self {
            before,
            stopped: Instant::now(),
        }
    }

    /// Fails unless the deadline that has just passed was one of `seconds`.
    pub(super) fn assert_passed(&self, seconds: u64) {
        let deadline = Duration::from_secs(seconds);
        assert!(self.before.elapsed() >= deadline, "too early");
        let rounding = Duration::from_millis(2);
        assert!(self.stopped.elapsed() <= deadline + rounding, "too late");
    }
}

/// A pod of this UID.
pub(super) fn workload(uid: &str) -> Workload {
    let pod = PodRef {
        uid: PodUid::from(uid),
        namespace: "shop".to_owned(),
        name: format!("pod-{uid}"),
    };
    Workload {
        pod,
        service_account: "seller".to_owned(),
    }
}

/// Which file a descriptor is of.
pub(super) fn inode(descriptor: impl AsFd) -> u64 {
    rustix::fs::fstat(descriptor).expect("a descriptor").st_ino
}
