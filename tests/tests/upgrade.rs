//! An agent that starts again finds what changed while it was dead, by the cluster or by somebody's hand, and puts it
//! right.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;

use agent::datapath::plan::{MAPS, NODE, PROXY};
use anyhow::{Context, Result};
use serde_json::json;
use tests::sys::bpf::Pinned;
use tests::wait::LIMIT;
use tests::{Mesh, Pins, PodSpec, requires, wait};

/// Rows of the maps that say what is captured, as bytes.
type Rows = BTreeMap<(&'static str, Vec<u8>), Vec<u8>>;

/// Where `PodName::changed` is.
const CHANGED: std::ops::Range<usize> = 392..396;

fn rows(pins: &Pins) -> Result<Rows> {
    let mut rows = Rows::new();
    for name in ["PODS", "ADDRESSES", "NAMES", "NETWORKS", "SETTINGS"] {
        let map = pins.map(name)?;
        for key in map.keys()? {
            let mut value = map.get(&key)?;
            if name == "NAMES" {
                // What was changed in the namespace is known nowhere else: it is forgotten with a lost row.
                value[CHANGED].fill(0);
            }
            rows.insert((name, key), value);
        }
    }
    Ok(rows)
}

/// Rows that are in one and not in the other, for the message of a failure.
fn difference(now: &Rows, before: &Rows) -> String {
    let only = |these: &Rows, others: &Rows| {
        let rows = these
            .iter()
            .filter(|(key, value)| others.get(*key) != Some(*value));
        rows.map(|(key, value)| format!("{key:?}: {value:?}"))
            .collect::<Vec<_>>()
    };
    format!("now: {:#?}, before: {:#?}", only(now, before), only(before, now))
}

/// Key of `ADDRESSES`: a network, and IPv4 addresses as ::ffff:a.b.c.d.
fn address(network: u32, ip: IpAddr) -> Vec<u8> {
    let octets = match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    };
    [&network.to_ne_bytes()[..], &octets].concat()
}

#[test]
fn pods_that_changed_while_the_agent_was_dead_are_put_right() -> Result<()> {
    if !requires::root("pods_that_changed_while_the_agent_was_dead_are_put_right") {
        return Ok(());
    }
    let mut mesh = Mesh::new()?;
    let _servers = mesh.serve()?;
    let ambient = |name: &str| mesh.node.pod_with(PodSpec::new(name).ambient());
    let (mut leaves, gone, moves) = (ambient("leaves")?, ambient("gone")?, ambient("moves")?);
    let mut joins = mesh.node.pod("joins")?;
    mesh.node.apply(&[&leaves, &gone, &moves, &joins])?;
    for pod in [&leaves, &gone, &moves] {
        mesh.agent.wait_for_pod_state(pod.uid(), "enabled")?;
    }
    mesh.agent.kill9();
    leaves.set_ambient(false);
    joins.set_ambient(true);
    mesh.node.delete(&gone)?;
    drop(gone);
    let new = mesh.node.pod_with(PodSpec::new("new").ambient())?;
    mesh.node.apply(&[&leaves, &joins, &new])?;
    let (old_ip, new_ip) = (moves.v4(), format!("10.{}.0.200", mesh.node.subnet()));
    moves.netns().ip(&format!("addr add {new_ip}/24 dev eth0"))?;
    let mut manifest = moves.manifest();
    manifest["status"]["podIP"] = json!(new_ip);
    manifest["status"]["podIPs"] = json!([{ "ip": new_ip }]);
    mesh.node.write(&moves.file_name(), &manifest)?;
    mesh.check()
        .context("captured pods stay so while the agent is dead")?;
    mesh.agent.restart()?;
    for pod in [&joins, &new, &moves, &mesh.client, &mesh.server] {
        mesh.agent.wait_for_pod_state(pod.uid(), "enabled")?;
    }
    mesh.agent.wait_for_pod_state(leaves.uid(), "outside")?;
    let entry = mesh.agent.cli_json(&["maps", "get", "--ip", &new_ip])?;
    assert_eq!(entry["pod"]["name"], "moves");
    let old = mesh.agent.cli(&["maps", "get", "--ip", &old_ip.to_string()])?;
    assert_eq!(old.status.code(), Some(1), "{old:?}");
    let pins = Pins::of(&mesh.node);
    for (map, entries) in [("PODS", 5), ("NAMES", 5), ("ADDRESSES", 9), ("COUNTERS", 7)] {
        assert_eq!(pins.count(map)?, entries, "{map}");
    }
    assert_eq!(pins.link_names("pod").len(), 5);
    mesh.check()
}

#[test]
fn rows_that_somebody_spoiled_are_repaired() -> Result<()> {
    if !requires::root("rows_that_somebody_spoiled_are_repaired") {
        return Ok(());
    }
    let mut mesh = Mesh::new()?;
    let _servers = mesh.serve()?;
    let pins = Pins::of(&mesh.node);
    let before = rows(&pins)?;
    let key = |cookie: u64| cookie.to_ne_bytes().to_vec();
    let (client, server) = (mesh.client.netns().cookie()?, mesh.server.netns().cookie()?);
    let nobody = |last: u8| address(0, [192, 0, 2, last].into());
    let spoil = || -> Result<()> {
        let (pods, addresses, names) = (pins.map("PODS")?, pins.map("ADDRESSES")?, pins.map("NAMES")?);
        let pod = pods.get(&key(client))?;
        let owner = |cookie: u64| -> Result<Vec<u8>> {
            Ok([&key(cookie)[..], &pods.get(&key(cookie))?[..8]].concat())
        };
        // A pod that nobody names, with an address, and a name that nobody knows.
        let mut ghost = names.get(&key(client))?;
        ghost[..5].copy_from_slice(b"ghost");
        names.put(&key(0xbeef), &ghost)?;
        addresses.put(&nobody(1), &[key(0xdead), vec![1; 8]].concat())?;
        // Addresses that are nobody's: of another generation, of both pods, in another network.
        addresses.put(&nobody(2), &[key(client), vec![1; 8]].concat())?;
        addresses.put(&nobody(3), &owner(client)?)?;
        addresses.put(&nobody(4), &owner(server)?)?;
        addresses.put(&address(7, mesh.client.v4()), &owner(client)?)?;
        // One that points elsewhere, and one that is missing.
        addresses.put(&address(0, mesh.client.v4()), &owner(server)?)?;
        addresses.remove(&address(0, mesh.client.v6()))?;
        // A pod of another generation, and a name that is lost.
        pods.put(&key(0xdead), &pod)?;
        pods.put(&key(client), &[&[9; 8], &pod[8..]].concat())?;
        names.remove(&key(server))?;
        // A second unnamed network, and one whose name is no text.
        let networks = pins.map("NETWORKS")?;
        let unnamed = networks.get(&0_u32.to_ne_bytes())?;
        networks.put(&9_u32.to_ne_bytes(), &unnamed)?;
        networks.put(&u32::MAX.to_ne_bytes(), &vec![0xff; unnamed.len()])?;
        Ok(())
    };
    mesh.agent.kill9();
    spoil()?;
    assert_ne!(rows(&pins)?, before);
    mesh.agent.restart()?;
    for pod in [&mesh.client, &mesh.server] {
        mesh.agent.wait_for_pod_state(pod.uid(), "enabled")?;
    }
    mesh.agent.wait_for("the ghost to go", |status| {
        status
            .pods
            .iter()
            .all(|pod| !pod.uid.starts_with("ghost"))
            .then_some(())
    })?;
    assert_eq!(rows(&pins)?, before);
    assert!(
        mesh.agent.log().contains("belonged to no pod"),
        "{}",
        mesh.agent.log()
    );
    mesh.check()
}

#[test]
fn links_that_somebody_detached_or_unpinned_are_made_again() -> Result<()> {
    if !requires::root("links_that_somebody_detached_or_unpinned_are_made_again") {
        return Ok(());
    }
    let mut mesh = Mesh::new()?;
    let _servers = mesh.serve()?;
    let pins = Pins::of(&mesh.node);
    let proxy = pins.link_names("proxy").pop().context("an attached proxy")?;
    let pod = mesh.server.netns().cookie()?.to_string();
    let links = [
        pins.links("node").join("app_connect4"),
        pins.links("node").join("node_sockets"),
        pins.links("proxy").join(proxy).join("proxy_getopt"),
        pins.links("pod").join(pod),
    ];
    for unpinned in [false, true] {
        mesh.agent.kill9();
        for link in &links {
            if unpinned {
                fs::remove_file(link)?;
            } else {
                Pinned::open(link)?.detach()?;
            }
        }
        let status = mesh.agent.cli(&["status"])?;
        let told = String::from_utf8_lossy(&status.stdout).into_owned();
        assert!(told.contains("app_connect4: not attached"), "{told}");
        mesh.agent.restart()?;
        for pod in [&mesh.client, &mesh.server] {
            mesh.agent.wait_for_pod_state(pod.uid(), "enabled")?;
        }
        let status = mesh.agent.cli_json(&["status"])?;
        let all = |links: &str| {
            let links = status[links].as_array().into_iter().flatten();
            links.filter(|link| link["attached"] == true).count()
        };
        assert_eq!(
            (all("node_links"), all("proxy_links")),
            (NODE.len(), PROXY.len()),
            "{status}"
        );
        mesh.check()?;
    }
    Ok(())
}

#[test]
fn pins_that_somebody_removes_beside_a_running_agent_are_made_again_at_once() -> Result<()> {
    if !requires::root("pins_that_somebody_removes_beside_a_running_agent_are_made_again_at_once") {
        return Ok(());
    }
    let mut mesh = Mesh::new()?;
    let _servers = mesh.serve()?;
    let pins = Pins::of(&mesh.node);
    let before = rows(&pins)?;
    let ids = pins.objects()?;
    let proxy = pins.link_names("proxy").pop().context("an attached proxy")?;
    let pod = mesh.server.netns().cookie()?.to_string();
    let one_by_one = [
        pins.links("node").join("app_connect4"),
        pins.links("proxy").join(proxy).join("proxy_getopt"),
        pins.links("pod").join(pod),
        pins.folder().join("maps/HANDOVER"),
    ];
    let mut repaired = 0;
    for pin in one_by_one {
        fs::remove_file(&pin)?;
        repaired += 1;
        mesh.agent.wait_for("the pin to be made again", |status| {
            (status.repairs["pins"] == repaired).then_some(())
        })?;
        wait::asking(LIMIT, "the pin", || Ok(pin.exists().then_some(())))?;
        mesh.check().with_context(|| pin.display().to_string())?;
    }
    fs::remove_dir_all(pins.folder())?;
    // Maps, links of the node, of the proxy and of two pods.
    repaired += MAPS.len() + NODE.len() + PROXY.len() + 2;
    mesh.agent.wait_for("everything to be made again", |status| {
        (status.repairs["pins"] == repaired).then_some(())
    })?;
    let now = || Ok((pins.objects()?.len() == ids.len()).then_some(()));
    wait::asking(LIMIT, "all objects", now)?;
    let now = rows(&pins)?;
    assert!(now == before, "{}", difference(&now, &before));
    mesh.check()
}

#[test]
fn maps_that_somebody_unpinned_are_made_and_filled_again() -> Result<()> {
    if !requires::root("maps_that_somebody_unpinned_are_made_and_filled_again") {
        return Ok(());
    }
    let mut mesh = Mesh::new()?;
    let _servers = mesh.serve()?;
    let pins = Pins::of(&mesh.node);
    let before = rows(&pins)?;
    for map in ["PODS", "ADDRESSES", "LISTENERS", "NAMES"] {
        mesh.agent.kill9();
        fs::remove_file(pins.folder().join("maps").join(map))?;
        mesh.agent.restart()?;
        for pod in [&mesh.client, &mesh.server] {
            mesh.agent.wait_for_pod_state(pod.uid(), "enabled")?;
        }
        let now = rows(&pins)?;
        assert!(now == before, "{map}: {}", difference(&now, &before));
        mesh.check().context(map)?;
    }
    Ok(())
}
