//! The TCP connections of a namespace, by what each socket says of itself (sock_diag(7), linux/inet_diag.h).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use agent_core::predecessor::connections::Connection;
use rtnetlink::sys::protocols::NETLINK_SOCK_DIAG;

use super::netlink::{Conversation, Message, attribute};
use crate::netns::addresses::RouteSocket;

/// `SOCK_DIAG_BY_FAMILY`.
const BY_FAMILY: u16 = 20;
/// `struct inet_diag_req_v2`.
const QUESTION: usize = 56;
/// `struct inet_diag_msg`.
const ANSWER: usize = 72;
/// `INET_DIAG_MARK`.
const MARK: u16 = 15;
/// Protocol TCP.
const TCP: u8 = 6;
/// `AF_INET` and `AF_INET6`.
const FAMILIES: [u8; 2] = [2, 10];
/// States in which a connection still carries something: all but TIME_WAIT (6), CLOSE (7) and LISTEN (10).
const STATES: u32 = 0xfff & !(1 | 1 << 6 | 1 << 7 | 1 << 10);

/// How many connections of this namespace need rules of the other agent.
pub(super) fn count() -> io::Result<usize> {
    let own = RouteSocket::open()?.addresses()?;
    let kernel = Conversation::open(NETLINK_SOCK_DIAG)?;
    let mut count = 0;
    for family in FAMILIES {
        let answers = kernel.dump(question(family))?;
        let connections = answers.iter().filter_map(connection);
        count += connections.filter(|c| c.needs_rules(&own)).count();
    }
    Ok(count)
}

fn question(family: u8) -> Message {
    let mut body = vec![0; QUESTION];
    body[0] = family;
    body[1] = TCP;
    body[4..8].copy_from_slice(&STATES.to_ne_bytes());
    Message {
        kind: BY_FAMILY,
        body,
    }
}

fn connection(answer: &Message) -> Option<Connection> {
    let body = answer.body.get(..ANSWER)?;
    let is_v4 = body[0] == FAMILIES[0];
    let ip = |at: usize| -> Option<IpAddr> {
        Some(if is_v4 {
            let octets: [u8; 4] = body[at..at + 4].try_into().ok()?;
            Ipv4Addr::from(octets).into()
        } else {
            let octets: [u8; 16] = body[at..at + 16].try_into().ok()?;
            IpAddr::from(Ipv6Addr::from(octets)).to_canonical()
        })
    };
    let mark = attribute(&answer.body[ANSWER..], MARK).and_then(|mark| mark.try_into().ok());
    Some(Connection {
        local: ip(8)?,
        port: u16::from_be_bytes([body[4], body[5]]),
        peer: ip(24)?,
        mark: mark.map_or(0, u32::from_ne_bytes),
    })
}
