//! Who in a pod holds the proxy's ports: a process that was there before the pod was enrolled. Asked only when the proxy
//! refuses the pod, since it reads all sockets of the pod.

use std::collections::HashMap;

use agent_common::ports::{DNS, is_proxys};

use crate::netns::processes::Proc;
use crate::ports::PortHolder;

/// The state of a listening TCP socket in `/proc/PID/net/tcp` (`TCP_LISTEN`, include/net/tcp_states.h).
const LISTENING: &str = "0A";
/// Whether a socket holds a port of the proxy's.
type Holds = fn(&Row) -> bool;
/// Tables of sockets of a process' network namespace.
const TABLES: [(&str, Holds); 4] = [
    ("net/tcp", holds_by_tcp),
    ("net/tcp6", holds_by_tcp),
    ("net/udp", holds_by_udp),
    ("net/udp6", holds_by_udp),
];

/// A line of such a table (Linux Documentation/networking/proc_net_tcp.rst).
struct Row {
    port: u16,
    is_listening: bool,
    inode: u64,
}

fn holds_by_tcp(row: &Row) -> bool {
    row.is_listening && is_proxys(row.port)
}

fn holds_by_udp(row: &Row) -> bool {
    row.port == DNS
}

/// The lines of a table; those of another form are left out.
fn rows(table: &str) -> impl Iterator<Item = Row> {
    table.lines().skip(1).filter_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let (_, port) = fields.nth(1)?.rsplit_once(':')?;
        let state = fields.nth(1)?;
        Some(Row {
            port: u16::from_str_radix(port, 16).ok()?,
            is_listening: state == LISTENING,
            inode: fields.nth(5)?.parse().ok()?,
        })
    })
}

/// The processes among `pids`, those of one pod, that hold a port of the proxy's; one for each port. What cannot be read,
/// of processes that end for example, is left out.
pub(super) fn holders(proc: &Proc, pids: &[u32]) -> Vec<PortHolder> {
    let mut held = HashMap::new();
    for pid in pids {
        for (table, holds) in TABLES {
            let text = proc.read(*pid, table).unwrap_or_default();
            held.extend(rows(&text).filter(holds).map(|row| (row.inode, row.port)));
        }
    }
    if held.is_empty() {
        return Vec::new();
    }
    let mut found: Vec<_> = pids
        .iter()
        .flat_map(|pid| proc.sockets(*pid).into_iter().map(move |inode| (*pid, inode)))
        .filter_map(|(pid, inode)| {
            Some(PortHolder {
                port: *held.get(&inode)?,
                pid,
                name: proc.read(pid, "comm").unwrap_or_default().trim_end().to_owned(),
            })
        })
        .collect();
    found.sort_by_key(|holder| (holder.port, holder.pid));
    found.dedup_by_key(|holder| holder.port);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const TCP: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:3A99 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 101 1 0000 100 0 0 10 0
   1: 0100007F:3A99 0100007F:D2F0 01 00000000:00000000 00:00000000 00000000     0        0 102 1 0000 20 4 30 10 -1
   2: 00000000:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 103 1 0000 100 0 0 10 0
";
    const UDP6: &str = "  sl  local_address remote_address st tx_queue rx_queue tr tm->when retrnsmt uid timeout inode ref
 9: 00000000000000000000000001000000:3ACD 00000000000000000000000000000000:0000 07 00000000:00000000 00:00000000 00000000 0 0 104 2 0000 0
 garbage
";

    #[test]
    fn listeners_on_the_proxys_ports_hold_them_and_nothing_else_does() {
        let of = |table: &str, holds: Holds| -> Vec<_> {
            rows(table)
                .filter(holds)
                .map(|row| (row.port, row.inode))
                .collect()
        };
        assert_eq!(of(TCP, holds_by_tcp), [(15001, 101)]);
        assert_eq!(of(UDP6, holds_by_udp), [(15053, 104)]);
        assert_eq!(of("", holds_by_tcp), []);
    }
}
