//! `Server`: listens, keeps the connections, and finds the handler for each request.

mod deferred;
mod hook;
mod request;
mod routes;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};
use std::time::Duration;

use event_core::{
    Accepted, Address, BufferEvent, EventId, Listener, ListenerOptions, LoopHandle, Owned, Ready, ToAddress,
};
use slab::Slab;

use crate::conn::Rules;
use crate::date::{DateCache, DateLine};
use crate::driver::Connection;
use crate::encode::DEFAULT_CONTENT_TYPE;
use crate::error::{Caller, Error, Ours};
use crate::head::{HeadPool, Headers, MethodSet};
use crate::limits::Limits;

use deferred::Desk;
pub use deferred::{Deferred, DeferredReply};
pub use hook::{Completion, Gone};
pub(crate) use hook::{Hook, Progress, RoomCallback, guarded};
pub use request::{Reply, Request};
pub use routes::HandlerReturn;
use routes::{Handler, Routes};

/// Descriptors that the server leaves to the program: logs, files, a database.
const SPARE_FILES: usize = 64;

/// So many clients above the bound are told 503; those above that are closed without a word.
const REFUSED_AT_ONCE: usize = 32;

/// An HTTP server: libevent's `evhttp`.
///
/// A clonable handle on an object that the loop owns: it serves until [`free`](Self::free) or the end of the loop, and
/// dropping handles does nothing.
///
/// ```no_run
/// use event_core::EventBase;
/// use event_http::Server;
///
/// let mut base = EventBase::new()?;
/// let http = Server::start(&base, "127.0.0.1:8081")?;
/// http.set_gencb(|req| req.send_reply(200, "OK", "Hello!"));
/// base.dispatch()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
#[doc(alias = "evhttp")]
pub struct Server {
    inner: Rc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) handle: LoopHandle,
    pub(crate) heads: RefCell<HeadPool>,
    pub(crate) desk: RefCell<Desk>,
    id: Cell<Option<EventId>>,
    rules: RefCell<Rc<Rules>>,
    date: RefCell<DateCache>,
    /// The field that answers with a body get if they lack it.
    content_type: RefCell<Option<Rc<Headers>>>,
    gencb: RefCell<Option<Rc<Handler>>>,
    routes: RefCell<Routes>,
    listeners: RefCell<Vec<Listener>>,
    connections: RefCell<Slab<Rc<Connection>>>,
    /// `None`: the open-file limit less a reserve.
    max_connections: Cell<Option<usize>>,
    /// Hooks of requests whose connection ended inside a call of the program's: they run in the next turn.
    queued: RefCell<Vec<(Hook, Completion)>>,
    stopping: Cell<bool>,
    gone: Cell<bool>,
}

impl Server {
    /// Makes a server that does not listen yet.
    ///
    /// # Errors
    /// - `is_ours` if the loop is gone or the process has forked.
    #[doc(alias = "evhttp_new")]
    pub fn new(handle: &LoopHandle) -> Result<Server, Error> {
        let inner = Rc::new(Inner {
            handle: handle.clone(),
            heads: RefCell::default(),
            desk: RefCell::default(),
            id: Cell::new(None),
            rules: RefCell::default(),
            date: RefCell::new(DateCache::new()),
            content_type: RefCell::new(None),
            gencb: RefCell::new(None),
            routes: RefCell::default(),
            listeners: RefCell::default(),
            connections: RefCell::default(),
            max_connections: Cell::new(None),
            queued: RefCell::default(),
            stopping: Cell::new(false),
            gone: Cell::new(false),
        });
        inner.id.set(Some(handle.own(inner.clone())?));
        let server = Server { inner };
        server.set_default_content_type(Some(DEFAULT_CONTENT_TYPE))?;
        Ok(server)
    }

    /// Makes a server and listens.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    #[doc(alias = "evhttp_start")]
    pub fn start(handle: &LoopHandle, address: impl ToAddress) -> Result<Server, Error> {
        let server = Server::new(handle)?;
        match server.bind(address) {
            Ok(_) => Ok(server),
            Err(error) => {
                server.free();
                Err(error)
            }
        }
    }

    /// Listens on one more address: `"127.0.0.1:8081"`, `("localhost", 8081)`, `"unix:/run/app.sock"`, as
    /// [`Listener::bind`] does. The listener tells the port that the system chose if it was 0, and stops when it is freed.
    ///
    /// # Errors
    /// - `is_ours`, with the system's error as source: the port is taken, the path exists, the name is unknown, the right
    ///   is missing.
    /// - `is_invalid_argument` if it is no address; `is_server_gone`.
    #[doc(alias = "evhttp_bind_socket")]
    #[doc(alias = "evhttp_bind_socket_with_handle")]
    pub fn bind(&self, address: impl ToAddress) -> Result<Listener, Error> {
        self.bind_with(&ListenerOptions::new(), address)
    }

    /// Listens on one more address, with options of the listener's.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub fn bind_with(&self, options: &ListenerOptions, address: impl ToAddress) -> Result<Listener, Error> {
        self.keep(options.bind(&self.inner.handle, address, self.acceptor()))
    }

    /// Listens on a socket that was made elsewhere, such as one of [`event_core::listen_fds`]: see [`Listener::from_fd`].
    ///
    /// # Errors
    /// - `is_ours`, with the system's error as source, if it cannot listen; `is_server_gone`.
    #[doc(alias = "evhttp_accept_socket")]
    #[doc(alias = "evhttp_accept_socket_with_handle")]
    pub fn accept_socket(&self, fd: impl Into<OwnedFd>) -> Result<Listener, Error> {
        self.keep(Listener::from_fd(&self.inner.handle, fd, self.acceptor()))
    }

    /// Serves what a listener accepts from here on, and frees it with the server. Its callback is replaced.
    ///
    /// # Errors
    /// - `is_server_gone`; the listener is freed.
    #[doc(alias = "evhttp_bind_listener")]
    pub fn bind_listener(&self, listener: Listener) -> Result<(), Error> {
        listener.set_cb(self.acceptor());
        self.keep(Ok(listener)).map(|_| ())
    }

    fn acceptor(&self) -> impl FnMut(&Listener, Accepted) + 'static {
        let server = Rc::downgrade(&self.inner);
        move |_, accepted| accept(&server, accepted)
    }

    fn keep(&self, listener: Result<Listener, event_core::Error>) -> Result<Listener, Error> {
        let listener = listener.map_err(|error| match error {
            event_core::Error::Io(error) => Ours::Listen(error).into(),
            event_core::Error::Invalid(why) => Caller::Address(why).into(),
            error => Error::from(error),
        })?;
        if self.inner.gone.get() || self.inner.stopping.get() {
            listener.free();
            return Err(Ours::ServerGone.into());
        }
        let mut listeners = self.inner.listeners.borrow_mut();
        // Those that the program has freed are of no use any more.
        listeners.retain(|listener| listener.fd().is_some());
        listeners.push(listener.clone());
        Ok(listener)
    }

    /// Where the server listens.
    #[doc(alias = "evhttp_foreach_bound_socket")]
    pub fn addresses(&self) -> Vec<Address> {
        self.inner.listeners.borrow().iter().filter_map(|listener| listener.local_address().ok()).collect()
    }

    /// Serves a stream that was made elsewhere: one end of a pair, an inherited socket. The server owns it from here
    /// on; its callbacks are replaced.
    pub fn serve(&self, stream: BufferEvent) {
        let peer = stream.peer_address().unwrap_or(Address::Unix(None));
        self.inner.take(stream, peer);
    }

    /// Sets the handler of every path that has none of its own; without it such requests get 404. Replaces the one
    /// that was there.
    ///
    /// A handler that panics is logged and the client gets 500; the handler stays.
    #[doc(alias = "evhttp_set_gencb")]
    pub fn set_gencb<R: HandlerReturn>(&self, handler: impl FnMut(Request) -> R + 'static) {
        let handler = Handler::new(handler);
        let old = if self.inner.gone.get() { Some(handler) } else { self.inner.gencb.replace(Some(handler)) };
        drop(old);
    }

    /// Sets the handler of one path, compared byte by byte after percent-decoding and without the query.
    ///
    /// # Errors
    /// - `is_caller` if the path has a handler already.
    /// - `is_server_gone`.
    #[doc(alias = "evhttp_set_cb")]
    pub fn set_cb<R: HandlerReturn>(
        &self,
        path: &str,
        handler: impl FnMut(Request) -> R + 'static,
    ) -> Result<(), Error> {
        let handler = Handler::new(handler);
        if self.inner.gone.get() {
            drop(handler);
            return Err(Ours::ServerGone.into());
        }
        let inserted = self.inner.routes.borrow_mut().insert(path, handler);
        inserted.map_err(|refused| {
            drop(refused);
            Caller::PathTaken.into()
        })
    }

    /// Takes the handler of a path away; false if it had none.
    #[doc(alias = "evhttp_del_cb")]
    pub fn del_cb(&self, path: &str) -> bool {
        let old = self.inner.routes.borrow_mut().remove(path);
        old.is_some()
    }

    /// Sets the limits for requests read from now on.
    #[doc(alias = "evhttp_set_max_headers_size")]
    #[doc(alias = "evhttp_set_max_body_size")]
    #[doc(alias = "evhttp_set_timeout")]
    #[doc(alias = "evhttp_set_timeout_tv")]
    pub fn set_limits(&self, limits: Limits) {
        self.inner.change_rules(|rules| rules.limits = limits);
    }

    /// The limits that are in force.
    pub fn limits(&self) -> Limits {
        self.inner.rules().limits.clone()
    }

    /// Sets which methods are served; others that are known get 405, unknown ones 501.
    #[doc(alias = "evhttp_set_allowed_methods")]
    pub fn set_allowed_methods(&self, methods: MethodSet) {
        self.inner.change_rules(|rules| rules.methods = methods);
    }

    /// Sets whether a target may have nothing but what RFC 3986 allows; others are answered 400. Not from the start, as
    /// browsers send `[`, `]`, `|`, `{`, `}`, `^`, `"`, a lone `%` and others as they are: then these pass, while
    /// control characters, blanks, bytes above 0x7e and `#` never do.
    pub fn set_strict_targets(&self, strict: bool) {
        self.inner.change_rules(|rules| rules.strict_targets = strict);
    }

    /// Sets the Content-Type of answers that have a body and no such field; `None` adds none.
    ///
    /// # Errors
    /// - `is_invalid_argument` if it is no field value.
    #[doc(alias = "evhttp_set_default_content_type")]
    pub fn set_default_content_type(&self, content_type: Option<&str>) -> Result<(), Error> {
        let mut field = None;
        if let Some(content_type) = content_type {
            let mut headers = Headers::new();
            headers.add("Content-Type", content_type)?;
            field = Some(Rc::new(headers));
        }
        self.inner.content_type.replace(field);
        Ok(())
    }

    /// Bounds how many connections are served at once; one more gets 503. `None` is the open-file limit less 64.
    #[doc(alias = "evhttp_set_max_connections")]
    pub fn set_max_connections(&self, max: Option<usize>) {
        self.inner.max_connections.set(max);
    }

    /// How many connections there are.
    #[doc(alias = "evhttp_get_connection_count")]
    pub fn connection_count(&self) -> usize {
        self.inner.connections.borrow().len()
    }

    /// Stops gracefully: no new connections; idle ones are closed; answers that are out are finished with
    /// `Connection: close`; what is left after `deadline` is closed. Called again while it stops, it closes everything
    /// at once. The server does not keep the loop running afterwards.
    pub fn shutdown(&self, deadline: Duration) {
        let inner = &self.inner;
        if inner.gone.get() {
            return;
        }
        inner.stop_listening();
        let connections = inner.all_connections();
        if inner.stopping.replace(true) {
            for connection in connections {
                connection.close(false);
            }
            return;
        }
        for connection in connections {
            connection.stop();
        }
        if let Some(id) = inner.id.get()
            && self.connection_count() > 0
        {
            let _ = inner.handle.add(id, Some(deadline));
        }
    }

    /// Whether `shutdown` was called.
    pub fn is_stopping(&self) -> bool {
        self.inner.stopping.get()
    }

    /// Frees the server now: listeners and connections close, handlers are dropped (after the one that runs has
    /// returned). Requests that are out give `is_server_gone`. Freeing twice is harmless.
    #[doc(alias = "evhttp_free")]
    pub fn free(&self) {
        self.inner.free();
    }

    /// The loop it belongs to.
    pub fn handle(&self) -> &LoopHandle {
        &self.inner.handle
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("connections", &self.connection_count()).finish_non_exhaustive()
    }
}

fn accept(server: &Weak<Inner>, accepted: Accepted) {
    let Some(server) = server.upgrade() else { return };
    let peer = accepted.address().clone();
    server.take(accepted.into_stream(), peer);
}

impl Inner {
    /// Serves a stream, or refuses it when there are too many.
    fn take(self: &Rc<Self>, stream: BufferEvent, peer: Address) {
        let count = self.connections.borrow().len();
        let most = self
            .max_connections
            .get()
            .unwrap_or_else(|| self.handle.open_file_limit().saturating_sub(SPARE_FILES).max(1));
        if self.gone.get() || self.stopping.get() || count >= most.saturating_add(REFUSED_AT_ONCE) {
            stream.free();
            return;
        }
        if let Some(connection) = Connection::start(self, stream, peer)
            && count >= most
        {
            connection.refuse(&Ours::TooManyConnections.into());
        }
    }

    /// Hands a request to its handler.
    pub(crate) fn serve(&self, request: Request) {
        let handler = match self.route(request.path()) {
            Ok(handler) => handler,
            Err(status) => {
                let _ = request.send_error(status, None);
                return;
            }
        };
        match handler {
            Some(handler) => handler.call(request),
            None => {
                let _ = request.send_error(404, None);
            }
        }
    }

    /// The handler of a path, or the status of a path that has none because it cannot be one.
    fn route(&self, path: &str) -> Result<Option<Rc<Handler>>, u16> {
        if memchr::memmem::find(path.as_bytes(), b"%00").is_some() {
            // Whoever takes paths for C strings would see another one.
            return Err(400);
        }
        let routes = self.routes.borrow();
        if !routes.is_empty() {
            let decoded: std::borrow::Cow<'_, [u8]> = percent_encoding::percent_decode_str(path).into();
            if let Some(handler) = routes.find(&decoded) {
                return Ok(Some(handler));
            }
        }
        Ok(self.gencb.borrow().clone())
    }

    pub(crate) fn rules(&self) -> Rc<Rules> {
        self.rules.borrow().clone()
    }

    fn change_rules(&self, change: impl FnOnce(&mut Rules)) {
        let mut rules = (*self.rules()).clone();
        change(&mut rules);
        let old = self.rules.replace(Rc::new(rules));
        drop(old);
    }

    pub(crate) fn content_type(&self) -> Option<Rc<Headers>> {
        self.content_type.borrow().clone()
    }

    /// `use_date` is ours: it formats a head.
    pub(crate) fn with_date<T>(&self, use_date: impl FnOnce(&DateLine) -> T) -> T {
        let now = self.handle.elapsed();
        use_date(self.date.borrow_mut().at(now, || self.handle.wall_clock()))
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.get()
    }

    pub(crate) fn insert(&self, connection: Rc<Connection>) -> Option<u32> {
        u32::try_from(self.connections.borrow_mut().insert(connection)).ok()
    }

    pub(crate) fn remove(&self, key: u32) {
        let connection = self.connections.borrow_mut().try_remove(key as usize);
        drop(connection);
    }

    fn all_connections(&self) -> Vec<Rc<Connection>> {
        self.connections.borrow().iter().map(|(_, connection)| connection.clone()).collect()
    }

    /// A hook that cannot run inside the call that ended its request.
    pub(crate) fn queue_hook(self: &Rc<Self>, hook: Hook, completion: Completion) {
        hook.raise_flag();
        if self.id.get().is_none() {
            // The server was freed before; the loop takes it back until its hooks have run.
            let Ok(id) = self.handle.own(self.clone()) else { return };
            self.id.set(Some(id));
        }
        self.queued.borrow_mut().push((hook, completion));
        if let Some(id) = self.id.get() {
            let _ = self.handle.activate(id, Ready::empty());
        }
    }

    fn run_hooks(&self) {
        for (hook, completion) in self.queued.take() {
            // What it does not call, it drops.
            guarded("a drop", || hook.complete(completion));
        }
    }

    fn stop_listening(&self) {
        let listeners = self.listeners.take();
        for listener in &listeners {
            listener.free();
        }
        drop(listeners);
    }

    fn free(&self) {
        if self.gone.replace(true) {
            return;
        }
        self.stop_listening();
        // There is no second try: a Drop of the program's that panics must not leave the rest open.
        for connection in self.all_connections() {
            guarded("a drop", || connection.close(true));
        }
        let parked = self.desk.borrow_mut().close();
        let handlers = (self.gencb.take(), self.routes.take());
        guarded("a drop", || drop((parked, handlers)));
        // The hooks of what was open run in the next turn; after them the loop lets go of this.
        if self.queued.borrow().is_empty()
            && let Some(id) = self.id.take()
        {
            let _ = self.handle.free(id);
        }
    }
}

impl Owned for Inner {
    fn run(self: Rc<Self>, handle: &LoopHandle, ready: Ready) {
        if ready.contains(Ready::TIMEOUT) && self.stopping.get() {
            for connection in self.all_connections() {
                connection.close(false);
            }
        }
        self.run_hooks();
        if self.gone.get()
            && self.queued.borrow().is_empty()
            && let Some(id) = self.id.take()
        {
            let _ = handle.free(id);
        }
    }

    fn loop_gone(self: Rc<Self>) {
        self.id.set(None);
        self.free();
        let hooks = self.queued.take();
        drop(hooks);
    }
}
