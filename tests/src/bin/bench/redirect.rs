//! `redirect`: the same pods and the same proxy, led to by iptables and by Meshgate, beside no mesh and the limit.

use std::path::PathBuf;

use ::tests::ztunnel;
use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};

use crate::Report;
use crate::bed::{Bed, ProxyKind, Variant};
use crate::cell::{Cell, Family, Kind, Path, measure};
use crate::figures::Series;
use crate::machine::Machine;
use crate::outside;
use crate::table::{number, table};
use crate::target::{self, Bound, Target};

/// Options of `redirect`.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// How often each measurement is repeated
    #[arg(long, default_value_t = 7)]
    repeats: usize,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Only this path; may be given several times
    #[arg(long, value_enum)]
    path: Vec<Path>,
    /// Only this variant; may be given several times: for a profiler
    #[arg(long, value_enum)]
    variant: Vec<Variant>,
    /// Leaves out the pod outside the mesh
    #[arg(long)]
    no_outside: bool,
}

/// How long and how often.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// How often each measurement is repeated.
    pub(crate) repeats: usize,
    /// Seconds of each.
    pub(crate) seconds: f64,
}

/// What one cell gave in each variant, in the order of the beds.
pub(crate) struct Row {
    cell: Cell,
    series: Vec<(Variant, Series)>,
}

impl Row {
    fn of(&self, wanted: Variant) -> Option<&Series> {
        self.series
            .iter()
            .find(|(variant, _)| *variant == wanted)
            .map(|(_, series)| series)
    }

    /// Meshgate against another variant: how many times the rate, and how many times less processor time.
    fn against(&self, other: Variant) -> Option<(f64, f64)> {
        let (meshgate, other) = (self.of(Variant::Meshgate)?, self.of(other)?);
        Some((meshgate.times(other), meshgate.cheaper(other)))
    }

    fn json(&self, proxy: &str) -> Value {
        let variants: serde_json::Map<String, Value> = self
            .series
            .iter()
            .map(|(variant, series)| (variant.field().to_owned(), series.json()))
            .collect();
        let ratio = |other| {
            self.against(other)
                .map(|(rate, cpu)| json!({ "rate": rate, "cpu": cpu }))
        };
        json!({
            "proxy": proxy,
            "path": self.cell.path.name(),
            "family": self.cell.family.name(),
            "unit": self.cell.kind.unit(),
            "variants": variants,
            "meshgate_to_iptables": ratio(Variant::Iptables),
            "meshgate_to_limit": ratio(Variant::Limit),
        })
    }
}

/// One proxy's part of the report.
struct Part {
    proxy: &'static str,
    rows: Vec<Row>,
}

pub(crate) fn run(options: &Options, quick: bool) -> Result<Report> {
    let effort = if quick {
        Effort {
            repeats: 1,
            seconds: 0.1,
        }
    } else {
        Effort {
            repeats: options.repeats,
            seconds: options.seconds,
        }
    };
    let paths = match options.path.as_slice() {
        [] => &[Path::PodToPod, Path::Outbound, Path::Inbound],
        given => given,
    };
    let wanted = |variant: &Variant| options.variant.is_empty() || options.variant.contains(variant);
    let variants: Vec<Variant> = Variant::ALL.into_iter().filter(wanted).collect();
    let machine = Machine::here()?;
    let mut parts = vec![Part {
        proxy: "test proxy",
        rows: compare(&variants, ProxyKind::Test, paths, effort)?,
    }];
    if let Some(program) = real_proxy() {
        // The real one has no port that forwards to a fixed destination.
        let without_limit: Vec<Variant> = variants
            .into_iter()
            .filter(|variant| *variant != Variant::Limit)
            .collect();
        parts.push(Part {
            proxy: "ztunnel",
            rows: compare(
                &without_limit,
                ProxyKind::Ztunnel(&program),
                &[Path::PodToPod],
                effort,
            )?,
        });
    }
    let outside = if options.no_outside {
        Vec::new()
    } else {
        outside::compare(effort)?
    };
    Ok(report(&machine, effort, &parts, &outside))
}

/// The real proxy, if the environment names one.
fn real_proxy() -> Option<PathBuf> {
    std::env::var_os(ztunnel::VARIABLE)
        .map(PathBuf::from)
        .filter(|path| path.is_file())
}

/// All cells in all variants. The variants take turns within each repeat, and each repeat begins with another one.
fn compare(variants: &[Variant], proxy: ProxyKind<'_>, paths: &[Path], effort: Effort) -> Result<Vec<Row>> {
    let beds = variants.iter().map(|variant| Bed::new(*variant, proxy));
    let beds = beds.collect::<Result<Vec<_>>>()?;
    let mut rows: Vec<Row> = cells(paths)
        .map(|cell| Row {
            cell,
            series: variants
                .iter()
                .map(|variant| (*variant, Series::default()))
                .collect(),
        })
        .collect();
    for row in &rows {
        for bed in &beds {
            // Fills caches, and finds out early what does not work.
            measure(bed, row.cell, 0.05)?;
        }
    }
    for repeat in 0..effort.repeats {
        for row in &mut rows {
            for turn in 0..beds.len() {
                let index = (repeat + turn) % beds.len();
                let figure = measure(&beds[index], row.cell, effort.seconds)?;
                debug_assert_eq!(beds[index].variant(), row.series[index].0);
                row.series[index].1.push(figure);
            }
        }
    }
    Ok(rows)
}

fn cells(paths: &[Path]) -> impl Iterator<Item = Cell> {
    paths.iter().flat_map(|&path| {
        Family::BOTH
            .into_iter()
            .flat_map(move |family| Kind::ALL.into_iter().map(move |kind| Cell { path, family, kind }))
    })
}

fn report(machine: &Machine, effort: Effort, parts: &[Part], outside: &[outside::Row]) -> Report {
    let mut targets: Vec<Target> = parts.iter().flat_map(targets).collect();
    targets.extend(outside.iter().map(outside::Row::target));
    let mut lines = vec![
        machine.line(),
        format!(
            "One processor for everything; {} repeats of {} s; medians, (smallest … largest)",
            effort.repeats, effort.seconds
        ),
    ];
    for part in parts {
        lines.extend([String::new(), format!("Proxy: {}", part.proxy)]);
        lines.extend(part_lines(part));
    }
    if !outside.is_empty() {
        lines.extend([String::new(), "A pod outside the mesh".to_owned()]);
        lines.extend(outside::lines(outside));
    }
    lines.push(String::new());
    lines.extend(target::lines(&targets));
    let rows = parts
        .iter()
        .flat_map(|part| part.rows.iter().map(|row| row.json(part.proxy)));
    let json = json!({
        "bench": "redirect",
        "machine": machine.json(),
        "repeats": effort.repeats,
        "seconds": effort.seconds,
        "rows": rows.collect::<Vec<_>>(),
        "outside": outside.iter().map(outside::Row::json).collect::<Vec<_>>(),
        "targets": targets.iter().map(Target::json).collect::<Vec<_>>(),
    });
    Report { lines, json }
}

/// A table of rates with their ratios, and one of processor times with theirs.
fn part_lines(part: &Part) -> Vec<String> {
    let Some(first) = part.rows.first() else {
        return Vec::new();
    };
    let names = first.series.iter().map(|(variant, _)| variant.name());
    let heads: Vec<&str> = ["PATH", "FAMILY", "UNIT"]
        .into_iter()
        .chain(names)
        .chain(["x iptables", "x limit"])
        .collect();
    let rows = |cell: fn(&Series) -> String, ratio: fn((f64, f64)) -> f64| {
        let row = |row: &Row| line(row, cell, ratio);
        part.rows.iter().map(row).collect::<Vec<_>>()
    };
    let mut lines = table(&heads, 3, &rows(with_spread, |(rate, _)| rate));
    lines.extend([
        String::new(),
        "Processor time: microseconds of one connection, request, or MiB".to_owned(),
    ]);
    lines.extend(table(
        &heads,
        3,
        &rows(|series| number(series.cpu_us()), |(_, cpu)| cpu),
    ));
    lines
}

fn line(row: &Row, cell: fn(&Series) -> String, ratio: fn((f64, f64)) -> f64) -> Vec<String> {
    let Cell { path, family, kind } = row.cell;
    let names = [path.name(), family.name(), kind.unit()].map(str::to_owned);
    let values = row.series.iter().map(|(_, series)| cell(series));
    let ratios = [Variant::Iptables, Variant::Limit].map(|other| {
        let found = row.against(other).map(ratio);
        found.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"))
    });
    names.into_iter().chain(values).chain(ratios).collect()
}

/// Median, smallest and largest rate.
pub(crate) fn with_spread(series: &Series) -> String {
    let (min, max) = series.spread();
    format!("{} ({}…{})", number(series.rate()), number(min), number(max))
}

/// The targets on the rows of one proxy, by rate. The limit is a target of the test proxy's only.
fn targets(part: &Part) -> Vec<Target> {
    let wanted = |kind| match (part.proxy, kind) {
        ("ztunnel", Kind::Connections) => 1.08,
        ("ztunnel", Kind::Requests) => 1.15,
        ("ztunnel", Kind::Throughput) => 1.2,
        (_, Kind::Connections) => 1.25,
        (_, Kind::Requests) => 1.3,
        (_, Kind::Throughput) => 1.4,
    };
    let mut targets = Vec::new();
    for row in &part.rows {
        let Cell { path, family, kind } = row.cell;
        let bounds = [(Variant::Iptables, wanted(kind)), (Variant::Limit, 0.95)];
        for (other, wanted) in bounds {
            let Some((got, _)) = row.against(other) else {
                continue;
            };
            targets.push(Target {
                what: format!(
                    "{}, {}, {}, {}, times {}",
                    part.proxy,
                    path.name(),
                    family.name(),
                    kind.unit(),
                    other.name()
                ),
                bound: Bound::AtLeast(wanted),
                got,
            });
        }
    }
    targets
}
