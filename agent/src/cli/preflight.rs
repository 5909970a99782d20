//! `meshgate preflight`: kernel features, and conditions on the node that would break the agent, each with the fix.

use std::path::Path;

use serde::Serialize;

use super::Exit;
use super::output::{self, Format};
use crate::config::Paths;
use crate::datapath::features::{FEATURES, kernel_version};
use crate::datapath::pins::is_bpffs;
use crate::datapath::remnants::is_loaded;

/// One thing that was looked at.
#[derive(Debug, Serialize)]
pub struct Check {
    /// What.
    pub name: String,
    /// First Linux with it; empty for conditions of the node.
    pub since: String,
    /// `ok`, `missing` (needed), `degraded` (the agent works with less), `unknown` (this process may not ask the
    /// kernel) or `note`.
    pub result: &'static str,
    /// What is lost, or what was found.
    pub effect: String,
    /// What to do; empty if there is nothing to do.
    pub fix: String,
}

/// Checks this node.
///
/// # Errors
/// When the output cannot be written.
pub fn execute(paths: &Paths, format: Format) -> anyhow::Result<Exit> {
    let mut checks = features();
    checks.push(privileges());
    checks.push(cgroup2(paths));
    checks.push(bpffs(paths));
    checks.push(ipv6());
    checks.push(cilium());
    let worst = |result| checks.iter().any(|check| check.result == result);
    match format {
        Format::Json => output::json(&checks)?,
        Format::Table => output::lines(table(&checks))?,
    }
    Ok(match (worst("missing"), worst("degraded")) {
        (true, _) => Exit::Failed,
        (false, true) => Exit::Degraded,
        (false, false) => Exit::Fine,
    })
}

fn features() -> Vec<Check> {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let kernel = kernel_version(&release).unwrap_or_default();
    FEATURES
        .iter()
        .map(|feature| {
            let present = feature.is_present(kernel);
            let (major, minor) = feature.since;
            let (result, fix) = match (present, feature.needed) {
                (Some(true), _) => ("ok", String::new()),
                (None, _) => ("unknown", "run as root to find out".to_owned()),
                (Some(false), needed) => (
                    if needed { "missing" } else { "degraded" },
                    format!("Linux {major}.{minor} or newer (this is {release})"),
                ),
            };
            let effect = if present == Some(true) {
                ""
            } else {
                feature.without
            };
            Check {
                name: feature.name.to_owned(),
                since: format!("{major}.{minor}"),
                result,
                effect: effect.to_owned(),
                fix,
            }
        })
        .collect()
}

fn condition(name: &str, result: &'static str, effect: impl Into<String>, fix: impl Into<String>) -> Check {
    Check {
        name: name.to_owned(),
        since: String::new(),
        result,
        effect: effect.into(),
        fix: fix.into(),
    }
}

/// Capabilities by number: NET_ADMIN, SYS_ADMIN, SYS_PTRACE (to look at processes of pods).
const CAPABILITIES: [(u32, &str); 3] = [
    (12, "CAP_NET_ADMIN"),
    (21, "CAP_SYS_ADMIN"),
    (19, "CAP_SYS_PTRACE"),
];

fn privileges() -> Check {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let mask = effective
        .and_then(|text| u64::from_str_radix(text.trim(), 16).ok())
        .unwrap_or_default();
    let lacking: Vec<_> = CAPABILITIES
        .iter()
        .filter(|(bit, _)| mask & (1 << bit) == 0)
        .map(|(_, name)| *name)
        .collect();
    if lacking.is_empty() {
        condition("privileges", "ok", "", "")
    } else {
        let fix = "run as root, or add them to the container's securityContext";
        condition(
            "privileges",
            "missing",
            format!("this process lacks {}", lacking.join(", ")),
            fix,
        )
    }
}

fn cgroup2(paths: &Paths) -> Check {
    match paths.cgroup_root() {
        Ok(root) if root.join("cgroup.procs").exists() => {
            condition("cgroup v2", "ok", format!("at {}", root.display()), "")
        }
        Ok(root) => {
            let effect = format!("{} is no cgroup v2 folder", root.display());
            condition(
                "cgroup v2",
                "missing",
                effect,
                "give the mount of cgroup v2 by --cgroup-root",
            )
        }
        Err(error) => {
            let fix = "mount -t cgroup2 none /sys/fs/cgroup/unified";
            condition("cgroup v2", "missing", error.to_string(), fix)
        }
    }
}

fn bpffs(paths: &Paths) -> Check {
    let path = paths.bpffs.display();
    if is_bpffs(&paths.bpffs) {
        condition("bpffs", "ok", format!("at {path}"), "")
    } else {
        let fix = format!("nothing to do, or: mount -t bpf bpf {path}");
        condition(
            "bpffs",
            "note",
            format!("not mounted at {path}: the agent mounts it"),
            fix,
        )
    }
}

fn ipv6() -> Check {
    if Path::new("/proc/sys/net/ipv6").exists() {
        condition("IPv6", "ok", "", "")
    } else {
        let fix = "remove ipv6.disable=1 from the kernel's command line, if pods are to have IPv6";
        condition(
            "IPv6",
            "note",
            "the kernel has none (ipv6.disable=1): IPv4 is captured as usual",
            fix,
        )
    }
}

/// Cilium's socket load-balancing rewrites destinations in connect hooks of its own.
fn cilium() -> Check {
    let found =
        is_loaded(|name| name.starts_with("cil_sock4_connec") || name.starts_with("cil_sock6_connec"));
    if found {
        let effect = "Cilium's socket load-balancer rewrites Service addresses before the proxy sees them";
        let fix = "set socketLB.hostNamespaceOnly=true in Cilium's chart, unless it is set already";
        condition("other connect hooks", "degraded", effect, fix)
    } else {
        condition("other connect hooks", "ok", "", "")
    }
}

fn table(checks: &[Check]) -> Vec<String> {
    let cells: Vec<_> = checks
        .iter()
        .map(|check| {
            [
                check.result.to_owned(),
                check.name.clone(),
                check.since.clone(),
                check.effect.clone(),
            ]
        })
        .collect();
    let mut lines = output::table(["RESULT", "WHAT", "SINCE", "EFFECT"], &cells);
    for check in checks.iter().filter(|check| !check.fix.is_empty()) {
        lines.push(format!("{}: {}", check.name, check.fix));
    }
    lines
}
