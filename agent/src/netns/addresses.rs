//! The addresses of the namespace that a netlink socket was made in (rtnetlink(7), RTM_GETADDR), without a runtime:
//! the one question is asked on a thread that lives no longer than its answer.

use std::io;
use std::net::IpAddr;

use rtnetlink::packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::address::{AddressAttribute, AddressMessage};
use rtnetlink::sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use crate::sys::socket::netns_cookie;

/// Netlink messages begin at multiples of this (`NLMSG_ALIGNTO`, netlink(7)).
const ALIGNMENT: usize = 4;

/// A routing socket within one namespace.
pub struct RouteSocket(Socket);

impl RouteSocket {
    /// A socket in the namespace of the calling thread.
    ///
    /// # Errors
    /// When the kernel gives none.
    pub fn open() -> io::Result<Self> {
        let socket = Socket::new(NETLINK_ROUTE)?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self(socket))
    }

    /// Cookie of the socket's namespace.
    ///
    /// # Errors
    /// Before Linux 5.14.
    pub fn netns_cookie(&self) -> io::Result<u64> {
        netns_cookie(&self.0)
    }

    /// Addresses of all interfaces but 127.0.0.0/8 and ::1, sorted.
    ///
    /// # Errors
    /// When the kernel refuses or its answer cannot be read.
    pub fn addresses(&self) -> io::Result<Vec<IpAddr>> {
        self.0.send(&request(), 0)?;
        let mut addresses = Vec::new();
        loop {
            let (packet, _) = self.0.recv_from_full()?;
            if read_packet(&packet, &mut addresses)? == Dump::Done {
                addresses.sort_unstable();
                addresses.dedup();
                return Ok(addresses);
            }
        }
    }
}

fn request() -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let question = RouteNetlinkMessage::GetAddress(AddressMessage::default());
    let mut message = NetlinkMessage::new(header, NetlinkPayload::from(question));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

/// Whether more packets belong to the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dump {
    More,
    Done,
}

fn read_packet(packet: &[u8], addresses: &mut Vec<IpAddr>) -> io::Result<Dump> {
    let mut rest = packet;
    while !rest.is_empty() {
        let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest).map_err(io::Error::other)?;
        let length = (message.header.length as usize).next_multiple_of(ALIGNMENT);
        match message.payload {
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewAddress(address)) => {
                addresses.extend(own_address(&address.attributes).filter(|ip| !ip.is_loopback()));
            }
            NetlinkPayload::Done(done) if done.code < 0 => {
                return Err(io::Error::from_raw_os_error(-done.code));
            }
            NetlinkPayload::Done(_) => return Ok(Dump::Done),
            NetlinkPayload::Error(error) => return Err(error.to_io()),
            _ => {}
        }
        rest = rest.get(length..).unwrap_or_default();
    }
    Ok(Dump::More)
}

/// On point-to-point links `IFA_ADDRESS` is the other end and `IFA_LOCAL` one's own; IPv6 has only the former.
fn own_address(attributes: &[AddressAttribute]) -> Option<IpAddr> {
    let local = attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Local(ip) => Some(*ip),
        _ => None,
    });
    local.or_else(|| {
        attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Address(ip) => Some(*ip),
            _ => None,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_to_point_link_owns_its_local_address_and_not_the_peers() {
        let (own, peer): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let attributes = [AddressAttribute::Address(peer), AddressAttribute::Local(own)];
        assert_eq!(own_address(&attributes), Some(own));
        assert_eq!(own_address(&attributes[..1]), Some(peer));
        assert_eq!(own_address(&[]), None);
    }

    #[test]
    fn an_answer_that_is_cut_off_is_an_error_and_not_an_empty_list() {
        let mut cut = request();
        cut.truncate(18);
        assert!(read_packet(&cut, &mut Vec::new()).is_err());
    }

    #[test]
    fn loopback_addresses_are_not_listed() {
        let addresses = RouteSocket::open().unwrap().addresses().unwrap();
        assert!(addresses.iter().all(|ip| !ip.is_loopback()), "{addresses:?}");
    }
}
