//! `cni`: how long the plugin keeps a runtime waiting, started as a runtime starts it, beside a program that does nothing.

mod scene;

use std::process::Command;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use ::tests::cni::{Answer, Plugin, feed};
use ::tests::{Pod, sys};
use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::{Value, json};

use crate::Report;
use crate::machine::Machine;
use crate::table::{number, table};
use crate::target::{self, Bound, Target};
use scene::Scene;

/// Pods of each kind on one node: they share a network of 254 addresses.
const BATCH: usize = 75;

/// Options of `cni`.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// How many pods of each kind
    #[arg(long, default_value_t = 300)]
    adds: usize,
    /// How many are added at the same time in the last row
    #[arg(long, default_value_t = 8)]
    at_once: usize,
}

/// Something that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// `true`: what any process costs.
    Nothing,
    /// The plugin, without an agent.
    Start,
    /// A pod outside the mesh.
    Outside,
    /// A pod of the mesh.
    Inside,
    /// Pods of the mesh, several at a time.
    AtOnce,
}

impl Kind {
    const ALL: [Self; 5] = [
        Self::Nothing,
        Self::Start,
        Self::Outside,
        Self::Inside,
        Self::AtOnce,
    ];

    fn name(self, at_once: usize) -> String {
        match self {
            Self::Nothing => "true (does nothing)".to_owned(),
            Self::Start => "VERSION (start only)".to_owned(),
            Self::Outside => "ADD outside the mesh".to_owned(),
            Self::Inside => "ADD in the mesh".to_owned(),
            Self::AtOnce => format!("ADD in the mesh, {at_once} at once"),
        }
    }

    fn field(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Start => "start",
            Self::Outside => "outside",
            Self::Inside => "inside",
            Self::AtOnce => "at_once",
        }
    }

    /// Milliseconds that the median and the slowest of a hundred may take.
    fn targets(self) -> [Option<f64>; 2] {
        match self {
            Self::Nothing | Self::Start => [None, None],
            Self::Outside => [Some(3.0), Some(10.0)],
            Self::Inside => [Some(5.0), Some(15.0)],
            Self::AtOnce => [Some(10.0), None],
        }
    }
}

/// What was measured of a kind.
#[derive(Clone, Debug, Default)]
struct Row {
    took: Vec<Duration>,
    process_cpu: Duration,
    agent_cpu: Duration,
}

impl Row {
    /// Milliseconds that so many of a hundred did not exceed.
    fn percentile(&self, percent: usize) -> f64 {
        let mut took = self.took.clone();
        took.sort_unstable();
        let at = (took.len() * percent).div_ceil(100).saturating_sub(1);
        took.get(at).copied().unwrap_or_default().as_secs_f64() * 1e3
    }

    /// Milliseconds of processor time for each.
    fn each(&self, time: Duration) -> f64 {
        time.as_secs_f64() * 1e3 / self.took.len().max(1) as f64
    }

    fn figures(&self) -> [f64; 4] {
        let cpu = [self.each(self.process_cpu), self.each(self.agent_cpu)];
        [self.percentile(50), self.percentile(99), cpu[0], cpu[1]]
    }
}

pub(crate) fn run(options: &Options, quick: bool) -> Result<Report> {
    let adds = if quick { 9 } else { options.adds };
    ensure!(adds > 0 && options.at_once > 0, "nothing to measure");
    let mut rows = vec![Row::default(); Kind::ALL.len()];
    let mut left = adds;
    while left > 0 {
        let batch = left.min(BATCH);
        measure(&mut Scene::new(batch)?, options.at_once, &mut rows)?;
        left -= batch;
    }
    Ok(report(&Machine::here()?, adds, options.at_once, &rows))
}

/// One batch. The kinds take turns, so that what slows the machine down for a while slows all; several at once come last.
fn measure(scene: &mut Scene, at_once: usize, rows: &mut [Row]) -> Result<()> {
    let [outside, inside, together] = scene.pods()?;
    for (outside, inside) in outside.iter().zip(&inside) {
        let turns: [(Kind, &dyn Fn() -> Result<Answer>); 4] = [
            (Kind::Nothing, &|| feed(&mut Command::new("true"), b"")?.wait()),
            (Kind::Start, &|| scene.plugin.call("VERSION")),
            (Kind::Outside, &|| scene.plugin.add(outside)),
            (Kind::Inside, &|| scene.plugin.add(inside)),
        ];
        for (kind, call) in turns {
            let row = &mut rows[kind as usize];
            let before = (sys::cpu_time_of_children()?, scene.agent_cpu()?);
            let answer = call()?;
            ensure!(answer.success, "{kind:?}: {}", answer.error());
            row.took.push(answer.took);
            row.process_cpu += sys::cpu_time_of_children()?.saturating_sub(before.0);
            row.agent_cpu += scene.agent_cpu()?.saturating_sub(before.1);
        }
    }
    let row = &mut rows[Kind::AtOnce as usize];
    let before = (sys::cpu_time_of_children()?, scene.agent_cpu()?);
    row.took.extend(several(&scene.plugin, &together, at_once)?);
    row.process_cpu += sys::cpu_time_of_children()?.saturating_sub(before.0);
    row.agent_cpu += scene.agent_cpu()?.saturating_sub(before.1);
    Ok(())
}

/// Adds all pods, so many at a time.
fn several(plugin: &Plugin, pods: &[Pod], at_once: usize) -> Result<Vec<Duration>> {
    let next = Mutex::new(pods.iter());
    let work = || -> Result<Vec<Duration>> {
        let mut took = Vec::new();
        loop {
            let pod = next.lock().ok().and_then(|mut pods| pods.next());
            let Some(pod) = pod else { return Ok(took) };
            let answer = plugin.add(pod)?;
            ensure!(answer.success, "{}", answer.error());
            took.push(answer.took);
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..at_once).map(|_| scope.spawn(work)).collect();
        let mut all = Vec::new();
        for worker in workers {
            all.extend(worker.join().ok().context("a worker panicked")??);
        }
        Ok(all)
    })
}

fn report(machine: &Machine, adds: usize, at_once: usize, rows: &[Row]) -> Report {
    let rows: Vec<_> = Kind::ALL.into_iter().zip(rows).collect();
    let targets: Vec<Target> = rows
        .iter()
        .flat_map(|(kind, row)| targets(*kind, row, at_once))
        .collect();
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|(kind, row)| {
            [kind.name(at_once)]
                .into_iter()
                .chain(row.figures().map(number))
                .collect()
        })
        .collect();
    let mut lines = vec![
        machine.line(),
        format!(
            "{adds} of each; milliseconds from the process' start to its end, and of processor time for each"
        ),
        String::new(),
    ];
    lines.extend(table(&["", "p50", "p99", "its CPU", "agent's CPU"], 1, &cells));
    lines.push(String::new());
    lines.extend(target::lines(&targets));
    let figures = |(kind, row): &(Kind, &Row)| {
        let [p50, p99, process, agent] = row.figures();
        let value = json!({"p50_ms": p50, "p99_ms": p99, "process_cpu_ms": process, "agent_cpu_ms": agent});
        (kind.field().to_owned(), value)
    };
    let json = json!({
        "bench": "cni",
        "machine": machine.json(),
        "adds": adds,
        "at_once": at_once,
        "rows": rows.iter().map(figures).collect::<serde_json::Map<String, Value>>(),
        "targets": targets.iter().map(Target::json).collect::<Vec<_>>(),
    });
    Report { lines, json }
}

fn targets(kind: Kind, row: &Row, at_once: usize) -> Vec<Target> {
    let wanted = kind.targets().into_iter().zip([50, 99]);
    wanted
        .filter_map(|(wanted, percent)| {
            Some(Target {
                what: format!("{}, p{percent}, ms", kind.name(at_once)),
                bound: Bound::AtMost(wanted?),
                got: row.percentile(percent),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_nearest_rank() {
        let took = (1..=300).rev().map(Duration::from_millis).collect();
        let row = Row {
            took,
            ..Row::default()
        };
        assert_eq!((row.percentile(50), row.percentile(99)), (150.0, 297.0));
        assert_eq!(Row::default().percentile(50), 0.0);
    }
}
