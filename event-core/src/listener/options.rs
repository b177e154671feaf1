//! `ListenerOptions`: how a listener is made, and how it goes on: libevent's `LEV_OPT_*`.

use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::time::Duration;

use crate::address::ToAddress;
use crate::error::Error;
use crate::reactor::LoopHandle;
use crate::sys::{Address, ListenOptions, fork_count};

use super::{Accepted, Listener, Name};

/// How a listener is made. What is not said is as [`Listener::bind`] has it.
///
/// ```
/// use event_core::{EventBase, ListenerOptions};
///
/// let base = EventBase::new()?;
/// let listener = ListenerOptions::new()
///     .only_v6(false) // IPv4 as well
///     .max_connections(Some(1000))
///     .bind(&base, "[::]:0", |_, accepted| drop(accepted))?;
/// println!("listening on {}", listener.local_address()?);
/// # Ok::<(), event_core::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "it does nothing until it binds"]
pub struct ListenerOptions {
    pub(super) socket: ListenOptions,
    pub(super) accepts_per_turn: usize,
    pub(super) max_connections: Option<usize>,
    pub(super) disabled: bool,
    unlink_on_free: bool,
}

impl Default for ListenerOptions {
    fn default() -> ListenerOptions {
        ListenerOptions {
            socket: ListenOptions::default(),
            // So that a burst of connections does not hold up the others.
            accepts_per_turn: 64,
            max_connections: None,
            disabled: false,
            unlink_on_free: true,
        }
    }
}

impl ListenerOptions {
    /// What [`Listener::bind`] uses.
    pub fn new() -> ListenerOptions {
        ListenerOptions::default()
    }

    /// How many connections the kernel keeps waiting: 4096 unless said otherwise, of which the system may allow fewer
    /// (`net.core.somaxconn` on Linux).
    pub fn backlog(mut self, connections: u32) -> ListenerOptions {
        self.socket.backlog = i32::try_from(connections).unwrap_or(i32::MAX);
        self
    }

    /// Whether the port may be had while connections of an earlier listener are still being forgotten (`SO_REUSEADDR`):
    /// true unless said otherwise. TCP only.
    #[doc(alias = "LEV_OPT_REUSEABLE")]
    pub fn reuse_address(mut self, reuse: bool) -> ListenerOptions {
        self.socket.reuse_address = reuse;
        self
    }

    /// Whether several listeners, of this process or of others of the same user, share the port (`SO_REUSEPORT`): the
    /// kernel spreads the connections over those that all say so. False unless said otherwise.
    ///
    /// A listener that is freed takes the connections in its backlog with it. [`bind`](Self::bind) fails with
    /// `Error::Invalid` for a unix path, and with `Error::Io` (`Unsupported`) on systems that would let one listener have
    /// all connections: all but Linux and FreeBSD.
    #[doc(alias = "LEV_OPT_REUSEABLE_PORT")]
    pub fn reuse_port(mut self, reuse: bool) -> ListenerOptions {
        self.socket.reuse_port = reuse;
        self
    }

    /// Whether a listener on an IPv6 address takes IPv6 only: true unless said otherwise, on every system and whatever
    /// its settings. With false `[::]` takes IPv4 as well; such a client's address is a mapped one, `::ffff:192.0.2.1`,
    /// which `IpAddr::to_canonical` undoes.
    #[doc(alias = "LEV_OPT_BIND_IPV6ONLY")]
    #[doc(alias = "LEV_OPT_BIND_IPV4_AND_IPV6")]
    pub fn only_v6(mut self, only: bool) -> ListenerOptions {
        self.socket.only_v6 = only;
        self
    }

    /// Whether a connection's small writes are sent at once (`TCP_NODELAY`): true unless said otherwise. TCP only.
    pub fn no_delay(mut self, no_delay: bool) -> ListenerOptions {
        self.socket.no_delay = no_delay;
        self
    }

    /// After how long without a byte from it a peer is asked whether it is still there (`SO_KEEPALIVE`): 300 s unless said
    /// otherwise; if it does not answer, the connection fails. `None`: never. In whole seconds; TCP only.
    pub fn keep_alive(mut self, idle: Option<Duration>) -> ListenerOptions {
        self.socket.keep_alive = idle;
        self
    }

    /// Whether a connection is told only once its first bytes have come, or a second has passed: saves a turn where the
    /// client speaks first. Does nothing where the system cannot do it (all but Linux). False unless said otherwise.
    #[doc(alias = "LEV_OPT_DEFERRED_ACCEPT")]
    pub fn deferred_accept(mut self, deferred: bool) -> ListenerOptions {
        self.socket.deferred_accept = deferred;
        self
    }

    /// Whether it begins disabled: see [`Listener::enable`]. False unless said otherwise.
    #[doc(alias = "LEV_OPT_DISABLED")]
    pub fn disabled(mut self, disabled: bool) -> ListenerOptions {
        self.disabled = disabled;
        self
    }

    /// The permissions of a unix socket's file, such as `0o660`: who may write to it may connect. They are in force before
    /// anybody can. Unless said otherwise the process's umask decides.
    pub fn mode(mut self, mode: u32) -> ListenerOptions {
        self.socket.mode = Some(mode);
        self
    }

    /// Whether a unix socket that is there already and that refuses connections, as one does whose program has died, is
    /// removed first. One that somebody listens on and a file of any other kind stay, and `bind` fails with `EADDRINUSE`.
    /// False unless said otherwise: a program between its `bind` and its `listen` looks dead, too.
    pub fn replace_stale(mut self, replace: bool) -> ListenerOptions {
        self.socket.replace_stale = replace;
        self
    }

    /// Whether freeing the listener, in the process that bound it, removes the file of its unix socket, if it is still the
    /// same: true unless said otherwise.
    pub fn unlink_on_free(mut self, unlink: bool) -> ListenerOptions {
        self.unlink_on_free = unlink;
        self
    }

    /// At most so many connections are accepted in a turn, at least one: 64 unless said otherwise, so that a burst of
    /// them does not hold up the others.
    pub fn accepts_per_turn(mut self, connections: usize) -> ListenerOptions {
        self.accepts_per_turn = connections.max(1);
        self
    }

    /// See [`Listener::set_max_connections`]. No limit unless said otherwise.
    pub fn max_connections(mut self, max: Option<usize>) -> ListenerOptions {
        self.max_connections = max;
        self
    }

    /// Listens on an address: see [`Listener::bind`].
    ///
    /// # Errors
    /// As `Listener::bind`, and what the options say.
    pub fn bind(
        &self,
        handle: &LoopHandle,
        address: impl ToAddress,
        cb: impl FnMut(&Listener, Accepted) + 'static,
    ) -> Result<Listener, Error> {
        handle.check()?;
        let mut refusal = Error::Invalid("the name has no address");
        for address in address.to_addresses()? {
            match self.listen(handle, &address) {
                Ok((fd, name)) => return Listener::made(handle, fd, true, name, self, Box::new(cb)),
                Err(error) => refusal = error,
            }
        }
        Err(refusal)
    }

    fn listen(&self, handle: &LoopHandle, address: &Address) -> Result<(RawFd, Option<Name>), Error> {
        if self.socket.reuse_port && matches!(address, Address::Unix(_)) {
            return Err(Error::Invalid("reuse_port is for TCP: the path of a unix socket is not shared"));
        }
        let fd = handle.sys().listen(address, &self.socket)?;
        let path = address.path().filter(|_| self.unlink_on_free);
        let name = path.map(|path| Name {
            path: path.to_path_buf(),
            file: handle.sys().file_at(path),
            bound_by: fork_count(),
        });
        Ok((fd, name))
    }

    /// Takes over a socket that was bound elsewhere: see [`Listener::from_fd`]. Of the options those count that are not
    /// about the making of the socket.
    ///
    /// # Errors
    /// As `Listener::from_fd`.
    pub fn from_fd(
        &self,
        handle: &LoopHandle,
        fd: impl Into<OwnedFd>,
        cb: impl FnMut(&Listener, Accepted) + 'static,
    ) -> Result<Listener, Error> {
        handle.check()?;
        let fd = fd.into();
        handle.sys().adopt(fd.as_raw_fd(), self.socket.backlog)?;
        Listener::made(handle, fd.into_raw_fd(), true, None, self, Box::new(cb))
    }

    /// Listens on a socket that stays the caller's: see [`Listener::from_borrowed_fd`].
    ///
    /// # Errors
    /// As `Listener::from_borrowed_fd`.
    pub fn from_borrowed_fd(
        &self,
        handle: &LoopHandle,
        fd: RawFd,
        cb: impl FnMut(&Listener, Accepted) + 'static,
    ) -> Result<Listener, Error> {
        handle.check()?;
        handle.sys().adopt(fd, self.socket.backlog)?;
        Listener::made(handle, fd, false, None, self, Box::new(cb))
    }
}
