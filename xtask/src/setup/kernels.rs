//! Other kernels, and what boots them: from Debian's packages.

use std::process::Command;

use super::Item;
use crate::apt;
use crate::command::{ask, find_program};
use crate::kernels::{Kernel, fetch};
use crate::workspace::Workspace;

const PURPOSE: &str = "tests on other kernels than the running one";

pub(super) const QEMU: Item = Item {
    name: "qemu",
    purpose: PURPOSE,
    find: |_| {
        let missing = ["busybox", "cpio", "depmod", "xz"]
            .into_iter()
            .find(|program| find_program(program).is_none());
        match (ask(Command::new("qemu-system-x86_64").arg("--version")), missing) {
            (None, _) => Err("not found".to_owned()),
            (_, Some(program)) => Err(format!("{program} is not found")),
            (Some(version), None) => Ok(version.lines().next().unwrap_or_default().to_owned()),
        }
    },
    bring: |workspace| {
        let packages = ["qemu-system-x86", "busybox-static", "cpio", "kmod", "xz-utils"];
        apt::install(workspace, &packages)
    },
    by_hand: "install QEMU for x86-64, virtiofsd, a static busybox, cpio, kmod and xz",
};

pub(super) const LINUX_6_1: Item = Item {
    name: "Linux 6.1",
    purpose: PURPOSE,
    find: |_| find(Kernel::Linux6_1),
    bring: |workspace| bring(workspace, Kernel::Linux6_1),
    by_hand: "unpack Debian's linux-image-cloud-amd64 of bookworm and set MESHGATE_KERNEL_6_1 to the folder",
};

pub(super) const LINUX_6_12: Item = Item {
    name: "Linux 6.12",
    purpose: PURPOSE,
    find: |_| find(Kernel::Linux6_12),
    bring: |workspace| bring(workspace, Kernel::Linux6_12),
    by_hand: "unpack Debian's linux-image-cloud-amd64 of trixie and set MESHGATE_KERNEL_6_12 to the folder",
};

fn find(kernel: Kernel) -> Result<String, String> {
    kernel.kept().find().map(|folder| folder.display().to_string())
}

fn bring(workspace: &Workspace, kernel: Kernel) -> anyhow::Result<()> {
    kernel.kept().bring(|folder| fetch(workspace, kernel, folder))
}
