//! The chart and the image for real: a DaemonSet on a cluster of one node, installed and removed by helm.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tests::cluster::helm::{CHART, NAMESPACE};
use tests::containerd::{IMAGE, Main, Network, Options};
use tests::proxy::Direction;
use tests::{Node, OneNode, Pins, Proxy, requires, wait};

/// Name of the image in the archive that `cargo xtask image` makes.
const AGENT: &str = concat!("localhost/meshgate:", env!("CARGO_PKG_VERSION"));
/// As the kubelet makes it with the DaemonSet's pod.
const ZDS: &str = "run/ztunnel/ztunnel.sock";

/// What is not as on a machine that is a node as a whole: the node's namespaces and cgroups are parts of the machine's, no
/// kube-proxy leads to the API server, and pins are in the test's own folder.
fn values(one: &OneNode) -> Result<Value> {
    let machine = |path: &Path| format!("/host{}", path.display());
    Ok(json!({
        "cniBinDir": one.containerd.bin_dir(),
        "cniConfDir": one.containerd.conf_dir(),
        "ambient": { "shareHostNetworkNamespace": true },
        "pullPolicy": "Never",
        "env": {
            "KUBERNETES_SERVICE_HOST": "localhost",
            "KUBERNETES_SERVICE_PORT": "6443",
            "MESHGATE_CGROUP_ROOT": machine(one.node.cgroup()),
            "MESHGATE_BPFFS": one.node.bpffs(),
            "MESHGATE_HOST_NETNS": format!("/host/proc/{}/ns/net", one.kubelet_id().context("no kubelet")?),
        },
    }))
}

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "namespace": "shop" },
        "spec": {
            "containers": [{ "name": "application", "image": IMAGE, "imagePullPolicy": "Never", "args": ["sleep"] }],
            "terminationGracePeriodSeconds": 1,
        },
    })
}

#[test]
fn the_chart_puts_the_image_on_a_node_and_takes_it_away_again() -> Result<()> {
    let name = "the_chart_puts_the_image_on_a_node_and_takes_it_away_again";
    let (Some(assets), Some(_), Some(image)) = (
        requires::one_node(name),
        requires::helm(name),
        requires::image(name),
    ) else {
        return Ok(());
    };
    let node = Node::new()?;
    let network = Network::new(&node, Main::Bridge);
    let options = Options {
        network: Some(network.conflist()),
        ..Options::default()
    };
    let one = OneNode::start(node, &assets, options)?;
    one.containerd.import(AGENT, &fs::read(image)?)?;
    let conf = conf_file(&one)?;
    let before = fs::read_to_string(&conf)?;

    let values_file = one.node.run_dir().join("values.json");
    fs::write(&values_file, values(&one)?.to_string())?;
    let file = values_file.display().to_string();
    one.cluster
        .helm(&["upgrade", "--install", "istio-cni", CHART, "--values", &file])?;
    ready(&one)?;
    ensure!(
        fs::read_to_string(&conf)?.contains("\"meshgate-cni\""),
        "{conf:?} has no plugin"
    );

    symlink(one.containerd.mounts().root().join(ZDS), one.node.zds_socket())?;
    let mut proxy = Proxy::start(&one.node, "proxy", &[])?;
    let server = one.node.pod("server")?;
    let _listening = server.serve(&["--listen", "[::]:80"])?;
    let labels = json!({ "istio.io/dataplane-mode": "ambient" });
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "shop", "labels": labels } });
    one.cluster.kubectl_apply(&[namespace])?;
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "default", "namespace": "shop" } });
    one.cluster
        .wait_for(&account, "the service account of shop", |_| true)?;
    one.cluster.kubectl_apply(&[pod("web")])?;
    one.cluster.kubectl_wait("shop", "Ready", "pod/web")?;
    let web = one.cluster.running("shop", "web")?;
    for ip in [server.v4(), server.v6()] {
        let destination = SocketAddr::new(ip, 80);
        let seen = one
            .cluster
            .kubectl_load(&web, &["connect", &destination.to_string()])?;
        ensure!(seen["read"] == "ok", "{seen}");
        proxy.wait_for_connection(Direction::Outbound, destination)?;
    }
    let said = one.cluster.kubectl(&[
        "exec",
        "--namespace",
        NAMESPACE,
        "daemonset/istio-cni-node",
        "--",
        "/usr/local/bin/meshgate",
        "pods",
        "--output",
        "json",
    ])?;
    ensure!(said.contains(&web.uid) && said.contains("\"enabled\""), "{said}");

    one.cluster.helm(&["uninstall", "istio-cni", "--wait"])?;
    wait::for_file(
        &conf,
        None,
        "the plugin to be gone from the configuration",
        || Ok((fs::read_to_string(&conf)? == before).then_some(())),
    )?;
    for binary in ["meshgate-cni", "istio-cni"] {
        let path = one.containerd.bin_dir().join(binary);
        ensure!(!path.exists(), "{} is left", path.display());
    }
    ensure!(
        Pins::of(&one.node).map("PODS").is_ok(),
        "captured pods stay captured until cleanup"
    );
    one.cluster.kubectl_apply(&[pod("next")])?;
    one.cluster.kubectl_wait("shop", "Ready", "pod/next")?;

    let cleanup = [
        "upgrade",
        "--install",
        "istio-cni",
        CHART,
        "--values",
        &file,
        "--set",
        "cleanup=true",
    ];
    one.cluster.helm(&cleanup)?;
    ready(&one)?;
    let pins = one.node.bpffs().join("meshgate");
    wait::asking(wait::LIMIT, "the pins to be gone", || {
        Ok((!pins.exists()).then_some(()))
    })?;
    one.cluster.helm(&["uninstall", "istio-cni", "--wait"]).map(drop)
}

fn ready(one: &OneNode) -> Result<()> {
    let rolled = one.cluster.kubectl(&[
        "rollout",
        "status",
        "--namespace",
        NAMESPACE,
        "--timeout=60s",
        "daemonset/istio-cni-node",
    ]);
    rolled.map(drop).map_err(|error| {
        let about = |arguments: &[&str]| {
            one.cluster
                .kubectl(&[&["--namespace", NAMESPACE], arguments].concat())
                .unwrap_or_default()
        };
        let (log, pods) = (
            about(&["logs", "daemonset/istio-cni-node"]),
            about(&["describe", "pods"]),
        );
        error.context(format!("log of the agent:\n{log}\n{pods}"))
    })
}

/// The configuration of the node's CNI.
fn conf_file(one: &OneNode) -> Result<std::path::PathBuf> {
    let mut files = fs::read_dir(one.containerd.conf_dir())?;
    Ok(files.next().context("no CNI configuration")??.path())
}
