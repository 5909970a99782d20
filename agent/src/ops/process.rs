//! Metrics of the agent's own process, under the names that Prometheus' client libraries agree on.

use std::fs;

use super::family::Family;

/// What /proc/self tells: each metric that can be read now.
pub(super) fn families() -> Vec<Family> {
    let text = |name: &str| fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
    let fds = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let (page, tick) = (
        rustix::param::page_size() as f64,
        rustix::param::clock_ticks_per_second() as f64,
    );
    let boot = boot_time(&fs::read_to_string("/proc/stat").unwrap_or_default());
    let mut families = vec![
        // The folder itself is open while it is read.
        Family::gauge(
            "process_open_fds",
            "Open file descriptors",
            fds.saturating_sub(1) as f64,
        ),
        Family::gauge(
            "process_max_fds",
            "Most file descriptors that may be open",
            limit.map_or(f64::INFINITY, |limit| limit as f64),
        ),
    ];
    if let Some(stat) = Stat::parse(&text("stat")) {
        families.extend([
            Family::gauge(
                "process_resident_memory_bytes",
                "Resident memory",
                stat.rss as f64 * page,
            ),
            Family::gauge(
                "process_virtual_memory_bytes",
                "Virtual memory",
                stat.vsize as f64,
            ),
            Family::counter(
                "process_cpu_seconds",
                "Processor time, user and system",
                stat.cpu as f64 / tick,
            ),
            Family::gauge("process_threads", "Threads", stat.threads as f64),
            Family::gauge(
                "process_start_time_seconds",
                "Start, in seconds since the epoch",
                boot as f64 + stat.start as f64 / tick,
            ),
        ]);
    }
    families
}

/// Fields of /proc/PID/stat, see proc_pid_stat(5).
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    /// utime and stime, in clock ticks.
    cpu: u64,
    threads: u64,
    /// In clock ticks after the boot.
    start: u64,
    /// In bytes.
    vsize: u64,
    /// In pages.
    rss: u64,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The name in parentheses may contain anything, closing parentheses too.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self {
            cpu: field(14)? + field(15)?,
            threads: field(20)?,
            start: field(22)?,
            vsize: field(23)?,
            rss: field(24)?,
        })
    }
}

/// The boot in seconds since the epoch, from /proc/stat.
fn boot_time(stat: &str) -> u64 {
    let line = stat.lines().find_map(|line| line.strip_prefix("btime "));
    line.and_then(|time| time.trim().parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_are_found_behind_any_name() {
        let text =
            "7 (a) b) S 1 7 7 0 -1 4194560 5 0 0 0 120 30 0 0 20 0 4 0 5000 123456 789 18446744073709551615";
        let expected = Stat {
            cpu: 150,
            threads: 4,
            start: 5000,
            vsize: 123_456,
            rss: 789,
        };
        assert_eq!(Stat::parse(text), Some(expected));
        assert_eq!(Stat::parse("7 (a"), None);
        assert_eq!(boot_time("cpu 1\nbtime 1700000000\n"), 1_700_000_000);
    }
}
