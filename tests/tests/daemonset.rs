//! The chart and the image for real: a DaemonSet on a cluster of one node, installed and removed by helm.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
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
    one.cluster.kubectl_apply(&[namespace()])?;
    documented(&one, "Install", &values_file)?;
    ensure!(
        fs::read_to_string(&conf)?.contains("\"meshgate-cni\""),
        "{conf:?} has no plugin"
    );

    symlink(one.containerd.mounts().root().join(ZDS), one.node.zds_socket())?;
    let mut proxy = Proxy::start(&one.node, "proxy", &[])?;
    let server = one.node.pod("server")?;
    let _listening = server.serve(&["--listen", "[::]:80"])?;
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
    let said = documented(&one, "Look", &values_file)?;
    ensure!(said.contains("enabled"), "{said}");
    documented(&one, "Upgrade", &values_file)?;
    documented(&one, "Back to Istio's agent", &values_file)?;
    ensure!(
        fs::read_to_string(&conf)?.contains("\"istio-cni\""),
        "{conf:?} has no plugin of Istio's name"
    );

    one.cluster.helm(&["uninstall", "istio-cni", "--wait"])?;
    wait::for_file(
        &conf,
        None,
        "the plugin to be gone from the configuration",
        || Ok((fs::read_to_string(&conf)? == before).then_some(())),
    )?;
    for binary in ["meshgate-cni", "istio-cni"] {
        let path = one.containerd.bin_dir().join(binary);
        let gone = || Ok((!path.exists()).then_some(()));
        wait::for_file(&path, None, &format!("{binary} to be gone"), gone)?;
    }
    ensure!(
        Pins::of(&one.node).map("PODS").is_ok(),
        "captured pods stay captured until cleanup"
    );
    one.cluster.kubectl_apply(&[pod("next")])?;
    one.cluster.kubectl_wait("shop", "Ready", "pod/next")?;

    documented(&one, "Install", &values_file)?;
    let said = documented(&one, "Remove", &values_file)?;
    ensure!(said.contains("left     nothing"), "{said}");
    let pins = one.node.bpffs().join("meshgate");
    ensure!(!pins.exists(), "{} is left", pins.display());
    Ok(())
}

/// The namespace that the documents speak of.
fn namespace() -> Value {
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "shop" } })
}

/// Runs the commands in a section of docs/operations.md, and returns what they print.
fn documented(one: &OneNode, section: &str, values: &Path) -> Result<String> {
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operations.md"))?;
    let section = text.split("\n## ").find(|part| part.starts_with(section));
    let section = section.with_context(|| format!("docs/operations.md has no section {section:?}"))?;
    let blocks = section
        .split("```sh\n")
        .skip(1)
        .filter_map(|block| block.split("```").next());
    let values = values.display().to_string();
    let mut printed = String::new();
    for command in blocks.flat_map(str::lines) {
        let here = command
            .replace("deploy/charts/meshgate", CHART)
            .replace("values.yaml", &values);
        let words: Vec<&str> = here.split(' ').collect();
        let answer = match words[0] {
            "helm" => one.cluster.helm(&words[1..]),
            "kubectl" => one.cluster.kubectl(&words[1..]),
            other => bail!("{other} is not known here"),
        };
        printed += &answer.with_context(|| format!("{command}\n{}", about(one)))?;
    }
    ensure!(!printed.is_empty(), "no commands in {section}");
    Ok(printed)
}

/// What an operator would look at.
fn about(one: &OneNode) -> String {
    let ask = |arguments: &[&str]| {
        let all = [&["--namespace", NAMESPACE], arguments].concat();
        one.cluster.kubectl(&all).unwrap_or_default()
    };
    let (log, events) = (ask(&["logs", "daemonset/istio-cni-node"]), ask(&["events"]));
    format!("log of the agent:\n{log}\n{events}")
}

/// The configuration of the node's CNI.
fn conf_file(one: &OneNode) -> Result<std::path::PathBuf> {
    let mut files = fs::read_dir(one.containerd.conf_dir())?;
    Ok(files.next().context("no CNI configuration")??.path())
}
