//! Which addresses clash, and which listener a connect arrives at.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::sys::seam::Address;

/// Whether a listener on `one` keeps another from listening on `other`.
pub(super) fn collide(one: &Address, other: &Address) -> bool {
    match (one, other) {
        (Address::Ip(one), Address::Ip(other)) => {
            let overlap = one.ip() == other.ip() || one.ip().is_unspecified() || other.ip().is_unspecified();
            one.port() == other.port() && one.is_ipv4() == other.is_ipv4() && overlap
        }
        _ => one == other,
    }
}

/// Whether a connect to `target` arrives at a listener on `address`. An IPv6 listener takes IPv6 only (IPV6_V6ONLY).
pub(super) fn reaches(target: &Address, address: &Address) -> bool {
    match (target, address) {
        (Address::Ip(target), Address::Ip(address)) => {
            let same_family = target.is_ipv4() == address.is_ipv4();
            let ip_fits = address.ip().is_unspecified() || address.ip() == loopback(target.ip());
            target.port() == address.port() && same_family && ip_fits
        }
        _ => target == address,
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

    fn ip(text: &str) -> Address {
        Address::Ip(text.parse().unwrap())
    }

    fn unix(path: &str) -> Address {
        Address::Unix(Some(PathBuf::from(path)))
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
}
