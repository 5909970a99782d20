//! `dns`: what a captured question costs, led by iptables and by Meshgate, beside asking the proxy itself.

use std::net::SocketAddr;

use ::tests::zds::ZdsServer;
use ::tests::{Agent, Node, Pod, PodSpec, Proxy, iptables};
use agent_common::ports;
use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::{Value, json};

use crate::Report;
use crate::bed::{Control, Variant, ip, prepare};
use crate::cell::{Family, cpu_time};
use crate::figures::{Figure, Series};
use crate::machine::Machine;
use crate::redirect::with_spread;
use crate::table::{number, table};

/// How questions reach the proxy.
const VARIANTS: [Variant; 3] = [Variant::Iptables, Variant::Meshgate, Variant::Limit];
/// How sockets ask: those of glibc and Go are connected, those of musl are not.
const WAYS: [&str; 2] = ["connected", "messages"];

/// Options of `dns`.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// How often each measurement is repeated
    #[arg(long, default_value_t = 7)]
    repeats: usize,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
}

/// A node whose client asks in one of the variants. Fields are dropped in this order.
struct Bed {
    variant: Variant,
    _control: Control,
    _proxy: Proxy,
    client: Pod,
    outside: Pod,
    node: Node,
}

impl Bed {
    fn new(variant: Variant) -> Result<Self> {
        let node = Node::new()?;
        let client = node.pod_with(PodSpec::new("client").ambient())?;
        let outside = node.pod("outside")?;
        prepare(&node, &[&client])?;
        node.apply(&[&client, &outside])?;
        let name_server = SocketAddr::new(outside.v4(), ports::NAME_SERVER).to_string();
        let start = || Proxy::start(&node, "proxy", &["--dns", &name_server]);
        let (control, proxy) = if variant == Variant::Meshgate {
            let source = format!("file:{}", node.manifests().display());
            let mut agent = Agent::start_with(&node, &source, &["--dns-capture", "true"])?;
            let proxy = start()?;
            agent.wait_for_pod_state(client.uid(), "enabled")?;
            (Control::Agent(Box::new(agent)), proxy)
        } else {
            let zds = ZdsServer::bind(&node.zds_socket())?;
            let proxy = start()?;
            let peer = zds.accept()?;
            if variant == Variant::Iptables {
                iptables::enrol(client.netns(), true)?;
            }
            peer.add(&client)?;
            peer.snapshot_sent()?;
            (Control::Rules(zds, peer), proxy)
        };
        Ok(Self {
            variant,
            _control: control,
            _proxy: proxy,
            client,
            outside,
            node,
        })
    }

    fn server(&self, family: Family) -> SocketAddr {
        match (self.variant, family) {
            (Variant::Limit, Family::V4) => ([127, 0, 0, 1], ports::DNS).into(),
            (Variant::Limit, Family::V6) => ([0, 0, 0, 0, 0, 0, 0, 1], ports::DNS).into(),
            _ => SocketAddr::new(ip(&self.outside, family), ports::NAME_SERVER),
        }
    }

    /// A question that fails makes it an error: it would count as a quick one.
    fn measure(&self, family: Family, way: &str, seconds: f64) -> Result<Figure> {
        let server = self.server(family).to_string();
        let before = cpu_time(self.node.cgroup())?;
        let seconds = seconds.to_string();
        let report = self
            .client
            .load(&["questions", &server, "--way", way, "--duration", &seconds])?;
        let cpu = cpu_time(self.node.cgroup())? - before;
        let count = report["ok"].as_f64().context("ok")?;
        let failed = report["failed"]
            .as_object()
            .is_some_and(|failed| !failed.is_empty());
        ensure!(
            !failed && count > 0.0,
            "{} {way} {server}: {report}",
            self.variant.name()
        );
        Ok(Figure {
            rate: report["per_second"].as_f64().context("per_second")?,
            cpu_us: cpu as f64 / count,
        })
    }
}

/// One way to ask, in each variant.
struct Row {
    family: Family,
    way: &'static str,
    series: [Series; 3],
}

impl Row {
    /// Meshgate against another variant: how many times the rate, and how many times less processor time.
    fn against(&self, other: usize) -> (f64, f64) {
        let [meshgate, other] = [&self.series[1], &self.series[other]];
        (meshgate.times(other), meshgate.cheaper(other))
    }

    fn cells(&self) -> Vec<String> {
        let names = [self.family.name(), self.way].map(str::to_owned);
        let rates = self.series.iter().map(with_spread);
        let cpu = self.series.iter().map(|series| number(series.cpu_us()));
        let ratios = [0, 2].map(|other| format!("{:.2}", self.against(other).1));
        names.into_iter().chain(rates).chain(cpu).chain(ratios).collect()
    }

    fn json(&self) -> Value {
        let variants = VARIANTS.iter().zip(&self.series);
        let variants: serde_json::Map<String, Value> = variants
            .map(|(variant, series)| (variant.field().to_owned(), series.json()))
            .collect();
        let ratio = |other| {
            let (rate, cpu) = self.against(other);
            json!({ "rate": rate, "cpu": cpu })
        };
        json!({
            "family": self.family.name(),
            "way": self.way,
            "variants": variants,
            "meshgate_to_iptables": ratio(0),
            "meshgate_to_limit": ratio(2),
        })
    }
}

pub(crate) fn run(options: &Options, quick: bool) -> Result<Report> {
    let (repeats, seconds) = if quick {
        (1, 0.1)
    } else {
        (options.repeats, options.seconds)
    };
    let machine = Machine::here()?;
    let beds = VARIANTS.map(Bed::new).into_iter().collect::<Result<Vec<_>>>()?;
    let mut rows: Vec<Row> = Family::BOTH
        .into_iter()
        .flat_map(|family| {
            WAYS.map(|way| Row {
                family,
                way,
                series: Default::default(),
            })
        })
        .collect();
    for repeat in 0..repeats {
        for row in &mut rows {
            // Each repeat begins with another variant.
            for turn in 0..beds.len() {
                let index = (repeat + turn) % beds.len();
                let figure = beds[index].measure(row.family, row.way, seconds)?;
                row.series[index].push(figure);
            }
        }
    }
    let mut lines = vec![
        machine.line(),
        format!(
            "One processor for everything; {repeats} repeats of {seconds} s; questions/s, then microseconds of processor time for each"
        ),
        String::new(),
    ];
    let heads = [
        "FAMILY",
        "SOCKET",
        "iptables",
        "Meshgate",
        "limit",
        "us",
        "us",
        "us",
        "x iptables",
        "x limit",
    ];
    let cells: Vec<Vec<String>> = rows.iter().map(Row::cells).collect();
    lines.extend(table(&heads, 2, &cells));
    let json = json!({
        "bench": "dns",
        "machine": machine.json(),
        "repeats": repeats,
        "seconds": seconds,
        "rows": rows.iter().map(Row::json).collect::<Vec<_>>(),
    });
    Ok(Report { lines, json })
}
