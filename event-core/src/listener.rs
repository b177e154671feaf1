//! `Listener`: accepts connections and hands them to a callback.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use crate::bufferevent::BufferEvent;
use crate::clock::Time;
use crate::error::Error;
use crate::interest::{Ready, What};
use crate::reactor::{Callback, EventId, Kind, LoopHandle, Source};
use crate::sys::{Address, FileId, ListenOptions};

/// Asked of the kernel, which may allow fewer (`net.core.somaxconn` on Linux): enough for a burst of new clients.
const BACKLOG: i32 = 4096;

/// At most this many connections are taken in one turn, so that a burst of them does not hold up the others.
const ACCEPTS_PER_TURN: usize = 64;

/// How long accepting rests when no descriptor is to be had. Short enough that a client waits no longer than it would
/// for a busy server, long enough that the loop does nothing else than sleep.
const REST: Duration = Duration::from_millis(100);

/// A connection that comes so soon after another is taken for one of many. A turn of a busy loop is shorter.
const BURST: Duration = Duration::from_millis(1);

type AcceptCallback = Box<dyn FnMut(&Listener, Accepted)>;
type ErrorCallback = Box<dyn FnMut(&Listener, &io::Error)>;

/// Listens on an address and calls back for each connection: libevent's `evconnlistener`.
///
/// A clonable handle on an object that the loop owns until [`free`](Self::free) or the end of the loop; dropping
/// handles does nothing. It is enabled when made and keeps the loop running while it is.
///
/// ```
/// use event_core::{Direction, EventBase, Listener};
///
/// let base = EventBase::new()?;
/// let listener = Listener::bind(&base, "127.0.0.1:0".parse()?, |_, accepted| {
///     let stream = accepted.into_stream();
///     stream.set_read_cb(|bev| {
///         let echo = bev.read_buffer();
///         let _ = bev.write(echo);
///     });
///     let _ = stream.enable(Direction::READ);
/// })?;
/// println!("{:?}", listener.local_address()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
#[doc(alias = "evconnlistener")]
pub struct Listener {
    inner: Rc<Inner>,
}

/// A connection that was accepted and belongs to nobody yet. Dropping it closes it.
#[must_use = "dropping it closes the connection"]
pub struct Accepted {
    handle: LoopHandle,
    fd: RawFd,
    address: Address,
}

impl Accepted {
    /// Makes a stream of it. It is not enabled for reading yet.
    #[doc(alias = "bufferevent_socket_new")]
    pub fn into_stream(mut self) -> BufferEvent {
        BufferEvent::accepted(&self.handle, std::mem::replace(&mut self.fd, -1))
    }

    /// The peer's address.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Takes the fd out: non-blocking, close-on-exec, and the caller's to close.
    pub fn into_raw_fd(mut self) -> RawFd {
        std::mem::replace(&mut self.fd, -1)
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

struct Inner {
    handle: LoopHandle,
    id: Cell<Option<EventId>>,
    fd: Cell<RawFd>,
    enabled: Cell<bool>,
    /// Until then it counts as a burst, and the kernel is asked until it says no. Single connections, further apart than
    /// that, cost one call each.
    burst_until: Cell<Time>,
    /// Accepting rests until then; `NEVER` if it does not rest.
    rest_until: Cell<Time>,
    /// The shortage was logged; once is enough until it has passed.
    logged: Cell<bool>,
    accept_cb: RefCell<Option<AcceptCallback>>,
    error_cb: RefCell<Option<ErrorCallback>>,
    /// Removed when the listener is freed: the socket's file, if we made it and it is still the same.
    name: RefCell<Option<Name>>,
}

/// The file of a unix socket.
struct Name {
    path: PathBuf,
    /// Which file it was when the socket was bound: somebody else's may stand there by now.
    file: Option<FileId>,
}

impl Listener {
    /// Listens on a TCP address. Port 0 lets the system choose: see [`local_address`](Self::local_address). A
    /// connection's small writes are sent at once (TCP_NODELAY), and a v6 address takes v6 connections only.
    ///
    /// # Errors
    /// - `Error::Io` with the kernel's errno: `EADDRINUSE`, `EACCES`, `EADDRNOTAVAIL`, no descriptor.
    /// - `Error::LoopGone`, `Error::Forked`.
    #[doc(alias = "evconnlistener_new_bind")]
    pub fn bind(
        handle: &LoopHandle,
        address: SocketAddr,
        cb: impl FnMut(&Listener, Accepted) + 'static,
    ) -> Result<Listener, Error> {
        Listener::listen(handle, &Address::Ip(address), Box::new(cb))
    }

    /// Listens on a unix-domain socket at `path`, which must not exist; it is removed when the listener is freed.
    ///
    /// # Errors
    /// - `Error::Io` with the kernel's errno: `EADDRINUSE` if the path exists.
    /// - `Error::LoopGone`, `Error::Forked`.
    #[doc(alias = "evconnlistener_new_bind")]
    pub fn bind_unix(
        handle: &LoopHandle,
        path: impl AsRef<Path>,
        cb: impl FnMut(&Listener, Accepted) + 'static,
    ) -> Result<Listener, Error> {
        let path = path.as_ref().to_path_buf();
        Listener::listen(handle, &Address::Unix(Some(path)), Box::new(cb))
    }

    /// Takes over a socket that listens already. It is closed when the listener is freed.
    ///
    /// # Errors
    /// - `Error::Io` if the backend refuses it; `Error::LoopGone`, `Error::Forked`.
    #[doc(alias = "evconnlistener_new")]
    pub fn from_fd(
        handle: &LoopHandle,
        fd: impl Into<OwnedFd>,
        cb: impl FnMut(&Listener, Accepted) + 'static,
    ) -> Result<Listener, Error> {
        handle.check()?;
        let fd = fd.into();
        handle.sys().set_nonblocking(fd.as_raw_fd())?;
        Listener::made(handle, fd.into_raw_fd(), None, Box::new(cb))
    }

    fn listen(handle: &LoopHandle, address: &Address, cb: AcceptCallback) -> Result<Listener, Error> {
        handle.check()?;
        let options = ListenOptions { backlog: BACKLOG, reuse_address: true, no_delay: true };
        let fd = handle.sys().listen(address, &options)?;
        let name = match address {
            Address::Unix(Some(path)) => Some(Name { path: path.clone(), file: handle.sys().file_at(path) }),
            _ => None,
        };
        Listener::made(handle, fd, name, cb)
    }

    fn made(
        handle: &LoopHandle,
        fd: RawFd,
        name: Option<Name>,
        cb: AcceptCallback,
    ) -> Result<Listener, Error> {
        let inner = Rc::new(Inner {
            handle: handle.clone(),
            id: Cell::new(None),
            fd: Cell::new(fd),
            enabled: Cell::new(false),
            burst_until: Cell::new(Time::default()),
            rest_until: Cell::new(Time::NEVER),
            logged: Cell::new(false),
            accept_cb: RefCell::new(Some(cb)),
            error_cb: RefCell::new(None),
            name: RefCell::new(name),
        });
        let id = handle.insert(Kind::Fd, fd, What::empty(), Callback::Source(inner.clone()))?;
        inner.id.set(Some(id));
        let listener = Listener { inner };
        handle.set_interest(id, What::READ);
        if let Err(error) = handle.add_io(id) {
            listener.free();
            return Err(error);
        }
        listener.enable();
        Ok(listener)
    }

    /// Replaces the callback; in the callback itself, the running one is dropped when it returns.
    #[doc(alias = "evconnlistener_set_cb")]
    pub fn set_cb(&self, cb: impl FnMut(&Listener, Accepted) + 'static) {
        let cb: AcceptCallback = Box::new(cb);
        let old = if self.inner.is_freed() { Some(cb) } else { self.inner.accept_cb.replace(Some(cb)) };
        drop(old);
    }

    /// Sets what is called when accepting fails for a reason that waiting may cure, such as `EMFILE`: once until it
    /// works again. Accepting rests for 100 ms at a time meanwhile. Without it a warning is logged.
    #[doc(alias = "evconnlistener_set_error_cb")]
    pub fn set_error_cb(&self, cb: impl FnMut(&Listener, &io::Error) + 'static) {
        let cb: ErrorCallback = Box::new(cb);
        let old = if self.inner.is_freed() { Some(cb) } else { self.inner.error_cb.replace(Some(cb)) };
        drop(old);
    }

    /// Accepts again. Enabling twice is harmless.
    #[doc(alias = "evconnlistener_enable")]
    pub fn enable(&self) {
        self.inner.set_enabled(true);
    }

    /// Stops accepting, also in the middle of a batch; connections wait in the kernel.
    #[doc(alias = "evconnlistener_disable")]
    pub fn disable(&self) {
        self.inner.set_enabled(false);
    }

    /// Whether it accepts.
    pub fn is_enabled(&self) -> bool {
        self.inner.enabled.get()
    }

    /// Closes it. No callback comes any more; the running one is dropped when it returns. Freeing twice is harmless.
    #[doc(alias = "evconnlistener_free")]
    pub fn free(&self) {
        self.inner.free();
    }

    /// Where it listens, with the port that the system chose.
    ///
    /// # Errors
    /// - `Error::Stale` if it was freed; `Error::Io` as the system says.
    pub fn local_address(&self) -> Result<Address, Error> {
        let fd = self.fd().ok_or(Error::Stale)?;
        Ok(self.inner.handle.sys().local_address(fd)?)
    }

    /// The listening socket; `None` once freed.
    #[doc(alias = "evconnlistener_get_fd")]
    pub fn fd(&self) -> Option<RawFd> {
        Some(self.inner.fd.get()).filter(|&fd| fd >= 0)
    }

    /// The loop it belongs to.
    #[doc(alias = "evconnlistener_get_base")]
    pub fn handle(&self) -> &LoopHandle {
        &self.inner.handle
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("fd", &self.inner.fd.get()).finish_non_exhaustive()
    }
}

impl Source for Inner {
    fn ready(self: Rc<Self>, handle: &LoopHandle, ready: Ready) {
        let rested = ready.contains(Ready::TIMEOUT) && self.rest_until.get() <= handle.cached_now();
        if rested {
            self.rest_until.set(Time::NEVER);
            self.update();
        }
        // After a rest it is tried at once: as long as that fails nothing is asked of the backend.
        if rested || ready.intersects(Ready::READ | Ready::CLOSED) {
            self.accept_some();
        }
    }

    fn deadline(&self) -> Time {
        self.rest_until.get()
    }

    fn lost(self: Rc<Self>) {
        // The number may be another file's by now: it is not ours to close.
        self.fd.set(-1);
        log::error!("a listening socket was closed behind the loop's back");
        self.free();
    }

    fn teardown(self: Rc<Self>) {
        self.free();
    }
}

impl Inner {
    fn accept_some(self: &Rc<Self>) {
        let now = self.handle.cached_now();
        let most = if now < self.burst_until.get() { ACCEPTS_PER_TURN } else { 1 };
        self.burst_until.set(now.after(BURST));
        let mut failed = 0;
        for _ in 0..most {
            if !self.enabled.get() || self.rest_until.get() != Time::NEVER {
                return;
            }
            match self.handle.sys().accept(self.fd.get()) {
                Ok((fd, address)) => {
                    self.logged.set(false);
                    self.handle.note_progress();
                    self.call(Accepted { handle: self.handle.clone(), fd, address });
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // The backlog is empty: the burst, if it was one, is over.
                    self.burst_until.set(Time::default());
                    return;
                }
                Err(error) if is_the_clients(&error) && failed + 1 < ACCEPTS_PER_TURN => failed += 1,
                // So many in a row are no client's any more: the socket would be readable for ever.
                Err(error) => {
                    self.rest(&error);
                    return;
                }
            }
        }
    }

    /// No descriptor, no memory: the socket would be readable for ever. Accepting rests, and it is said once.
    fn rest(self: &Rc<Self>, error: &io::Error) {
        let until = self.handle.cached_now().after(REST);
        self.rest_until.set(until);
        if let Some(id) = self.id.get() {
            self.handle.arm(id, until);
        }
        self.update();
        if self.logged.replace(true) {
            return;
        }
        let cb = self.error_cb.borrow_mut().take();
        match cb {
            Some(mut cb) => {
                self.handle.note_progress();
                cb(&Listener { inner: self.clone() }, error);
                let unwanted = {
                    let mut slot = self.error_cb.borrow_mut();
                    if slot.is_some() || self.is_freed() { Some(cb) } else { slot.replace(cb) }
                };
                drop(unwanted);
            }
            None => log::warn!("accepting connections rests: {error}"),
        }
    }

    fn call(self: &Rc<Self>, accepted: Accepted) {
        let cb = self.accept_cb.borrow_mut().take();
        let Some(mut cb) = cb else { return };
        cb(&Listener { inner: self.clone() }, accepted);
        let unwanted = {
            let mut slot = self.accept_cb.borrow_mut();
            if slot.is_some() || self.is_freed() { Some(cb) } else { slot.replace(cb) }
        };
        drop(unwanted);
    }

    fn is_freed(&self) -> bool {
        self.id.get().is_none()
    }

    fn set_enabled(&self, enabled: bool) {
        if !self.is_freed() {
            self.enabled.set(enabled);
            self.update();
        }
    }

    fn update(&self) {
        let Some(id) = self.id.get() else { return };
        let accepts = self.enabled.get() && self.rest_until.get() == Time::NEVER;
        self.handle.set_interest(id, if accepts { What::READ } else { What::empty() });
        self.handle.set_held(id, self.enabled.get());
    }

    fn free(&self) {
        let Some(id) = self.id.take() else { return };
        self.enabled.set(false);
        let slot = self.handle.remove_slot(id.0);
        self.remove_name();
        let fd = self.fd.replace(-1);
        if fd >= 0 {
            self.handle.sys().close(fd);
        }
        let callbacks = (self.accept_cb.borrow_mut().take(), self.error_cb.borrow_mut().take());
        drop((slot, callbacks));
    }
}

impl Inner {
    /// Before the socket is closed, which until then keeps its inode from being given to another file.
    fn remove_name(&self) {
        let name = self.name.borrow_mut().take();
        // In the child of a fork the file is the parent's.
        if let Some(Name { path, file }) = name
            && !self.handle.is_forked()
            && self.handle.sys().file_at(&path) == file
        {
            self.handle.sys().unlink(&path);
        }
    }
}

impl Drop for Inner {
    /// Reached unfreed only if the loop refused the listener when it was made.
    fn drop(&mut self) {
        let fd = self.fd.replace(-1);
        if fd >= 0 {
            self.remove_name();
            self.handle.sys().close(fd);
        }
    }
}

/// The connection failed before we took it (accept(2), "Error handling"): the next one may be well.
fn is_the_clients(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::ECONNABORTED
                | libc::EINTR
                | libc::ENETDOWN
                | libc::EPROTO
                | libc::ENOPROTOOPT
                | libc::EHOSTDOWN
                | libc::EHOSTUNREACH
                | libc::EOPNOTSUPP
                | libc::ENETUNREACH
                | libc::EPERM
        )
    )
}
