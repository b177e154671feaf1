//! The sockets that a server listens on, and what becomes of the connections that they accept.

use std::cell::Cell;
use std::fmt;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};

use event_core::{Accepted, Address, BufferEvent, Listener, ListenerOptions, ToAddress};

use crate::driver::Connection;
use crate::error::{Caller, Error, Ours};
use crate::server::slot::Slot;
use crate::server::{Inner, Server};

/// Descriptors that the server leaves to the program: logs, files, a database.
const SPARE_FILES: usize = 64;

/// So many clients above the bound are told 503; those above that are closed without a word.
const REFUSED_AT_ONCE: usize = 32;

/// What a server does with a client above [`Server::set_max_connections`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overload {
    /// It is accepted, told 503 and closed; in a flood of them it is just closed.
    #[default]
    Refuse,
    /// It waits in the kernel's queue until a connection has ended. An idle keep-alive connection holds its place until
    /// [`Limits::idle_timeout`](crate::Limits::idle_timeout).
    Wait,
}

/// Makes the stream of an accepted connection.
pub(crate) type Factory = Box<dyn FnMut(BufferEvent) -> Option<BufferEvent>>;

/// The stream to serve, `None` if the factory made none, or the plain one back if there is no factory.
fn make(factory: &Slot<Factory>, plain: BufferEvent) -> Result<Option<BufferEvent>, BufferEvent> {
    if !factory.is_set() {
        return Err(plain);
    }
    let stream = plain.clone();
    let made = factory.call("a stream factory", |factory| factory(stream)).flatten();
    if made.is_none() {
        // Never in the clear instead.
        plain.free();
    }
    Ok(made)
}

/// A socket that a server listens on: libevent's `evhttp_bound_socket`.
///
/// It derefs to its [`Listener`], which tells the fd and the address, and stops when it is freed. A clonable handle;
/// dropping it changes nothing.
#[derive(Clone)]
#[doc(alias = "evhttp_bound_socket")]
pub struct BoundSocket {
    listener: Listener,
    own: Rc<Own>,
}

/// What a server keeps beside a listener.
#[derive(Default)]
struct Own {
    factory: Slot<Factory>,
    /// The server has disabled it because of too many connections.
    waits: Cell<bool>,
}

impl BoundSocket {
    /// Sets what makes the streams of connections that this socket accepts; it wins over [`Server::set_bevcb`].
    #[doc(alias = "evhttp_bound_set_bevcb")]
    pub fn set_bevcb(&self, factory: impl FnMut(BufferEvent) -> Option<BufferEvent> + 'static) {
        self.own.factory.set(Some(Box::new(factory)));
    }

    fn is(&self, other: &BoundSocket) -> bool {
        Rc::ptr_eq(&self.own, &other.own)
    }

    /// Accepts nothing until the server has room. One that the program has disabled stays so.
    fn rest(&self) {
        self.own.waits.set(self.listener.is_enabled());
        self.listener.disable();
    }

    pub(crate) fn close(&self) {
        self.listener.free();
        self.own.factory.close();
    }
}

impl Deref for BoundSocket {
    type Target = Listener;

    fn deref(&self) -> &Listener {
        &self.listener
    }
}

impl fmt::Debug for BoundSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoundSocket").field("address", &self.listener.local_address().ok()).finish()
    }
}

impl Server {
    /// Listens on one more address: `"127.0.0.1:8081"`, `("localhost", 8081)`, `"unix:/run/app.sock"`, as
    /// [`Listener::bind`] does. The socket tells the port that the system chose if it was 0, and stops when it is freed.
    ///
    /// # Errors
    /// - `is_ours`, with the system's error as source: the port is taken, the path exists, the name is unknown, the right
    ///   is missing.
    /// - `is_invalid_argument` if it is no address; `is_server_gone`.
    #[doc(alias = "evhttp_bind_socket")]
    #[doc(alias = "evhttp_bind_socket_with_handle")]
    pub fn bind(&self, address: impl ToAddress) -> Result<BoundSocket, Error> {
        self.bind_with(&ListenerOptions::new(), address)
    }

    /// Listens on one more address, with options of the listener's.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub fn bind_with(
        &self,
        options: &ListenerOptions,
        address: impl ToAddress,
    ) -> Result<BoundSocket, Error> {
        let own = Rc::new(Own::default());
        self.keep(options.bind(&self.inner.handle, address, self.inner.acceptor(&own)), own)
    }

    /// Listens on a socket that was made elsewhere, such as one of [`event_core::listen_fds`]: see [`Listener::from_fd`].
    ///
    /// # Errors
    /// - `is_ours`, with the system's error as source, if it cannot listen; `is_server_gone`.
    #[doc(alias = "evhttp_accept_socket")]
    #[doc(alias = "evhttp_accept_socket_with_handle")]
    pub fn accept_socket(&self, fd: impl Into<OwnedFd>) -> Result<BoundSocket, Error> {
        let own = Rc::new(Own::default());
        self.keep(Listener::from_fd(&self.inner.handle, fd, self.inner.acceptor(&own)), own)
    }

    /// Serves what a listener accepts from here on, and frees it with the server. Its callback is replaced.
    ///
    /// # Errors
    /// - `is_server_gone`; the listener is freed.
    #[doc(alias = "evhttp_bind_listener")]
    pub fn bind_listener(&self, listener: Listener) -> Result<BoundSocket, Error> {
        let own = Rc::new(Own::default());
        listener.set_cb(self.inner.acceptor(&own));
        self.keep(Ok(listener), own)
    }

    fn keep(
        &self,
        listener: Result<Listener, event_core::Error>,
        own: Rc<Own>,
    ) -> Result<BoundSocket, Error> {
        let listener = listener.map_err(|error| match error {
            event_core::Error::Io(error) => Ours::Listen(error).into(),
            event_core::Error::Invalid(why) => Caller::Address(why).into(),
            error => Error::from(error),
        })?;
        let bound = BoundSocket { listener, own };
        if self.inner.gone.get() || self.inner.stopping.get() {
            bound.close();
            return Err(Ours::ServerGone.into());
        }
        let freed: Vec<BoundSocket> = {
            let mut listeners = self.inner.listeners.borrow_mut();
            listeners.push(bound.clone());
            listeners.extract_if(.., |bound| bound.fd().is_none()).collect()
        };
        // Those that the program has freed are of no use any more.
        freed.iter().for_each(BoundSocket::close);
        if self.inner.waiting.get() {
            bound.rest();
        }
        Ok(bound)
    }

    /// Stops listening on one socket and closes it; connections that it has accepted go on. False if it is none of
    /// this server's.
    #[doc(alias = "evhttp_del_accept_socket")]
    pub fn del_accept_socket(&self, bound: &BoundSocket) -> bool {
        let removed = {
            let mut listeners = self.inner.listeners.borrow_mut();
            let at = listeners.iter().position(|own| own.is(bound));
            at.map(|at| listeners.remove(at))
        };
        let Some(removed) = removed else { return false };
        removed.close();
        true
    }

    /// The sockets it listens on.
    #[doc(alias = "evhttp_foreach_bound_socket")]
    pub fn bound_sockets(&self) -> Vec<BoundSocket> {
        self.inner.listeners.borrow().iter().filter(|bound| bound.fd().is_some()).cloned().collect()
    }

    /// Where the server listens.
    pub fn addresses(&self) -> Vec<Address> {
        self.bound_sockets().iter().filter_map(|bound| bound.local_address().ok()).collect()
    }

    /// Serves a stream that was made elsewhere: one end of a pair, an inherited socket. The server owns it from here
    /// on; its callbacks are replaced.
    pub fn serve(&self, stream: BufferEvent) {
        let peer = stream.peer_address().unwrap_or(Address::Unix(None));
        self.inner.take(stream, peer);
    }

    /// Sets what makes the streams of accepted connections: it gets the plain one and returns the one to serve, for
    /// instance with TLS on it. If it returns `None`, or panics, the connection is closed: nothing is served in the
    /// clear instead.
    #[doc(alias = "evhttp_set_bevcb")]
    pub fn set_bevcb(&self, factory: impl FnMut(BufferEvent) -> Option<BufferEvent> + 'static) {
        self.inner.factory.set(Some(Box::new(factory)));
    }

    /// Bounds how many connections are served at once; `None` is the open-file limit less 64. What becomes of one more
    /// says [`set_overload`](Self::set_overload).
    #[doc(alias = "evhttp_set_max_connections")]
    pub fn set_max_connections(&self, max: Option<usize>) {
        self.inner.max_connections.set(max);
        self.inner.settle_listeners();
    }

    /// Sets what becomes of a client above the bound.
    pub fn set_overload(&self, overload: Overload) {
        self.inner.overload.set(overload);
        self.inner.settle_listeners();
    }

    /// How many connections there are.
    #[doc(alias = "evhttp_get_connection_count")]
    pub fn connection_count(&self) -> usize {
        self.inner.connections.borrow().len()
    }
}

impl Inner {
    /// What is called for each connection.
    fn acceptor(self: &Rc<Self>, own: &Rc<Own>) -> impl FnMut(&Listener, Accepted) + use<> {
        let (server, own): (Weak<Inner>, Rc<Own>) = (Rc::downgrade(self), own.clone());
        move |_, accepted| {
            let Some(server) = server.upgrade() else { return };
            let peer = accepted.address().clone();
            let stream = accepted.into_stream();
            let made = make(&own.factory, stream).or_else(|stream| make(&server.factory, stream));
            match made {
                Ok(None) => {}
                Ok(Some(stream)) | Err(stream) => server.take(stream, peer),
            }
        }
    }

    /// Serves a stream, or refuses it when there are too many.
    fn take(self: &Rc<Self>, stream: BufferEvent, peer: Address) {
        let count = self.connections.borrow().len();
        let most = self.most_connections(count);
        if self.gone.get() || self.stopping.get() || count >= most.saturating_add(REFUSED_AT_ONCE) {
            stream.free();
            return;
        }
        if let Some(connection) = Connection::start(self, stream, peer)
            && count >= most
        {
            connection.refuse(&Ours::TooManyConnections.into());
        }
        if self.overload.get() == Overload::Wait {
            self.settle_listeners();
        }
    }

    /// The bound on connections, for so many. The open-file limit is asked for again where it was reached, as it may have
    /// been raised; that is a system call. Of a lower one accepting tells.
    fn most_connections(&self, count: usize) -> usize {
        self.max_connections.get().unwrap_or_else(|| {
            if count >= self.file_bound.get() {
                self.file_bound.set(self.handle.open_file_limit().saturating_sub(SPARE_FILES).max(1));
            }
            self.file_bound.get()
        })
    }

    /// Accepts, or waits, as the number of connections wants it.
    pub(crate) fn settle_listeners(&self) {
        let count = self.connections.borrow().len();
        let waits = self.overload.get() == Overload::Wait && count >= self.most_connections(count);
        if waits == self.waiting.get() {
            return;
        }
        self.waiting.set(waits);
        let listeners = self.listeners.borrow().clone();
        for bound in &listeners {
            if waits {
                bound.rest();
            } else if bound.own.waits.replace(false) {
                bound.listener.enable();
            }
        }
    }

    pub(crate) fn stop_listening(&self) {
        let bound = self.listeners.take();
        // All of them first: what factories let go of is the program's, and may panic.
        bound.iter().for_each(|bound| bound.listener.free());
        bound.iter().for_each(BoundSocket::close);
    }
}
