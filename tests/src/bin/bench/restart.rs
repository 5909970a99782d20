//! `restart`: how long an agent that starts again takes until it is ready, with pods that it finds captured.

use std::time::{Duration, Instant};

use ::tests::FullNode;
use ::tests::full_node::MOST;
use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};

use crate::Report;
use crate::cell::cpu_time;
use crate::machine::Machine;
use crate::table::{number, table};
use crate::target::{self, Bound, Target};

/// Milliseconds that a restart may take.
const READY_MS: f64 = 500.0;

/// Options of `restart`.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// How many pods the node has; may be given several times [default: 1 110 250]
    #[arg(long)]
    pods: Vec<usize>,
    /// How often each is repeated; the median counts
    #[arg(long, default_value_t = 5)]
    repeats: usize,
}

/// Restarts with a number of pods, sorted by time.
struct Row {
    pods: usize,
    ready: Vec<Duration>,
    cpu: Vec<Duration>,
}

impl Row {
    fn median(times: &[Duration]) -> f64 {
        times
            .get(times.len() / 2)
            .copied()
            .unwrap_or_default()
            .as_secs_f64()
            * 1e3
    }

    fn cells(&self) -> Vec<String> {
        let worst = self.ready.last().copied().unwrap_or_default().as_secs_f64() * 1e3;
        let times = [Self::median(&self.ready), worst, Self::median(&self.cpu)];
        [self.pods.to_string()]
            .into_iter()
            .chain(times.map(number))
            .collect()
    }

    fn json(&self) -> Value {
        json!({
            "pods": self.pods,
            "ready_ms": Self::median(&self.ready),
            "ready_ms_worst": self.ready.last().copied().unwrap_or_default().as_secs_f64() * 1e3,
            "cpu_ms": Self::median(&self.cpu),
        })
    }

    fn target(&self) -> Target {
        Target {
            what: format!("ready again with {} pods, ms", self.pods),
            bound: Bound::AtMost(READY_MS),
            got: Self::median(&self.ready),
        }
    }
}

pub(crate) fn run(options: &Options, quick: bool) -> Result<Report> {
    let (sizes, repeats) = match (quick, options.pods.as_slice()) {
        (true, _) => (&[1, 3][..], 1),
        (false, []) => (&[1, 110, 250][..], options.repeats),
        (false, given) => (given, options.repeats),
    };
    let machine = Machine::here()?;
    let rows = sizes.iter().map(|pods| measure((*pods).min(MOST), repeats));
    let rows = rows.collect::<Result<Vec<_>>>()?;
    let targets: Vec<Target> = rows.iter().map(Row::target).collect();
    let cells: Vec<Vec<String>> = rows.iter().map(Row::cells).collect();
    let mut lines = vec![
        machine.line(),
        format!("One processor; {repeats} restarts; milliseconds from the start of the process"),
        String::new(),
    ];
    lines.extend(table(&["PODS", "ready", "worst", "agent CPU"], 0, &cells));
    lines.push(String::new());
    lines.extend(target::lines(&targets));
    let json = json!({
        "bench": "restart",
        "machine": machine.json(),
        "repeats": repeats,
        "rows": rows.iter().map(Row::json).collect::<Vec<_>>(),
        "targets": targets.iter().map(Target::json).collect::<Vec<_>>(),
    });
    Ok(Report { lines, json })
}

fn measure(pods: usize, repeats: usize) -> Result<Row> {
    let mut full = FullNode::new(pods, &["--ack-only"])?;
    full.label(true)?;
    let cgroup = full.node.cgroup().join("node/agent");
    let (mut ready, mut cpu) = (Vec::new(), Vec::new());
    for _ in 0..repeats {
        full.agent.kill9();
        let (began, before) = (Instant::now(), cpu_time(&cgroup)?);
        full.agent.spawn()?;
        full.agent.wait_until_ready()?;
        ready.push(began.elapsed());
        cpu.push(Duration::from_micros(cpu_time(&cgroup)? - before));
        full.wait_for("enabled")?;
    }
    ready.sort_unstable();
    cpu.sort_unstable();
    Ok(Row { pods, ready, cpu })
}
