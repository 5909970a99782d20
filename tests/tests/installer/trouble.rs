//! What keeps the plugin from its place is told, with the cure, and the node is not ready meanwhile.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use serde_json::Value;
use tests::requires;

use crate::REMOVED;
use crate::scene::{Scene, data};
use crate::small_disk::SmallDisk;

#[test]
fn a_folder_that_cannot_be_written_is_told_with_its_cure_and_tried_again() -> Result<()> {
    if !requires::root("a_folder_that_cannot_be_written_is_told_with_its_cure_and_tried_again") {
        return Ok(());
    }
    let mut scene = Scene::new(&[("calico.conflist", "10-calico.conflist")], &[])?;
    scene.until_installed("10-calico.conflist")?;
    let immutable = |flag: &str| -> Result<bool> {
        Ok(Command::new("chattr")
            .arg(flag)
            .arg(&scene.conf)
            .status()
            .is_ok_and(|status| status.success()))
    };
    fs::write(scene.conf.join("10-calico.conflist"), data("calico.conflist")?)?;
    if !immutable("+i")? {
        println!(
            "SKIPPED a_folder_that_cannot_be_written_is_told_with_its_cure_and_tried_again: no chattr +i here"
        );
        return Ok(());
    }
    fs::write(scene.conf.join("10-calico.conflist"), data("calico.conflist")?)?;
    let told = scene.agent.wait_for("the folder to be told", |status| {
        let is_about = |problem: &&Value| {
            problem["problem"]
                .to_string()
                .contains("installing the CNI plugin")
        };
        status.problems.iter().find(is_about).cloned()
    });
    let freed = immutable("-i")?;
    let told = told?;
    ensure!(
        freed
            && told["object"].to_string().contains("net.d")
            && told["fix"].to_string().contains("again by itself"),
        "{told}"
    );
    scene.until_installed("10-calico.conflist")
}

/// Waits until the status tells of a full disk about a file in this folder.
fn until_full_is_told(scene: &mut Scene, folder: &str) -> Result<()> {
    let told = scene.agent.wait_for("the full disk to be told", |status| {
        let is_about = |problem: &&Value| problem["problem"].to_string().contains("No space left");
        status.problems.iter().find(is_about).cloned()
    })?;
    ensure!(
        told["object"].to_string().contains(folder)
            && told["fix"].to_string().contains("free space on the node's disk"),
        "{told}"
    );
    Ok(())
}

#[test]
fn on_a_full_disk_nothing_is_half_written_and_space_cures_it() -> Result<()> {
    if !requires::root("on_a_full_disk_nothing_is_half_written_and_space_cures_it") {
        return Ok(());
    }
    const FILE: &str = "10-calico.conflist";
    let mut scene = Scene::new(&[("calico.conflist", FILE)], &[])?;
    scene.until_installed(FILE)?;
    let theirs = data("calico.conflist")?;
    let names = |folder: &Path| -> Result<Vec<String>> {
        let entries = fs::read_dir(folder)?.flatten();
        Ok(entries
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect())
    };

    // No room for the binaries: the configuration must not name what is not there.
    scene.agent.kill9();
    fs::write(scene.conf.join(FILE), &theirs)?;
    let disk = SmallDisk::over(&scene.bin)?;
    scene.agent.spawn()?;
    until_full_is_told(&mut scene, "/bin/")?;
    assert_eq!(names(&scene.bin)?, ["filler"]);
    assert_eq!(scene.read(FILE), theirs);
    drop(disk);
    scene.until_installed(FILE)?;

    // No room for the configuration: it stays as it was, to the byte.
    scene.agent.kill9();
    fs::write(scene.conf.join(FILE), &theirs)?;
    let disk = SmallDisk::over(&scene.conf)?;
    scene.agent.spawn()?;
    until_full_is_told(&mut scene, "net.d")?;
    assert_eq!(scene.read(FILE), theirs);
    ensure!(
        names(&scene.conf)?.iter().all(|name| !name.starts_with('.')),
        "{:?}",
        names(&scene.conf)?
    );
    disk.free()?;
    scene.until_installed(FILE)?;
    scene.agent.kill9();
    Ok(())
}

#[test]
fn the_node_is_not_ready_while_runtimes_use_another_file() -> Result<()> {
    if !requires::root("the_node_is_not_ready_while_runtimes_use_another_file") {
        return Ok(());
    }
    let twice = r#"{"name": "n", "plugins": [{"type": "bridge"}], "plugins": [{"type": "bridge"}]}"#;
    let other = data("dbnet.conflist")?;
    let cases: [(&[&str], &str, &[u8], &str); 4] = [
        (
            &["--cni-conf-name", "10.conflist"],
            "10.conflist",
            other.as_bytes(),
            "sorts before",
        ),
        (
            &[
                "--istio-owned-cni-config",
                "true",
                "--cni-conf-name",
                "10.conflist",
            ],
            "02-istio-cni.conflist",
            other.as_bytes(),
            "FILENAME",
        ),
        (&[], "10.conflist", twice.as_bytes(), "stands there twice"),
        (
            &[],
            "10.conflist",
            b"{\"name\": \"\xff\", \"plugins\": [{\"type\": \"bridge\"}]}",
            "not UTF-8",
        ),
    ];
    for (flags, file, before, why) in cases {
        let mut scene = Scene::new(&[("calico.conflist", "10.conflist")], flags)?;
        scene.until_installed(file)?;
        scene.until_ready()?;
        let path = scene.conf.join("01.conflist");
        fs::write(&path, before)?;
        scene.until_not_ready(why)?;
        assert_eq!(fs::read(&path)?, before, "what is not understood is changed");
        fs::remove_file(&path)?;
        scene.until_ready()?;
    }
    Ok(())
}

#[test]
fn what_is_no_file_in_the_place_of_ours_is_told_and_harms_nothing() -> Result<()> {
    if !requires::root("what_is_no_file_in_the_place_of_ours_is_told_and_harms_nothing") {
        return Ok(());
    }
    const FILE: &str = "02-istio-cni.conflist";
    let flags = [&["--istio-owned-cni-config", "true"][..], &REMOVED].concat();
    let mut scene = Scene::new(&[("calico.conflist", "10-calico.conflist")], &flags)?;
    scene.until_installed(FILE)?;
    // Where the unfinished file would be written.
    let fifo = |path: &Path| -> Result<()> {
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0)?;
        Ok(())
    };
    fifo(&scene.conf.join(format!(".{FILE}.meshgate-tmp")))?;
    fs::remove_file(scene.conf.join(FILE))?;
    scene.until_installed(FILE)?;
    // In its place: with a name and the cure, until it goes.
    fs::remove_file(scene.conf.join(FILE))?;
    std::os::unix::fs::symlink("nowhere", scene.conf.join(FILE))?;
    scene.until_not_ready("in its place: remove that")?;
    fs::remove_file(scene.conf.join(FILE))?;
    scene.until_installed(FILE)?;
    // A FIFO has no end, and must not hold up the end of the agent.
    fs::remove_file(scene.bin.join("istio-cni"))?;
    fifo(&scene.bin.join("istio-cni"))?;
    scene.agent.stop()?;
    ensure!(!scene.conf.join(FILE).exists(), "our file is left");
    Ok(())
}
