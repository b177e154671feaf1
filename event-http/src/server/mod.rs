//! `Server`: listens, keeps the connections, and finds the handler for each request.

mod body;
mod bound;
mod deferred;
mod error_page;
mod flow;
mod hook;
mod intake;
mod pattern;
mod request;
mod routes;
mod routing;
mod site;
mod slot;
mod upgrade;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use event_core::{EventId, LoopHandle, Owned, Ready};
use slab::Slab;

use crate::conn::Rules;
use crate::date::{DateCache, DateLine};
use crate::driver::Connection;
use crate::encode::{Automatic, DEFAULT_CONTENT_TYPE, PlainHeads, ReplyHead, ReplyTo};
use crate::error::Error;
use crate::head::{HeadPool, Headers, MethodSet};
use crate::limits::Limits;

pub use body::{BodyEvent, BodyReader};
pub(crate) use body::{BodyState, Due as BodyDue};
use bound::Factory;
pub use bound::{BoundSocket, Overload};
use deferred::Desk;
pub use deferred::{Deferred, DeferredReply};
use error_page::ErrorCallback;
pub(crate) use error_page::ErrorDue;
pub use error_page::ErrorPage;
pub use hook::{Completion, Gone};
pub(crate) use hook::{Hook, Progress, RoomCallback, guarded};
use intake::{HeaderCallback, NewRequestCallback};
pub use request::{Reply, Request};
pub use routes::HandlerReturn;
use site::Site;
pub use site::VirtualHost;
use slot::Slot;

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
/// let http = Server::start(&base, "127.0.0.1", 8081)?;
/// http.set_gencb(|req| req.send_reply(200, "OK", "Hello!"));
/// base.dispatch()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
#[doc(alias = "evhttp")]
pub struct Server {
    inner: Rc<Inner>,
}

/// What neither rules nor connections have as their age.
const NO_AGE: u16 = u16::MAX - 1;

/// From this age on changes are not told apart any more.
const UNCOUNTED: u16 = u16::MAX - 2;

pub(crate) struct Inner {
    pub(crate) handle: LoopHandle,
    pub(crate) heads: RefCell<HeadPool>,
    pub(crate) desk: RefCell<Desk>,
    id: Cell<Option<EventId>>,
    rules: RefCell<Rc<Rules>>,
    /// How often the rules have changed, as far as it counts that.
    rules_age: Cell<u16>,
    /// The same if by these rules an answer has to be read before an idle connection closes; else what no connection
    /// has.
    near_age: Cell<u16>,
    /// Whether there is a deadline for handlers.
    times_handlers: Cell<bool>,
    date: RefCell<DateCache>,
    /// What the last plain answer had, and the last one that ended its connection; it is the next one's, too, as a rule.
    plain_heads: RefCell<[PlainHeads; 2]>,
    /// The field that answers with a body get if they lack it.
    content_type: RefCell<Option<Headers>>,
    site: Rc<Site>,
    listeners: RefCell<Vec<BoundSocket>>,
    factory: Slot<Factory>,
    new_request: Slot<NewRequestCallback>,
    header: Slot<HeaderCallback>,
    pub(crate) error_page: Slot<ErrorCallback>,
    connections: RefCell<Slab<Rc<Connection>>>,
    /// `None`: the open-file limit less a reserve.
    max_connections: Cell<Option<usize>>,
    /// The open-file limit less a reserve, as it was last; 0 if it was not asked for yet.
    file_bound: Cell<usize>,
    overload: Cell<Overload>,
    /// Listeners rest because there are too many connections.
    waiting: Cell<bool>,
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
            rules_age: Cell::new(0),
            near_age: Cell::new(NO_AGE),
            times_handlers: Cell::new(false),
            date: RefCell::new(DateCache::new()),
            plain_heads: RefCell::default(),
            content_type: RefCell::new(None),
            site: Rc::default(),
            listeners: RefCell::default(),
            factory: Slot::default(),
            new_request: Slot::default(),
            header: Slot::default(),
            error_page: Slot::default(),
            connections: RefCell::default(),
            max_connections: Cell::new(None),
            file_bound: Cell::new(0),
            overload: Cell::default(),
            waiting: Cell::new(false),
            queued: RefCell::default(),
            stopping: Cell::new(false),
            gone: Cell::new(false),
        });
        inner.change_rules(|_| ());
        inner.id.set(Some(handle.own(inner.clone())?));
        let server = Server { inner };
        server.set_default_content_type(Some(DEFAULT_CONTENT_TYPE))?;
        Ok(server)
    }

    pub(crate) fn of(inner: &Rc<Inner>) -> Server {
        Server { inner: inner.clone() }
    }

    /// Makes a server and listens on an address or host name and a port; 0 is one that is free. [`bind`](Self::bind)
    /// listens on more, and on other kinds of addresses.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    #[doc(alias = "evhttp_start")]
    pub fn start(handle: &LoopHandle, address: &str, port: u16) -> Result<Server, Error> {
        let server = Server::new(handle)?;
        match server.bind((address, port)) {
            Ok(_) => Ok(server),
            Err(error) => {
                server.free();
                Err(error)
            }
        }
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

    /// Sets whether path and query of a target may have characters that RFC 3986 forbids there. Not so from the start:
    /// then such a request is answered 400, as RFC 9112 section 3 says, and the connection closes.
    ///
    /// Turn it on for pages in browsers: they send `[`, `]`, `|`, `{`, `}`, `^`, `\`, a backquote and a `%` that begins
    /// no escape as they are, so that `?a[]=1` gets 400 else. These and `"`, `<` and `>` pass then; control characters,
    /// blanks, bytes above 0x7e and `#` never do. It is the one leniency there is: everything else that RFC 9112 lets a
    /// server forgive, and does not ask it to, is refused.
    pub fn set_lenient_targets(&self, lenient: bool) {
        self.inner.change_rules(|rules| rules.lenient_targets = lenient);
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
            field = Some(headers);
        }
        self.inner.content_type.replace(field);
        self.inner.plain_heads.take();
        Ok(())
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

impl Inner {
    /// `look` is ours and calls nothing.
    #[inline]
    pub(crate) fn with_limits<T>(&self, look: impl FnOnce(&Limits) -> T) -> T {
        look(&self.rules.borrow().limits)
    }

    /// `look` is ours and calls nothing.
    #[inline]
    pub(crate) fn with_rules<T>(&self, look: impl FnOnce(&Rules) -> T) -> T {
        look(&self.rules.borrow())
    }

    /// Takes the rules of now in the place of older ones.
    #[inline]
    pub(crate) fn renew(&self, rules: &mut Rc<Rules>) {
        let now = self.rules.borrow();
        if !Rc::ptr_eq(&now, rules) {
            *rules = now.clone();
        }
    }

    #[inline]
    pub(crate) fn rules(&self) -> Rc<Rules> {
        self.rules.borrow().clone()
    }

    fn change_rules(&self, change: impl FnOnce(&mut Rules)) {
        let mut rules = (*self.rules()).clone();
        change(&mut rules);
        let age = self.rules_age.get().saturating_add(1);
        let counts = age < UNCOUNTED && rules.limits.answer_is_first();
        self.rules_age.set(age.min(UNCOUNTED));
        self.near_age.set(if counts { age } else { NO_AGE });
        self.times_handlers.set(rules.limits.handler_timeout.is_some());
        let old = self.rules.replace(Rc::new(rules));
        drop(old);
    }

    /// Whether handlers have a limited time, by the rules of now.
    #[inline]
    pub(crate) fn times_handlers(&self) -> bool {
        self.times_handlers.get()
    }

    #[inline]
    pub(crate) fn rules_age(&self) -> u16 {
        self.rules_age.get()
    }

    #[inline]
    pub(crate) fn near_age(&self) -> u16 {
        self.near_age.get()
    }

    /// `encode` is ours: it formats a head.
    #[inline]
    pub(crate) fn with_content_type<T>(&self, encode: impl FnOnce(Option<&Headers>) -> T) -> T {
        encode(self.content_type.borrow().as_ref())
    }

    /// `use_date` is ours: it formats a head.
    #[inline]
    pub(crate) fn with_date<T>(&self, use_date: impl FnOnce(&DateLine) -> T) -> T {
        let now = self.handle.elapsed();
        use_date(self.date.borrow_mut().at(now, || self.handle.wall_clock()))
    }

    /// Appends a whole answer of the plain kind; false, and nothing is appended, if it is of another.
    #[inline]
    pub(crate) fn plain_reply(
        &self,
        out: &mut Vec<u8>,
        to: ReplyTo,
        head: &ReplyHead<'_>,
        body: &[u8],
    ) -> bool {
        if !PlainHeads::are_for(to, head, body) {
            return false;
        }
        let heads = &mut self.plain_heads.borrow_mut()[usize::from(to.close)];
        if !heads.are_of(head, self.handle.elapsed_nanos()) && !self.fill_heads(heads, head, to.close) {
            return false;
        }
        heads.write(out, body);
        true
    }

    #[cold]
    fn fill_heads(&self, heads: &mut PlainHeads, head: &ReplyHead<'_>, close: bool) -> bool {
        let mut date = self.date.borrow_mut();
        let line = *date.at(self.handle.elapsed(), || self.handle.wall_clock());
        let content_type = self.content_type.borrow();
        let automatic = Automatic { date: &line, content_type: content_type.as_ref() };
        heads.fill(head, automatic, close, date.until())
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
        if self.waiting.get() {
            self.settle_listeners();
        }
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

    /// As `queue_hook`, for a call that belongs to no hook.
    pub(crate) fn queue_call(self: &Rc<Self>, call: impl FnOnce() + 'static) {
        self.queue_hook(Hook::task(Box::new(call)), Completion::Sent);
    }

    fn run_hooks(&self) {
        for (hook, completion) in self.queued.take() {
            // What it does not call, it drops.
            guarded("a drop", || hook.complete(completion));
        }
    }

    fn free(&self) {
        if self.gone.replace(true) {
            return;
        }
        // There is no second try: a Drop of the program's that panics must not leave the rest open.
        guarded("a drop", || self.stop_listening());
        guarded("a drop", || self.factory.close());
        guarded("a drop", || self.new_request.close());
        guarded("a drop", || self.header.close());
        guarded("a drop", || self.error_page.close());
        for connection in self.all_connections() {
            guarded("a drop", || connection.close(true));
        }
        let parked = self.desk.borrow_mut().close();
        let handlers = self.site.close();
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
