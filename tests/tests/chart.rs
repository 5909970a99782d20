//! The Helm chart: what it makes of Istio's values, what it refuses, and that an API server takes it.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tests::cluster::RBAC;
use tests::cluster::helm::{CHART, render};
use tests::{Cluster, Node, requires};

/// The object of a kind; the chart has one of each.
fn object<'a>(objects: &'a [Value], kind: &str) -> Result<&'a Value> {
    objects
        .iter()
        .find(|object| object["kind"] == kind)
        .with_context(|| format!("the chart makes no {kind}"))
}

fn host_path(daemon_set: &Value, volume: &str) -> Value {
    let volumes = daemon_set["spec"]["template"]["spec"]["volumes"]
        .as_array()
        .into_iter()
        .flatten();
    let mut found = volumes.filter(|found| found["name"] == volume);
    found
        .next()
        .map(|found| found["hostPath"]["path"].clone())
        .unwrap_or_default()
}

#[test]
fn a_drop_in_has_the_names_of_istios_chart() -> Result<()> {
    let Some(assets) = requires::helm("a_drop_in_has_the_names_of_istios_chart") else {
        return Ok(());
    };
    let objects = render(&assets.join("helm"), &[])?;
    let names: BTreeSet<_> = objects
        .iter()
        .map(|object| (object["kind"].to_string(), object["metadata"]["name"].to_string()))
        .collect();
    for (kind, name) in [
        ("DaemonSet", "istio-cni-node"),
        ("ConfigMap", "istio-cni-config"),
        ("ServiceAccount", "istio-cni"),
        ("ClusterRole", "istio-cni"),
    ] {
        ensure!(
            names.contains(&(json!(kind).to_string(), json!(name).to_string())),
            "{kind} {name} in {names:?}"
        );
    }
    let pod = &object(&objects, "DaemonSet")?["spec"]["template"];
    assert_eq!(pod["metadata"]["labels"]["k8s-app"], "istio-cni-node");
    assert_eq!(pod["metadata"]["labels"]["istio.io/dataplane-mode"], "none");
    assert_eq!(pod["spec"]["priorityClassName"], "system-node-critical");
    let container = &pod["spec"]["containers"][0];
    assert_eq!(
        container["readinessProbe"]["httpGet"],
        json!({"path": "/readyz", "port": 8000})
    );
    assert_eq!(container["securityContext"]["privileged"], false);
    assert_eq!(
        container["securityContext"]["capabilities"]["drop"],
        json!(["ALL"])
    );
    let data = &object(&objects, "ConfigMap")?["data"];
    assert_eq!(
        (&data["EXCLUDE_NAMESPACES"], &data["AMBIENT_DNS_CAPTURE"]),
        (&json!("kube-system"), &json!("true"))
    );
    assert_eq!(data["MESHGATE_INSTALL_CNI"], "true");
    Ok(())
}

#[test]
fn each_platform_has_its_folders() -> Result<()> {
    let Some(assets) = requires::helm("each_platform_has_its_folders") else {
        return Ok(());
    };
    for (platform, bin, conf) in [
        ("", "/opt/cni/bin", "/etc/cni/net.d"),
        ("gke", "/home/kubernetes/bin", "/etc/cni/net.d"),
        (
            "k3s",
            "/var/lib/rancher/k3s/data/cni",
            "/var/lib/rancher/k3s/agent/etc/cni/net.d",
        ),
        ("k3d", "/bin", "/var/lib/rancher/k3s/agent/etc/cni/net.d"),
        (
            "microk8s",
            "/var/snap/microk8s/current/opt/cni/bin",
            "/var/snap/microk8s/current/args/cni-network",
        ),
        ("minikube", "/opt/cni/bin", "/etc/cni/net.d"),
        ("openshift", "/var/lib/cni/bin", "/etc/cni/multus/net.d"),
    ] {
        let objects = render(
            &assets.join("helm"),
            &["--set", &format!("global.platform={platform}")],
        )?;
        let daemon_set = object(&objects, "DaemonSet")?;
        let paths = ["cni-bin-dir", "cni-net-dir"].map(|volume| host_path(daemon_set, volume));
        assert_eq!(paths, [json!(bin), json!(conf)], "{platform}");
        let chained = &object(&objects, "ConfigMap")?["data"]["CHAINED_CNI_PLUGIN"];
        assert_eq!(
            *chained,
            if platform == "openshift" { "false" } else { "true" },
            "{platform}"
        );
    }
    Ok(())
}

#[test]
fn a_platform_says_more_than_folders_and_what_is_given_wins() -> Result<()> {
    let Some(assets) = requires::helm("a_platform_says_more_than_folders_and_what_is_given_wins") else {
        return Ok(());
    };
    let made = |flags: &[&str]| render(&assets.join("helm"), flags);
    let has = |objects: &[Value], kind: &str| objects.iter().any(|object| object["kind"] == kind);
    let gke = ["--set", "global.platform=gke"];
    ensure!(
        has(&made(&gke)?, "ResourceQuota"),
        "gke admits critical pods by a quota"
    );
    let without = [&gke[..], &["--set", "resourceQuotas.enabled=false"]].concat();
    ensure!(
        !has(&made(&without)?, "ResourceQuota"),
        "a quota, though it was said not to be"
    );
    let unset = [&gke[..], &["--set", "cniBinDir="]].concat();
    let bin_dir = host_path(object(&made(&unset)?, "DaemonSet")?, "cni-bin-dir");
    assert_eq!(bin_dir, "/home/kubernetes/bin");

    let k3d = made(&["--set", "platform=k3d"])?;
    let init = &object(&k3d, "DaemonSet")?["spec"]["template"]["spec"]["initContainers"];
    assert_eq!(init[0]["name"], "mount-bpffs");
    assert_eq!(init[0]["volumeMounts"][0]["mountPropagation"], "Bidirectional");

    let openshift = made(&["--set", "global.platform=openshift,chained=true"])?;
    assert_eq!(
        object(&openshift, "ConfigMap")?["data"]["CHAINED_CNI_PLUGIN"],
        "true"
    );
    ensure!(
        has(&openshift, "NetworkAttachmentDefinition"),
        "multus has no definition"
    );
    let rules = &object(&openshift, "ClusterRole")?["rules"];
    ensure!(
        rules.to_string().contains("securitycontextconstraints"),
        "{rules}"
    );
    Ok(())
}

#[test]
fn resources_that_are_null_are_left_out() -> Result<()> {
    let Some(assets) = requires::helm("resources_that_are_null_are_left_out") else {
        return Ok(());
    };
    let value = "resources.requests.cpu=null,resources.limits.cpu=null,resources.limits.memory=64Mi";
    let objects = render(&assets.join("helm"), &["--set", value])?;
    let container = &object(&objects, "DaemonSet")?["spec"]["template"]["spec"]["containers"][0];
    let expected = json!({"requests": {"memory": "50Mi"}, "limits": {"memory": "64Mi"}});
    assert_eq!(container["resources"], expected);
    Ok(())
}

#[test]
fn all_values_that_istios_chart_has_are_taken() -> Result<()> {
    let Some(assets) = requires::helm("all_values_that_istios_chart_has_are_taken") else {
        return Ok(());
    };
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/data/istio-cni-values.yaml");
    let objects = render(&assets.join("helm"), &["--values", file])?;
    assert_eq!(object(&objects, "ConfigMap")?["data"]["MESHGATE_LOG"], "debug");
    let daemon_set = object(&objects, "DaemonSet")?;
    assert_eq!(host_path(daemon_set, "cni-bin-dir"), "/opt/cni/bin");
    let annotation = "container.apparmor.security.beta.kubernetes.io/install-cni";
    assert_eq!(
        daemon_set["spec"]["template"]["metadata"]["annotations"][annotation],
        "unconfined"
    );
    Ok(())
}

#[test]
fn istios_values_are_taken_at_the_top_and_below_cni() -> Result<()> {
    let Some(assets) = requires::helm("istios_values_are_taken_at_the_top_and_below_cni") else {
        return Ok(());
    };
    for prefix in ["", "cni."] {
        let values = [
            "excludeNamespaces={a,b}",
            "ambient.dnsCapture=false",
            "cniConfFileName=10-calico.conflist",
            "cniBinDir=/somewhere/bin",
            "istioOwnedCNIConfig=true",
            "repair.enabled=true",
            "logging.level=debug",
            "rollingMaxUnavailable=3",
            "env.NETWORK=east",
        ]
        .map(|value| format!("{prefix}{value}"));
        let flags: Vec<&str> = values.iter().flat_map(|value| ["--set", value]).collect();
        let objects = render(&assets.join("helm"), &flags)?;
        let data = &object(&objects, "ConfigMap")?["data"];
        for (name, value) in [
            ("EXCLUDE_NAMESPACES", "a,b"),
            ("AMBIENT_DNS_CAPTURE", "false"),
            ("CNI_CONF_NAME", "10-calico.conflist"),
            ("ISTIO_OWNED_CNI_CONFIG", "true"),
            ("MESHGATE_LOG", "debug"),
            ("NETWORK", "east"),
        ] {
            assert_eq!(data[name], value, "{prefix}{name}");
        }
        let daemon_set = object(&objects, "DaemonSet")?;
        assert_eq!(host_path(daemon_set, "cni-bin-dir"), "/somewhere/bin");
        assert_eq!(
            daemon_set["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"],
            3
        );
    }
    Ok(())
}

#[test]
fn ports_and_numbers_in_the_environment_are_what_was_written() -> Result<()> {
    let Some(assets) = requires::helm("ports_and_numbers_in_the_environment_are_what_was_written") else {
        return Ok(());
    };
    let with = |env: &str| render(&assets.join("helm"), &["--set", env]);
    let objects = with(
        "global.networkPolicy.enabled=true,env.MONITORING_PORT=19014,env.MESHGATE_HEALTH_PORT=18000,env.NUMBER=10000000",
    )?;
    assert_eq!(object(&objects, "ConfigMap")?["data"]["NUMBER"], "10000000");
    let pod = &object(&objects, "DaemonSet")?["spec"]["template"];
    assert_eq!(pod["metadata"]["annotations"]["prometheus.io/port"], "19014");
    let agent = &pod["spec"]["containers"][0];
    assert_eq!(agent["ports"][0]["containerPort"], 19014);
    assert_eq!(agent["ports"][1]["containerPort"], 18000);
    assert_eq!(agent["readinessProbe"]["httpGet"]["port"], 18000);
    let policy = object(&objects, "NetworkPolicy").map(ToString::to_string);
    ensure!(policy.is_ok_and(|policy| policy.contains("19014") && policy.contains("18000")));
    let objects = with("env.MONITORING_PORT=-1")?;
    let pod = &object(&objects, "DaemonSet")?["spec"]["template"];
    assert_eq!(pod["metadata"]["annotations"]["prometheus.io/scrape"], "false");
    Ok(())
}

#[test]
fn what_makes_no_sense_is_refused_with_its_reason() -> Result<()> {
    let Some(assets) = requires::helm("what_makes_no_sense_is_refused_with_its_reason") else {
        return Ok(());
    };
    for (value, reason) in [
        ("ambient.enabled=false", "serves ambient only"),
        ("global.platform=mars", "is not known"),
        ("exludeNamespaces={a}", "exludeNamespaces"),
        ("failurePolicy=Open", "failurePolicy"),
        ("cni.ambient.dnsCpature=true", "dnsCpature"),
        ("repair.repairpods=true", "repairpods"),
        ("cniBinDir=opt/cni/bin", "cniBinDir"),
        ("istioOwnedCNIConfig=true,chained=false", "needs chained"),
    ] {
        let refused = render(&assets.join("helm"), &["--set", value]);
        let told = format!(
            "{:#}",
            refused.err().with_context(|| format!("{value} was taken"))?
        );
        ensure!(told.contains(reason), "{value}: {told}");
    }
    Ok(())
}

#[test]
fn each_value_is_documented() -> Result<()> {
    let schema: Value = serde_json::from_str(&fs::read_to_string(format!("{CHART}/values.schema.json"))?)?;
    let table = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/helm-values.md"))?;
    let names = |of: &Value| {
        of.as_object()
            .into_iter()
            .flatten()
            .map(|(name, _)| name.clone())
            .collect::<Vec<_>>()
    };
    let top = names(&schema["properties"]);
    ensure!(top.len() > 30, "{top:?}");
    let below = |group: &str| {
        let all = names(&schema["$defs"][group]["properties"]).into_iter();
        all.map(|name| format!("{group}.{name}")).collect::<Vec<_>>()
    };
    let groups = [below("ambient"), below("global")].concat();
    ensure!(groups.len() > 15, "{groups:?}");
    for name in top.into_iter().chain(groups) {
        ensure!(
            table.contains(&format!("`{name}`")),
            "docs/helm-values.md has no row for `{name}`"
        );
    }
    Ok(())
}

#[test]
fn an_api_server_takes_the_chart_and_its_rights_are_those_that_are_tested() -> Result<()> {
    let name = "an_api_server_takes_the_chart_and_its_rights_are_those_that_are_tested";
    let Some(assets) = requires::helm(name) else {
        return Ok(());
    };
    let tested: Vec<Value> = serde_saphyr::from_multiple(RBAC)?;
    let objects = render(&assets.join("helm"), &[])?;
    for kind in ["ClusterRole", "Role"] {
        assert_eq!(
            object(&objects, kind)?["rules"],
            object(&tested, kind)?["rules"],
            "{kind}"
        );
    }
    let node = Node::new()?;
    let cluster = Cluster::start(&node, &assets)?;
    cluster.helm(&[
        "upgrade",
        "--install",
        "istio-cni",
        CHART,
        "--set",
        "global.networkPolicy.enabled=true",
    ])?;
    let listed: Value = serde_json::from_str(&cluster.helm(&["list", "--output", "json"])?)?;
    assert_eq!(
        (&listed[0]["name"], &listed[0]["status"]),
        (&json!("istio-cni"), &json!("deployed"))
    );
    cluster.helm(&["uninstall", "istio-cni"]).map(drop)
}
