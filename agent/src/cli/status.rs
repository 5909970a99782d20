//! `meshgate status`: the agent, its links and pods, and what is wrong.

use agent_common::ABI_VERSION;
use serde::Serialize;

use super::Exit;
use super::output::{self, Format};
use super::pods::{self, PodRow};
use crate::config::Paths;
use crate::datapath::pins::Pins;
use crate::datapath::state::{self, LinkState};
use crate::datapath::versions;
use crate::lock;
use crate::report::{self, ConditionReport, Problem, ProxyReport, RepairReport, Report};

/// Everything that `status` says.
#[derive(Debug, Serialize)]
pub struct Status {
    /// `ok` or `degraded`.
    pub state: &'static str,
    /// An agent runs.
    pub agent_running: bool,
    /// Version of the agent that wrote the account; empty if none ever did.
    pub agent_version: String,
    /// Cluster and node; empty if no agent ever told.
    pub node: String,
    /// What the node needs to be ready for pods; empty when the agent is dead.
    pub conditions: Vec<ConditionReport>,
    /// The source.
    pub source: String,
    /// Version of the maps' layouts.
    pub abi_version: u32,
    /// Folder of the pins.
    pub pins: String,
    /// Links at the node's root cgroup.
    pub node_links: Vec<LinkState>,
    /// Links at proxies' cgroups.
    pub proxy_links: Vec<LinkState>,
    /// Proxies connected over ZDS; empty when the agent is dead.
    pub proxies: Vec<ProxyReport>,
    /// Pods by state.
    pub pods: PodCount,
    /// What the agent has put right since it started.
    pub repairs: RepairReport,
    /// What is wrong.
    pub problems: Vec<Problem>,
}

/// Pods by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PodCount {
    /// Captured and served.
    pub enabled: usize,
    /// Captured, the proxy has not accepted them: connections are refused.
    pub pending: usize,
    /// To be captured, not yet found.
    pub waiting: usize,
    /// Not in the mesh.
    pub outside: usize,
    /// Believed captured, and not in the maps.
    pub lost: usize,
}

/// Shows the status.
///
/// # Errors
/// When the pins exist and cannot be read.
pub fn execute(paths: &Paths, format: Format) -> anyhow::Result<Exit> {
    let status = gather(paths)?;
    match format {
        Format::Json => output::json(&status)?,
        Format::Table => output::lines(table(&status))?,
    }
    Ok(if status.state == "ok" {
        Exit::Fine
    } else {
        Exit::Degraded
    })
}

fn gather(paths: &Paths) -> anyhow::Result<Status> {
    let pins = Pins::new(&paths.bpffs);
    let agent_running = lock::is_held(&paths.run_dir);
    let account = Report::read(&paths.run_dir);
    let unreadable = account.as_ref().err().map(|error| unreadable(paths, error));
    let report = account.ok().flatten().unwrap_or_default();
    let pods = count(&pods::rows(paths, report.clone())?);
    let node_links = state::node_links(&pins);
    let proxy_links = state::proxy_links(&pins)?;
    let mut problems = report.problems;
    problems.extend(unreadable);
    problems.extend(degraded(agent_running, paths, &node_links, pods));
    problems.extend(versions::others(&pins)?.into_iter().map(of_other_version));
    Ok(Status {
        state: if problems.is_empty() { "ok" } else { "degraded" },
        agent_running,
        agent_version: report.version,
        node: match report.node.as_str() {
            "" => String::new(),
            node => format!("{}/{node}", report.cluster),
        },
        conditions: if agent_running {
            report.conditions
        } else {
            Vec::new()
        },
        source: report.source,
        abi_version: ABI_VERSION,
        pins: pins.root().display().to_string(),
        node_links,
        proxy_links,
        proxies: if agent_running { report.proxies } else { Vec::new() },
        pods,
        repairs: report.repairs,
        problems,
    })
}

fn unreadable(paths: &Paths, error: &std::io::Error) -> Problem {
    Problem {
        object: report::path(&paths.run_dir).display().to_string(),
        problem: format!("what the agent told of itself is not known: {error}"),
        fix: "a running agent writes the file again when it is removed".to_owned(),
    }
}

fn count(rows: &[PodRow]) -> PodCount {
    let of = |state| rows.iter().filter(|row| row.state == state).count();
    PodCount {
        enabled: of("enabled"),
        pending: of("pending"),
        waiting: of("waiting"),
        outside: of("outside"),
        lost: of("lost"),
    }
}

/// What is wrong besides what the agent says itself.
fn degraded(agent_running: bool, paths: &Paths, node_links: &[LinkState], pods: PodCount) -> Vec<Problem> {
    let problem = |object: &str, problem: String, fix: &str| Problem {
        object: object.to_owned(),
        problem,
        fix: fix.to_owned(),
    };
    let mut problems = Vec::new();
    if !agent_running && node_links.iter().all(|link| !link.attached) {
        let told = "nothing is attached or pinned: Meshgate has not run here, or was cleaned up".to_owned();
        return vec![problem("node", told, "start the agent: meshgate run")];
    }
    if !agent_running {
        let told = format!(
            "not running with --run-dir {}; captured pods stay captured",
            paths.run_dir.display()
        );
        problems.push(problem("agent", told, "start it: meshgate run"));
    }
    for link in node_links.iter().filter(|link| !link.attached) {
        let told = "not attached: connections may escape".to_owned();
        problems.push(problem(
            &link.program,
            told,
            "restart the agent: it attaches what is missing",
        ));
    }
    if pods.pending > 0 {
        let told = format!(
            "{} captured without a proxy that serves them: their connections are refused",
            pods.pending
        );
        problems.push(problem(
            "pods",
            told,
            "look at the proxy, and at the reasons in: meshgate pods",
        ));
    }
    if pods.lost > 0 {
        let told = format!("{} believed captured are not in the maps", pods.lost);
        problems.push(problem("pods", told, "restart the agent: it repairs the maps"));
    }
    problems
}

/// Whether the node is ready for pods, as `/readyz` says it.
fn ready(status: &Status) -> &'static str {
    let is_ready = status.agent_running && status.conditions.iter().all(|condition| condition.ready);
    if is_ready { "yes" } else { "NO" }
}

fn of_other_version(version: u32) -> Problem {
    Problem {
        object: "pins".to_owned(),
        problem: format!(
            "pods are captured by the pins of version v{version}, this meshgate reads v{ABI_VERSION}"
        ),
        fix: "look with the meshgate that made them, which is the one to run on this node".to_owned(),
    }
}

fn table(status: &Status) -> Vec<String> {
    let yes = |ok: bool, text: &str| {
        if ok {
            text.to_owned()
        } else {
            format!("NOT {text}")
        }
    };
    let attached = |links: &[LinkState]| {
        format!(
            "{} of {} attached",
            links.iter().filter(|link| link.attached).count(),
            links.len()
        )
    };
    let pods = status.pods;
    let mut lines = vec![
        format!("state         {}", status.state),
        format!(
            "agent         {} {}",
            yes(status.agent_running, "running"),
            status.agent_version
        ),
        format!("ready         {}", ready(status)),
        format!("node          {} (source {})", status.node, status.source),
        format!("pins          {} (layout {})", status.pins, status.abi_version),
        format!("node links    {}", attached(&status.node_links)),
        format!("proxy links   {}", attached(&status.proxy_links)),
        format!("proxies       {} connected", status.proxies.len()),
        format!(
            "pods          {} enabled, {} pending, {} waiting, {} outside, {} lost",
            pods.enabled, pods.pending, pods.waiting, pods.outside, pods.lost
        ),
    ];
    for condition in status.conditions.iter().filter(|condition| !condition.ready) {
        lines.push(format!("not ready     {}: {}", condition.name, condition.missing));
    }
    let RepairReport {
        links,
        pins,
        rows,
        versions,
    } = status.repairs;
    if links + pins + rows + versions > 0 {
        lines.push(format!(
            "repaired      {links} links at the start, {pins} pins since, {rows} rows, {versions} other versions"
        ));
    }
    for problem in &status.problems {
        lines.push(format!("problem       {}: {}", problem.object, problem.problem));
        lines.push(format!("  to do       {}", problem.fix));
    }
    lines
}
