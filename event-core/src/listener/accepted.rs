//! `Accepted`: a connection on its way from the listener to whoever will own it.

use std::fmt;
use std::mem;
use std::os::fd::{OwnedFd, RawFd};
use std::rc::Rc;

use crate::bufferevent::BufferEvent;
use crate::error::Error;
use crate::reactor::LoopHandle;
use crate::sys::Address;

use super::Inner;

/// A connection that was accepted and belongs to nobody yet. Dropping it closes it.
#[must_use = "dropping it closes the connection"]
pub struct Accepted {
    handle: LoopHandle,
    fd: RawFd,
    address: Address,
    /// Only of a listener that counts its connections.
    ticket: Option<Ticket>,
}

impl Accepted {
    pub(super) fn new(handle: LoopHandle, fd: RawFd, address: Address, ticket: Option<Ticket>) -> Accepted {
        Accepted { handle, fd, address, ticket }
    }

    /// Makes a stream of it. It is not enabled for reading yet.
    #[doc(alias = "bufferevent_socket_new")]
    pub fn into_stream(mut self) -> BufferEvent {
        let stream = BufferEvent::accepted(&self.handle, mem::replace(&mut self.fd, -1));
        if let Some(ticket) = self.ticket.take() {
            stream.keep_until_freed(Box::new(ticket));
        }
        stream
    }

    /// The peer's address. A client on a unix-domain socket mostly has none: `Address::Unix(None)`.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Takes the socket out, non-blocking and close-on-exec: for `TcpStream::from` or `UnixStream::from`, and what is to
    /// block says `set_nonblocking(false)` there. The listener's [limit](super::Listener::set_max_connections) does not
    /// count it any more.
    ///
    /// # Errors
    /// - `Error::Io` in the [simulation](crate::testing), whose numbers are no files of the system; the connection is
    ///   closed. See [`into_raw_fd`](Self::into_raw_fd).
    #[doc(alias = "LEV_OPT_LEAVE_SOCKETS_BLOCKING")]
    pub fn into_fd(mut self) -> Result<OwnedFd, Error> {
        let fd = self.handle.sys().own(self.fd)?;
        self.fd = -1;
        Ok(fd)
    }

    /// Takes the number out, for the caller to close: in the [simulation](crate::testing), where it is no file of the
    /// system. Elsewhere [`into_fd`](Self::into_fd) closes by itself.
    pub fn into_raw_fd(mut self) -> RawFd {
        mem::replace(&mut self.fd, -1)
    }
}

impl Drop for Accepted {
    fn drop(&mut self) {
        if self.fd >= 0 {
            self.handle.sys().close(self.fd);
        }
    }
}

impl fmt::Debug for Accepted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Accepted").field("fd", &self.fd).field("address", &self.address).finish()
    }
}

/// One of the connections that a listener counts, while it is open.
pub(super) struct Ticket(Rc<Inner>);

impl Ticket {
    pub(super) fn new(listener: &Rc<Inner>) -> Ticket {
        listener.open.set(listener.open.get() + 1);
        Ticket(listener.clone())
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.0.open.set(self.0.open.get() - 1);
        self.0.update();
    }
}
