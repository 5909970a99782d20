//! `cleanup` leaves nothing behind, and neither it nor a second agent works beside an agent that runs.

use anyhow::Result;
use tests::process::said;
use tests::sys::bpf::exists;
use tests::{Mesh, Pins, requires};

#[test]
fn a_second_agent_and_a_cleanup_beside_an_agent_are_refused() -> Result<()> {
    if !requires::root("a_second_agent_and_a_cleanup_beside_an_agent_are_refused") {
        return Ok(());
    }
    let mesh = Mesh::new()?;
    let _servers = mesh.serve()?;
    let mut second = mesh.agent.command()?;
    second
        .args(mesh.agent.arguments(&["run"]))
        .args(mesh.agent.run_flags());
    for output in [second.output()?, mesh.agent.cli(&["cleanup"])?] {
        let (code, out, err) = said(&output);
        assert_eq!((code, out.as_str()), (Some(1), ""), "{err}");
        assert!(err.contains("another agent is running"), "{err}");
    }
    mesh.check()
}

#[test]
fn cleanup_leaves_nothing_in_the_kernel_and_works_twice() -> Result<()> {
    if !requires::root("cleanup_leaves_nothing_in_the_kernel_and_works_twice") {
        return Ok(());
    }
    let mut mesh = Mesh::new()?;
    let _servers = mesh.serve()?;
    mesh.check()?;
    let pins = Pins::of(&mesh.node);
    let objects = pins.objects()?;
    // 10 maps; 9 links at the node's root, 7 at the proxy's, 2 of pods, and their programs.
    assert_eq!(objects.len(), 10 + 2 * (9 + 7 + 2), "{objects:?}");
    assert!(mesh.agent.stop()?.success());
    let (code, out, err) = mesh.agent.said(&["cleanup"])?;
    assert_eq!(code, Some(0), "{out}{err}");
    for (kind, id) in objects {
        assert!(!exists(kind, id)?, "{kind:?} {id} is left");
    }
    assert!(!mesh.node.bpffs().join("meshgate").exists());
    assert!(!mesh.agent.run_dir().join("status.json").exists());
    let direct = mesh
        .client
        .load(&["connect", &format!("{}:8080", mesh.outside.v4()), "--no-read"])?;
    assert_eq!(direct["connect"], "ok");
    assert_eq!(
        mesh.proxy.connections()?.len(),
        400,
        "the proxy is not passed any more"
    );
    assert_eq!(mesh.agent.said(&["cleanup"])?.0, Some(0));
    Ok(())
}
