//! Which addresses clash, and which listener a connect arrives at.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::sys::seam::Address;

/// What a listener has bound.
#[derive(Clone, Debug)]
pub(super) struct Bound {
    pub(super) address: Address,
    /// An IPv6 listener without IPV6_V6ONLY: it takes IPv4 as well.
    pub(super) dual: bool,
    /// SO_REUSEPORT: others that have it, too, may listen there as well.
    pub(super) shared: bool,
}

impl Bound {
    /// Whether it takes every address of IPv4.
    fn takes_all_v4(&self) -> bool {
        let Address::Ip(ip) = &self.address else { return false };
        ip.ip().is_unspecified() && (ip.is_ipv4() || self.dual)
    }
}

/// Whether a listener on `one` keeps another from listening on `other`.
pub(super) fn collide(one: &Bound, other: &Bound) -> bool {
    match (&one.address, &other.address) {
        (Address::Ip(a), Address::Ip(b)) => {
            let same_family = a.is_ipv4() == b.is_ipv4();
            let overlap = match same_family {
                true => a.ip() == b.ip() || a.ip().is_unspecified() || b.ip().is_unspecified(),
                false => one.dual && one.takes_all_v4() || other.dual && other.takes_all_v4(),
            };
            a.port() == b.port() && overlap && !(one.shared && other.shared)
        }
        (one, other) => one == other,
    }
}

/// Whether a connect to `target` arrives at a listener.
pub(super) fn reaches(target: &Address, bound: &Bound) -> bool {
    match (target, &bound.address) {
        (Address::Ip(target), Address::Ip(address)) => {
            let same_family = target.is_ipv4() == address.is_ipv4();
            let ip_fits = address.ip().is_unspecified() || address.ip() == loopback(target.ip());
            let fits = if same_family { ip_fits } else { target.is_ipv4() && bound.takes_all_v4() };
            target.port() == address.port() && fits
        }
        (target, address) => target == address,
    }
}

/// An address as an IPv6 socket sees it.
pub(super) fn mapped(address: Address) -> Address {
    match address {
        Address::Ip(SocketAddr::V4(ip)) => Address::Ip((ip.ip().to_ipv6_mapped(), ip.port()).into()),
        other => other,
    }
}

/// Where a connect to `ip` goes: the unspecified address means this host.
pub(super) fn loopback(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn bound(address: Address) -> Bound {
        Bound { address, dual: false, shared: false }
    }

    fn ip(text: &str) -> Bound {
        bound(Address::Ip(text.parse().unwrap()))
    }

    fn unix(path: &str) -> Bound {
        bound(Address::Unix(Some(PathBuf::from(path))))
    }

    fn reaches(target: &Bound, bound: &Bound) -> bool {
        super::reaches(&target.address, bound)
    }

    #[test]
    fn the_unspecified_address_clashes_with_every_one_of_its_family() {
        assert!(collide(&ip("127.0.0.1:80"), &ip("127.0.0.1:80")));
        assert!(collide(&ip("0.0.0.0:80"), &ip("127.0.0.1:80")));
        assert!(collide(&ip("[::1]:80"), &ip("[::]:80")));
        assert!(!collide(&ip("0.0.0.0:80"), &ip("[::]:80")));
        assert!(!collide(&ip("127.0.0.1:80"), &ip("127.0.0.2:80")));
        assert!(!collide(&ip("127.0.0.1:80"), &ip("127.0.0.1:81")));
        assert!(collide(&unix("/a"), &unix("/a")));
        assert!(!collide(&unix("/a"), &unix("/b")));
        assert!(!collide(&unix("/a"), &ip("127.0.0.1:80")));
    }

    #[test]
    fn a_connect_arrives_at_its_own_address_or_the_unspecified_one() {
        assert!(reaches(&ip("127.0.0.1:80"), &ip("127.0.0.1:80")));
        assert!(reaches(&ip("127.0.0.1:80"), &ip("0.0.0.0:80")));
        assert!(
            reaches(&ip("0.0.0.0:80"), &ip("127.0.0.1:80")),
            "to the unspecified address is to this host"
        );
        assert!(reaches(&ip("[::]:80"), &ip("[::1]:80")));
        assert!(!reaches(&ip("127.0.0.1:80"), &ip("[::]:80")));
        assert!(!reaches(&ip("127.0.0.2:80"), &ip("127.0.0.1:80")));
        assert!(!reaches(&ip("127.0.0.1:81"), &ip("0.0.0.0:80")));
        assert!(reaches(&unix("/a"), &unix("/a")));
        assert!(!reaches(&unix("/a"), &ip("127.0.0.1:80")));
    }

    #[test]
    fn a_listener_for_both_families_clashes_with_and_is_reached_over_both() {
        let dual = Bound { dual: true, ..ip("[::]:80") };
        for other in ["0.0.0.0:80", "127.0.0.1:80", "[::1]:80", "[::]:80"] {
            assert!(collide(&dual, &ip(other)) && collide(&ip(other), &dual), "{other}");
        }
        assert!(reaches(&ip("127.0.0.1:80"), &dual) && reaches(&ip("[::1]:80"), &dual));
        assert!(!reaches(&ip("127.0.0.1:81"), &dual) && !collide(&dual, &ip("0.0.0.0:81")));
        let narrow = Bound { dual: true, ..ip("[::1]:80") };
        assert!(!collide(&narrow, &ip("127.0.0.1:80")) && !reaches(&ip("127.0.0.1:80"), &narrow));
        assert_eq!(mapped(ip("127.0.0.1:80").address), ip("[::ffff:127.0.0.1]:80").address);
    }

    #[test]
    fn a_port_is_shared_by_those_who_all_say_so() {
        let shared = || Bound { shared: true, ..ip("127.0.0.1:80") };
        assert!(!collide(&shared(), &shared()));
        assert!(collide(&shared(), &ip("127.0.0.1:80")));
    }
}
