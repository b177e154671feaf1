//! A request in the hands of the program, and its answer.

use std::cell::Cell;
use std::fmt;
use std::mem::ManuallyDrop;
use std::rc::Rc;
use std::sync::Arc;

use event_core::{Address, Buffer};

use crate::conn::Seq;
use crate::driver::Connection;
use crate::encode::{ErrorReply, ReplyHead};
use crate::error::{Caller, Error, Ours};
use crate::head::{HeaderValue, Headers, Method, MethodSet, RequestHead, Version};
use crate::server::deferred::Deferred;
use crate::server::flow::Flow;
use crate::server::pattern::Params;
use crate::server::{Completion, Gone, Hook, Server};
use crate::uri::{QueryPair, Uri, query_pairs};

/// A whole request, to be answered once: at once, later from another callback, or from another thread.
///
/// Answering takes the request, so that a second answer does not compile. A request that is dropped unanswered is
/// answered 500. It keeps the loop running while it exists and its connection lives.
///
/// ```
/// # use event_core::EventBase;
/// # use event_http::Server;
/// # let base = EventBase::new()?;
/// # let http = Server::new(&base)?;
/// http.set_gencb(|mut req| {
///     req.add_header("Content-Type", "text/plain")?;
///     let text = format!("you asked for {} with {}", req.path(), req.method());
///     req.send_reply(200, "OK", text)
/// });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a request that is dropped is answered 500"]
#[doc(alias = "evhttp_request")]
pub struct Request {
    connection: Rc<Connection>,
    seq: Seq,
    /// Always there until the request is dropped.
    /// It and `rare` are dropped by this type's own `Drop`, and nothing is left to be done for them behind that.
    head: ManuallyDrop<Option<Box<RequestHead>>>,
    rare: ManuallyDrop<Option<Box<Rare>>>,
    answered: bool,
}

// It is handed on by value from here to the handler and back.
const _: () = assert!(size_of::<Request>() <= 40);

/// What few requests have.
#[derive(Default)]
struct Rare {
    trailers: Headers,
    params: Option<Params>,
}

impl Request {
    #[inline]
    pub(crate) fn new(
        connection: Rc<Connection>,
        seq: Seq,
        mut head: Box<RequestHead>,
        body: Buffer,
        trailers: Headers,
    ) -> Request {
        connection.lend();
        head.body = body;
        let rare = match trailers.is_empty() {
            true => None,
            false => Some(Box::new(Rare { trailers, params: None })),
        };
        let (head, rare) = (ManuallyDrop::new(Some(head)), ManuallyDrop::new(rare));
        Request { connection, seq, head, rare, answered: false }
    }

    /// A request that is whole, its body with its head.
    #[inline]
    pub(crate) fn plain(connection: Rc<Connection>, seq: Seq, head: Box<RequestHead>) -> Request {
        connection.lend();
        let (head, rare) = (ManuallyDrop::new(Some(head)), ManuallyDrop::new(None));
        Request { connection, seq, head, rare, answered: false }
    }

    /// The method.
    #[doc(alias = "evhttp_request_get_command")]
    pub fn method(&self) -> &Method {
        self.head().method()
    }

    /// The request target as it was sent.
    #[doc(alias = "evhttp_request_get_uri")]
    #[doc(alias = "evhttp_request_uri")]
    pub fn target(&self) -> &str {
        self.head().target()
    }

    /// The path of the target, not decoded: `/` at least, `*` for `OPTIONS *` and for OPTIONS of an absolute target that
    /// has no path.
    #[doc(alias = "evhttp_uri_get_path")]
    pub fn path(&self) -> &str {
        self.head().path()
    }

    pub(crate) fn path_bytes(&self) -> &[u8] {
        let head = self.head();
        head.path.slice(&head.headers.bytes)
    }

    /// What follows the first `?` of the target, not decoded; empty if nothing follows.
    #[doc(alias = "evhttp_uri_get_query")]
    pub fn query(&self) -> Option<&str> {
        self.head().query()
    }

    /// What the path has for a name of the route's pattern, decoded; see [`Server::route`].
    pub fn param(&self, name: &str) -> Option<&str> {
        self.rare.as_ref()?.params.as_ref()?.get(name)
    }

    pub(crate) fn set_params(&mut self, params: Params) {
        self.rare.get_or_insert_default().params = Some(params);
    }

    /// The target in its parts. Scheme and host are those of an absolute target, and the host that of CONNECT; for the
    /// host of other requests see [`host`](Request::host).
    #[doc(alias = "evhttp_request_get_evhttp_uri")]
    pub fn uri(&self) -> Uri {
        let target = self.target();
        let absolute = if target.starts_with('/') { None } else { target.split_once("://") };
        let scheme = absolute.map(|(scheme, _)| scheme);
        let has_host = scheme.is_some() || *self.method() == Method::CONNECT;
        // Behind a host an asterisk would be a segment.
        let path = if has_host && self.path() == "*" { "" } else { self.path() };
        Uri::of_target(scheme, self.host().filter(|_| has_host), path, self.query())
    }

    /// The pairs of the query, decoded: see [`query_pairs`].
    pub fn query_pairs(&self) -> impl Iterator<Item = QueryPair<'_>> + Clone {
        query_pairs(self.query().unwrap_or_default())
    }

    /// The version of HTTP that the client speaks.
    pub fn version(&self) -> Version {
        self.head().version()
    }

    /// Host and port that the client asked: of an absolute target, else of the Host field.
    #[doc(alias = "evhttp_request_get_host")]
    pub fn host(&self) -> Option<&str> {
        self.head().host()
    }

    /// The header fields.
    #[doc(alias = "evhttp_request_get_input_headers")]
    pub fn headers(&self) -> &Headers {
        self.head().headers()
    }

    /// The first field of that name, whatever its case.
    #[doc(alias = "evhttp_find_header")]
    pub fn header(&self, name: &str) -> Option<HeaderValue<'_>> {
        self.head().headers().get(name)
    }

    /// The fields behind a chunked body, kept apart from the header fields (RFC 9110 section 6.5.1).
    pub fn trailers(&self) -> &Headers {
        static EMPTY: Headers = Headers::new();
        self.rare.as_ref().map_or(&EMPTY, |rare| &rare.trailers)
    }

    /// The body; empty without one, and before it is read.
    #[doc(alias = "evhttp_request_get_input_buffer")]
    pub fn body(&self) -> &Buffer {
        &self.head().body
    }

    /// Takes the body out.
    pub fn take_body(&mut self) -> Buffer {
        self.head_mut().body.take_all()
    }

    pub(crate) fn take_body_and_trailers(&mut self) -> (Buffer, Headers) {
        let trailers = self.rare.as_mut().map(|rare| std::mem::take(&mut rare.trailers));
        (self.take_body(), trailers.unwrap_or_default())
    }

    pub(crate) fn set_body(&mut self, body: Buffer, trailers: Headers) {
        self.head_mut().body = body;
        if !trailers.is_empty() {
            self.rare.get_or_insert_default().trailers = trailers;
        }
    }

    /// The client's address.
    #[doc(alias = "evhttp_connection_get_peer")]
    #[doc(alias = "evhttp_connection_get_addr")]
    pub fn peer(&self) -> Address {
        self.connection.peer()
    }

    /// The server that it came to.
    #[doc(alias = "evhttp_connection_get_server")]
    pub fn server(&self) -> Server {
        Server::of(self.connection.server())
    }

    /// The fields that the answer will have, in this order, before those that the server adds.
    #[doc(alias = "evhttp_request_get_output_headers")]
    pub fn reply_headers(&mut self) -> &mut Headers {
        &mut self.head_mut().reply_headers
    }

    /// Adds a field to the answer.
    ///
    /// # Errors
    /// - `is_invalid_argument` if the name is not a token or the value holds CR, LF, NUL or another control character.
    #[doc(alias = "evhttp_add_header")]
    pub fn add_header(&mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), Error> {
        self.reply_headers().add(name, value)
    }

    /// Whether an answer would go nowhere, as far as is known: the client has left, the server is gone, or an answer
    /// before this one has ended the connection.
    pub fn is_client_gone(&self) -> bool {
        self.connection.is_gone(self.seq)
    }

    /// Is called if the client leaves while the answer is pending. Replaces nothing: each call adds one. It is called by the
    /// loop, never inside a call, and dropped uncalled when the answer has left.
    #[doc(alias = "evhttp_connection_set_closecb")]
    pub fn on_client_gone(&self, cb: impl FnOnce(Gone) + 'static) {
        self.connection.add_hook(Hook::on_gone(self.seq, Box::new(cb)));
    }

    /// Is called exactly once when the request is over, whatever became of it, unless the loop itself ends first. It is
    /// called by the loop, never inside a call. Replaces nothing: each call adds one.
    #[doc(alias = "evhttp_request_set_on_complete_cb")]
    pub fn on_complete(&self, cb: impl FnOnce(Completion) + 'static) {
        self.connection.add_hook(Hook::on_complete(self.seq, Box::new(cb)));
    }

    /// Answers with a whole body. `reason` is the phrase behind the status code: `None` for the standard one.
    ///
    /// Date, Content-Length, Content-Type (`text/html; charset=ISO-8859-1`) and Connection are added where they are
    /// missing; an answer to HEAD has the length and no body. 101, and 2xx to CONNECT, end the connection here: see
    /// [`upgrade`](Self::upgrade).
    ///
    /// # Errors
    /// - `is_client_gone` if the client has left: harmless, nobody waits.
    /// - `is_server_gone` if the server was freed.
    /// - `is_invalid_argument` if the status is not 200 to 999, or 101, or the reason has a control character; the
    ///   client then gets 500. Another 1xx would not end the request (RFC 9110 section 15.2).
    #[doc(alias = "evhttp_send_reply")]
    pub fn send_reply<'a>(
        mut self,
        status: u16,
        reason: impl Into<Option<&'a str>>,
        body: impl Into<Buffer>,
    ) -> Result<(), Error> {
        let (reason, body) = (reason.into(), body.into());
        check_status(status)?;
        let head = ReplyHead { status, reason, headers: &self.head().reply_headers };
        let sent = self.connection.reply(self.seq, &head, body);
        self.answered = sent.as_ref().err().is_none_or(|error| !error.is_invalid_argument());
        sent
    }

    /// Answers with an error page, after which the connection closes. `reason` stands in the status line and, escaped,
    /// in the page; `None` for the standard phrase. One with control characters stands in the page only.
    ///
    /// # Errors
    /// As [`send_reply`](Self::send_reply), apart from the reason.
    #[doc(alias = "evhttp_send_error")]
    pub fn send_error<'a>(mut self, status: u16, reason: impl Into<Option<&'a str>>) -> Result<(), Error> {
        let reason = reason.into();
        check_status(status)?;
        self.answered = true;
        self.connection.reply_error(self.seq, &ErrorReply { status, reason, allow: None })
    }

    /// Answers 405 with what would have been allowed.
    pub(crate) fn send_not_allowed(mut self, allow: &MethodSet) -> Result<(), Error> {
        self.answered = true;
        self.connection.reply_error(self.seq, &ErrorReply { status: 405, reason: None, allow: Some(allow) })
    }

    /// Answers OPTIONS with the methods that its target takes (RFC 9110 section 9.3.7), and with fields that were added.
    pub(crate) fn send_options(mut self, allow: &MethodSet) -> Result<(), Error> {
        self.reply_headers().set("Allow", allow.to_string())?;
        self.send_reply(204, None, Buffer::new())
    }

    /// Begins an answer of which the body comes in pieces: chunked for HTTP/1.1, up to the end of the connection for
    /// HTTP/1.0, as it is if a Content-Length field was added.
    ///
    /// # Errors
    /// As [`send_reply`](Self::send_reply).
    #[doc(alias = "evhttp_send_reply_start")]
    pub fn send_reply_start<'a>(
        mut self,
        status: u16,
        reason: impl Into<Option<&'a str>>,
    ) -> Result<Reply, Error> {
        let reason = reason.into();
        check_status(status)?;
        let head = ReplyHead { status, reason, headers: &self.head().reply_headers };
        let started = self.connection.reply_start(self.seq, &head);
        self.answered = started.as_ref().err().is_none_or(|error| !error.is_invalid_argument());
        started?;
        let connection = self.connection.clone();
        connection.lend();
        Ok(Reply { connection, seq: self.seq, trailers: Headers::new(), ended: Cell::new(false) })
    }

    /// Parks the request with its server and gives a token for it that any thread may answer, once. Fields added to the
    /// answer go with it. Take out what the answer needs before: the body is dropped.
    pub fn defer(self) -> Deferred {
        Deferred::park(self)
    }

    #[inline]
    #[expect(clippy::expect_used, reason = "nothing but its Drop takes the head out")]
    fn head(&self) -> &RequestHead {
        self.head.as_deref().expect("a request has a head")
    }

    #[inline]
    #[expect(clippy::expect_used, reason = "as for `head`")]
    fn head_mut(&mut self) -> &mut RequestHead {
        self.head.as_deref_mut().expect("a request has a head")
    }

    pub(crate) fn connection(&self) -> &Rc<Connection> {
        &self.connection
    }

    /// Nothing is to be answered when it is dropped.
    pub(crate) fn set_answered(&mut self) {
        self.answered = true;
    }

    /// Whether it is that one: a program may give back another.
    pub(crate) fn is(&self, connection: &Rc<Connection>, seq: Seq) -> bool {
        self.seq == seq && Rc::ptr_eq(&self.connection, connection)
    }

    pub(crate) fn seq(&self) -> Seq {
        self.seq
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let mut body = None;
        if let Some(mut head) = self.head.take() {
            if !head.body.is_empty() {
                // Dropped last, with nothing borrowed: its bytes may be the program's.
                body = Some(std::mem::take(&mut head.body));
            }
            self.connection.server().heads.borrow_mut().give(head);
        }
        if !self.answered && self.connection.reply_error(self.seq, &ErrorReply::of(500)).is_ok() {
            log::warn!("500 to {:?}: {}", self.connection.peer(), Error::from(Ours::HandlerFailed));
        }
        self.connection.take_back();
        if let Some(rare) = self.rare.take() {
            drop(rare);
        }
        drop(body);
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("method", self.method())
            .field("target", &self.target())
            .finish_non_exhaustive()
    }
}

/// Whether a status can be that of an answer that ends a request.
pub(crate) fn check_status(status: u16) -> Result<(), Error> {
    if status == 101 || (200..=999).contains(&status) { Ok(()) } else { Err(Caller::Status.into()) }
}

/// An answer that is being streamed. Dropped before [`end`](Reply::end), it closes the connection, so that what the
/// client has does not look whole; only an HTTP/1.0 client without a Content-Length cannot tell. It keeps the loop
/// running while it exists and its connection lives.
#[must_use = "a reply that is dropped before its end closes the connection"]
pub struct Reply {
    connection: Rc<Connection>,
    seq: Seq,
    trailers: Headers,
    ended: Cell<bool>,
}

impl Reply {
    /// Sends a piece of the body; an empty one is ignored. Look at [`has_room`](Self::has_room) before a large one.
    ///
    /// # Errors
    /// - `is_client_gone`, `is_server_gone`: stop, nobody waits.
    /// - Another caller's error if it is more than the Content-Length that was given; nothing is sent.
    #[doc(alias = "evhttp_send_reply_chunk")]
    pub fn chunk(&self, piece: impl Into<Buffer>) -> Result<(), Error> {
        self.connection.chunk(self.seq, piece.into())
    }

    /// Adds a field that is sent behind a chunked body; elsewhere it is left out.
    ///
    /// # Errors
    /// - `is_invalid_argument` as [`Request::add_header`].
    pub fn add_trailer(&mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), Error> {
        self.trailers.add(name, value)
    }

    /// Ends the answer.
    ///
    /// # Errors
    /// - `is_client_gone`, `is_server_gone`.
    /// - Another caller's error if it is less than the Content-Length that was given; the connection closes.
    #[doc(alias = "evhttp_send_reply_end")]
    pub fn end(self) -> Result<(), Error> {
        self.ended.set(true);
        let trailers = (!self.trailers.is_empty()).then_some(&self.trailers);
        self.connection.reply_end(self.seq, trailers)
    }

    /// Bytes before the end of this answer that have not been handed to the kernel, also while they wait for the
    /// answers before it.
    pub fn pending_output(&self) -> usize {
        self.connection.pending_output(self.seq)
    }

    /// False above [`Limits::room`](crate::Limits::room) of unsent bytes: what is sent now only grows memory, and above
    /// [`Limits::max_output_bytes`](crate::Limits::max_output_bytes) ends the connection.
    /// False as well when the client or the server is gone.
    pub fn has_room(&self) -> bool {
        self.connection.has_room(self.seq)
    }

    /// Is called when there is room again, which is below half of that, and each time that more has left.
    /// Dropped when the answer ends. Replaces nothing: each call adds one.
    #[doc(alias = "evhttp_send_reply_chunk_with_cb")]
    pub fn on_room(&self, cb: impl FnMut() + 'static) {
        self.connection.watch_room(self.seq, Box::new(cb));
    }

    /// Tells another thread how much has not left, each time that some has.
    pub(crate) fn tell_room(&self, flow: &Arc<Flow>) {
        let (connection, seq, flow) = (Rc::downgrade(&self.connection), self.seq, flow.clone());
        self.on_room(move || {
            if let Some(connection) = connection.upgrade() {
                flow.deliver(0, connection.pending_output(seq));
            }
        });
    }

    pub(crate) fn set_trailers(&mut self, trailers: Headers) {
        self.trailers = trailers;
    }

    /// Is called if the client leaves before the end of the answer. Replaces nothing: each call adds one.
    #[doc(alias = "evhttp_connection_set_closecb")]
    pub fn on_client_gone(&self, cb: impl FnOnce(Gone) + 'static) {
        self.connection.add_hook(Hook::on_gone(self.seq, Box::new(cb)));
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if !self.ended.get() {
            self.connection.reply_abandoned(self.seq);
        }
        self.connection.take_back();
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").field("seq", &self.seq).finish_non_exhaustive()
    }
}
