//! Network namespaces and cgroups for tests, removed on drop.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Ends the test, loudly, when it does not run as root.
macro_rules! needs_root {
    () => {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: needs root");
            return;
        }
    };
}
pub(crate) use needs_root;

/// A process in a network namespace; both live until the drop.
pub(crate) struct TestNetns {
    child: Child,
    pub(crate) fd: File,
}

impl TestNetns {
    /// A new namespace with these addresses on `lo`.
    pub(crate) fn new(addresses: &[&str]) -> Self {
        let mut script = "ip link set lo up && ".to_owned();
        for address in addresses {
            script += &format!("ip address add {address} dev lo && ");
        }
        Self::run(Command::new("unshare").args(["--net", "sh", "-c", &(script + "echo ready && exec cat")]))
    }

    /// A process in the node's own namespace.
    pub(crate) fn of_the_node() -> Self {
        Self::run(Command::new("sh").args(["-c", "echo ready && exec cat"]))
    }

    fn run(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert_eq!(line, "ready\n", "the namespace could not be set up");
        let fd = File::open(format!("/proc/{}/ns/net", child.id())).unwrap();
        Self { child, fd }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for TestNetns {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A folder in the cgroup v2 tree. Make it before the processes that go into it, so that they end before it.
pub(crate) struct TestCgroup(PathBuf);

impl TestCgroup {
    pub(crate) fn new(name: &str) -> Self {
        let folder = cgroup2_mount().join(format!("meshgate-test-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Moves a process to a folder below.
    pub(crate) fn add(&self, folder: &str, pid: u32) {
        let folder = self.0.join(folder);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("cgroup.procs"), pid.to_string()).unwrap();
    }
}

impl Drop for TestCgroup {
    fn drop(&mut self) {
        remove_with_folders_below(&self.0);
    }
}

fn remove_with_folders_below(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_with_folders_below(&entry.path());
        }
    }
    let _ = fs::remove_dir(folder);
}

fn cgroup2_mount() -> PathBuf {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let mut fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let mount = fields
        .find(|fields| fields[2] == "cgroup2")
        .expect("a cgroup2 mount");
    PathBuf::from(mount[1])
}
