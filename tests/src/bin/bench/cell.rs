//! One measurement: what is done, between which pods, in which address family.

use std::fs;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use serde_json::Value;

use crate::bed::Bed;
use crate::figures::Figure;

/// Which ends are in the mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Path {
    /// Both: the proxy is passed twice.
    PodToPod,
    /// The client: the proxy is passed on the way out.
    Outbound,
    /// The server: the proxy is passed on the way in.
    Inbound,
}

impl Path {
    /// As it is called in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::PodToPod => "pod to pod",
            Self::Outbound => "outbound",
            Self::Inbound => "inbound",
        }
    }
}

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both.
    pub(crate) const BOTH: [Self; 2] = [Self::V4, Self::V6];

    /// As it is called in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Connect, one byte there and back, close.
    Connections,
    /// One byte there and back on an open connection.
    Requests,
    /// As many bytes as possible on one connection.
    Throughput,
}

impl Kind {
    /// All of them.
    pub(crate) const ALL: [Self; 3] = [Self::Connections, Self::Requests, Self::Throughput];

    /// Unit of the rate, as it is called in reports.
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Self::Connections => "connections/s",
            Self::Requests => "requests/s",
            Self::Throughput => "Gb/s",
        }
    }

    /// Port of the server that it needs: an echo or a sink.
    pub(crate) fn port(self) -> u16 {
        match self {
            Self::Connections | Self::Requests => 80,
            Self::Throughput => 81,
        }
    }

    fn verb(self) -> &'static str {
        match self {
            Self::Connections => "crr",
            Self::Requests => "rr",
            Self::Throughput => "stream",
        }
    }

    /// Rate, and number of operations, of what the load tool reports. For throughput an operation is a MiB.
    fn read(self, report: &Value) -> Option<(f64, f64)> {
        let number = |name: &str| report[name].as_f64();
        match self {
            Self::Connections | Self::Requests => Some((number("per_second")?, number("ok")?)),
            Self::Throughput => {
                let (bytes, seconds) = (number("bytes")?, number("seconds")?);
                Some((bytes * 8.0 / seconds / 1e9, bytes / f64::from(1 << 20)))
            }
        }
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    /// Which ends are in the mesh.
    pub(crate) path: Path,
    /// IPv4 or IPv6.
    pub(crate) family: Family,
    /// What is counted.
    pub(crate) kind: Kind,
}

/// Measures for `seconds`. A single connection that fails makes it an error: it would count as a quick one.
pub(crate) fn measure(bed: &Bed, cell: Cell, seconds: f64) -> Result<Figure> {
    let (client, destination) = bed.route(cell);
    let before = cpu_time(bed.cgroup())?;
    let arguments = [
        cell.kind.verb(),
        &destination.to_string(),
        "--duration",
        &seconds.to_string(),
    ];
    let report = client.load(&arguments)?;
    let cpu = cpu_time(bed.cgroup())? - before;
    let (rate, operations) = cell
        .kind
        .read(&report)
        .with_context(|| format!("load reported {report}"))?;
    let failed = report["failed"]
        .as_object()
        .is_some_and(|failed| !failed.is_empty());
    ensure!(
        !failed && operations > 0.0,
        "{} {cell:?} to {destination}: {report}",
        bed.name()
    );
    Ok(Figure {
        rate,
        cpu_us: cpu as f64 / operations,
    })
}

/// Microseconds of processor time of all processes that are or were in a cgroup (cgroup-v2.rst, "cpu.stat").
pub(crate) fn cpu_time(cgroup: &std::path::Path) -> Result<u64> {
    let file = cgroup.join("cpu.stat");
    let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    let usage = text.lines().find_map(|line| line.strip_prefix("usage_usec "));
    usage
        .and_then(|number| number.parse().ok())
        .with_context(|| format!("{}: no usage_usec", file.display()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rates_and_operations_are_read_from_what_the_load_tool_reports() {
        let counted = json!({ "per_second": 50.0, "ok": 100 });
        assert_eq!(Kind::Connections.read(&counted), Some((50.0, 100.0)));
        let bytes = json!({ "bytes": 250_000_000_u64, "seconds": 2.0 });
        let (rate, mebibytes) = Kind::Throughput.read(&bytes).unwrap();
        assert_eq!((rate, mebibytes.round()), (1.0, 238.0));
        assert_eq!(Kind::Requests.read(&bytes), None);
    }
}
