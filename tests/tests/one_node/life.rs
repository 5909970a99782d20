//! Pods that come and go, as kubelet makes them.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tests::cluster::kubectl::Running;
use tests::{Maps, Pins, wait};

use crate::scene::{MODE, Scene, container, controller, pod, reference, spec};
use crate::shared::Shared;

const AMBIENT: &[(&str, &str)] = &[(MODE, "ambient")];

/// A pod whose init containers call the server outside the mesh, in each family.
fn with_init(scene: &Scene) -> Value {
    let calls = scene.destinations().map(|destination| destination.to_string());
    let init = [("v4", &calls[0]), ("v6", &calls[1])];
    let mut spec = spec(&[container("application", &["sleep"])]);
    spec["initContainers"] = init
        .map(|(name, destination)| container(name, &["connect", destination]))
        .as_slice()
        .into();
    spec
}

/// Whether the init containers of [`with_init`] were heard, through the proxy, before anything else.
fn init_was_captured(scene: &Scene, pod: &Running) -> Result<()> {
    for (name, destination) in ["v4", "v6"].into_iter().zip(scene.destinations()) {
        let said = scene.cluster().kubectl(&[
            "logs",
            "--namespace",
            &pod.namespace,
            &pod.name,
            "--container",
            name,
        ])?;
        let said: Value = serde_json::from_str(&said)?;
        ensure!(said["read"] == "ok", "{}: {said}", pod.name);
        let through = scene.outbound(pod, destination)?;
        ensure!(
            through == 1,
            "{} of {} called past the proxy: {said}",
            name,
            pod.name
        );
    }
    Ok(())
}

#[test]
fn pods_are_captured_before_their_first_init_container() -> Result<()> {
    let Some(shared) = Shared::get("pods_are_captured_before_their_first_init_container")? else {
        return Ok(());
    };
    let scene = shared.beside_others();
    let shop = scene.namespace("init", AMBIENT)?;
    shop.apply(&mut [pod("web", &with_init(&scene))])?;
    let web = shop.ready("web")?;
    ensure!(web.ips.len() == 2, "{web:?}");
    init_was_captured(&scene, &web)?;
    scene.captured(&web)
}

#[test]
fn a_stateful_sets_pod_comes_back_with_its_name_and_another_address() -> Result<()> {
    let Some(shared) = Shared::get("a_stateful_sets_pod_comes_back_with_its_name_and_another_address")?
    else {
        return Ok(());
    };
    let scene = shared.beside_others();
    let shop = scene.namespace("stateful", AMBIENT)?;
    let mut set = controller("StatefulSet", "db", 2, &with_init(&scene));
    set["spec"]["serviceName"] = json!("db");
    shop.apply(&mut [set])?;
    shop.kubectl(&["rollout", "status", "statefulset/db", "--timeout=60s"])?;
    let (first, second) = (shop.ready("db-0")?, shop.ready("db-1")?);
    scene.captured(&first)?;
    scene.captured(&second)?;

    shop.kubectl(&["delete", "pod", "db-0"])?;
    let another = |found: &Value| found["metadata"]["uid"] != json!(first.uid);
    scene
        .cluster()
        .wait_for(&reference(&first), "another db-0", another)?;
    let again = shop.ready("db-0")?;
    ensure!(again.name == first.name && again.uid != first.uid);
    ensure!(
        again.ips.iter().all(|ip| !first.ips.contains(ip)),
        "{again:?} {first:?}"
    );
    init_was_captured(&scene, &again)?;
    scene.captured(&again)?;
    scene.gone(&first)?;
    scene.captured(&second)
}

#[test]
fn a_finished_jobs_address_is_the_next_pods() -> Result<()> {
    let Some(shared) = Shared::get("a_finished_jobs_address_is_the_next_pods")? else {
        return Ok(());
    };
    // Nobody else may take the address.
    let scene = shared.alone();
    let shop = scene.namespace("jobs", AMBIENT)?;
    let call = scene.destinations()[0].to_string();
    let mut template = spec(&[container("call", &["connect", &call])]);
    template["restartPolicy"] = json!("Never");
    shop.apply(&mut [json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": { "name": "job" },
        "spec": { "template": { "spec": template } },
    })])?;
    scene.cluster().kubectl_wait(&shop.name, "Complete", "job/job")?;
    let pods = ["get", "pods", "--selector=job-name=job", "--output=name"];
    let job = shop.kubectl(&pods)?;
    let job = job.trim().strip_prefix("pod/").context("the job's pod")?;
    let job = scene.cluster().running(&shop.name, job)?;
    ensure!(scene.outbound(&job, scene.destinations()[0])? == 1);

    // Its object stays, its addresses are free. They are the next ones when those before them were the last.
    let told = scene.agent().wait_for_pod_state(&job.uid, "outside")?;
    ensure!(told.reason.to_string().contains("has ended"), "{told:?}");
    for (index, ip) in job.ips.iter().enumerate() {
        let given = leases(&scene).join(ip.to_string());
        wait::for_file(&given, None, &format!("{ip} to be free"), || {
            Ok((!given.exists()).then_some(()))
        })?;
        fs::write(
            leases(&scene).join(format!("last_reserved_ip.{index}")),
            before(ip),
        )?;
    }
    shop.apply(&mut [pod("next", &with_init(&scene))])?;
    let next = shop.ready("next")?;
    ensure!(next.ips == job.ips, "{next:?} {job:?}");
    init_was_captured(&scene, &next)?;
    scene.captured(&next)?;

    // The job is deleted, and takes nothing of the other with it.
    shop.kubectl(&["delete", "job/job"])?;
    scene.agent().wait_for("the job to be gone", |status| {
        status.pods.iter().all(|pod| pod.uid != job.uid).then_some(())
    })?;
    scene.captured(&next)
}

#[test]
fn a_deleted_pod_leaves_nothing() -> Result<()> {
    let Some(shared) = Shared::get("a_deleted_pod_leaves_nothing")? else {
        return Ok(());
    };
    let scene = shared.beside_others();
    let shop = scene.namespace("deleted", AMBIENT)?;
    shop.apply(&mut [pod("web", &spec(&[container("application", &["sleep"])]))])?;
    let web = shop.ready("web")?;
    scene.captured(&web)?;
    let links = || Pins::of(&scene.one.node).link_names("pod");
    let cookie = cookie(&scene, &web)?;
    ensure!(links().contains(&cookie), "{cookie} {:?}", links());
    shop.kubectl(&["delete", "pod", "web"])?;
    scene.gone(&web)?;
    ensure!(!links().contains(&cookie), "{cookie} {:?}", links());
    for map in ["NAMES", "PODS", "COUNTERS"] {
        let left = Maps::of(&scene.one.node).dump(map)?;
        let of_pod = left.iter().filter(|row| row.to_string().contains(&cookie));
        ensure!(of_pod.count() == 0, "{map}: {left:?}");
    }
    Ok(())
}

/// The cookie of a pod's network namespace, as its links are named.
fn cookie(scene: &Scene, pod: &Running) -> Result<String> {
    let pods = scene.agent().cli_json(&["pods"])?;
    let mut rows = pods.as_array().into_iter().flatten();
    let row = rows.find(|row| row["uid"] == json!(pod.uid));
    let cookie = row.and_then(|row| row["netns_cookie"].as_u64());
    Ok(cookie
        .with_context(|| format!("{pod:?} is not in {pods}"))?
        .to_string())
}

/// Where the plugin host-local keeps which address is whose.
fn leases(scene: &Scene) -> PathBuf {
    scene
        .one
        .containerd
        .mounts()
        .root()
        .join("var/lib/cni/networks/test")
}

/// The address before this one; the pods' are all within the last byte.
fn before(ip: &std::net::IpAddr) -> String {
    match ip {
        std::net::IpAddr::V4(ip) => std::net::Ipv4Addr::from(u32::from(*ip) - 1).to_string(),
        std::net::IpAddr::V6(ip) => std::net::Ipv6Addr::from(u128::from(*ip) - 1).to_string(),
    }
}
