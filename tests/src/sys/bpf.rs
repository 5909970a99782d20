//! bpf(2), for tests that look at the pins and spoil what is there: written on its own, not with the agent's library.

use std::ffi::CString;
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// `enum bpf_cmd` (uapi/linux/bpf.h).
mod command {
    pub(super) const MAP_LOOKUP: i32 = 1;
    pub(super) const MAP_UPDATE: i32 = 2;
    pub(super) const MAP_DELETE: i32 = 3;
    pub(super) const MAP_NEXT_KEY: i32 = 4;
    pub(super) const OBJ_PIN: i32 = 6;
    pub(super) const OBJ_GET: i32 = 7;
    pub(super) const PROG_TEST_RUN: i32 = 10;
    pub(super) const PROG_BY_ID: i32 = 13;
    pub(super) const MAP_BY_ID: i32 = 14;
    pub(super) const LINK_BY_ID: i32 = 30;
    pub(super) const LINK_DETACH: i32 = 34;
}

/// `union bpf_attr`, as the words that these commands use.
type Attr = [u64; 16];

fn bpf(command: i32, attr: &mut Attr) -> io::Result<i32> {
    // SAFETY: `attr` is as long as it is said to be, zeroed where not set, and each caller below keeps alive and long
    // enough what the addresses in it name.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attr.as_mut_ptr(), size_of::<Attr>()) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result as i32)
    }
}

fn descriptor(command: i32, attr: &mut Attr) -> io::Result<OwnedFd> {
    let fd = bpf(command, attr)?;
    // SAFETY: these commands return a new descriptor that nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Two neighbouring fields of four bytes.
fn words(first: u32, second: u32) -> u64 {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&first.to_ne_bytes());
    bytes[4..].copy_from_slice(&second.to_ne_bytes());
    u64::from_ne_bytes(bytes)
}

/// Something that is pinned.
#[derive(Debug)]
pub struct Pinned(OwnedFd);

impl Pinned {
    /// Opens it.
    ///
    /// # Errors
    /// What bpf(2) says.
    pub fn open(pin: &Path) -> io::Result<Self> {
        let path = CString::new(pin.as_os_str().as_bytes())?;
        let mut attr = Attr::default();
        attr[0] = path.as_ptr() as u64;
        descriptor(command::OBJ_GET, &mut attr).map(Self)
    }

    /// A number that the kernel tells of it in /proc/self/fdinfo, as `map_id`, `link_id` or `prog_id`.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u32> {
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", self.0.as_raw_fd())).ok()?;
        let line = info.lines().find(|line| {
            line.split_once(':')
                .is_some_and(|(field, _)| field.trim() == name)
        })?;
        line.split_once(':')?.1.trim().parse().ok()
    }

    /// Pins it once more.
    ///
    /// # Errors
    /// What bpf(2) says.
    pub fn pin(&self, to: &Path) -> io::Result<()> {
        let path = CString::new(to.as_os_str().as_bytes())?;
        let mut attr = Attr::default();
        attr[0] = path.as_ptr() as u64;
        attr[1] = words(self.0.as_raw_fd().cast_unsigned(), 0);
        bpf(command::OBJ_PIN, &mut attr).map(drop)
    }

    /// Detaches a link, which stays pinned.
    ///
    /// # Errors
    /// What bpf(2) says.
    pub fn detach(&self) -> io::Result<()> {
        let mut attr = Attr::default();
        attr[0] = words(self.0.as_raw_fd().cast_unsigned(), 0);
        bpf(command::LINK_DETACH, &mut attr).map(drop)
    }
}

/// Kinds of kernel objects that have ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A program.
    Program,
    /// A map.
    Map,
    /// A link.
    Link,
}

/// Whether the kernel has an object with this id.
///
/// # Errors
/// What bpf(2) says, other than that there is none.
pub fn exists(kind: Kind, id: u32) -> io::Result<bool> {
    let command = match kind {
        Kind::Program => command::PROG_BY_ID,
        Kind::Map => command::MAP_BY_ID,
        Kind::Link => command::LINK_BY_ID,
    };
    let mut attr = Attr::default();
    attr[0] = words(id, 0);
    match descriptor(command, &mut attr) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// A pinned map with plain values (not one per CPU), as bytes.
#[derive(Debug)]
pub struct Map {
    pinned: Pinned,
    key: usize,
    value: usize,
}

impl Map {
    /// Opens it.
    ///
    /// # Errors
    /// What bpf(2) says, or when it is no map.
    pub fn open(pin: &Path) -> io::Result<Self> {
        let pinned = Pinned::open(pin)?;
        let size = |name| pinned.number(name).ok_or(io::ErrorKind::InvalidData);
        let (key, value) = (size("key_size")? as usize, size("value_size")? as usize);
        Ok(Self { pinned, key, value })
    }

    fn attr(&self, key: &[u8], value: u64) -> Attr {
        assert_eq!(key.len(), self.key, "a key of another map");
        let mut attr = Attr::default();
        attr[0] = words(self.pinned.0.as_raw_fd().cast_unsigned(), 0);
        attr[1] = key.as_ptr() as u64;
        attr[2] = value;
        attr
    }

    /// All keys.
    ///
    /// # Errors
    /// What bpf(2) says.
    pub fn keys(&self) -> io::Result<Vec<Vec<u8>>> {
        let mut keys: Vec<Vec<u8>> = Vec::new();
        let mut next = vec![0; self.key];
        loop {
            let zero = vec![0; self.key];
            let mut attr = self.attr(keys.last().unwrap_or(&zero), next.as_mut_ptr() as u64);
            if keys.is_empty() {
                attr[1] = 0;
            }
            match bpf(command::MAP_NEXT_KEY, &mut attr) {
                Ok(_) => keys.push(next.clone()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(keys),
                Err(error) => return Err(error),
            }
        }
    }

    /// The value of a key.
    ///
    /// # Errors
    /// `NotFound`; what bpf(2) says.
    pub fn get(&self, key: &[u8]) -> io::Result<Vec<u8>> {
        let mut value = vec![0; self.value];
        let mut attr = self.attr(key, value.as_mut_ptr() as u64);
        bpf(command::MAP_LOOKUP, &mut attr)?;
        Ok(value)
    }

    /// Makes or replaces an entry.
    ///
    /// # Errors
    /// What bpf(2) says: `E2BIG` when the map is full.
    pub fn put(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        assert_eq!(value.len(), self.value, "a value of another map");
        let mut attr = self.attr(key, value.as_ptr() as u64);
        bpf(command::MAP_UPDATE, &mut attr).map(drop)
    }

    /// Removes an entry.
    ///
    /// # Errors
    /// `NotFound`; what bpf(2) says.
    pub fn remove(&self, key: &[u8]) -> io::Result<()> {
        let mut attr = self.attr(key, 0);
        bpf(command::MAP_DELETE, &mut attr).map(drop)
    }
}

/// A packet that looks for its socket, for [`Lookup::ask`].
#[derive(Clone, Copy, Debug)]
pub struct Lookup {
    /// `IPPROTO_TCP` or another.
    pub protocol: u32,
    /// Where it comes from; of the same family as `destination`.
    pub source: SocketAddr,
    /// Where it goes.
    pub destination: SocketAddr,
}

/// What an `sk_lookup` program says of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The kernel looks for a socket as always.
    Passed,
    /// It is given to a socket that the program chose.
    Steered,
    /// It is refused.
    Dropped,
}

/// `struct bpf_sk_lookup` (uapi/linux/bpf.h).
#[repr(C)]
#[derive(Default)]
struct LookupContext {
    cookie: u64,
    family: u32,
    protocol: u32,
    remote_ip4: [u8; 4],
    remote_ip6: [u8; 16],
    remote_port: [u8; 2],
    reserved: u16,
    local_ip4: [u8; 4],
    local_ip6: [u8; 16],
    local_port: u32,
    ingress_ifindex: u32,
    /// The kernel wants zero here.
    padding: u32,
}

impl Lookup {
    fn context(&self) -> LookupContext {
        let mut context = LookupContext {
            protocol: self.protocol,
            remote_port: self.source.port().to_be_bytes(),
            local_port: self.destination.port().into(),
            ..LookupContext::default()
        };
        match (self.source.ip(), self.destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                context.family = libc::AF_INET as u32;
                (context.remote_ip4, context.local_ip4) = (source.octets(), destination.octets());
            }
            (source, destination) => {
                let octets = |ip: IpAddr| match ip {
                    IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
                    IpAddr::V6(v6) => v6.octets(),
                };
                context.family = libc::AF_INET6 as u32;
                (context.remote_ip6, context.local_ip6) = (octets(source), octets(destination));
            }
        }
        context
    }

    /// Asks the program of the link that is pinned there, without a packet (`BPF_PROG_TEST_RUN`).
    ///
    /// # Errors
    /// What bpf(2) says.
    pub fn ask(&self, link: &Path) -> io::Result<Verdict> {
        let id = Pinned::open(link)?
            .number("prog_id")
            .ok_or(io::ErrorKind::InvalidData)?;
        let mut attr = Attr::default();
        attr[0] = words(id, 0);
        let program = descriptor(command::PROG_BY_ID, &mut attr)?;
        let mut context = self.context();
        let size = size_of::<LookupContext>() as u32;
        let mut attr = Attr::default();
        attr[0] = words(program.as_raw_fd().cast_unsigned(), 0);
        attr[5] = words(size, size);
        attr[6] = (&raw mut context) as u64;
        attr[7] = attr[6];
        match bpf(command::PROG_TEST_RUN, &mut attr) {
            // A socket that shares its port (SO_REUSEPORT), as the proxy's do: the kernel would choose among them, and
            // does not do that here (`bpf_prog_test_run_sk_lookup`).
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => return Ok(Verdict::Steered),
            result => result?,
        };
        // The verdict is the second word, as in `enum sk_action`.
        Ok(match (attr[0] >> 32, context.cookie) {
            (0, _) => Verdict::Dropped,
            (_, 0) => Verdict::Passed,
            _ => Verdict::Steered,
        })
    }
}
