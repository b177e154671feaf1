//! `Connect`: connecting by address, path or name, with all that may be said about it.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::rc::Rc;
use std::time::Duration;

use super::BufferEvent;
use super::connecting::{Connecting, How};
use super::inner::Inner;
use super::race::ATTEMPT_DELAY;
use super::rare::Cause;
use super::state::{Due, State};
use crate::address::{Target, ToAddress};
use crate::error::{ConnectError, ConnectPhase, Error};
use crate::interest::What;
use crate::reactor::LoopHandle;
use crate::resolver::{Family, Resolver};
use crate::sys::{Address, FdKind};

/// How long connecting may take, looking the name up included, unless it is said otherwise: a user has gone by then.
const DEADLINE: Duration = Duration::from_secs(60);

/// How long one address may take: a lost SYN is sent anew after 1, 3, 7 and 15 s (RFC 6298), so four may be lost.
const ATTEMPT_DEADLINE: Duration = Duration::from_secs(20);

/// Connects a stream to an address, a path or a name, and says how.
///
/// All addresses of a name are tried, as RFC 8305 ("Happy Eyeballs") has it: the families take turns, each attempt is
/// alone for 250 ms or until it fails, and the first that connects wins; the others are closed. Where IPv4 is found
/// first, IPv6 is waited for 50 ms. At most 32 addresses are tried. A host that is a number is not looked up.
///
/// Everything is done by the loop, from its next turn on, and told as an event: `CONNECTED`, or `ERROR` with an
/// [`Error::Connect`] that says which step failed and why. Until then the stream has no fd, keeps the loop running, and
/// keeps what is written. Freeing it, giving it another fd or starting anew calls everything off.
///
/// ```no_run
/// use std::time::Duration;
///
/// use event_core::{Connect, Direction, EventBase, Family};
///
/// let mut base = EventBase::new()?;
/// let bev = Connect::new("example.org:80")
///     .family(Family::V4)
///     .deadline(Some(Duration::from_secs(10)))
///     .start(&base)?;
/// bev.set_event_cb(|bev, event| println!("{event:?} {:?}", bev.error()));
/// bev.enable(Direction::READ)?;
/// base.dispatch()?;
/// # Ok::<(), event_core::Error>(())
/// ```
#[must_use = "nothing connects before `start` or `start_on`"]
#[doc(alias = "bufferevent_socket_connect_hostname")]
pub struct Connect {
    target: Result<Target, Error>,
    how: How,
}

impl Connect {
    /// Connects to what is said in any of the ways of [`ToAddress`]. Nothing is looked up in this call, and what is no
    /// address is told by [`start`](Self::start).
    pub fn new(target: impl ToAddress) -> Connect {
        let how = How {
            family: Family::Any,
            source: None,
            hook: None,
            resolver: None,
            deadline: Some(DEADLINE),
            attempt_deadline: Some(ATTEMPT_DEADLINE),
            attempt_delay: ATTEMPT_DELAY,
        };
        Connect { target: target.to_target(), how }
    }

    /// Tries addresses of this family alone. Both at first.
    #[doc(alias = "bufferevent_socket_connect_hostname_hints")]
    pub fn family(mut self, family: Family) -> Connect {
        self.how.family = family;
        self
    }

    /// Connects from this address of the machine; a port of 0 is any. Addresses of the other family are not tried, and
    /// paths have no source.
    pub fn source(mut self, source: impl Into<SocketAddr>) -> Connect {
        self.how.source = Some(source.into());
        self
    }

    /// Calls `hook` for each socket before it connects, to set options. An error ends that attempt as if connecting had
    /// failed with it. It is dropped when the race is over.
    pub fn on_socket(mut self, hook: impl FnMut(&NewSocket<'_>) -> io::Result<()> + 'static) -> Connect {
        self.how.hook = Some(Box::new(hook));
        self
    }

    /// Has this resolver look the name up, not [that of the loop](LoopHandle::set_resolver).
    pub fn resolver(mut self, resolver: Rc<dyn Resolver>) -> Connect {
        self.how.resolver = Some(resolver);
        self
    }

    /// Sets how long all of it may take, from `start` on; then it fails with ETIMEDOUT. 60 s at first; `None` is as long
    /// as it takes.
    pub fn deadline(mut self, after: Option<Duration>) -> Connect {
        self.how.deadline = after;
        self
    }

    /// Sets how long each address may take; then its attempt fails with ETIMEDOUT. 20 s at first; with `None` the system
    /// decides, which on Linux takes more than two minutes.
    pub fn attempt_deadline(mut self, after: Option<Duration>) -> Connect {
        self.how.attempt_deadline = after;
        self
    }

    /// Sets how long an attempt is alone before the next address is tried beside it: 250 ms at first, and what RFC 8305
    /// (section 5) allows, 100 ms to 2 s, at the least and at the most.
    pub fn attempt_delay(mut self, delay: Duration) -> Connect {
        self.how.attempt_delay = delay.clamp(Duration::from_millis(100), Duration::from_secs(2));
        self
    }

    /// Makes a stream that connects. WRITE is enabled.
    ///
    /// # Errors
    /// - `Error::Invalid` if it is no address, or its port is 0.
    /// - `Error::LoopGone`, `Error::Forked`. All else is an event.
    pub fn start(self, handle: &LoopHandle) -> Result<BufferEvent, Error> {
        let stream = BufferEvent::without_fd(handle)?;
        if let Err(error) = self.start_on(&stream) {
            stream.free();
            return Err(error);
        }
        Ok(stream)
    }

    /// Has a stream connect that is there, with its callbacks and with what its output holds. An fd that it has is
    /// closed. WRITE is enabled, READ stays as it is: after a failed connect it is off.
    ///
    /// # Errors
    /// - `Error::Invalid` if it is no address, or its port is 0, and for an end of a pair and a stream over a transport:
    ///   nothing has changed then.
    /// - `Error::Stale` if the stream was freed; `Error::LoopGone`, `Error::Forked`. All else is an event.
    pub fn start_on(self, stream: &BufferEvent) -> Result<(), Error> {
        let target = self.target?;
        let has_port = |address: &Address| address.port() != Some(0);
        match &target {
            Target::Addresses(addresses) if addresses.is_empty() => {
                return Err(Error::Invalid("there is no address to connect to"));
            }
            Target::Addresses(addresses) if addresses.iter().all(has_port) => {}
            Target::Name(_, 1..) => {}
            _ => return Err(Error::Invalid("there is no port 0 to connect to")),
        }
        stream.inner.connect_by(target, self.how)
    }
}

impl fmt::Debug for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connect").field("target", &self.target).finish_non_exhaustive()
    }
}

/// A socket that is about to connect: what [`Connect::on_socket`] gets.
pub struct NewSocket<'a> {
    pub(super) handle: &'a LoopHandle,
    pub(super) fd: RawFd,
    pub(super) address: &'a Address,
}

impl NewSocket<'_> {
    /// Where it will connect to.
    pub fn address(&self) -> &Address {
        self.address
    }

    /// The descriptor, to set options on: `socket2::SockRef::from(&fd)` has them all. `None` in a simulation, where the
    /// number is not the system's.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.handle.sys().borrow(self.fd)
    }

    /// Gives the socket its own address; a port of 0 is any.
    ///
    /// # Errors
    /// - What bind(2) says: EADDRNOTAVAIL, EADDRINUSE, EACCES, EINVAL.
    pub fn bind(&self, source: &Address) -> io::Result<()> {
        self.handle.sys().bind(self.fd, source)
    }
}

impl AsRawFd for NewSocket<'_> {
    fn as_raw_fd(&self) -> RawFd {
        self.fd
    }
}

impl fmt::Debug for NewSocket<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewSocket").field("fd", &self.fd).field("address", &self.address).finish()
    }
}

impl BufferEvent {
    /// Makes a stream that connects to a port of a host, which is a name or a number: [`Connect`] without more to say.
    /// `CONNECTED` or `ERROR` comes to the event callback; what is written until then is sent afterwards.
    ///
    /// # Errors
    /// - `Error::Invalid` if there is no host, or the port is 0.
    /// - `Error::LoopGone`, `Error::Forked`.
    #[doc(alias = "bufferevent_socket_connect_hostname")]
    pub fn connect_hostname(handle: &LoopHandle, host: &str, port: u16) -> Result<BufferEvent, Error> {
        Connect::new((host, port)).start(handle)
    }
}

impl Inner {
    fn connect_by(self: &Rc<Self>, target: Target, how: How) -> Result<(), Error> {
        self.check_replaceable()?;
        self.start()?;
        let connecting = Connecting::new(self, target, how)?;
        let before = self.rare_if(|rare| rare.connecting.take()).flatten();
        let ended = (before.map(|before| before.end()), self.take_cause());
        if let Some(old) = self.swap_fd(-1) {
            self.handle.sys().close(old);
        }
        self.set(State::CONNECTING | State::WRITE_ENABLED, true);
        self.set(State::DETACHED, false);
        self.touch_write();
        self.touch_read();
        self.rare_mut(|rare| rare.connecting = Some(connecting));
        self.update();
        drop(ended);
        Ok(())
    }

    /// One of the sockets has connected and is the stream's from here on. That it is writable, which it is, takes the
    /// way of every connect from here.
    pub(super) fn connected_by(self: &Rc<Self>, fd: RawFd) {
        self.fd.set(fd);
        self.handle.set_source(self.id.get(), fd);
        self.watched.set(What::empty());
        self.kind.set(FdKind::Socket);
        self.set(State::REGISTERED, false);
        self.set(State::OWNS_FD, true);
        // What is due, and was taken off the queue with the old source, comes with the readiness.
        if let Err(error) = self.try_update() {
            self.fd.set(-1);
            self.handle.set_source(self.id.get(), -1);
            self.handle.sys().close(fd);
            self.connect_failed(ConnectError::new(ConnectPhase::Connect, plain(error)));
        }
    }

    /// The stream is not connected, and will not be.
    pub(super) fn connect_failed(&self, error: ConnectError) {
        self.set(State::CONNECTING, false);
        self.set(State::READ_ENABLED | State::WRITE_ENABLED, false);
        self.set(State::DETACHED, self.fd.get() < 0);
        self.fail(Cause::Connect(error), Due::ERROR);
        self.update();
    }
}

/// An error as one of the system's.
pub(super) fn plain(error: Error) -> io::Error {
    match error {
        Error::Io(error) => error,
        other => io::Error::other(other),
    }
}
