//! What a pod outside the mesh loses: the same two pods, in turns with and without an agent whose programs are attached.

use ::tests::process::Process;
use ::tests::{Agent, Node, Pod};
use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::bed::{ip, prepare, serve_in};
use crate::cell::{Family, Kind, cpu_time};
use crate::figures::{Figure, Series};
use crate::redirect::{Effort, with_spread};
use crate::table::table;
use crate::target::{Bound, Target};

/// How many percent of its connections a second such a pod may lose.
const LOSS_PERCENT: f64 = 1.0;

/// A difference of one percent needs more repeats than one of twenty.
const OFTENER: usize = 3;

/// What was measured in one family.
pub(crate) struct Row {
    family: Family,
    without: Series,
    with: Series,
}

impl Row {
    /// Percent of the rate that is lost, and percent of processor time more.
    fn loss(&self) -> (f64, f64) {
        let rate = (1.0 - self.with.times(&self.without)) * 100.0;
        (rate, (1.0 / self.with.cheaper(&self.without) - 1.0) * 100.0)
    }

    /// By processor time, which a busy machine does not blur as it does the rate.
    pub(crate) fn target(&self) -> Target {
        Target {
            what: format!(
                "outside, {}, percent more CPU for a connection",
                self.family.name()
            ),
            bound: Bound::AtMost(LOSS_PERCENT),
            got: self.loss().1,
        }
    }

    /// For programs.
    pub(crate) fn json(&self) -> Value {
        let (rate, cpu) = self.loss();
        json!({
            "family": self.family.name(),
            "unit": Kind::Connections.unit(),
            "without_agent": self.without.json(),
            "with_agent": self.with.json(),
            "loss_percent": { "rate": rate, "cpu": cpu },
        })
    }
}

/// For people.
pub(crate) fn lines(rows: &[Row]) -> Vec<String> {
    let heads = ["FAMILY", "UNIT", "no agent", "agent attached", "lost", "by CPU"];
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let (rate, cpu) = row.loss();
            vec![
                row.family.name().to_owned(),
                Kind::Connections.unit().to_owned(),
                with_spread(&row.without),
                with_spread(&row.with),
                format!("{rate:.1} %"),
                format!("{cpu:.1} %"),
            ]
        })
        .collect();
    table(&heads, 2, &rows)
}

/// Two pods that the agent leaves alone, and their node. Dropped in this order.
struct Bed {
    _servers: Vec<Process>,
    client: Pod,
    server: Pod,
    node: Node,
}

/// Measures connections a second in both families.
pub(crate) fn compare(effort: Effort) -> Result<Vec<Row>> {
    let node = Node::new()?;
    let (client, server) = (node.pod("client")?, node.pod("server")?);
    prepare(&node, &[&client, &server])?;
    node.apply(&[&client, &server])?;
    let bed = Bed {
        _servers: serve_in(&[&server])?,
        client,
        server,
        node,
    };
    let mut rows = Family::BOTH.map(|family| Row {
        family,
        without: Series::default(),
        with: Series::default(),
    });
    for repeat in 0..effort.repeats * OFTENER {
        let order = if repeat % 2 == 0 {
            [true, false]
        } else {
            [false, true]
        };
        for attached in order {
            let agent = attached.then(|| Agent::start(&bed.node)).transpose()?;
            for row in &mut rows {
                let figure = measure(&bed, row.family, effort.seconds)?;
                if attached { &mut row.with } else { &mut row.without }.push(figure);
            }
            agent.map_or(Ok(()), detach)?;
        }
    }
    Ok(rows.into())
}

fn measure(bed: &Bed, family: Family, seconds: f64) -> Result<Figure> {
    let destination = std::net::SocketAddr::new(ip(&bed.server, family), Kind::Connections.port());
    let cgroup = bed.node.cgroup().join("kubepods");
    let before = cpu_time(&cgroup)?;
    let report = bed.client.load(&[
        "crr",
        &destination.to_string(),
        "--duration",
        &seconds.to_string(),
    ])?;
    let cpu = cpu_time(&cgroup)? - before;
    let ok = report["ok"].as_f64().unwrap_or_default();
    let failed = report["failed"]
        .as_object()
        .is_some_and(|failed| !failed.is_empty());
    ensure!(
        !failed && ok > 0.0,
        "connections of a pod outside the mesh: {report}"
    );
    Ok(Figure {
        rate: report["per_second"].as_f64().unwrap_or_default(),
        cpu_us: cpu as f64 / ok,
    })
}

fn detach(mut agent: Agent) -> Result<()> {
    agent.stop()?;
    let output = agent.cli(&["cleanup"])?;
    ensure!(
        output.status.success(),
        "meshgate cleanup: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}
