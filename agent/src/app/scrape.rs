//! Metrics that are read when they are asked for: what the parts tell, and what the kernel holds. docs/metrics.md has
//! a line for each.

use std::collections::BTreeMap;

use agent_common::ABI_VERSION;
use agent_common::counters::PodCounters;
use agent_common::pod::NetnsKey;
use agent_core::problem::ProblemKind;

use tokio::sync::watch;

use crate::cni::Stats;
use crate::datapath::pins::Pins;
use crate::datapath::tables::Tables;
use crate::datapath::usage;
use crate::enrol::Handle;
use crate::install;
use crate::ops::{Family, Kind, Metrics};
use crate::zds::Zds;

/// The parts that are asked.
pub(super) struct Scrape {
    handle: Handle,
    zds: Zds,
    cni: watch::Receiver<Stats>,
    install: watch::Receiver<install::Stats>,
}

/// The states of pods, all of them, so that a state without pods is told too.
const STATES: [&str; 5] = ["outside", "waiting", "pending", "enabled", "leaving"];

impl Scrape {
    pub(super) fn new(
        handle: Handle,
        zds: Zds,
        cni: watch::Receiver<Stats>,
        install: watch::Receiver<install::Stats>,
    ) -> Self {
        Self {
            handle,
            zds,
            cni,
            install,
        }
    }

    /// Whether the CNI plugin is on the node, or need not be.
    pub(super) fn install_ready(is_ready: bool) -> Family {
        Family::gauge(
            "istio_cni_install_ready",
            "Whether the CNI plugin is installed, or need not be",
            f64::from(u8::from(is_ready)),
        )
    }

    /// What the parts tell.
    pub(super) fn told(&self, metrics: &Metrics) -> Vec<Family> {
        let mut families = self.enrolment(metrics);
        families.extend(self.proxies());
        families.extend(self.plugin());
        families
    }

    /// Counters that are there before they count let their first step be seen.
    fn plugin(&self) -> Vec<Family> {
        let stats = self.cni.borrow();
        let mut answers = BTreeMap::from([(200, 0), (500, 0)]);
        answers.extend(stats.answers.iter().map(|(code, count)| (*code, *count)));
        let requests = Family::new(
            Kind::Counter,
            "istio_cni_plugin_requests",
            "Requests of the CNI plugin by HTTP status of the answer",
        );
        let answered = |family: Family, (code, count): (u16, u64)| {
            family.with(&[("response_code", &code.to_string())], count as f64)
        };
        let install = self.install.borrow();
        let installs = [
            ("SUCCESS", install.success as f64),
            ("COPY_BINARIES_FAILURE", install.copy_binaries as f64),
            ("CREATE_KUBECONFIG_FAILURE", install.create_kubeconfig as f64),
            ("CREATE_CNI_CONFIG_FAILURE", install.create_cni_config as f64),
        ];
        vec![
            Family::new(
                Kind::Counter,
                "istio_cni_installs",
                "Attempts to install the CNI plugin on the node by result",
            )
            .by("result", installs),
            answers.into_iter().fold(requests, answered),
            Family::counter(
                "meshgate_cni_log_lines_dropped",
                "Lines of the CNI plugin's log that could not be read",
                stats.dropped_lines as f64,
            ),
        ]
    }

    fn enrolment(&self, metrics: &Metrics) -> Vec<Family> {
        let mut pods: BTreeMap<&str, f64> = STATES.map(|state| (state, 0.0)).into();
        for report in self.handle.reports().borrow().values() {
            *pods.entry(report.state.as_str()).or_default() += 1.0;
        }
        let kinds = ProblemKind::ALL.map(|kind| (kind.as_str(), 0.0));
        let mut problems: BTreeMap<&str, f64> = kinds.into();
        for problem in self.handle.problems().borrow().iter() {
            *problems.entry(problem.kind.as_str()).or_default() += 1.0;
        }
        let is_stale = problems[ProblemKind::SourceStale.as_str()] > 0.0;
        let is_current = !is_stale && metrics.last_fact() > 0.0;
        vec![
            Family::new(Kind::Gauge, "meshgate_pods", "Pods of this node by state").by("state", pods),
            Family::new(
                Kind::Gauge,
                "meshgate_problems",
                "What is wrong at the moment with pods, namespaces and the source, by sort",
            )
            .by("kind", problems),
            Family::gauge(
                "meshgate_source_current",
                "Whether the source can be read: what it told is what is",
                f64::from(u8::from(is_current)),
            ),
            Family::gauge(
                "meshgate_source_last_event_timestamp_seconds",
                "When the source told something last, in seconds since the epoch; 0 before",
                metrics.last_fact(),
            ),
        ]
    }

    fn proxies(&self) -> Vec<Family> {
        let (connections, stats) = (self.zds.connections(), self.zds.stats());
        let synced = connections.iter().filter(|connection| connection.snapshot_done);
        vec![
            Family::gauge(
                "ztunnel_connected",
                "Proxies that are connected",
                connections.len() as f64,
            ),
            Family::gauge(
                "meshgate_proxies_synced",
                "Proxies that have answered for all pods",
                synced.count() as f64,
            ),
            Family::counter(
                "meshgate_zds_connections",
                "Connections of proxies that were accepted",
                stats.accepted as f64,
            ),
            Family::counter(
                "meshgate_zds_refusals",
                "Pods that a proxy refused to serve",
                stats.refusals as f64,
            ),
            Family::new(
                Kind::Counter,
                "meshgate_zds_errors",
                "Connections of proxies that the agent closed by cause",
            )
            .by(
                "cause",
                [
                    ("protocol", stats.protocol_errors as f64),
                    ("timeout", stats.timeouts as f64),
                    ("unknown_peer", stats.unknown_peers as f64),
                    ("attach", stats.attach_failures as f64),
                ],
            ),
            Family::new(
                Kind::Gauge,
                "meshgate_build_info",
                "Version of the agent and of its maps",
            )
            .with(
                &[
                    ("version", env!("CARGO_PKG_VERSION")),
                    ("layout", &ABI_VERSION.to_string()),
                ],
                1.0,
            ),
        ]
    }

    /// What the kernel holds. What cannot be read is left out, and said in the log.
    pub(super) fn kernel(pins: &Pins, by_pod: bool) -> Vec<Family> {
        let tables = match Tables::open(pins) {
            Ok(tables) => tables,
            Err(error) => {
                tracing::warn!("metrics of the kernel are left out: {error}");
                return Vec::new();
            }
        };
        let parts = [
            decisions(&tables, by_pod),
            maps(pins, &tables),
            links(pins, &tables),
        ];
        let told = parts.into_iter().filter_map(|part| {
            part.inspect_err(|error| tracing::warn!("metrics of the kernel are left out: {error}"))
                .ok()
        });
        told.flatten().collect()
    }
}

/// Decisions of the programs: sums that go on when a pod goes, and each pod's own if asked for.
fn decisions(tables: &Tables, by_pod: bool) -> anyhow::Result<Vec<Family>> {
    let counted = tables.count()?;
    let mut sum = PodCounters::default();
    counted.values().for_each(|counters| sum.add(counters));
    let values = sum.fields().map(|(name, _, value)| (name, value as f64));
    let sums = Family::new(
        Kind::Counter,
        "meshgate_decisions",
        "Connections and listeners by what the programs decided of them",
    )
    .by("reason", values);
    if !by_pod {
        return Ok(vec![sums]);
    }
    let mut pods = Family::new(
        Kind::Counter,
        "meshgate_pod_decisions",
        "The same for each pod that is captured",
    );
    for entry in tables.entries()? {
        let key = NetnsKey { netns: entry.netns.0 };
        for (name, _, value) in counted.get(&key).copied().unwrap_or_default().fields() {
            let labels = [
                ("namespace", entry.pod.namespace.as_str()),
                ("pod", entry.pod.name.as_str()),
                ("uid", entry.pod.uid.as_str()),
                ("reason", name),
            ];
            pods = pods.with(&labels, value as f64);
        }
    }
    Ok(vec![sums, pods])
}

fn maps(pins: &Pins, tables: &Tables) -> anyhow::Result<Vec<Family>> {
    let maps = usage::maps(pins, tables)?;
    let entries = maps.iter().map(|map| (map.name, map.entries as f64));
    let capacity = maps.iter().map(|map| (map.name, f64::from(map.capacity)));
    Ok(vec![
        Family::new(Kind::Gauge, "meshgate_map_entries", "Entries of a map").by("map", entries),
        Family::new(
            Kind::Gauge,
            "meshgate_map_capacity",
            "Entries that a map has room for",
        )
        .by("map", capacity),
    ])
}

fn links(pins: &Pins, tables: &Tables) -> anyhow::Result<Vec<Family>> {
    let links = usage::links(pins, tables)?;
    let expected = links.iter().map(|link| (link.target, link.expected as f64));
    let attached = links.iter().map(|link| (link.target, link.attached as f64));
    Ok(vec![
        Family::new(
            Kind::Gauge,
            "meshgate_links_expected",
            "Programs that should be attached by what to",
        )
        .by("target", expected),
        Family::new(
            Kind::Gauge,
            "meshgate_links_attached",
            "Those of them that are attached",
        )
        .by("target", attached),
    ])
}
