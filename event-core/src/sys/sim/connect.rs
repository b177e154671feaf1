//! How the program's sockets, and the test's, set out to connect, and what the test has said becomes of that.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use crate::sys::seam::Address;

use super::errno;
use super::names::loopback;
use super::sockets::Delivery;
use super::stream::{Kind, Phase};
use super::world::{ObjId, State};

/// What becomes of every connect to an address: see [`Sim::set_reach`](crate::testing::Sim::set_reach).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reach {
    /// It arrives after so long, whatever the latency of the world, and finds a listener there or none.
    After(Duration),
    /// It fails with an errno after so long: ECONNREFUSED, EHOSTUNREACH, ETIMEDOUT.
    Fails(Duration, i32),
    /// It fails with an errno in the call itself: ENETUNREACH.
    FailsAtOnce(i32),
    /// Nothing is ever heard of it: a black hole.
    Never,
}

impl State {
    /// Makes a client that has no number yet and sends it on its way.
    pub(crate) fn connect(&mut self, address: &Address) -> io::Result<ObjId> {
        let client = self.socket(address);
        match self.start_connect(client, address) {
            Ok(()) => Ok(client),
            Err(error) => {
                self.release(client);
                Err(error)
            }
        }
    }

    /// Makes a socket of the address's family that is not connected and has no number yet.
    pub(crate) fn socket(&mut self, address: &Address) -> ObjId {
        let (kind, local) = match address {
            Address::Ip(ip) if ip.is_ipv4() => (Kind::Tcp, Address::Ip((Ipv4Addr::UNSPECIFIED, 0).into())),
            Address::Ip(_) => (Kind::Tcp, Address::Ip((Ipv6Addr::UNSPECIFIED, 0).into())),
            Address::Unix(_) => (Kind::Unix, Address::Unix(None)),
        };
        let id = self.new_stream(kind, local, Address::Unix(None));
        if let Some(stream) = self.live(id) {
            stream.phase = Phase::Unconnected;
        }
        id
    }

    /// Gives a socket that is not connected an address of its own. Every IP address is one of this machine's.
    pub(super) fn bind(&mut self, id: ObjId, source: &Address) -> io::Result<()> {
        let stream = self.stream(id)?;
        let bound = match (&stream.local, source) {
            _ if stream.phase != Phase::Unconnected => return Err(errno(libc::EINVAL)),
            (Address::Ip(local), Address::Ip(source)) if local.is_ipv4() == source.is_ipv4() => *source,
            (Address::Unix(_), Address::Unix(Some(_))) => {
                stream.local = source.clone();
                return Ok(());
            }
            (Address::Ip(_), Address::Ip(_)) => return Err(errno(libc::EAFNOSUPPORT)),
            _ => return Err(errno(libc::EINVAL)),
        };
        let local = if bound.port() == 0 { self.free_address(bound.ip()) } else { Address::Ip(bound) };
        self.stream(id)?.local = local;
        Ok(())
    }

    /// Sends a socket that is not connected on its way.
    pub(super) fn start_connect(&mut self, client: ObjId, address: &Address) -> io::Result<()> {
        let stream = self.stream(client)?;
        match stream.phase {
            Phase::Unconnected => {}
            Phase::Connecting => return Err(errno(libc::EALREADY)),
            Phase::Open | Phase::Closed => return Err(errno(libc::EISCONN)),
        }
        match (&stream.local, address) {
            (Address::Ip(local), Address::Ip(ip)) if local.is_ipv4() == ip.is_ipv4() => {
                let local = *local;
                self.set_out(client, local.ip(), local.port(), address)
            }
            (_, Address::Unix(_)) if address.path().is_none() => Err(errno(libc::EINVAL)),
            // A unix socket connects or fails in the call, connect(2): EAGAIN stands for a full backlog.
            (Address::Unix(_), Address::Unix(path)) => {
                let Some(listener) = self.find_listener(address) else {
                    let known = path.as_ref().is_some_and(|path| self.unix_names.contains(path));
                    return Err(errno(if known { libc::ECONNREFUSED } else { libc::ENOENT }));
                };
                if !self.queue_has_room(listener) {
                    return Err(errno(libc::EAGAIN));
                }
                self.stream(client)?.remote = address.clone();
                self.establish(listener, client);
                Ok(())
            }
            _ => Err(errno(libc::EAFNOSUPPORT)),
        }
    }

    fn set_out(&mut self, client: ObjId, ip: IpAddr, port: u16, address: &Address) -> io::Result<()> {
        let reach = self.reaches.iter().find(|(to, _)| to == address).map(|(_, reach)| *reach);
        if let Some(Reach::FailsAtOnce(code)) = reach {
            return Err(errno(code));
        }
        let target = address.socket_addr().map_or(ip, |target| loopback(target.ip()));
        let local = match (port, ip.is_unspecified()) {
            (0, _) => self.free_address(target),
            (_, true) => Address::Ip((target, port).into()),
            (_, false) => Address::Ip((ip, port).into()),
        };
        let stream = self.stream(client)?;
        (stream.local, stream.remote, stream.phase) = (local, address.clone(), Phase::Connecting);
        self.touch(client);
        let (delay, delivery) = match reach {
            Some(Reach::Fails(after, errno)) => (after, Delivery::Failure { client, errno }),
            Some(Reach::After(after)) => (after, Delivery::Handshake { client }),
            Some(Reach::Never) => (Duration::MAX, Delivery::Handshake { client }),
            _ => (self.default_latency, Delivery::Handshake { client }),
        };
        self.schedule(self.now.after(delay), delivery);
        Ok(())
    }

    /// Says what becomes of every connect to `address` from now on; `None` is as usual.
    pub(crate) fn set_reach(&mut self, address: &Address, reach: Option<Reach>) {
        self.reaches.retain(|(to, _)| to != address);
        self.reaches.extend(reach.map(|reach| (address.clone(), reach)));
    }
}
