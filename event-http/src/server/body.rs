//! A request body that goes to a callback piece by piece.

use std::cell::Cell;
use std::fmt;
use std::rc::{Rc, Weak};

use event_core::Buffer;

use crate::conn::Seq;
use crate::driver::Connection;
use crate::error::{Caller, Error, Ours};
use crate::head::Headers;
use crate::server::{Completion, Request, guarded};

/// What became of a body that is streamed: any number of `Data`, then one of the others, which is the last.
#[derive(Debug)]
#[non_exhaustive]
pub enum BodyEvent {
    /// The next bytes.
    Data(Buffer),
    /// The body is whole; the trailers of a chunked one. The request is the program's to take and to answer: if it is
    /// still there when the callback returns, it is dropped, which answers 500.
    End(Headers),
    /// No more of it will come: the client has left (`is_client_gone`), was too slow or sent too much (the error's
    /// `status` is its answer), or the server is gone.
    #[doc(alias = "evhttp_request_set_error_cb")]
    Failed(Error),
}

type BodyCallback = Box<dyn FnMut(&BodyReader, BodyEvent)>;

/// The reader of a body: made by [`Request::stream_body`], and handed to its callback.
///
/// A clonable handle; dropping it changes nothing.
#[derive(Clone)]
pub struct BodyReader {
    state: Rc<BodyState>,
}

impl BodyReader {
    /// Stops the pieces: what the client sends waits in the kernel, and its clocks stand still. In the callback it holds
    /// from the next piece on.
    pub fn pause(&self) {
        self.state.paused.set(true);
    }

    /// Lets the pieces come again, from the next turn on. Harmless if it was not paused.
    pub fn resume(&self) {
        if self.state.paused.replace(false)
            && let Some(connection) = self.state.connection.upgrade()
        {
            connection.resume_body(self.state.seq);
        }
    }

    /// Whether it is paused.
    pub fn is_paused(&self) -> bool {
        self.state.paused.get()
    }

    /// Bytes that were handed to the callback.
    pub fn received(&self) -> u64 {
        self.state.received.get()
    }

    /// Takes the request out, once, to answer it: at the end, before the body is whole, or in pieces while the pieces
    /// of the body come. `None` if it was taken or the body has failed.
    ///
    /// An answer that is complete before the body is, ends the connection: no piece comes any more, and the callback is
    /// dropped without another word.
    pub fn take_request(&self) -> Option<Request> {
        self.state.request.take()
    }
}

impl fmt::Debug for BodyReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (received, paused) = (self.received(), self.is_paused());
        f.debug_struct("BodyReader").field("received", &received).field("is_paused", &paused).finish()
    }
}

/// Where the pieces of a body go.
pub(crate) struct BodyState {
    connection: Weak<Connection>,
    seq: Seq,
    /// `None`: the body is held in memory for the handler, as if nobody had asked for it early.
    callback: Cell<Option<BodyCallback>>,
    is_held: bool,
    request: Cell<Option<Request>>,
    max: Option<u64>,
    paused: Cell<bool>,
    received: Cell<u64>,
    over: Cell<bool>,
}

impl BodyState {
    fn new(request: Request, callback: Option<BodyCallback>, max: Option<u64>) -> Rc<BodyState> {
        let connection = Rc::downgrade(request.connection());
        Rc::new(BodyState {
            connection,
            seq: request.seq(),
            is_held: callback.is_none(),
            callback: Cell::new(callback),
            request: Cell::new(Some(request)),
            max,
            paused: Cell::new(false),
            received: Cell::new(0),
            over: Cell::new(false),
        })
    }

    /// A request that waits for its body in memory.
    pub(crate) fn held(request: Request) -> Rc<BodyState> {
        BodyState::new(request, None, None)
    }

    /// The most of it that may come, if that is not what the server says.
    pub(crate) fn max(&self, held: Option<u64>) -> Option<u64> {
        if self.is_held { held } else { self.max }
    }

    pub(crate) fn is_held(&self) -> bool {
        self.is_held
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.paused.get()
    }

    /// No piece is wanted any more.
    pub(crate) fn is_over(&self) -> bool {
        self.over.get()
    }

    pub(crate) fn take_request(&self) -> Option<Request> {
        self.request.take()
    }

    pub(crate) fn data(self: &Rc<Self>, piece: Buffer) {
        self.received.set(self.received.get() + piece.len() as u64);
        self.call(BodyEvent::Data(piece));
    }

    /// The body is whole.
    pub(crate) fn end(self: &Rc<Self>, trailers: Headers) {
        self.call(BodyEvent::End(trailers));
        self.close();
    }

    pub(crate) fn fail(self: &Rc<Self>, error: Error) {
        // Its answer is given, or nobody waits for it.
        let request = self.request.take();
        drop(request);
        self.call(BodyEvent::Failed(error));
        self.close();
    }

    fn call(self: &Rc<Self>, event: BodyEvent) {
        if self.over.get() {
            return;
        }
        let Some(mut callback) = self.callback.take() else { return };
        let reader = BodyReader { state: self.clone() };
        let went_well = guarded("a body's callback", || callback(&reader, event));
        if went_well && !self.over.get() {
            self.callback.set(Some(callback));
        } else {
            guarded("a drop", || drop(callback));
            self.close();
        }
    }

    /// Lets go of everything: a callback that captures the reader would keep it for ever.
    pub(crate) fn close(&self) {
        self.over.set(true);
        let (callback, request) = (self.callback.take(), self.request.take());
        guarded("a drop", || drop(callback));
        guarded("a drop", || drop(request));
    }
}

/// What is still to be told of a body, in the next turn. Dropped, it lets go of the callback unheard.
pub(crate) struct Due(pub(crate) Rc<BodyState>);

impl Due {
    /// The connection ended.
    pub(crate) fn fail(self, completion: Completion) {
        let error = match completion {
            Completion::ServerGone => Ours::ServerGone.into(),
            _ => Caller::LateReply.into(),
        };
        self.0.fail(error);
    }

    /// The body was there before it was asked for.
    fn whole(self, body: Buffer, trailers: Headers) {
        let connection = self.0.connection.upgrade();
        let checked = connection.map_or(Err(Caller::LateReply.into()), |connection| connection.check());
        if let Err(error) = checked {
            return self.0.fail(error);
        }
        if self.0.max.is_some_and(|max| body.len() as u64 > max) {
            let answered = self.0.take_request().map(|request| request.send_error(413, None));
            drop(answered);
            return self.0.fail(crate::error::Peer::BodyTooLarge.into());
        }
        if !body.is_empty() {
            self.0.data(body);
        }
        self.0.end(trailers);
    }
}

impl Drop for Due {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Request {
    /// Hands the body to `cb` piece by piece as it comes, so that it never lies in memory as a whole, and at most `max`
    /// bytes of it: more is answered 413. `None` bounds nothing; the deadlines of [`Limits`](crate::Limits) hold.
    ///
    /// It is meant for requests that are handed out before their bodies: by [`Server::route_early`] or
    /// [`Server::set_header_cb`]. A client that waits for `100 Continue` is told to go on. One whose body was read
    /// already gets it in one piece. Called again for a request that was taken out, it sends what is still to come to the new
    /// callback and drops the old one. Whoever pauses the reader keeps a handle to resume it. The callback runs from the loop, never in this call. If it panics, the request is
    /// answered 500.
    ///
    /// [`Server::route_early`]: crate::Server::route_early
    /// [`Server::set_header_cb`]: crate::Server::set_header_cb
    ///
    /// ```
    /// # use event_core::EventBase;
    /// # use event_http::{BodyEvent, Method, Server};
    /// # let base = EventBase::new()?;
    /// # let http = Server::new(&base)?;
    /// http.route_early(Method::PUT, "/upload", |req| {
    ///     req.stream_body(None, |body, event| {
    ///         if let BodyEvent::End(_) = event
    ///             && let Some(req) = body.take_request()
    ///         {
    ///             let _ = req.send_reply(200, "OK", format!("{} bytes", body.received()));
    ///         }
    ///     });
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "evhttp_request_set_chunked_cb")]
    pub fn stream_body(
        mut self,
        max: impl Into<Option<u64>>,
        cb: impl FnMut(&BodyReader, BodyEvent) + 'static,
    ) -> BodyReader {
        let (body, trailers) = self.take_body_and_trailers();
        let (connection, seq) = (self.connection().clone(), self.seq());
        let state = BodyState::new(self, Some(Box::new(cb)), max.into());
        let reader = BodyReader { state: state.clone() };
        if !connection.stream_body(seq, &state) {
            let due = Due(state);
            connection.server().queue_call(move || due.whole(body, trailers));
        }
        reader
    }
}
