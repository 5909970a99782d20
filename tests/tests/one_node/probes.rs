//! Kubelet's probes are answered, whatever the pod's part in the mesh.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tests::cluster::one_node::Primary;
use tests::proxy::Direction;

use crate::scene::{MODE, Namespace, STRICT, Scene, container, pod, reference, spec};
use crate::shared::Shared;

const HTTP: u16 = 8080;
const TCP: u16 = 8081;
const GRPC: u16 = 8082;

/// A pod that is ready when probes of each kind are answered, and is restarted when they are not.
fn probed() -> Value {
    let listen = |port: u16| format!("[::]:{port}");
    let probes = |mut container: Value, mut probe: Value| {
        probe["periodSeconds"] = json!(1);
        for kind in ["startupProbe", "readinessProbe", "livenessProbe"] {
            container[kind] = probe.clone();
        }
        container
    };
    let http = container("http", &["server", "--listen", &listen(HTTP), "--reply", "http"]);
    let tcp = container("tcp", &["server", "--listen", &listen(TCP)]);
    let grpc = container("grpc", &["grpc", "--listen", &listen(GRPC)]);
    spec(&[
        probes(http, json!({ "httpGet": { "path": "/", "port": HTTP } })),
        probes(tcp, json!({ "tcpSocket": { "port": TCP } })),
        probes(grpc, json!({ "grpc": { "port": GRPC } })),
    ])
}

#[test]
fn probes_are_answered_in_each_family_where_mutual_tls_is_strict_and_where_it_is_not() -> Result<()> {
    let Some(shared) =
        Shared::get("probes_are_answered_in_each_family_where_mutual_tls_is_strict_and_where_it_is_not")?
    else {
        return Ok(());
    };
    // Kubelet is restarted: it probes a pod's first address, which is in the node's first family.
    let mut scene = shared.alone();
    for primary in [Primary::V4, Primary::V6] {
        if primary == Primary::V6 {
            scene.one.restart_kubelet(primary)?;
        }
        for (name, labels) in [
            (STRICT, &[(MODE, "ambient")][..]),
            ("lenient", &[(MODE, "ambient")]),
            ("plain", &[]),
        ] {
            let shop = scene.namespace(name, labels)?;
            answered(&scene, &shop, primary)?;
            shop.kubectl(&["delete", "pod", "probed"])?;
        }
    }
    scene.one.restart_kubelet(Primary::V4)
}

/// Kubelet's probes pass, and the proxy has not heard of them; whether others may call is the namespace's.
fn answered(scene: &Scene, shop: &Namespace<'_>, primary: Primary) -> Result<()> {
    shop.apply(&mut [pod("probed", &probed())])?;
    let probed = shop.ready("probed")?;
    let first = probed.ips[0];
    ensure!(first.is_ipv6() == (primary == Primary::V6), "{probed:?}");
    scene.told_of(
        &probed,
        if shop.name == "plain" {
            "outside"
        } else {
            "enabled"
        },
    )?;
    let inbound = || -> Result<Vec<(IpAddr, String)>> {
        let all = scene.proxy.connections()?.into_iter();
        let of_pod = all.filter(|c| c.direction == Direction::Inbound && c.pod == probed.uid);
        Ok(of_pod.map(|c| (c.peer.ip(), c.result)).collect())
    };
    ensure!(inbound()?.is_empty(), "{:?}", inbound()?);

    for ip in &probed.ips {
        let destination = SocketAddr::new(*ip, TCP).to_string();
        let answer = scene.server.load(&["connect", &destination])?;
        let refused = answer["read"] != "ok";
        ensure!(refused == (shop.name == STRICT), "{}: {answer}", shop.name);
    }
    let result = if shop.name == STRICT {
        "mutual TLS is strict here"
    } else {
        "ok"
    };
    let expected = [scene.server.v4(), scene.server.v6()].map(|ip| (ip, result.to_owned()));
    let mut seen = inbound()?;
    seen.sort();
    if shop.name == "plain" {
        ensure!(seen.is_empty(), "{seen:?}");
    } else {
        ensure!(seen == expected, "{seen:?}");
    }
    let now = scene.cluster().get(&reference(&probed))?.unwrap_or_default();
    let statuses = now["status"]["containerStatuses"].as_array();
    for status in statuses.into_iter().flatten() {
        ensure!(status["restartCount"] == 0 && status["ready"] == true, "{status}");
    }
    Ok(())
}
