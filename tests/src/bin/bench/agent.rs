//! `agent`: memory and processor time of the agent while nothing happens, with pods on its node and with many elsewhere
//! in the API of a real control plane.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use ::tests::cluster::User;
use ::tests::{Agent, Cluster, Node, Pod, PodSpec, Proxy, requires};
use anyhow::{Context, Result, ensure};
use clap::Args;
use k8s_openapi::api::core::v1 as core;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::Report;
use crate::cell::cpu_time;
use crate::machine::Machine;
use crate::table::{number, table};
use crate::target::{self, Bound, Target};

/// Resident memory that the agent may have, in MiB.
const MEMORY: f64 = 20.0;
/// Part of one processor that an agent with nothing to do may use, in percent.
const PROCESSOR: f64 = 0.1;
/// Kubernetes namespace of the pods on the node.
const HERE: &str = "here";
/// Kubernetes namespaces of the pods elsewhere.
const NAMESPACES: usize = 50;
/// Requests to the API server at a time.
const WORKERS: usize = 32;

/// Options of `agent`.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Pods on the node, all in the mesh
    #[arg(long, default_value_t = 250)]
    pods: usize,
    /// Pods on other nodes
    #[arg(long, default_value_t = 10_000)]
    elsewhere: usize,
    /// How long the agent is watched in each state
    #[arg(long, default_value_t = 60)]
    seconds: u64,
}

/// The agent in one state.
struct Row {
    state: String,
    usage: Usage,
    /// Processor time while it was watched, in percent of one processor.
    percent: f64,
}

/// What the agent's process holds.
#[derive(Clone, Copy)]
struct Usage {
    /// Resident memory in KiB.
    resident: u64,
    /// Of that, what is not a file's.
    anonymous: u64,
    /// The most that was resident since the process started.
    peak: u64,
    descriptors: usize,
    threads: usize,
}

impl Usage {
    fn of(pid: u32) -> Result<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let kib = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|line| line.trim_start_matches(':').split_whitespace().next());
            number
                .and_then(|number| number.parse().ok())
                .with_context(|| format!("no {name} in /proc/{pid}/status"))
        };
        let count = |folder: &str| fs::read_dir(format!("/proc/{pid}/{folder}")).map_or(0, Iterator::count);
        Ok(Self {
            resident: kib("VmRSS")?,
            anonymous: kib("RssAnon")?,
            peak: kib("VmHWM")?,
            descriptors: count("fd"),
            threads: count("task"),
        })
    }
}

impl Row {
    fn cells(&self) -> Vec<String> {
        let mib = |kib: u64| number(kib as f64 / 1024.0);
        let Usage {
            resident,
            anonymous,
            peak,
            descriptors,
            threads,
        } = self.usage;
        vec![
            self.state.clone(),
            mib(resident),
            mib(anonymous),
            mib(peak),
            format!("{:.3}", self.percent),
            descriptors.to_string(),
            threads.to_string(),
        ]
    }

    fn json(&self) -> Value {
        json!({
            "state": self.state,
            "resident_kib": self.usage.resident,
            "anonymous_kib": self.usage.anonymous,
            "peak_kib": self.usage.peak,
            "cpu_percent": self.percent,
            "descriptors": self.usage.descriptors,
            "threads": self.usage.threads,
        })
    }

    fn targets(&self) -> [Target; 2] {
        [
            Target {
                what: format!("resident memory, {}, MiB", self.state),
                bound: Bound::AtMost(MEMORY),
                got: self.usage.resident as f64 / 1024.0,
            },
            Target {
                what: format!("processor time, {}, %", self.state),
                bound: Bound::AtMost(PROCESSOR),
                got: self.percent,
            },
        ]
    }
}

pub(crate) fn run(options: &Options, quick: bool) -> Result<Report> {
    let (pods, elsewhere, seconds) = if quick {
        (2, 20, 1)
    } else {
        (options.pods, options.elsewhere, options.seconds)
    };
    ensure!(
        pods <= 250,
        "at most 250 pods: they share a network of 254 addresses"
    );
    let machine = Machine::here()?;
    let rows = measure(pods, elsewhere, Duration::from_secs(seconds))?;
    Ok(report(&machine, seconds, &rows))
}

fn report(machine: &Machine, seconds: u64, rows: &[Row]) -> Report {
    let targets: Vec<Target> = rows.iter().flat_map(Row::targets).collect();
    let heads = [
        "STATE",
        "resident, MiB",
        "anonymous",
        "peak",
        "CPU, %",
        "descriptors",
        "threads",
    ];
    let cells: Vec<Vec<String>> = rows.iter().map(Row::cells).collect();
    let mut lines = vec![
        machine.line(),
        format!(
            "Each state watched for {seconds} s; percent of one processor, the kernel's work for the agent included"
        ),
        String::new(),
    ];
    lines.extend(table(&heads, 1, &cells));
    lines.push(String::new());
    lines.extend(target::lines(&targets));
    let json = json!({
        "bench": "agent",
        "machine": machine.json(),
        "seconds": seconds,
        "rows": rows.iter().map(Row::json).collect::<Vec<_>>(),
        "targets": targets.iter().map(Target::json).collect::<Vec<_>>(),
    });
    Report { lines, json }
}

fn measure(count: usize, elsewhere: usize, watched: Duration) -> Result<Vec<Row>> {
    let assets = requires::control_plane("bench agent").context("no control plane: cargo xtask setup")?;
    let node = Node::new()?;
    let cluster = Cluster::start(&node, &assets)?;
    cluster.namespace(HERE, &[("istio.io/dataplane-mode", "ambient")])?;
    let kubeconfig = cluster.kubeconfig(User::Agent);
    let kubeconfig = kubeconfig.to_str().context("a path that is not UTF-8")?;
    let mut agent = Agent::start_with(&node, "kube", &["--kubeconfig", kubeconfig])?;
    let _proxy = Proxy::start(&node, "proxy", &[])?;
    let watch = |state: String, agent: &Agent| -> Result<Row> {
        let cgroup = node.cgroup().join("node/agent");
        let before = cpu_time(&cgroup)?;
        sleep(watched);
        let used = Duration::from_micros(cpu_time(&cgroup)? - before);
        Ok(Row {
            state,
            usage: Usage::of(agent.id().context("the agent has ended")?)?,
            percent: 100.0 * used.as_secs_f64() / watched.as_secs_f64(),
        })
    };
    let mut rows = vec![watch("no pods".to_owned(), &agent)?];
    let pods =
        (1..=count).map(|number| cluster.run(&node, PodSpec::new(&format!("p{number}")).namespace(HERE)));
    let pods = pods.collect::<Result<Vec<Pod>>>()?;
    wait_until_enabled(&mut agent, count)?;
    rows.push(watch(format!("{count} pods"), &agent)?);
    fill(&cluster, elsewhere)?;
    rows.push(watch(format!("{count} pods, {elsewhere} elsewhere"), &agent)?);
    agent.restart()?;
    wait_until_enabled(&mut agent, count)?;
    rows.push(watch("the same, agent restarted".to_owned(), &agent)?);
    drop(pods);
    Ok(rows)
}

fn wait_until_enabled(agent: &mut Agent, count: usize) -> Result<()> {
    agent.wait_for(&format!("{count} pods to be enabled"), |status| {
        let there = status.pods.iter().filter(|pod| pod.state == "enabled");
        (there.count() == count).then_some(())
    })
}

/// Makes pods of other nodes, as large as real ones are, many at a time.
fn fill(cluster: &Cluster, count: usize) -> Result<()> {
    for number in 0..NAMESPACES.min(count) {
        cluster.namespace(&format!("elsewhere-{number}"), &[])?;
    }
    cluster.call(async |client| {
        let mut running = JoinSet::new();
        for number in 0..count {
            if running.len() >= WORKERS {
                running.join_next().await.context("a worker")???;
            }
            let namespace = format!("elsewhere-{}", number % NAMESPACES);
            let pods: Api<core::Pod> = Api::namespaced(client.clone(), &namespace);
            let pod: core::Pod = serde_json::from_value(pod(number))?;
            running.spawn(async move { pods.create(&PostParams::default(), &pod).await.map(drop) });
        }
        while let Some(created) = running.join_next().await {
            created??;
        }
        Ok(())
    })
}

fn pod(number: usize) -> Value {
    let environment: Vec<Value> = (0..30)
        .map(|index| json!({"name": format!("VARIABLE_{index}"), "value": "a value of usual length"}))
        .collect();
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": format!("pod-{number}"), "labels": {"app": "elsewhere", "version": "v1"}},
        "spec": {
            "nodeName": format!("node-{}", number / 100),
            "containers": [{"name": "application", "image": "example.com/application:1", "env": environment}],
        },
    })
}
