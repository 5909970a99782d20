//! Real resolvers ask: glibc's, musl's, Go's, and dig, which complains of answers from elsewhere.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};
use tempfile::TempDir;
use tests::dns::{MANY, Zone};
use tests::requires;

use crate::scene::Scene;

/// The sources of the resolvers that are built.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/resolvers");

/// Runs a program of the client with these name servers in its `/etc/resolv.conf`; what it printed.
fn run(scene: &Scene, servers: &[&str], program: &[&str]) -> Result<String> {
    let file = scene.node.run_dir().join("resolv.conf");
    let lines = servers.iter().map(|server| format!("nameserver {server}\n"));
    fs::write(
        &file,
        lines.collect::<String>() + "options timeout:2 attempts:1\n",
    )?;
    let script = format!("mount --bind {} /etc/resolv.conf && exec \"$@\"", file.display());
    let words = [&["--mount", "sh", "-c", &script, "sh"], program].concat();
    let output = scene.client.exec("unshare", &words)?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success(),
        "{program:?} with {servers:?}: {printed}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(printed)
}

/// Runs a compiler in the folder of the sources.
fn compile(program: &str, arguments: &[&str], to: &Path) -> Result<()> {
    let mut compiler = Command::new(program);
    compiler.args(arguments).arg("-o").arg(to).current_dir(SOURCES);
    compiler.envs([("CGO_ENABLED", "0"), ("GOTOOLCHAIN", "local"), ("GOWORK", "off")]);
    tests::netns::run(&mut compiler)
}

/// The name servers that the client is given, alone and together.
fn name_servers(scene: &Scene) -> Vec<Vec<String>> {
    let (v4, v6) = (scene.outside.v4().to_string(), scene.outside.v6().to_string());
    let x = scene.node.subnet();
    vec![
        vec![v4.clone()],
        vec![v6.clone()],
        // Only the proxy answers in the name of the first two.
        vec![format!("10.{x}.9.1"), format!("10.{x}.9.2"), v4],
        vec![format!("fd00:{x}::9:1"), format!("10.{x}.9.1"), v6],
    ]
}

/// A name of the mesh is answered by the proxy, another by whom the proxy asks, whatever the name servers.
fn both_kinds_of_names_are_found(scene: &Scene, program: &[&str]) -> Result<()> {
    for servers in name_servers(scene) {
        let servers: Vec<&str> = servers.iter().map(String::as_str).collect();
        let before = scene.servers.asked().len();
        for (name, zone) in [("web.mesh.test", Zone::MESH), ("example.test", Zone::OUTSIDE)] {
            let printed = run(scene, &servers, &[program, &[name]].concat())?;
            for address in [zone.v4.to_string(), zone.v6.to_string()] {
                ensure!(
                    printed.contains(&address),
                    "{program:?} {servers:?} {name}: {printed}"
                );
            }
        }
        let asked = scene.servers.asked().split_off(before);
        ensure!(!asked.is_empty(), "{program:?}: the proxy asked nobody");
        for (from, name) in asked {
            ensure!(
                name == "example.test" && from.ip() == scene.client.v4(),
                "{name} from {from}"
            );
        }
    }
    Ok(())
}

/// Lines with the address of the name that has many.
fn many(printed: &str) -> usize {
    let address = Zone::MESH.v4.to_string();
    printed.lines().filter(|line| line.contains(&address)).count()
}

#[test]
fn glibc_finds_names() -> Result<()> {
    let test = "glibc_finds_names";
    if !requires::root(test) || !requires::command(test, "getent") {
        return Ok(());
    }
    let scene = Scene::new(None, "true")?;
    both_kinds_of_names_are_found(&scene, &["getent", "ahosts"])?;
    let server = scene.outside.v4().to_string();
    // The same address many times over; what counts is that the long answer came at all.
    let printed = run(&scene, &[&server], &["getent", "ahostsv4", "big.mesh.test"])?;
    ensure!(many(&printed) > 0, "{printed}");
    Ok(())
}

#[test]
fn musl_finds_names_by_one_socket_for_all_servers() -> Result<()> {
    let test = "musl_finds_names_by_one_socket_for_all_servers";
    if !requires::root(test) || !requires::command(test, "musl-gcc") {
        return Ok(());
    }
    let folder = TempDir::new()?;
    let lookup = folder.path().join("lookup");
    compile("musl-gcc", &["-static", "-Os", "lookup.c"], &lookup)?;
    let scene = Scene::new(None, "true")?;
    both_kinds_of_names_are_found(&scene, &[&lookup.to_string_lossy()])
}

#[test]
fn go_finds_names_and_services() -> Result<()> {
    let test = "go_finds_names_and_services";
    if !requires::root(test) || !requires::command(test, "go") {
        return Ok(());
    }
    let folder = TempDir::new()?;
    let lookup: PathBuf = folder.path().join("lookup");
    compile("go", &["build", "-trimpath"], &lookup)?;
    let lookup = lookup.to_string_lossy().into_owned();
    let scene = Scene::new(None, "true")?;
    both_kinds_of_names_are_found(&scene, &[&lookup])?;
    let server = scene.outside.v6().to_string();
    let printed = run(&scene, &[&server], &[&lookup, "srv", "_http._tcp.web.mesh.test"])?;
    ensure!(printed.trim() == "web.mesh.test.:8080", "{printed}");
    let printed = run(&scene, &[&server], &[&lookup, "big.mesh.test"])?;
    ensure!(many(&printed) > 0, "{printed}");
    Ok(())
}

#[test]
fn dig_believes_the_answers() -> Result<()> {
    let test = "dig_believes_the_answers";
    if !requires::root(test) || !requires::command(test, "dig") {
        return Ok(());
    }
    let scene = Scene::new(None, "true")?;
    for ip in scene.outside.ips() {
        let at = format!("@{ip}");
        let server = format!("SERVER: {ip}#53");
        let own = SocketAddr::new(
            if ip.is_ipv4() {
                scene.client.v4()
            } else {
                scene.client.v6()
            },
            0,
        );
        let own = own.ip().to_string();
        for more in [&[] as &[&str], &["+tcp"], &["-b", &own]] {
            let printed = run(&scene, &[], &[&["dig", &at, "web.mesh.test"], more].concat())?;
            ensure!(
                printed.contains(&server) && many(&printed) == 1 && !printed.contains("unexpected"),
                "{more:?}: {printed}"
            );
        }
        let printed = run(&scene, &[], &["dig", &at, "+bufsize=1232", "big.mesh.test"])?;
        ensure!(many(&printed) == MANY && printed.contains("(TCP)"), "{printed}");
        let printed = run(
            &scene,
            &[],
            &["dig", &at, "+short", "srv", "_http._tcp.web.mesh.test"],
        )?;
        ensure!(printed.trim() == "0 0 8080 web.mesh.test.", "{printed}");
    }
    Ok(())
}
