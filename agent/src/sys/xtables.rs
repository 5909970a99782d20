//! Tables of iptables-legacy, by the socket options that iptables-legacy uses itself (linux/netfilter_ipv4/ip_tables.h,
//! linux/netfilter_ipv6/ip6_tables.h): read whole, replaced whole.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use agent_core::predecessor::xtables::{Edited, HOOKS, Table};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// Length of a table's name in all structures (`XT_TABLE_MAXNAMELEN`).
const NAME: usize = 32;
/// `struct ipt_getinfo`: name, valid hooks, hook entries, underflows, number and size of the entries.
const INFO: usize = NAME + 4 * (3 + 2 * HOOKS);
/// What `struct ipt_get_entries` and `struct xt_counters_info` begin with: name, a number, padding.
const HEAD: usize = 40;
/// What `struct ipt_replace` begins with: a name, numbers as in `ipt_getinfo`, number of old counters, their address.
const REPLACE: usize = 96;
/// Where the address is in it.
const ADDRESS: usize = 88;
/// `struct xt_counters`.
const COUNTERS: usize = 16;

/// `IPT_SO_GET_INFO`, `IPT_SO_GET_ENTRIES`; the same numbers for IPv6.
const GET_INFO: i32 = 64;
const GET_ENTRIES: i32 = 65;
/// `IPT_SO_SET_REPLACE`, `IPT_SO_SET_ADD_COUNTERS`; the same numbers for IPv6.
const SET_REPLACE: i32 = 64;
const ADD_COUNTERS: i32 = 65;

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// ip_tables.
    V4,
    /// ip6_tables.
    V6,
}

/// The tables of one family in one network namespace.
#[derive(Debug)]
pub struct Tables {
    socket: OwnedFd,
    level: i32,
}

impl Tables {
    /// Those of the namespace that the calling thread is in.
    ///
    /// # Errors
    /// When there is no such family.
    pub fn open(family: Family) -> io::Result<Self> {
        let (domain, level) = match family {
            Family::V4 => (AddressFamily::INET, libc::SOL_IP),
            Family::V6 => (AddressFamily::INET6, libc::SOL_IPV6),
        };
        let socket = socket_with(domain, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        Ok(Self { socket, level })
    }

    /// Reads a table. The kernel makes it if it is not there yet.
    ///
    /// # Errors
    /// When the kernel refuses, or the table is changed meanwhile.
    pub fn read(&self, name: &str) -> io::Result<Table> {
        let mut info = named(name, INFO);
        self.get(GET_INFO, &mut info)?;
        let number = |at: usize| word(&info, NAME + 4 * at);
        let size = number(2 + 2 * HOOKS);
        let mut entries = named(name, HEAD + size as usize);
        entries[NAME..NAME + 4].copy_from_slice(&size.to_ne_bytes());
        self.get(GET_ENTRIES, &mut entries)?;
        Ok(Table {
            valid_hooks: number(0),
            hook_entry: std::array::from_fn(|hook| number(1 + hook)),
            underflow: std::array::from_fn(|hook| number(1 + HOOKS + hook)),
            count: number(1 + 2 * HOOKS),
            entries: entries.split_off(HEAD),
        })
    }

    /// Replaces a table by what is left of it; what is left keeps its counters.
    ///
    /// # Errors
    /// `EAGAIN` when the table has another number of entries than `old`, else when the kernel refuses: it is as before then.
    pub fn replace(&self, name: &str, old: u32, edited: &Edited) -> io::Result<()> {
        let mut counters = vec![0_u8; old as usize * COUNTERS];
        let mut message = named(name, REPLACE);
        let table = &edited.table;
        let numbers = [table.valid_hooks, table.count, table.entries.len() as u32]
            .into_iter()
            .chain(table.hook_entry)
            .chain(table.underflow)
            .chain([old]);
        for (at, number) in numbers.enumerate() {
            message[NAME + 4 * at..][..4].copy_from_slice(&number.to_ne_bytes());
        }
        let address = counters.as_mut_ptr() as usize;
        message[ADDRESS..][..size_of::<usize>()].copy_from_slice(&address.to_ne_bytes());
        message.extend_from_slice(&table.entries);
        // SAFETY: the message names `counters`, which lives longer than the call and has room for the `old` counters that
        // the kernel writes: it refuses unless the table that it replaces has just so many entries.
        unsafe { self.set(SET_REPLACE, &message) }?;
        let mut kept = named(name, HEAD);
        kept[NAME..NAME + 4].copy_from_slice(&table.count.to_ne_bytes());
        for number in &edited.kept {
            kept.extend_from_slice(&counters[number * COUNTERS..][..COUNTERS]);
        }
        // SAFETY: this message holds no address.
        unsafe { self.set(ADD_COUNTERS, &kept) }
    }

    fn get(&self, name: i32, buffer: &mut [u8]) -> io::Result<()> {
        let mut length = buffer.len() as libc::socklen_t;
        // SAFETY: the descriptor is open while it is borrowed; the kernel writes at most `length` bytes, which is the size
        // of the buffer, and any bytes are valid there.
        let result = unsafe {
            libc::getsockopt(
                self.socket.as_fd().as_raw_fd(),
                self.level,
                name,
                buffer.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        if result == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// # Safety
    /// Addresses in the message must be valid for what the kernel does with them.
    unsafe fn set(&self, name: i32, message: &[u8]) -> io::Result<()> {
        // SAFETY: the descriptor is open while it is borrowed, and the kernel only reads the message; the caller answers
        // for addresses in it.
        let result = unsafe {
            libc::setsockopt(
                self.socket.as_fd().as_raw_fd(),
                self.level,
                name,
                message.as_ptr().cast(),
                message.len() as libc::socklen_t,
            )
        };
        if result == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

/// So many zeros that begin with a name, which is shorter than [`NAME`].
fn named(name: &str, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    bytes
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(std::array::from_fn(|byte| bytes[at + byte]))
}
