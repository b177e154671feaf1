//! `Listener`: accepts connections and hands them to a callback.

mod accepted;
mod inherited;
mod options;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use crate::address::ToAddress;
use crate::clock::Time;
use crate::error::Error;
use crate::interest::{Ready, What};
use crate::reactor::{Callback, EventId, Kind, LoopHandle, Source};
use crate::sys::{Address, FileId, fork_count};

pub use accepted::Accepted;
use accepted::Ticket;
pub use inherited::{InheritedSocket, listen_fds};
pub use options::ListenerOptions;

/// So many failures in a row are not the fault of clients any more.
const FAILURES_PER_TURN: usize = 64;

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
/// let listener = Listener::bind(&base, "127.0.0.1:0", |_, accepted| {
///     let stream = accepted.into_stream();
///     stream.set_read_cb(|bev| {
///         let echo = bev.read_buffer();
///         let _ = bev.write(echo);
///     });
///     let _ = stream.enable(Direction::READ);
/// })?;
/// println!("listening on {}", listener.local_address()?);
/// # Ok::<(), event_core::Error>(())
/// ```
#[derive(Clone)]
#[doc(alias = "evconnlistener")]
pub struct Listener {
    inner: Rc<Inner>,
}

/// What has become of a listener so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListenerStats {
    /// Connections handed to the callback.
    pub accepted: u64,
    /// Connections that had failed before they were accepted, which is their clients' affair.
    pub aborted: u64,
    /// How often accepting failed for another reason, such as `EMFILE`, and rested for 100 ms.
    pub rested: u64,
    /// How often the limit of [`Listener::set_max_connections`] was reached.
    pub filled: u64,
    /// How many of the connections that were accepted under such a limit are open now.
    pub open: usize,
}

struct Inner {
    handle: LoopHandle,
    id: Cell<Option<EventId>>,
    fd: Cell<RawFd>,
    /// Freeing closes the fd.
    owns_fd: bool,
    enabled: Cell<bool>,
    /// There is a callback, or it is running: without one nothing is accepted.
    has_cb: Cell<bool>,
    /// The most connections accepted in a turn; at least 1.
    accepts_per_turn: usize,
    max_connections: Cell<Option<usize>>,
    /// The tickets that are out.
    open: Cell<usize>,
    stats: Cell<ListenerStats>,
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
    /// The process that bound it, as `fork_count` numbers them: to a child it is the parent's.
    bound_by: u64,
}

impl Listener {
    /// Listens on an address, such as `"127.0.0.1:7777"`, `"[::]:80"`, `("localhost", 80)`, `"unix:/run/app.sock"`: see
    /// [`ToAddress`]. A name is looked up before this returns; the first of its addresses that can be had is taken. With
    /// port 0 the system chooses: see [`local_address`](Self::local_address).
    ///
    /// On TCP a connection's small writes are sent at once, an IPv6 address takes IPv6 only, and a peer that vanishes is
    /// found out after some minutes. The path of a unix socket must not exist; it is removed when the listener is freed.
    /// [`ListenerOptions`] change that. Every socket is close-on-exec.
    ///
    /// # Errors
    /// - `Error::Io` with the kernel's errno: `EADDRINUSE` (also if the path exists), `EACCES`, `EADDRNOTAVAIL`, no
    ///   descriptor. Of a name's addresses, that of the last.
    /// - `Error::Invalid` if it is no address; `Error::LoopGone`, `Error::Forked`.
    #[doc(alias = "evconnlistener_new_bind")]
    #[doc(alias = "LEV_OPT_CLOSE_ON_EXEC")]
    pub fn bind(
        handle: &LoopHandle,
        address: impl ToAddress,
        cb: impl FnMut(&Listener, Accepted) + 'static,
    ) -> Result<Listener, Error> {
        ListenerOptions::new().bind(handle, address, cb)
    }

    /// Takes over a socket that was made elsewhere, such as one of [`listen_fds`]. It is made non-blocking and
    /// close-on-exec, and listens from here on if it was only bound before. It is closed when the listener is freed; the
    /// file of a unix socket stays.
    ///
    /// # Errors
    /// - `Error::Io` if it is no socket or cannot listen (`ENOTSOCK`, `EINVAL`), or if the backend refuses it. It is
    ///   closed then.
    /// - `Error::LoopGone`, `Error::Forked`.
    #[doc(alias = "evconnlistener_new")]
    #[doc(alias = "LEV_OPT_CLOSE_ON_FREE")]
    pub fn from_fd(
        handle: &LoopHandle,
        fd: impl Into<OwnedFd>,
        cb: impl FnMut(&Listener, Accepted) + 'static,
    ) -> Result<Listener, Error> {
        ListenerOptions::new().from_fd(handle, fd, cb)
    }

    /// As [`from_fd`](Self::from_fd), but the socket stays the caller's, who closes it, not before the listener is freed.
    ///
    /// # Errors
    /// As `from_fd`; it is not closed then.
    #[doc(alias = "evconnlistener_new")]
    pub fn from_borrowed_fd(
        handle: &LoopHandle,
        fd: RawFd,
        cb: impl FnMut(&Listener, Accepted) + 'static,
    ) -> Result<Listener, Error> {
        ListenerOptions::new().from_borrowed_fd(handle, fd, cb)
    }

    fn made(
        handle: &LoopHandle,
        fd: RawFd,
        owns_fd: bool,
        name: Option<Name>,
        options: &ListenerOptions,
        cb: AcceptCallback,
    ) -> Result<Listener, Error> {
        let inner = Rc::new(Inner {
            handle: handle.clone(),
            id: Cell::new(None),
            fd: Cell::new(fd),
            owns_fd,
            enabled: Cell::new(false),
            has_cb: Cell::new(true),
            accepts_per_turn: options.accepts_per_turn,
            max_connections: Cell::new(options.max_connections),
            open: Cell::new(0),
            stats: Cell::default(),
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
        listener.inner.set_enabled(!options.disabled);
        Ok(listener)
    }

    /// Replaces the callback; in the callback itself, the running one is dropped when it returns.
    #[doc(alias = "evconnlistener_set_cb")]
    pub fn set_cb(&self, cb: impl FnMut(&Listener, Accepted) + 'static) {
        let cb: AcceptCallback = Box::new(cb);
        let old = if self.inner.is_freed() { Some(cb) } else { self.inner.accept_cb.replace(Some(cb)) };
        self.inner.has_cb.set(true);
        self.inner.update();
        drop(old);
    }

    /// Takes the callback away, as a NULL does in libevent: connections wait in the kernel until there is one again, and
    /// the listener does not keep the loop running meanwhile.
    #[doc(alias = "evconnlistener_set_cb")]
    pub fn clear_cb(&self) {
        let old = self.inner.accept_cb.borrow_mut().take();
        self.inner.has_cb.set(false);
        self.inner.update();
        drop(old);
    }

    /// Sets what is called when accepting fails for a reason that waiting may cure, such as `EMFILE`: once until it
    /// works again. Accepting rests for 100 ms at a time meanwhile. Without it a warning is logged. It replaces the one before,
    /// which, in that callback itself, is dropped when it returns.
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

    /// Bounds how many of its connections are open at once: those made streams ([`Accepted::into_stream`]) until they are
    /// freed. At the limit it stops accepting, and others wait in the kernel's backlog; it goes on by itself when one is
    /// freed. Zero accepts none, `None` is no limit.
    ///
    /// Connections that were accepted while there was no limit are not counted.
    pub fn set_max_connections(&self, max: Option<usize>) {
        self.inner.max_connections.set(max);
        self.inner.update();
    }

    /// What has happened so far. Also of a freed one.
    pub fn stats(&self) -> ListenerStats {
        ListenerStats { open: self.inner.open.get(), ..self.inner.stats.get() }
    }

    /// Closes it. No callback comes any more; the running one is dropped when it returns. Freeing twice is harmless.
    ///
    /// The file of a unix socket is removed in the process that bound it alone: what the child of a fork frees goes on in
    /// its parent.
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
        let most = if now < self.burst_until.get() { self.accepts_per_turn } else { 1 };
        self.burst_until.set(now.after(BURST));
        let (mut taken, mut failed) = (0, 0);
        while taken < most && self.accepts() {
            match self.handle.sys().accept(self.fd.get()) {
                Ok((fd, address)) => {
                    taken += 1;
                    self.logged.set(false);
                    self.count(|stats| stats.accepted += 1);
                    self.handle.note_progress();
                    let ticket = self.max_connections.get().map(|_| Ticket::new(self));
                    if self.is_full() {
                        self.count(|stats| stats.filled += 1);
                        self.update();
                    }
                    self.call(Accepted::new(self.handle.clone(), fd, address, ticket));
                    self.handle.callback_ended();
                    // Who comes next waits in the kernel.
                    if self.id.get().is_none_or(|id| self.handle.must_yield(id)) {
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // The backlog is empty: the burst, if it was one, is over.
                    self.burst_until.set(Time::default());
                    return;
                }
                Err(error) if is_the_clients(&error) && failed + 1 < FAILURES_PER_TURN => {
                    failed += 1;
                    self.count(|stats| stats.aborted += 1);
                }
                // So many in a row are no client's any more: the socket would be readable for ever.
                Err(error) => {
                    self.count(|stats| stats.rested += 1);
                    self.rest(&error);
                    return;
                }
            }
        }
    }

    fn count(&self, change: impl FnOnce(&mut ListenerStats)) {
        let mut stats = self.stats.get();
        change(&mut stats);
        self.stats.set(stats);
    }

    /// As many are open as may be.
    fn is_full(&self) -> bool {
        self.max_connections.get().is_some_and(|max| self.open.get() >= max)
    }

    fn accepts(&self) -> bool {
        self.holds() && self.rest_until.get() == Time::NEVER && !self.is_full()
    }

    /// Connections are wanted, now or later.
    fn holds(&self) -> bool {
        self.enabled.get() && self.has_cb.get()
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
            if slot.is_some() || self.is_freed() || !self.has_cb.get() { Some(cb) } else { slot.replace(cb) }
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
        self.handle.set_interest(id, if self.accepts() { What::READ } else { What::empty() });
        self.handle.set_held(id, self.holds());
    }

    fn free(&self) {
        let Some(id) = self.id.take() else { return };
        self.enabled.set(false);
        let slot = self.handle.remove_slot(id.0);
        self.remove_name();
        self.close();
        let callbacks = (self.accept_cb.borrow_mut().take(), self.error_cb.borrow_mut().take());
        drop((slot, callbacks));
    }
}

impl Inner {
    fn close(&self) {
        let fd = self.fd.replace(-1);
        if fd >= 0 && self.owns_fd {
            self.handle.sys().close(fd);
        }
    }

    /// Before the socket is closed, which until then keeps its inode from being given to another file.
    fn remove_name(&self) {
        let name = self.name.borrow_mut().take();
        if let Some(Name { path, file, bound_by }) = name
            && bound_by == fork_count()
            && self.handle.sys().file_at(&path) == file
        {
            self.handle.sys().unlink(&path);
        }
    }
}

impl Drop for Inner {
    /// Reached unfreed only if the loop refused the listener when it was made.
    fn drop(&mut self) {
        if self.fd.get() >= 0 {
            self.remove_name();
            self.close();
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
