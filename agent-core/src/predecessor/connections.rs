//! Which connections of a pod were redirected by rules: they need these to the end, ours need none.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use agent_common::ports::{INBOUND, OUTBOUND, RETURN_MARK};

/// A TCP connection that is open in a pod's network namespace, as the proxy's or the application's socket has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Own address, never v4-mapped.
    pub local: IpAddr,
    /// Own port.
    pub port: u16,
    /// The other end's address, never v4-mapped.
    pub peer: IpAddr,
    /// The socket's mark (`SO_MARK`).
    pub mark: u32,
}

impl Connection {
    /// Whether it came about by a rule, or speaks from a client's address by one, in a pod with these addresses.
    #[must_use]
    pub fn needs_rules(&self, own: &[IpAddr]) -> bool {
        match self.port {
            // `inbound` leaves the destination as it is: only a rule makes it the proxy's port.
            INBOUND => true,
            // REDIRECT makes the destination one of these two (or, for a pod's own bridge, an own address); captured
            // connections have another of 127.0.0.0/8, or come from ::1.
            OUTBOUND => {
                !self.peer.is_loopback() && (is_the_loopback(self.local) || own.contains(&self.local))
            }
            // The proxy in a client's name; in `wire` mode ours have the other mark.
            _ => !self.local.is_loopback() && !own.contains(&self.local) && self.mark != RETURN_MARK,
        }
    }
}

fn is_the_loopback(ip: IpAddr) -> bool {
    ip == Ipv4Addr::LOCALHOST || ip == Ipv6Addr::LOCALHOST
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirected_connections_are_told_from_captured_ones() {
        let own = ["10.1.0.3", "fd00:1::3"].map(|ip| ip.parse().unwrap());
        let rows = [
            (
                "redirected to the proxy, inbound",
                "10.1.0.3",
                15006,
                "10.1.0.2",
                0,
                true,
            ),
            ("captured, inbound", "10.1.0.3", 80, "10.1.0.2", 0x539, false),
            (
                "redirected to the proxy, outbound",
                "127.0.0.1",
                15001,
                "10.1.0.3",
                0,
                true,
            ),
            ("the same, IPv6", "::1", 15001, "fd00:1::3", 0, true),
            (
                "from a bridge of the pod",
                "10.1.0.3",
                15001,
                "172.17.0.2",
                0,
                true,
            ),
            ("captured, outbound", "127.15.3.1", 15001, "10.1.0.3", 0, false),
            ("captured, outbound, IPv6", "::1", 15001, "::1", 0, false),
            (
                "the proxy for a client",
                "10.1.0.2",
                4000,
                "10.1.0.3",
                0x539,
                true,
            ),
            ("the same, IPv6", "fd00:1::2", 4000, "fd00:1::3", 0x539, true),
            (
                "our proxy for a client",
                "127.0.0.1",
                4000,
                "10.1.0.3",
                0x539,
                false,
            ),
            (
                "the same in wire mode",
                "10.1.0.2",
                4000,
                "10.1.0.3",
                0x111,
                false,
            ),
            (
                "the proxy to the outside",
                "10.1.0.3",
                4000,
                "10.1.0.2",
                0x539,
                false,
            ),
            ("the application's end", "10.1.0.3", 80, "10.1.0.2", 0, false),
        ];
        for (what, local, port, peer, mark, expected) in rows {
            let connection = Connection {
                local: local.parse().unwrap(),
                port,
                peer: peer.parse().unwrap(),
                mark,
            };
            assert_eq!(connection.needs_rules(&own), expected, "{what}");
        }
    }
}
