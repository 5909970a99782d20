//! A hundred pods come and go, and the agent, the proxy and the kernel hold as much as before.

use std::fs;

use anyhow::{Context as _, Result};
use tests::{Mesh, Pins, Pod, PodSpec, requires, wait};

/// Entries of a folder of /proc: descriptors or threads.
fn entries(pid: u32, folder: &str) -> usize {
    fs::read_dir(format!("/proc/{pid}/{folder}")).map_or(0, Iterator::count)
}

/// Takes pods into the mesh and out of it, and waits until nothing of them is left.
fn come_and_go(mesh: &mut Mesh, pods: &mut [Pod]) -> Result<()> {
    for (ambient, state) in [(true, "enabled"), (false, "outside")] {
        for pod in pods.iter_mut() {
            pod.set_ambient(ambient);
            mesh.node.apply(&[pod])?;
        }
        for pod in pods.iter() {
            mesh.agent.wait_for_pod_state(pod.uid(), state)?;
        }
    }
    let pins = Pins::of(&mesh.node);
    wait::for_file(&pins.links("pod").join("any"), None, "two links of pods", || {
        Ok((pins.link_names("pod").len() == 2).then_some(()))
    })
}

#[test]
fn a_hundred_pods_leave_nothing_behind() -> Result<()> {
    if !requires::root("a_hundred_pods_leave_nothing_behind") {
        return Ok(());
    }
    let mut mesh = Mesh::new()?;
    let mut pods = (0..100)
        .map(|number| mesh.node.pod_with(PodSpec::new(&format!("pod-{number}"))))
        .collect::<Result<Vec<_>>>()?;
    let (agent, proxy) = (mesh.agent.id().unwrap_or_default(), mesh.proxy.process().id());
    let pins = Pins::of(&mesh.node);
    let held = || -> Result<_> { Ok((entries(agent, "fd"), entries(proxy, "fd"), pins.counts()?)) };
    // Once before: what reads manifests is there from the first change on.
    come_and_go(&mut mesh, &mut pods[..1])?;
    let (before, threads) = (held()?, entries(agent, "task"));
    come_and_go(&mut mesh, &mut pods)?;
    // The last pod's name goes a moment after its link.
    wait::asking(wait::LIMIT, "as much to be held as before", || {
        Ok((held()? == before).then_some(()))
    })
    .with_context(|| format!("{:?} instead of {before:?}", held()))?;
    // Threads that wait for the disk are as many as it takes, and go when they have had nothing to do for 10 s.
    wait::asking(wait::LIMIT, "as few threads as before", || {
        Ok((entries(agent, "task") <= threads).then_some(()))
    })
}
