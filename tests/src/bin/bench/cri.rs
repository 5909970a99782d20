//! `cri`: what our CNI plugin adds to the time in which a container runtime makes a pod's sandbox.

use std::time::{Duration, Instant};

use ::tests::containerd::{Main, Network, RuntimePod};
use ::tests::proxy::Event;
use ::tests::{Agent, Containerd, Node, PodSpec, Proxy};
use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::{Value, json};

use crate::Report;
use crate::machine::Machine;
use crate::table::{number, table};
use crate::target::{self, Bound, Target};

/// Sandboxes that are made at the same time.
const AT_ONCE: [usize; 2] = [1, 8];

/// Options of `cri`.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Sandboxes of each row, in four turns with the others
    #[arg(long, default_value_t = 96)]
    pods: usize,
}

/// What the chain of plugins does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    /// Bridge, host-local and portmap only.
    Without,
    /// Our plugin behind them; the pod is not of the mesh.
    Outside,
    /// Our plugin behind them; the pod is captured.
    Captured,
}

impl Variant {
    const ALL: [Self; 3] = [Self::Without, Self::Outside, Self::Captured];

    fn name(self) -> &'static str {
        match self {
            Self::Without => "without",
            Self::Outside => "outside",
            Self::Captured => "captured",
        }
    }

    /// Milliseconds that a sandbox may take longer, at the median.
    fn bound(self) -> Option<f64> {
        match self {
            Self::Without => None,
            Self::Outside => Some(3.0),
            Self::Captured => Some(5.0),
        }
    }
}

/// Times of sandboxes in milliseconds, sorted.
struct Row {
    variant: Variant,
    at_once: usize,
    times: Vec<f64>,
}

impl Row {
    fn percentile(&self, percent: usize) -> f64 {
        let index = (self.times.len() * percent).div_ceil(100).max(1) - 1;
        self.times.get(index).copied().unwrap_or_default()
    }

    fn cells(&self) -> Vec<String> {
        let times = [50, 90, 99].map(|percent| number(self.percentile(percent)));
        [self.at_once.to_string(), self.variant.name().to_owned()]
            .into_iter()
            .chain(times)
            .collect()
    }

    fn json(&self) -> Value {
        json!({
            "at_once": self.at_once,
            "variant": self.variant.name(),
            "pods": self.times.len(),
            "p50_ms": self.percentile(50),
            "p90_ms": self.percentile(90),
            "p99_ms": self.percentile(99),
        })
    }
}

pub(crate) fn run(options: &Options, quick: bool) -> Result<Report> {
    let (turns, pods) = if quick { (1, 8) } else { (4, options.pods / 4) };
    ensure!(
        (1..=60).contains(&pods),
        "4 up to 240 pods: the network has 200 addresses"
    );
    let machine = Machine::here()?;
    let mut bed = Bed::new()?;
    let mut rows = Vec::new();
    for at_once in AT_ONCE {
        let new = |variant| Row {
            variant,
            at_once,
            times: Vec::new(),
        };
        let mut group = Variant::ALL.map(new);
        for _ in 0..turns {
            for row in &mut group {
                row.times.extend(bed.measure(row.variant, at_once, pods)?);
            }
        }
        rows.extend(group);
    }
    rows.iter_mut().for_each(|row| row.times.sort_by(f64::total_cmp));
    Ok(report(&machine, turns * pods, &rows))
}

fn report(machine: &Machine, pods: usize, rows: &[Row]) -> Report {
    let targets = targets(rows);
    let cells: Vec<_> = rows.iter().map(Row::cells).collect();
    let mut lines = vec![
        machine.line(),
        format!("One processor; RunPodSandbox of {pods} pods in each row; milliseconds"),
        String::new(),
    ];
    lines.extend(table(&["AT ONCE", "PLUGIN", "p50", "p90", "p99"], 2, &cells));
    lines.push(String::new());
    lines.extend(target::lines(&targets));
    let json = json!({
        "bench": "cri",
        "machine": machine.json(),
        "rows": rows.iter().map(Row::json).collect::<Vec<_>>(),
        "targets": targets.iter().map(Target::json).collect::<Vec<_>>(),
    });
    Report { lines, json }
}

/// How much longer one sandbox takes with the plugin.
fn targets(rows: &[Row]) -> Vec<Target> {
    let median = |variant| {
        let mut single = rows.iter().filter(|row| row.at_once == 1);
        single
            .find(|row| row.variant == variant)
            .map(|row| row.percentile(50))
    };
    let target = |variant: Variant| {
        Some(Target {
            what: format!("a sandbox more than without, {}, p50, ms", variant.name()),
            bound: Bound::AtMost(variant.bound()?),
            got: median(variant)? - median(Variant::Without)?,
        })
    };
    Variant::ALL.into_iter().filter_map(target).collect()
}

/// A node with a runtime, an agent and a proxy which acks at once. Dropped in this order.
struct Bed {
    agent: Agent,
    _proxy: Proxy,
    containerd: Containerd,
    node: Node,
    pods: usize,
}

impl Bed {
    fn new() -> Result<Self> {
        let node = Node::new()?;
        let containerd = Containerd::start(&node, &Network::new(&node, Main::Bridge))?;
        let source = format!("file:{}", node.manifests().display());
        let flags = containerd.agent_flags();
        let agent = Agent::start_with(&node, &source, &flags.each_ref().map(String::as_str))?;
        let mut proxy = Proxy::start(&node, "proxy", &[])?;
        proxy.wait_for("the snapshot", |event| {
            matches!(event, Event::Snapshot).then_some(())
        })?;
        Ok(Self {
            agent,
            _proxy: proxy,
            containerd,
            node,
            pods: 0,
        })
    }

    /// Milliseconds of each of so many sandboxes, made by this many callers.
    fn measure(&mut self, variant: Variant, at_once: usize, count: usize) -> Result<Vec<f64>> {
        let network = Network::new(&self.node, Main::Bridge);
        self.containerd.set_network(&match variant {
            Variant::Without => network,
            Variant::Outside | Variant::Captured => network.with_meshgate(&self.node),
        })?;
        let mut pods = self.schedule(variant, count)?;
        let share = count.div_ceil(at_once);
        let times = std::thread::scope(|scope| {
            let callers = pods.chunks_mut(share).map(|pods| scope.spawn(|| run_all(pods)));
            // All are started before one is waited for.
            let callers: Vec<_> = callers.collect();
            let times = callers.into_iter().map(|caller| match caller.join() {
                Ok(times) => times,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            times.collect::<Result<Vec<_>>>()
        })?;
        for pod in &mut pods {
            pod.stop()?;
            pod.remove()?;
            pod.delete(&self.node)?;
        }
        self.wait_for_pods(0)?;
        Ok(times.concat())
    }

    /// Pods that the agent knows: its source is not measured.
    fn schedule(&mut self, variant: Variant, count: usize) -> Result<Vec<RuntimePod>> {
        let pods = (0..count).map(|_| {
            self.pods += 1;
            let spec = PodSpec::new(&format!("pod-{}", self.pods));
            let spec = match variant {
                Variant::Captured => spec.ambient(),
                Variant::Without | Variant::Outside => spec,
            };
            let pod = self.containerd.pod(&self.node, spec)?;
            pod.apply(&self.node)?;
            Ok(pod)
        });
        let pods = pods.collect::<Result<Vec<_>>>()?;
        self.wait_for_pods(count)?;
        Ok(pods)
    }

    fn wait_for_pods(&mut self, count: usize) -> Result<()> {
        self.agent
            .wait_for(&format!("{count} pods to be known"), |status| {
                let known = status.pods.iter().filter(|pod| pod.namespace == "default");
                (known.count() == count).then_some(())
            })
    }
}

/// Has the sandboxes made one after the other; how long each took.
fn run_all(pods: &mut [RuntimePod]) -> Result<Vec<f64>> {
    let times = pods.iter_mut().map(|pod| {
        let began = Instant::now();
        pod.run().with_context(|| pod.name().to_owned())?;
        Ok(milliseconds(began.elapsed()))
    });
    times.collect()
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_that_were_measured() {
        let row = Row {
            variant: Variant::Without,
            at_once: 1,
            times: (1..=200).map(f64::from).collect(),
        };
        assert_eq!([50, 90, 99].map(|p| row.percentile(p)), [100.0, 180.0, 198.0]);
        let one = Row {
            times: vec![7.0],
            ..row
        };
        assert_eq!([50, 90, 99].map(|p| one.percentile(p)), [7.0; 3]);
    }
}
