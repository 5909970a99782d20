//! One run of a guest: virtiofsd, which lends it this machine's files, and QEMU.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::fetch::version;
use super::initramfs;

/// Longer than the tests take, in seconds.
const LIMIT: &str = "2400";
const MEMORY: &str = "3G";
const START: Duration = Duration::from_secs(10);

/// Boots the kernel with these files and lets it carry out a script; `run` gets QEMU's command, whose output is the guest's
/// console.
pub(super) fn run<T>(
    kernel: &Path,
    script: &str,
    run: impl FnOnce(&mut Command) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let scratch = Scratch::new()?;
    let initramfs = initramfs::pack(kernel, script, &scratch.0)?;
    let share = Share::start(&scratch.0)?;
    let mut command = qemu(kernel, &initramfs, &share.socket)?;
    run(&mut command)
}

fn qemu(kernel: &Path, initramfs: &Path, share: &Path) -> anyhow::Result<Command> {
    let image = kernel.join("boot").join(format!("vmlinuz-{}", version(kernel)?));
    // virtiofs reads and writes the guest's memory, so that this must be shared.
    let memory = format!("memory-backend-memfd,id=memory,size={MEMORY},share=on");
    let mut command = Command::new("timeout");
    command
        .args(["--foreground", LIMIT, "qemu-system-x86_64"])
        .args([
            "-accel",
            "tcg,thread=multi",
            "-cpu",
            "max",
            "-smp",
            "2",
            "-m",
            MEMORY,
        ])
        .args(["-object", &memory, "-numa", "node,memdev=memory"])
        .arg("-chardev")
        .arg(format!("socket,id=share,path={}", share.display()))
        .args(["-device", "vhost-user-fs-pci,chardev=share,tag=root"])
        .arg("-kernel")
        .arg(image)
        .arg("-initrd")
        .arg(initramfs)
        .args(["-append", "console=ttyS0 quiet panic=-1"])
        .args([
            "-nodefaults",
            "-display",
            "none",
            "-serial",
            "stdio",
            "-no-reboot",
        ])
        .stdin(Stdio::null());
    Ok(command)
}

/// A folder of one run, which goes with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("meshgate-guest-{}", std::process::id()));
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// virtiofsd, while a guest runs.
struct Share {
    server: Child,
    socket: PathBuf,
}

impl Share {
    fn start(scratch: &Path) -> anyhow::Result<Self> {
        let places = ["/usr/libexec/virtiofsd", "/usr/lib/qemu/virtiofsd"];
        let program = places.into_iter().find(|path| Path::new(path).is_file());
        let socket = scratch.join("share.sock");
        let server = Command::new(program.context("no virtiofsd")?)
            .arg(format!("--socket-path={}", socket.display()))
            .args(["-o", "source=/,cache=always,sandbox=chroot", "-f"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start virtiofsd")?;
        let mut share = Self { server, socket };
        share.wait_until_open()?;
        Ok(share)
    }

    fn wait_until_open(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + START;
        while !self.socket.exists() {
            ensure!(self.server.try_wait()?.is_none(), "virtiofsd ended at once");
            ensure!(Instant::now() < deadline, "virtiofsd does not open its socket");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
