//! The installer on a real folder of CNI configurations: an agent that runs, other programs that write there, and what is
//! left when it goes.

mod scene;
mod small_disk;
mod trouble;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tests::moments::Moments;
use tests::{requires, wait};

use crate::scene::{DATA, Scene, data, types};

const REMOVED: [&str; 2] = ["--disable-safe-upgrade", "true"];

#[test]
fn the_right_file_gets_the_plugin_keeps_it_and_is_as_before_after_removal() -> Result<()> {
    if !requires::root("the_right_file_gets_the_plugin_keeps_it_and_is_as_before_after_removal") {
        return Ok(());
    }
    type Case<'a> = (&'a [(&'a str, &'a str)], Option<&'a str>, &'a str);
    let bad = [
        ("not-json.conf", "00-a.conf"),
        ("bridge-no-type.conf", "01-b.conf"),
        ("no-name.conflist", "02-c.conflist"),
    ];
    let cases: [Case<'_>; 9] = [
        (
            &[("calico.conflist", "00-calico.conflist")],
            Some("00-calico.conflist"),
            "00-calico.conflist",
        ),
        (
            &[("bridge.conf", "00-bridge.conf")],
            Some("00-bridge.conf"),
            "00-bridge.conflist",
        ),
        (
            &[
                ("calico.conflist", "00-calico.conflist"),
                ("dbnet.conflist", "01.conflist"),
            ],
            None,
            "00-calico.conflist",
        ),
        (
            &[
                ("bridge.conf", "00-bridge.conf"),
                ("calico.conflist", "01.conflist"),
            ],
            None,
            "00-bridge.conflist",
        ),
        (
            &[bad[0], bad[1], bad[2], ("dbnet.conflist", "03-dbnet.conflist")],
            None,
            "03-dbnet.conflist",
        ),
        (
            &[
                ("misspelt-plugins.conflist", "00.conflist"),
                ("bridge.conf", "01.conf"),
            ],
            None,
            "01.conflist",
        ),
        (
            &[
                ("empty-map.conflist", "00.conflist"),
                ("empty-list.conflist", "01.conflist"),
                ("no-version.conflist", "02.conflist"),
            ],
            None,
            "02.conflist",
        ),
        (
            &[("calico.conflist", "00-calico.conflist")],
            Some("00-calico.conf"),
            "00-calico.conflist",
        ),
        (
            &[("bridge.conf", "00-bridge.conf")],
            Some("00-bridge.conflist"),
            "00-bridge.conflist",
        ),
    ];
    for (files, named, expected) in cases {
        let named: Vec<&str> = named
            .into_iter()
            .flat_map(|name| ["--cni-conf-name", name])
            .collect();
        let mut scene = Scene::new(files, &[&named[..], &REMOVED[..]].concat())?;
        let told = |error: anyhow::Error| error.context(format!("{files:?}: {expected}"));
        scene.until_installed(expected).map_err(told)?;
        for binary in ["meshgate-cni", "istio-cni"] {
            ensure!(scene.bin.join(binary).is_file(), "{binary} is missing");
        }
        // Another program takes it out.
        let others: Vec<&(&str, &str)> = files.iter().filter(|(_, name)| *name == expected).collect();
        if let [(original, _)] = others[..] {
            fs::write(scene.conf.join(expected), data(original)?)?;
            scene.until_installed(expected)?;
            scene.remove()?;
            assert_eq!(scene.read(expected), data(original)?, "{expected}");
        } else {
            scene.remove()?;
            assert_eq!(types(&scene.read(expected)), ["bridge"], "{expected}");
        }
        for (bad, name) in bad.iter().filter(|bad| files.contains(bad)) {
            assert_eq!(scene.read(name), data(bad)?, "{bad} was changed");
        }
    }
    Ok(())
}

#[test]
fn a_file_that_comes_later_is_waited_for_and_the_node_is_not_ready_before() -> Result<()> {
    if !requires::root("a_file_that_comes_later_is_waited_for_and_the_node_is_not_ready_before") {
        return Ok(());
    }
    for (named, file, installed) in [
        (&[][..], "10-calico.conflist", "10-calico.conflist"),
        (
            &["--cni-conf-name", "missing.conf"][..],
            "missing.conf",
            "missing.conflist",
        ),
    ] {
        let mut scene = Scene::new(&[("not-json.conf", "00.conf")], named)?;
        scene
            .agent
            .wait_for("the missing configuration to be told", |status| {
                status
                    .problems
                    .iter()
                    .any(|problem| problem["problem"].to_string().contains("waits for"))
                    .then_some(())
            })?;
        let source = if file.ends_with(".conf") {
            "bridge.conf"
        } else {
            "calico.conflist"
        };
        fs::copy(Path::new(DATA).join(source), scene.conf.join(file))?;
        scene.until_installed(installed)?;
        scene.agent.wait_for("the problem to be over", |status| {
            status.problems.is_empty().then_some(())
        })?;
    }
    Ok(())
}

#[test]
fn files_of_our_own_are_made_again_and_go_with_the_agent() -> Result<()> {
    if !requires::root("files_of_our_own_are_made_again_and_go_with_the_agent") {
        return Ok(());
    }
    for (flags, file) in [
        (&["--chained-cni-plugin", "false"][..], "YYY-istio-cni.conf"),
        (
            &["--chained-cni-plugin", "false", "--cni-conf-name", "own.conf"][..],
            "own.conf",
        ),
        (&["--istio-owned-cni-config", "true"][..], "02-istio-cni.conflist"),
    ] {
        let mut scene = Scene::new(
            &[("calico.conflist", "10-calico.conflist")],
            &[flags, &REMOVED[..]].concat(),
        )?;
        scene.until_installed(file)?;
        fs::remove_file(scene.conf.join(file))?;
        scene.until_installed(file)?;
        scene.remove()?;
        ensure!(!scene.conf.join(file).exists(), "{file} is left");
        assert_eq!(
            scene.read("10-calico.conflist"),
            data("calico.conflist")?,
            "{file}"
        );
    }
    Ok(())
}

#[test]
fn an_agent_of_istio_is_followed_and_an_upgrade_leaves_the_plugin() -> Result<()> {
    if !requires::root("an_agent_of_istio_is_followed_and_an_upgrade_leaves_the_plugin") {
        return Ok(());
    }
    let mut scene = Scene::new(&[("calico.conflist", "10-calico.conflist")], &[])?;
    let mut list: Value = serde_json::from_str(&data("calico.conflist")?)?;
    let istio = serde_json::json!({ "type": "istio-cni", "ambient_enabled": true });
    list["plugins"].as_array_mut().context("plugins")?.push(istio);
    fs::write(scene.conf.join("10-calico.conflist"), list.to_string())?;
    scene.until("10-calico.conflist", "ours instead of Istio's", |text| {
        types(text) == ["calico", "portmap", "meshgate-cni"]
    })?;
    ensure!(scene.agent.stop()?.success(), "{}", scene.agent.log());
    ensure!(
        scene.read("10-calico.conflist").contains("meshgate-cni"),
        "an upgrade opens the node"
    );
    let foreign = scene.bin.join("istio-cni");
    fs::write(&foreign, "Istio's own")?;
    let place = ["--mounted-cni-net-dir", "--cni-bin-target"];
    let paths = [&scene.conf, &scene.bin].map(|path| path.display().to_string());
    let cleaned = scene
        .agent
        .cli_json(&["cleanup", place[0], &paths[0], place[1], &paths[1]])?;
    assert_eq!(cleaned["left"], serde_json::json!([]), "{cleaned}");
    assert_eq!(types(&scene.read("10-calico.conflist")), ["calico", "portmap"]);
    ensure!(
        foreign.exists() && !scene.bin.join("meshgate-cni").exists(),
        "{cleaned}"
    );
    Ok(())
}

#[test]
fn no_change_of_another_program_is_lost_and_a_quarrel_costs_little() -> Result<()> {
    if !requires::root("no_change_of_another_program_is_lost_and_a_quarrel_costs_little") {
        return Ok(());
    }
    let mut scene = Scene::new(&[("calico.conflist", "10-calico.conflist")], &[])?;
    scene.until_installed("10-calico.conflist")?;
    let (path, other) = (scene.conf.join("10-calico.conflist"), scene.conf.join("other"));
    let agent = scene.agent.id().context("no agent")?;
    let (start, before) = (Instant::now(), cpu(agent)?);
    let (mut written, mut moments) = (0, Moments::new(7));
    // As another installer writes: a whole file, renamed into place, without our plugin.
    while start.elapsed() < Duration::from_secs(6) {
        written += 1;
        let mut list: Value = serde_json::from_str(&data("calico.conflist")?)?;
        list["written"] = written.into();
        fs::write(&other, list.to_string())?;
        fs::rename(&other, &path)?;
        moments.pass(Duration::from_millis(40));
    }
    let share = (cpu(agent)? - before).as_secs_f64() / start.elapsed().as_secs_f64();
    scene.until("10-calico.conflist", "the last change and our plugin", |text| {
        let list: Value = serde_json::from_str(text).unwrap_or_default();
        list["written"] == written && types(text).last().is_some_and(|last| last == "meshgate-cni")
    })?;
    scene.until_not_ready("another program repeatedly takes the CNI plugin out")?;
    scene.until_ready()?;
    eprintln!("{written} rewrites, {:.1} % of a processor", share * 100.0);
    ensure!(share < 0.2, "{written} rewrites cost {share}");
    Ok(())
}

/// Processor time of a process, user and kernel.
fn cpu(pid: u32) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .context("stat")?
        .split_whitespace()
        .collect();
    let ticks: u64 = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
    Ok(Duration::from_millis(ticks * 10))
}

#[test]
fn an_agent_that_is_killed_at_any_moment_leaves_a_whole_file() -> Result<()> {
    if !requires::root("an_agent_that_is_killed_at_any_moment_leaves_a_whole_file") {
        return Ok(());
    }
    let mut scene = Scene::new(&[("calico.conflist", "10-calico.conflist")], &[])?;
    scene.until_installed("10-calico.conflist")?;
    let mut moments = Moments::new(11);
    for _ in 0..8 {
        scene.agent.kill9();
        fs::write(scene.conf.join("10-calico.conflist"), data("calico.conflist")?)?;
        scene.agent.spawn()?;
        moments.pass(Duration::from_millis(200));
        scene.agent.kill9();
        let found = types(&scene.read("10-calico.conflist"));
        ensure!(
            found.starts_with(&["calico".to_owned(), "portmap".to_owned()]),
            "{found:?}"
        );
    }
    scene.agent.restart()?;
    scene.until_installed("10-calico.conflist")?;
    // What the exchange has brought back goes a moment after it.
    wait::for_file(&scene.conf.join("any"), None, "nothing unfinished", || {
        let mut entries = fs::read_dir(&scene.conf)?.flatten();
        let is_left = entries.any(|entry| entry.file_name().to_string_lossy().starts_with('.'));
        Ok((!is_left).then_some(()))
    })
}
