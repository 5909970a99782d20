//! Sets of addresses in the kernel, emptied and destroyed (linux/netfilter/ipset/ip_set.h).

use std::io;

use rtnetlink::sys::protocols::NETLINK_NETFILTER;

use super::netlink::{Conversation, Message, attributes, text};

/// `NFNL_SUBSYS_IPSET`.
const SUBSYSTEM: u16 = 6;
/// `IPSET_CMD_DESTROY`.
const DESTROY: u16 = 3;
/// `IPSET_CMD_FLUSH`.
const FLUSH: u16 = 4;
/// `IPSET_ATTR_PROTOCOL`, and the oldest version that every kernel still speaks (`IPSET_PROTOCOL_MIN`).
const PROTOCOL: (u16, &[u8]) = (1, &[6]);
/// `IPSET_ATTR_SETNAME`.
const SET_NAME: u16 = 2;
/// `IPSET_ERR_BUSY`: a rule refers to the set.
const BUSY: i32 = 4100;

/// Empties a set; false when there is none.
pub(super) fn flush(name: &str) -> io::Result<bool> {
    order(FLUSH, name)
}

/// Destroys a set, unless a rule refers to it; false when it does or there is none.
pub(super) fn destroy(name: &str) -> io::Result<bool> {
    order(DESTROY, name)
}

fn order(command: u16, name: &str) -> io::Result<bool> {
    let kernel = match Conversation::open(NETLINK_NETFILTER) {
        Err(error) if error.raw_os_error() == Some(libc::EPROTONOSUPPORT) => return Ok(false),
        kernel => kernel?,
    };
    let name = text(name);
    let order = Message {
        kind: SUBSYSTEM << 8 | command,
        body: [
            vec![libc::AF_INET as u8, 0, 0, 0],
            attributes(&[PROTOCOL, (SET_NAME, &name)]),
        ]
        .concat(),
    };
    match kernel.order(order) {
        Ok(()) => Ok(true),
        // No such set; a kernel without sets; a set in use.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINVAL | BUSY)) => Ok(false),
        Err(error) => Err(error),
    }
}
