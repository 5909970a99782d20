//! Sets of addresses in the kernel, of the network namespace that the thread is in: enough of ipset(8), which is not
//! installed everywhere (linux/netfilter/ipset/ip_set.h).

use std::net::IpAddr;

use anyhow::{Result, bail};
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};

/// Protocol of netfilter in netlink.
const NETFILTER: u32 = 12;
/// Subsystem of ipset, and its commands.
const SUBSYSTEM: u16 = 6;
const CREATE: u16 = 2;
const ADD: u16 = 9;
const HEADER: u16 = 12;
/// Type of the message that tells an outcome.
const OUTCOME: u16 = 2;
/// The attribute holds others; its number is in network order.
const NESTED: u16 = 0x8000;
const NETWORK_ORDER: u16 = 0x4000;

/// Makes an empty set of type `hash:ip`.
///
/// # Errors
/// With the kernel's error number.
pub fn create(name: &str, v6: bool) -> Result<()> {
    let family = if v6 { libc::AF_INET6 } else { libc::AF_INET } as u8;
    let more = [
        attribute(3, b"hash:ip\0"),
        attribute(4, &[4]),
        attribute(5, &[family]),
        attribute(7 | NESTED, &[]),
    ];
    expect(ask(CREATE, name, &more.concat())?)
}

/// Adds an address.
///
/// # Errors
/// With the kernel's error number.
pub fn add(name: &str, ip: IpAddr) -> Result<()> {
    let ip = match ip {
        IpAddr::V4(ip) => attribute(1 | NETWORK_ORDER, &ip.octets()),
        IpAddr::V6(ip) => attribute(2 | NETWORK_ORDER, &ip.octets()),
    };
    let data = attribute(7 | NESTED, &attribute(1 | NESTED, &ip));
    expect(ask(ADD, name, &data)?)
}

/// Whether there is a set of this name.
///
/// # Errors
/// With the kernel's error number.
pub fn exists(name: &str) -> Result<bool> {
    match ask(HEADER, name, &[])? {
        0 => Ok(true),
        libc::ENOENT => Ok(false),
        error => bail!("set {name}: error {error}"),
    }
}

fn expect(error: i32) -> Result<()> {
    match error {
        0 => Ok(()),
        error => bail!("ipset: error {error}"),
    }
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = ((4 + value.len()) as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Sends a command and returns the error number of its outcome.
fn ask(command: u16, name: &str, more: &[u8]) -> Result<i32> {
    let protocol = rustix::net::Protocol::from_raw(NETFILTER.try_into()?);
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(protocol),
    )?;
    let name = [name.as_bytes(), &[0]].concat();
    let body = [
        vec![libc::AF_INET as u8, 0, 0, 0],
        attribute(1, &[6]),
        attribute(2, &name),
        more.to_vec(),
    ]
    .concat();
    let mut message = ((16 + body.len()) as u32).to_ne_bytes().to_vec();
    message.extend((SUBSYSTEM << 8 | command).to_ne_bytes());
    // A request whose outcome is to be told.
    message.extend(5_u16.to_ne_bytes());
    message.resize(16, 0);
    message.extend(body);
    sendto(
        &socket,
        &message,
        SendFlags::empty(),
        &SocketAddrNetlink::new(0, 0),
    )?;
    let mut answer = [0_u8; 8192];
    loop {
        let (length, _) = recv(&socket, &mut answer[..], RecvFlags::empty())?;
        let kind = u16::from_ne_bytes([answer[4], answer[5]]);
        if kind == OUTCOME && length >= 20 {
            return Ok(-i32::from_ne_bytes([
                answer[16], answer[17], answer[18], answer[19],
            ]));
        }
    }
}
