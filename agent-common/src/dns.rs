//! Name servers that an unconnected UDP socket has asked, and how the proxy's answers are told apart.
//!
//! Every question goes to one place, the proxy's DNS server on loopback. So that the answer can tell which name server
//! was asked, the question comes from a loopback address that stands for that server ([`alias`]); the proxy answers
//! from that same address, and whoever reads the answer finds the server's true address here.

use crate::address::Ip;

/// Name servers that a socket can have asked, by IPv4, with their answers still told apart (resolv.conf(5) has three).
pub const SLOTS: usize = 8;
/// The first three bytes of an alias.
const NET: [u8; 3] = [127, 53, 0];

/// Value of socket storage `ASKED`. Dies with its socket.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// IPv4 name servers in network order, in the slots that their aliases name; 0 is none.
    pub servers4: [u32; SLOTS],
    /// The slot that was given last, plus one.
    pub next: u32,
    /// The IPv4 name server that was asked last: for answers without an alias.
    pub last4: u32,
    /// The IPv6 name server that was asked last. IPv6 has one loopback address, hence no aliases.
    pub last6: Ip,
}

impl Asked {
    /// Remembers an IPv4 name server and returns its slot. The oldest one makes room.
    #[inline(always)]
    pub fn ask4(&mut self, server: u32) -> usize {
        self.last4 = server;
        let mut slot = 0;
        while slot < SLOTS {
            if self.servers4[slot] == server {
                return slot;
            }
            slot += 1;
        }
        let slot = self.next as usize % SLOTS;
        self.next = slot as u32 + 1;
        self.servers4[slot] = server;
        slot
    }

    /// The name server that is meant by an answer from this loopback address; `None` if none was asked.
    #[inline(always)]
    #[must_use]
    pub fn answerer(&self, from: &Ip) -> Option<Ip> {
        if !from.is_v4() {
            return (!self.last6.is_none()).then_some(self.last6);
        }
        let server = if is_alias(from) {
            self.servers4[slot_of(from)]
        } else {
            self.last4
        };
        (server != 0).then(|| Ip::from_v4_word(server))
    }
}

/// The loopback address that stands for the name server in this slot.
#[inline(always)]
#[must_use]
pub const fn alias(slot: usize) -> Ip {
    Ip::from_v4_word(u32::from_ne_bytes([NET[0], NET[1], NET[2], slot as u8 + 1]))
}

/// Whether an address stands for a name server.
#[inline(always)]
#[must_use]
pub const fn is_alias(ip: &Ip) -> bool {
    let last = ip.octets[15] as usize;
    ip.is_v4()
        && ip.octets[12] == NET[0]
        && ip.octets[13] == NET[1]
        && ip.octets[14] == NET[2]
        && last >= 1
        && last <= SLOTS
}

/// The slot that an alias stands for.
#[inline(always)]
const fn slot_of(alias: &Ip) -> usize {
    (alias.octets[15] as usize).wrapping_sub(1) % SLOTS
}

const _: () = assert!(SLOTS.is_power_of_two() && size_of::<Asked>() == 4 * SLOTS + 24);
crate::plain_bytes!(Asked);

#[cfg(test)]
mod tests {
    use core::net::IpAddr;

    use super::*;

    fn ip(text: &str) -> Ip {
        text.parse::<IpAddr>().unwrap().into()
    }

    fn word(text: &str) -> u32 {
        ip(text).words()[3]
    }

    #[test]
    fn each_server_answers_by_its_own_alias_however_often_it_is_asked() {
        let mut asked = Asked::default();
        let servers = ["10.0.0.1", "10.0.0.2", "10.0.0.3"];
        for _ in 0..3 {
            for (slot, server) in servers.iter().enumerate() {
                assert_eq!(asked.ask4(word(server)), slot);
            }
        }
        for (slot, server) in servers.iter().enumerate() {
            assert_eq!(asked.answerer(&alias(slot)), Some(ip(server)));
        }
        assert_eq!(asked.answerer(&alias(5)), None);
    }

    #[test]
    fn the_oldest_server_makes_room() {
        let mut asked = Asked::default();
        let server = |number: usize| word(&format!("10.0.0.{number}"));
        for number in 1..=SLOTS + 1 {
            asked.ask4(server(number));
        }
        assert_eq!(asked.answerer(&alias(0)), Some(ip("10.0.0.9")));
        assert_eq!(asked.answerer(&alias(1)), Some(ip("10.0.0.2")));
        assert_eq!(asked.ask4(server(1)), 1);
    }

    #[test]
    fn an_answer_without_an_alias_is_of_the_server_that_was_asked_last() {
        let mut asked = Asked::default();
        for from in ["127.0.0.1", "::1"] {
            assert_eq!(asked.answerer(&ip(from)), None);
        }
        asked.ask4(word("10.0.0.1"));
        asked.ask4(word("10.0.0.2"));
        asked.last6 = ip("fd00::53");
        assert_eq!(asked.answerer(&ip("127.0.0.1")), Some(ip("10.0.0.2")));
        assert_eq!(asked.answerer(&ip("::1")), Some(ip("fd00::53")));
    }

    #[test]
    fn only_addresses_of_slots_are_aliases() {
        for slot in 0..SLOTS {
            assert!(is_alias(&alias(slot)) && alias(slot).is_loopback());
        }
        for other in [
            "127.0.0.1",
            "127.53.0.0",
            "127.53.0.9",
            "127.53.1.1",
            "127.15.0.1",
            "::1",
        ] {
            assert!(!is_alias(&ip(other)), "{other}");
        }
    }
}
