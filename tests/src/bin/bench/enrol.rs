//! `enrol`: what it costs to take pods into the mesh by one label on their namespace, and to let them go; and what
//! iptables-restore alone costs for the same pods.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use ::tests::{FullNode, Pod, iptables, sys};
use anyhow::{Context, Result};
use clap::Args;
use serde_json::{Value, json};

use crate::Report;
use crate::cell::cpu_time;
use crate::machine::Machine;
use crate::table::{number, table};
use crate::target::{self, Bound, Target};

/// Microseconds of the agent's processor time that a pod may cost.
const AGENT_US: f64 = 1000.0;

/// Options of `enrol`.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// How many pods are enrolled at a time; may be given several times [default: 1 10 50 250]
    #[arg(long)]
    pods: Vec<usize>,
    /// How often each is repeated; the median counts
    #[arg(long, default_value_t = 3)]
    repeats: usize,
    /// With a proxy that acks at once and listens nowhere: only the agent's time
    #[arg(long)]
    ack_only: bool,
    /// From an API server, whose programs are in this folder, in place of manifests
    #[arg(long, value_name = "DIR")]
    kube: Option<PathBuf>,
}

/// Time of something done to all pods.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    /// From the label's change to the last pod.
    wall: Duration,
    /// Processor time of the agent, or of iptables-restore, `ip` and the kernel for them.
    cpu: Duration,
}

/// What was measured with a number of pods.
struct Row {
    pods: usize,
    enrol: Cost,
    leave: Cost,
    iptables: Cost,
}

impl Row {
    fn per_pod(&self, time: Duration) -> f64 {
        time.as_secs_f64() * 1e6 / self.pods as f64
    }

    fn json(&self) -> Value {
        let cost = |cost: Cost| {
            json!({
                "wall_us": cost.wall.as_micros() as u64,
                "cpu_us": cost.cpu.as_micros() as u64,
                "wall_us_per_pod": self.per_pod(cost.wall),
                "cpu_us_per_pod": self.per_pod(cost.cpu),
            })
        };
        json!({
            "pods": self.pods,
            "meshgate": cost(self.enrol),
            "meshgate_leave": cost(self.leave),
            "iptables": cost(self.iptables),
        })
    }

    fn cells(&self) -> Vec<String> {
        let costs = [self.enrol, self.leave, self.iptables];
        let times = costs
            .iter()
            .flat_map(|cost| [number(self.per_pod(cost.wall)), number(self.per_pod(cost.cpu))]);
        let total = number(self.enrol.wall.as_secs_f64() * 1e3);
        [self.pods.to_string()]
            .into_iter()
            .chain(times)
            .chain([total])
            .collect()
    }

    fn target(&self) -> Target {
        Target {
            what: format!("agent time to enrol a pod, of {}, µs", self.pods),
            bound: Bound::AtMost(AGENT_US),
            got: self.per_pod(self.enrol.cpu),
        }
    }
}

pub(crate) fn run(options: &Options, quick: bool) -> Result<Report> {
    let (sizes, repeats) = match (quick, options.pods.as_slice()) {
        (true, _) => (&[1, 3][..], 1),
        (false, []) => (&[1, 10, 50, 250][..], options.repeats),
        (false, given) => (given, options.repeats),
    };
    let machine = Machine::here()?;
    let rows = sizes.iter().map(|pods| measure(*pods, repeats, options));
    let rows = rows.collect::<Result<Vec<_>>>()?;
    Ok(report(&machine, repeats, &rows))
}

fn report(machine: &Machine, repeats: usize, rows: &[Row]) -> Report {
    let targets: Vec<Target> = rows.iter().map(Row::target).collect();
    let heads = [
        "PODS",
        "enrol wall",
        "agent CPU",
        "leave wall",
        "agent CPU",
        "iptables wall",
        "CPU",
        "all, ms",
    ];
    let cells: Vec<Vec<String>> = rows.iter().map(Row::cells).collect();
    let mut lines = vec![
        machine.line(),
        format!(
            "One processor; median of {repeats}; microseconds for each pod; last column: all pods enrolled"
        ),
        String::new(),
    ];
    lines.extend(table(&heads, 0, &cells));
    lines.push(String::new());
    lines.extend(target::lines(&targets));
    let json = json!({
        "bench": "enrol",
        "machine": machine.json(),
        "repeats": repeats,
        "rows": rows.iter().map(Row::json).collect::<Vec<_>>(),
        "targets": targets.iter().map(Target::json).collect::<Vec<_>>(),
    });
    Report { lines, json }
}

/// Changes the namespace's label and waits for all pods.
fn label(full: &mut FullNode, ambient: bool) -> Result<Cost> {
    let cgroup = full.node.cgroup().join("node/agent");
    let (began, before) = (Instant::now(), cpu_time(&cgroup)?);
    full.label(ambient)?;
    Ok(Cost {
        wall: began.elapsed(),
        cpu: Duration::from_micros(cpu_time(&cgroup)? - before),
    })
}

/// Rules in each pod, one pod after the other, and nothing else: no proxy, no finding of namespaces.
fn rules(pods: &[Pod]) -> Result<Cost> {
    let (began, before) = (Instant::now(), sys::cpu_time_of_children()?);
    for pod in pods {
        iptables::enrol(pod.netns(), false).with_context(|| format!("rules in {}", pod.name()))?;
    }
    Ok(Cost {
        wall: began.elapsed(),
        cpu: sys::cpu_time_of_children()?.saturating_sub(before),
    })
}

fn measure(pods: usize, repeats: usize, options: &Options) -> Result<Row> {
    let proxy: &[&str] = if options.ack_only { &["--ack-only"] } else { &[] };
    let mut full = match &options.kube {
        Some(assets) => FullNode::in_cluster(pods, proxy, assets)?,
        None => FullNode::new(pods, proxy)?,
    };
    let (mut enrol, mut leave) = (Vec::new(), Vec::new());
    for _ in 0..repeats {
        enrol.push(label(&mut full, true)?);
        leave.push(label(&mut full, false)?);
    }
    Ok(Row {
        pods,
        enrol: median(&enrol),
        leave: median(&leave),
        iptables: rules(&full.pods)?,
    })
}

/// Medians of both times.
fn median(costs: &[Cost]) -> Cost {
    let middle = |of: fn(&Cost) -> Duration| {
        let mut times: Vec<Duration> = costs.iter().map(of).collect();
        times.sort_unstable();
        times.get(times.len() / 2).copied().unwrap_or_default()
    };
    Cost {
        wall: middle(|cost| cost.wall),
        cpu: middle(|cost| cost.cpu),
    }
}
