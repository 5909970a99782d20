//! IP addresses as the maps hold them: 16 bytes in network order, IPv4 as v4-mapped, always within a network.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The four words of `::ffff:0:0/96` before the IPv4 address, in network order.
const MAPPED: u32 = 0xffff_u32.to_be();

/// An IP address, 16 bytes in network order; IPv4 is v4-mapped (RFC 4291, 2.5.5.2), all zero is "none".
#[repr(C, align(4))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ip {
    /// The bytes in network order.
    pub octets: [u8; 16],
}

impl Ip {
    /// No address.
    pub const NONE: Self = Self { octets: [0; 16] };

    /// From four words in network order, as the kernel's contexts hold IPv6 addresses.
    #[inline(always)]
    #[must_use]
    pub const fn from_words(words: [u32; 4]) -> Self {
        // SAFETY: both are 16 plain bytes, and `[u32; 4]` is at least as aligned as `Ip`.
        unsafe { core::mem::transmute(words) }
    }

    /// From an IPv4 address in network order, as the kernel's contexts hold it.
    #[inline(always)]
    #[must_use]
    pub const fn from_v4_word(word: u32) -> Self {
        Self::from_words([0, 0, MAPPED, word])
    }

    /// The four words in network order.
    #[inline(always)]
    #[must_use]
    pub const fn words(&self) -> [u32; 4] {
        // SAFETY: both are 16 plain bytes and `Ip` is aligned to 4.
        unsafe { core::mem::transmute(*self) }
    }

    /// Whether this is IPv4 (v4-mapped).
    #[inline(always)]
    #[must_use]
    pub const fn is_v4(&self) -> bool {
        let w = self.words();
        w[0] == 0 && w[1] == 0 && w[2] == MAPPED
    }

    /// Whether there is no address: `::` itself, not `0.0.0.0`.
    #[inline(always)]
    #[must_use]
    pub const fn is_none(&self) -> bool {
        let w = self.words();
        w[0] | w[1] | w[2] | w[3] == 0
    }

    /// Loopback (127.0.0.0/8, ::1), or an unspecified address, which a connect takes as loopback.
    #[inline(always)]
    #[must_use]
    pub const fn is_local(&self) -> bool {
        let w = self.words();
        if self.is_v4() {
            self.octets[12] == 127 || w[3] == 0
        } else {
            w[0] == 0 && w[1] == 0 && w[2] == 0 && (w[3] == 0 || w[3] == 1_u32.to_be())
        }
    }

    /// Loopback: 127.0.0.0/8, ::1.
    #[inline(always)]
    #[must_use]
    pub const fn is_loopback(&self) -> bool {
        self.is_local() && self.words()[3] != 0
    }

    /// IPv6 link-local, fe80::/10.
    #[inline(always)]
    #[must_use]
    pub const fn is_v6_link_local(&self) -> bool {
        self.octets[0] == 0xfe && self.octets[1] & 0xc0 == 0x80
    }

    /// Equality, word by word: what the verifier likes best.
    #[inline(always)]
    #[must_use]
    pub const fn same(&self, other: &Self) -> bool {
        let (a, b) = (self.words(), other.words());
        a[0] == b[0] && a[1] == b[1] && a[2] == b[2] && a[3] == b[3]
    }
}

impl From<IpAddr> for Ip {
    fn from(ip: IpAddr) -> Self {
        let v6 = match ip {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        Self { octets: v6.octets() }
    }
}

impl From<Ip> for IpAddr {
    fn from(ip: Ip) -> Self {
        if ip.is_v4() {
            let [.., a, b, c, d] = ip.octets;
            Self::V4(Ipv4Addr::new(a, b, c, d))
        } else {
            Self::V6(Ipv6Addr::from(ip.octets))
        }
    }
}

impl core::fmt::Display for Ip {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        IpAddr::from(*self).fmt(f)
    }
}

/// Key of `ADDRESSES`: an IP means nothing without its network. Network ids are the keys of `NETWORKS`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AddressKey {
    /// Id of the network; 0 is the default (unnamed) one.
    pub network: u32,
    /// The address.
    pub ip: Ip,
}

/// Value of `ADDRESSES`: the pod that owns the address.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressOwner {
    /// Cookie of the pod's network namespace, the key of `PODS`.
    pub netns: u64,
    /// Generation of the pod, from its UID.
    pub generation: u64,
}

/// An address and a port.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// The address.
    pub ip: Ip,
    /// The port, in host order.
    pub port: u32,
}

const _: () = assert!(size_of::<Ip>() == 16 && size_of::<AddressKey>() == 20);
const _: () = assert!(size_of::<AddressOwner>() == 16 && size_of::<Endpoint>() == 20);
crate::plain_bytes!(Ip, AddressKey, AddressOwner, Endpoint);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ip_survives_the_way_through_the_map() {
        for text in ["10.0.0.1", "0.0.0.0", "::1", "fd00::1:2", "fe80::1"] {
            let ip: IpAddr = text.parse().unwrap();
            assert_eq!(IpAddr::from(Ip::from(ip)), ip);
        }
        let mapped: IpAddr = "::ffff:10.0.0.1".parse().unwrap();
        assert_eq!(IpAddr::from(Ip::from(mapped)).to_string(), "10.0.0.1");
    }

    #[test]
    fn loopback_and_unspecified_are_local_and_nothing_else_is() {
        let local = |t: &str| Ip::from(t.parse::<IpAddr>().unwrap()).is_local();
        for t in [
            "127.0.0.1",
            "127.255.0.9",
            "0.0.0.0",
            "::",
            "::1",
            "::ffff:127.0.0.1",
        ] {
            assert!(local(t), "{t}");
            let unspecified = ["0.0.0.0", "::"].contains(&t);
            assert_ne!(
                Ip::from(t.parse::<IpAddr>().unwrap()).is_loopback(),
                unspecified,
                "{t}"
            );
        }
        for t in [
            "10.0.0.1",
            "128.0.0.1",
            "::2",
            "fe80::1",
            "::ffff:10.0.0.1",
            "fd00::1",
        ] {
            assert!(
                !local(t) && !Ip::from(t.parse::<IpAddr>().unwrap()).is_loopback(),
                "{t}"
            );
        }
    }

    #[test]
    fn the_words_of_the_kernel_are_the_octets_of_the_map() {
        let ip = Ip::from("10.1.2.3".parse::<IpAddr>().unwrap());
        assert_eq!(Ip::from_v4_word(u32::from_ne_bytes([10, 1, 2, 3])), ip);
        assert_eq!(Ip::from_words(ip.words()), ip);
    }
}
