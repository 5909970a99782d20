//! Name servers that an unconnected UDP socket has asked, and how the proxy's answers are told apart.
//!
//! Every question goes to one place, the proxy's DNS server on loopback. So that the answer can tell which name server
//! was asked, the question comes from an address that stands for that server ([`Alias`]); the proxy's answer goes back
//! from that same address, and whoever reads it finds the server's true address here.

use crate::address::Ip;

/// Name servers that a socket can have asked with their answers still told apart (resolv.conf(5) has three).
pub const SLOTS: usize = 8;
/// First two bytes of an IPv4 alias: loopback, so that no other device takes such a packet.
const NET4: [u8; 2] = [127, 53];
/// First three words of an IPv6 alias, in network order: 100::/64, which no network forwards (RFC 6666), since IPv6 has one
/// loopback address only.
const NET6: [u32; 3] = [0x0100_0000_u32.to_be(), 0, 0x53_u32.to_be()];

/// Value of socket storage `ASKED`. Dies with its socket.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Name servers, in the slots that their aliases name; free ones are none.
    pub servers: [Ip; SLOTS],
    /// The slot that is given next.
    pub next: u32,
    /// The slot of the IPv4 name server that was asked last: for answers without an alias.
    pub last4: u32,
    /// The same for IPv6.
    pub last6: u32,
}

impl Asked {
    /// Remembers a name server and returns its slot. The oldest one makes room.
    #[inline(always)]
    pub fn ask(&mut self, server: &Ip) -> usize {
        let slot = self.slot(server);
        let last = if server.is_v4() {
            &mut self.last4
        } else {
            &mut self.last6
        };
        *last = slot as u32;
        slot
    }

    #[inline(always)]
    fn slot(&mut self, server: &Ip) -> usize {
        let mut slot = 0;
        while slot < SLOTS {
            if self.servers[slot].same(server) {
                return slot;
            }
            slot += 1;
        }
        let slot = self.next as usize % SLOTS;
        self.next = slot as u32 + 1;
        self.servers[slot] = *server;
        slot
    }

    /// The name server that is meant by an answer from this address; `None` if none was asked.
    #[inline(always)]
    #[must_use]
    pub fn answerer(&self, from: &Ip) -> Option<Ip> {
        let slot = match Alias::read(from) {
            Some(alias) => alias.slot,
            None if from.is_loopback() && from.is_v4() => self.last4 as usize,
            None if from.is_loopback() => self.last6 as usize,
            None => return None,
        };
        let server = self.servers[slot % SLOTS];
        (!server.is_none()).then_some(server)
    }
}

/// An address from which a question comes, in place of the asking socket's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alias {
    /// The slot of the name server that is asked.
    pub slot: usize,
    /// The socket is bound to the pod's address, and gets answers nowhere else.
    pub is_pods: bool,
}

impl Alias {
    /// As an address of this family.
    #[inline(always)]
    #[must_use]
    pub const fn address(self, v4: bool) -> Ip {
        let (home, number) = (self.is_pods as u8, self.slot as u8 + 1);
        if v4 {
            Ip::from_v4_word(u32::from_ne_bytes([NET4[0], NET4[1], home, number]))
        } else {
            Ip::from_words([
                NET6[0],
                NET6[1],
                NET6[2],
                u32::from_ne_bytes([0, home, 0, number]),
            ])
        }
    }

    /// What an address stands for, if it is an alias.
    #[inline(always)]
    #[must_use]
    pub const fn read(ip: &Ip) -> Option<Self> {
        let (words, bytes) = (ip.words(), &ip.octets);
        let home = if ip.is_v4() && bytes[12] == NET4[0] && bytes[13] == NET4[1] {
            bytes[14]
        } else if words[0] == NET6[0]
            && words[1] == NET6[1]
            && words[2] == NET6[2]
            && bytes[12] | bytes[14] == 0
        {
            bytes[13]
        } else {
            return None;
        };
        let number = bytes[15] as usize;
        if home > 1 || number == 0 || number > SLOTS {
            return None;
        }
        Some(Self {
            slot: number - 1,
            is_pods: home == 1,
        })
    }
}

const _: () = assert!(SLOTS.is_power_of_two() && size_of::<Asked>() == 16 * SLOTS + 12);
crate::plain_bytes!(Asked);

#[cfg(test)]
mod tests {
    use core::net::IpAddr;

    use super::*;

    fn ip(text: &str) -> Ip {
        text.parse::<IpAddr>().unwrap().into()
    }

    fn alias(slot: usize) -> Alias {
        Alias { slot, is_pods: false }
    }

    #[test]
    fn each_server_answers_by_its_own_alias_however_often_it_is_asked() {
        let mut asked = Asked::default();
        let servers = ["10.0.0.1", "fd00::1", "10.0.0.2", "fd00::2"];
        for _ in 0..3 {
            for (slot, server) in servers.iter().enumerate() {
                assert_eq!(asked.ask(&ip(server)), slot);
            }
        }
        for (slot, server) in servers.iter().enumerate() {
            for (v4, is_pods) in [(true, false), (true, true), (false, false), (false, true)] {
                let from = Alias { slot, is_pods }.address(v4);
                assert_eq!(asked.answerer(&from), Some(ip(server)));
            }
        }
        assert_eq!(asked.answerer(&alias(5).address(true)), None);
    }

    #[test]
    fn the_oldest_server_makes_room() {
        let mut asked = Asked::default();
        for number in 1..=SLOTS + 1 {
            asked.ask(&ip(&format!("10.0.0.{number}")));
        }
        let answerer = |slot| asked.answerer(&alias(slot).address(true));
        assert_eq!(
            (answerer(0), answerer(1)),
            (Some(ip("10.0.0.9")), Some(ip("10.0.0.2")))
        );
        assert_eq!(asked.ask(&ip("10.0.0.1")), 1);
    }

    #[test]
    fn an_answer_without_an_alias_is_of_the_server_that_was_asked_last() {
        let mut asked = Asked::default();
        for from in ["127.0.0.1", "::1"] {
            assert_eq!(asked.answerer(&ip(from)), None);
        }
        for server in ["10.0.0.1", "10.0.0.2", "fd00::53"] {
            asked.ask(&ip(server));
        }
        assert_eq!(asked.answerer(&ip("127.0.0.1")), Some(ip("10.0.0.2")));
        assert_eq!(asked.answerer(&ip("::1")), Some(ip("fd00::53")));
        assert_eq!(asked.answerer(&ip("10.0.0.1")), None);
    }

    #[test]
    fn aliases_are_read_as_they_are_written_and_nothing_else_is_one() {
        for slot in 0..SLOTS {
            for (v4, is_pods) in [(true, false), (true, true), (false, false), (false, true)] {
                let alias = Alias { slot, is_pods };
                assert_eq!(Alias::read(&alias.address(v4)), Some(alias));
                assert_eq!(alias.address(v4).is_v4(), v4);
            }
        }
        for (alias, text) in [
            (alias(0).address(true), "127.53.0.1"),
            (alias(2).address(false), "100::53:0:3"),
        ] {
            assert_eq!(alias, ip(text));
        }
        for other in [
            "127.0.0.1",
            "127.53.0.0",
            "127.53.0.9",
            "127.53.2.1",
            "127.15.0.1",
            "::1",
            "100::53:2:1",
            "100::53:0:9",
            "100::53:100:1",
            "100::54:0:1",
        ] {
            assert_eq!(Alias::read(&ip(other)), None, "{other}");
        }
    }
}
