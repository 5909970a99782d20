//! The composition root: the only place that knows all parts. Start order: lock, datapath (what is captured stays so),
//! proxies' and plugin's sockets, source, enrolment; the proxies get their snapshot when all pods are known. At the end everything
//! stays captured, for the next agent.

mod account;
mod announce;
mod cgroups;
mod end;
mod host_rules;
pub mod installation;
mod mounts;
mod operation;
mod pins;
mod program_log;
mod proxies;
mod run_folder;
mod scrape;

use std::fs::File;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use agent_core::catalog::Catalog;
use agent_core::departure::Departure;
use agent_core::enrolment::Rules;
use agent_core::facts::{Fact, Place};
use agent_core::selector::{EnablementSelector, istio_defaults, validate};
use anyhow::Context;
use tokio::sync::{Notify, mpsc};

use crate::cni::{self, Admissions, Counters, LogSocket, PluginSocket};
use crate::config::{ConfigError, Paths, RunArgs, Source, cgroup2_mount_of};
use crate::datapath::kernel::{self, KernelDatapath};
use crate::datapath::program_log::ProgramLog;
use crate::enrol::{Enrolment, Handle, Ports};
use crate::netns::NetnsId;
use crate::netns::enter::cookie;
use crate::netns::find::CgroupFinder;
use crate::ops::{Admitted, Condition, Log, Metrics};
use crate::ports::{PodEvents, PodStatus};
use crate::report::RepairReport;
use crate::source::connection::Connection;
use crate::source::events::{KubeEvents, NoEvents};
use crate::source::file::FileSource;
use crate::source::kube::KubeSource;
use crate::source::status::{KubeStatus, NoStatus};
use crate::sys;
use crate::zds::{self, Zds};
use account::Account;
use end::{End, Signals};
use installation::Installation;
use operation::Operation;
use proxies::{TurnedAway, on_connect};
use run_folder::{RunFolder, mark_ready};
use scrape::Scrape;

/// Facts on their way from the source to the worker.
const FACTS: usize = 1024;

/// Runs the agent until it is told to stop; returns what its end is.
///
/// # Errors
/// When it cannot start, or a part that it cannot do without ends.
pub async fn run(paths: &Paths, args: &RunArgs, log: &Log) -> anyhow::Result<Departure> {
    let signals = Signals::listen()?;
    let folder = RunFolder::take(&paths.run_dir)?;
    let place = args.place();
    // Before anything is attached: wrong settings change nothing on the node.
    let rules = rules(args)?;
    let selectors = rules.selectors.clone();
    let catalog = Catalog::new(place.clone(), rules);
    let source = match args.source() {
        Source::Kube => None,
        Source::File(path) => Some((FileSource::open(&path, place.cluster().clone())?, path)),
    };
    let operation = Operation::open(paths, args, log)?;
    let installation = Installation::new(args, &selectors, &operation.readiness)?;
    let node = node(paths, args, &place)?;
    let (facts, received) = mpsc::channel(FACTS);
    let parts = Parts {
        signals,
        folder,
        paths,
        args,
        operation,
        installation,
        node,
        catalog,
        received,
    };
    match source {
        None => {
            let connection = Connection::new(args.kubeconfig.clone());
            let source = KubeSource::new(connection.clone(), place.node.clone());
            let told = async move {
                source.run(facts).await;
                Ok(())
            };
            let outside = Outside {
                end: End::in_cluster(&args.lifecycle, &connection, &place.node.name),
                events: KubeEvents::new(connection.clone(), place.node.name.clone()),
                status: KubeStatus::new(connection),
            };
            serve(parts, outside, told, "kube").await
        }
        Some((source, path)) => {
            let told = async move { source.run(facts).await.map_err(anyhow::Error::from) };
            let outside = Outside {
                end: End::elsewhere(&args.lifecycle),
                events: NoEvents,
                status: NoStatus,
            };
            serve(parts, outside, told, &format!("file:{}", path.display())).await
        }
    }
}

/// What does not depend on the source.
struct Parts<'a> {
    signals: Signals,
    folder: RunFolder,
    paths: &'a Paths,
    args: &'a RunArgs,
    operation: Operation,
    installation: Installation,
    node: NodeSide,
    catalog: Catalog,
    received: mpsc::Receiver<Fact>,
}

/// What differs between a cluster and a folder of manifests, beside the source.
struct Outside<S, E> {
    status: S,
    events: E,
    end: End,
}

/// The node's kernel side, how pods are found on it, and its own network namespace.
struct NodeSide {
    datapath: KernelDatapath,
    finder: CgroupFinder,
    netns: NetnsId,
    program_log: Option<ProgramLog>,
    repairs: RepairReport,
}

fn node(paths: &Paths, args: &RunArgs, place: &Place) -> anyhow::Result<NodeSide> {
    let (cgroup_root, host_netns) = (paths.cgroup_root()?, paths.host_netns());
    let opened = File::open(&host_netns).with_context(|| {
        format!(
            "opening the node's network namespace {}: give --host-netns",
            host_netns.display()
        )
    })?;
    let config = kernel::Config {
        bpffs: paths.bpffs.clone(),
        may_mount: args.mount_bpffs,
        cgroup_root: cgroup_root.clone(),
        node_netns: cookie(&opened)?,
        node_network: place.default_network.clone(),
        proc_root: args.proc_root(),
        program_log: args.ops.program_log,
    };
    let (mut datapath, start) = KernelDatapath::open(config)?;
    if start.mounted_bpffs {
        tracing::info!("bpffs was mounted at {}", paths.bpffs.display());
    }
    for version in &start.leftovers {
        tracing::warn!("pins of version v{version}, which nothing used, are removed");
    }
    if let Some(version) = start.upgraded_from {
        tracing::info!("the pins of version v{version} are taken over");
    }
    tracing::info!(
        adopted = start.adopted,
        attached = start.attached,
        removed = start.removed,
        pods = start.pods,
        "the programs are attached"
    );
    let finder = CgroupFinder::new(&cgroup_root, &args.proc_root(), &opened)?;
    // Nothing is missing on a node without an earlier agent.
    let missing = if start.adopted > 0 { start.attached } else { 0 };
    Ok(NodeSide {
        program_log: datapath.take_program_log()?,
        datapath,
        finder,
        netns: NetnsId::of(&opened)?,
        repairs: RepairReport {
            links: (start.removed + missing) as u64,
            versions: start.leftovers.len() as u64,
            ..RepairReport::default()
        },
    })
}

/// The rules of enrolment, as configured.
fn rules(args: &RunArgs) -> Result<Rules, ConfigError> {
    let selectors: Vec<EnablementSelector> = match args.enablement_selector.as_deref() {
        None => istio_defaults(),
        Some(text) if text.trim().is_empty() => Vec::new(),
        Some(text) => {
            serde_saphyr::from_str(text).map_err(|error| ConfigError::Selector(error.to_string()))?
        }
    };
    validate(&selectors).map_err(|error| ConfigError::Selector(error.to_string()))?;
    let excluded_namespaces = args.excluded_namespaces().into_iter().collect();
    Ok(Rules {
        selectors,
        excluded_namespaces,
        dns_capture: args.dns_capture,
    })
}

/// Puts the parts together and lets them work.
async fn serve<S: PodStatus + 'static, E: PodEvents>(
    parts: Parts<'_>,
    outside: Outside<S, E>,
    source: impl Future<Output = anyhow::Result<()>>,
    source_name: &str,
) -> anyhow::Result<Departure> {
    let Parts {
        mut signals,
        folder,
        paths,
        args,
        operation,
        installation,
        node,
        catalog,
        received,
    } = parts;
    let Outside {
        status,
        events: events_of_pods,
        end,
    } = outside;
    let (metrics, watch) = (operation.metrics.clone(), operation.watch.clone());
    let worker: Arc<OnceLock<Handle>> = Arc::default();
    let turned_away = TurnedAway::default();
    let zds = Zds::bind(
        zds_config(args, &paths.cgroup_root()?),
        on_connect(worker.clone(), turned_away.clone()),
        operation.socket("proxy socket"),
    )?;
    let events = zds.events();
    let plugin_socket = PluginSocket::bind(&args.plugin_socket(), operation.socket("plugin socket"))?;
    let log_socket = LogSocket::bind(&args.log_socket())?;
    let ports = Ports {
        datapath: node.datapath,
        proxy: Arc::new(zds.clone()),
        status: Arc::new(status),
        finder: node.finder,
    };
    let (enrolment, handle) = Enrolment::new(catalog, ports, received);
    let enrolment = enrolment.observed_by(metrics.clone());
    let _ = worker.set(handle.clone());
    let counters = Counters::default();
    let admissions = Admissions::new(
        handle.clone(),
        args.host_root.clone(),
        node.netns,
        args.cni.failure_policy,
        counters.clone(),
    );
    let account = Account::new(
        paths,
        args,
        source_name,
        account::Parts {
            zds: zds.clone(),
            handle: handle.clone(),
            turned_away: turned_away.subscribe(),
            cni: counters.subscribe(),
            install: installation.stats(),
            conditions: operation.readiness.watch(),
        },
    )
    .after(node.repairs);
    let scrape = Scrape::new(
        handle.clone(),
        zds.clone(),
        counters.subscribe(),
        installation.stats(),
    );
    let node_name = args.place().node.name;
    let readiness = operation.readiness.clone();
    let account_lost = Notify::new();
    let pins_there = operation
        .readiness
        .require("pins", "the pins are not looked at yet");
    // Most parts end only when something is wrong.
    let ended = tokio::select! {
        ended = enrolment.run() => ended.context("enrolment"),
        ended = source => ended.context("the source ended"),
        () = proxies::follow(&zds, events, &handle) => anyhow::bail!("the ZDS server ended"),
        never = log_socket.serve(counters.clone()) => match never {},
        never = plugin_socket.serve(counters, move |event| {
            admit(admissions.clone(), metrics.clone(), event)
        }) => match never {},
        ended = folder.keep(&readiness, &account_lost) => ended.context("keeping the run folder"),
        () = pins::watch(&paths.bpffs, &handle, &pins_there) => anyhow::bail!("enrolment ended"),
        ended = announce::announce(&handle, &events_of_pods, &node_name) => ended.context("announcing"),
        never = operation.serve(scrape) => match never {},
        ended = account.keep(&account_lost) => ended.context("writing the status"),
        ended = program_log::tell(node.program_log) => ended.context("reading the programs' log"),
        ended = host_rules::remove(&handle, paths) => ended,
        ended = installation.run() => ended,
        ended = start(&zds, &handle, paths, &watch, &end) => ended,
        departure = end.told(&mut signals) => return Ok(departure),
    };
    ended.map(|()| Departure::Stays {
        why: "a part of the agent has ended".to_owned(),
    })
}

/// The plugin need not know which of them it was: captured, or not to be.
async fn admit(admissions: Admissions, metrics: Metrics, event: cni::Event) -> Result<(), cni::Refusal> {
    let began = Instant::now();
    let admitted = admissions.admit(event).await;
    let outcome = match &admitted {
        Ok(cni::Admitted::Captured) => Admitted::Captured,
        Ok(cni::Admitted::Outside) => Admitted::Outside,
        Ok(cni::Admitted::LetThrough) => Admitted::LetThrough,
        Err(_) => Admitted::Refused,
    };
    metrics.admitted(outcome, began.elapsed());
    admitted.map(drop)
}

/// Lets the proxies have their snapshots once all pods are known; never ends.
async fn start(
    zds: &Zds,
    handle: &Handle,
    paths: &Paths,
    watch: &Condition,
    end: &End,
) -> anyhow::Result<()> {
    handle.adopted().await?;
    zds.open_gate();
    watch.holds();
    mark_ready(&paths.run_dir)?;
    println!("ready");
    sys::memory::trim();
    end.prepare().await;
    std::future::pending().await
}

/// Cgroups are told from the top of their hierarchy, of which `cgroup_root` may be a part.
fn zds_config(args: &RunArgs, cgroup_root: &Path) -> zds::Config {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    zds::Config {
        socket: args.zds_socket.clone(),
        proc_root: args.proc_root(),
        cgroup_root: cgroup2_mount_of(&mounts, cgroup_root).unwrap_or_else(|| cgroup_root.to_owned()),
        ..zds::Config::default()
    }
}

/// Waits for SIGTERM or SIGINT, and does nothing else.
///
/// # Errors
/// When signals cannot be awaited.
pub fn until_told_to_stop() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        Signals::listen()?.told().await;
        Ok(())
    })
}

/// Starts the log.
///
/// # Errors
/// When its levels are none.
pub fn log_to_stderr(args: &RunArgs) -> anyhow::Result<Log> {
    Log::start(&args.ops.log_level, args.ops.log_as_json).context("--log-level (MESHGATE_LOG)")
}
