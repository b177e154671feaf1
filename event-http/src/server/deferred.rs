//! Requests that wait with their server while another thread prepares the answer.

use std::collections::HashMap;
use std::fmt;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use event_core::{Buffer, LoopHandle, Mailbox, Sender};

use crate::error::{Caller, Error, Ours};
use crate::head::Headers;
use crate::server::flow::Flow;
use crate::server::request::check_status;
use crate::server::upgrade::check_interim;
use crate::server::{Hook, Inner, Reply, Request, guarded};

/// What a token's holder asks for.
enum Message {
    Chunk(u64, Buffer),
    Dropped(u64),
    End(u64, Headers),
    Error { ticket: u64, status: u16, reason: Option<Box<str>> },
    Interim { ticket: u64, status: u16, headers: Headers },
    Reply { ticket: u64, status: u16, reason: Option<Box<str>>, headers: Headers, body: Buffer },
    Start { ticket: u64, status: u16, reason: Option<Box<str>>, headers: Headers },
}

enum Parked {
    Reply(Reply, Arc<Flow>),
    Request(Request, Arc<Flow>),
}

/// A server's parked requests and the mailbox that their answers come through; made when the first is parked.
#[derive(Default)]
pub(crate) struct Desk {
    mailbox: Option<(Mailbox<Message>, Sender<Message>)>,
    parked: HashMap<u64, Parked>,
    next: u64,
}

impl Desk {
    /// Everything that is parked, and the mailbox, for the caller to drop.
    pub(crate) fn close(&mut self) -> impl Sized + use<> {
        (std::mem::take(&mut self.parked), self.mailbox.take())
    }
}

/// A token for a request that is parked with its server: any thread may answer it, once.
///
/// Dropped unanswered, also by a thread that panics, it answers 500. The request keeps the loop running meanwhile, as
/// long as its connection lives. Nothing is sent in a call of this type: the loop does that in its next turn, in the
/// order of the calls.
///
/// ```
/// # use event_core::EventBase;
/// # use event_http::Server;
/// # let base = EventBase::new()?;
/// # let http = Server::new(&base)?;
/// http.set_gencb(|mut req| {
///     let body = req.take_body();
///     let deferred = req.defer();
///     std::thread::spawn(move || {
///         let _ = deferred.send_reply(200, "OK", format!("{} bytes", body.len()));
///     });
/// });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a deferred request that is dropped is answered 500"]
pub struct Deferred {
    ticket: Option<Ticket>,
    headers: Headers,
}

/// The way back to a parked request. Dropped, it gives the request up.
struct Ticket {
    sender: Option<Sender<Message>>,
    number: u64,
    flow: Arc<Flow>,
}

impl Ticket {
    fn send(&self, message: Message) -> Result<(), Error> {
        if self.flow.is_gone() {
            return Err(Caller::LateReply.into());
        }
        let sender = self.sender.as_ref().ok_or(Ours::ServerGone)?;
        sender.send(message).map_err(|_| Ours::ServerGone.into())
    }

    /// Sends what ends the answer: nothing is to be given up afterwards.
    fn send_last(mut self, message: Message) -> Result<(), Error> {
        self.send(message)?;
        self.sender = None;
        Ok(())
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(sender) = &self.sender {
            let _ = sender.send(Message::Dropped(self.number));
        }
    }
}

impl Deferred {
    pub(crate) fn park(mut request: Request) -> Deferred {
        let server = request.connection().server().clone();
        // What the handler has added goes with the token. The body is nobody's any more, and may be large.
        let headers = std::mem::take(request.reply_headers());
        let body = request.take_body();
        drop(body);
        let gone = request.is_client_gone();
        let flow = Arc::new(server.with_limits(|limits| Flow::new(gone, limits)));
        request.connection().add_hook(Hook::flag(request.seq(), flow.clone()));
        let sender = open_desk(&server);
        let (number, refused) = {
            let mut desk = server.desk.borrow_mut();
            let number = desk.next;
            desk.next += 1;
            if sender.is_some() {
                desk.parked.insert(number, Parked::Request(request, flow.clone()));
                (number, None)
            } else {
                (number, Some(request))
            }
        };
        drop(refused);
        Deferred { ticket: Some(Ticket { sender, number, flow }), headers }
    }

    /// Adds a field to the answer, behind those that were added before the request was deferred.
    ///
    /// # Errors
    /// - `is_invalid_argument` if the name is not a token or the value holds a control character.
    #[doc(alias = "evhttp_add_header")]
    pub fn add_header(&mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), Error> {
        self.headers.add(name, value)
    }

    /// Whether the client has left, as far as the loop knew a moment ago: an answer would go nowhere.
    pub fn is_gone(&self) -> bool {
        self.ticket.as_ref().is_none_or(|ticket| ticket.flow.is_gone())
    }

    /// Sends an interim answer; see [`Request::send_interim`].
    ///
    /// # Errors
    /// - `is_invalid_argument` if the status is not 100 to 199, or 101.
    /// - `is_client_gone` or `is_server_gone` if that is known already.
    pub fn send_interim(&self, status: u16, headers: Headers) -> Result<(), Error> {
        check_interim(status)?;
        let Some(ticket) = &self.ticket else { return Ok(()) };
        ticket.send(Message::Interim { ticket: ticket.number, status, headers })
    }

    /// Answers with a whole body; see [`Request::send_reply`]. The loop sends it in its next turn.
    ///
    /// # Errors
    /// - `is_client_gone` or `is_server_gone` if that is known already; `Ok` is no promise that it arrives.
    /// - `is_invalid_argument` if status or reason are refused; the client gets 500.
    #[doc(alias = "evhttp_send_reply")]
    pub fn send_reply<'a>(
        mut self,
        status: u16,
        reason: impl Into<Option<&'a str>>,
        body: impl Into<Buffer>,
    ) -> Result<(), Error> {
        let (reason, body) = (reason.into().map(Into::into), body.into());
        let Some(ticket) = self.ticket.take() else { return Ok(()) };
        check_status(status)?;
        let headers = std::mem::take(&mut self.headers);
        let number = ticket.number;
        ticket.send_last(Message::Reply { ticket: number, status, reason, headers, body })
    }

    /// Answers with an error page; see [`Request::send_error`].
    ///
    /// # Errors
    /// As [`send_reply`](Self::send_reply), apart from the reason.
    #[doc(alias = "evhttp_send_error")]
    pub fn send_error<'a>(mut self, status: u16, reason: impl Into<Option<&'a str>>) -> Result<(), Error> {
        let reason = reason.into().map(Into::into);
        let Some(ticket) = self.ticket.take() else { return Ok(()) };
        check_status(status)?;
        let number = ticket.number;
        ticket.send_last(Message::Error { ticket: number, status, reason })
    }

    /// Begins an answer in pieces; see [`Request::send_reply_start`].
    ///
    /// # Errors
    /// As [`send_reply`](Self::send_reply).
    #[doc(alias = "evhttp_send_reply_start")]
    pub fn send_reply_start<'a>(
        mut self,
        status: u16,
        reason: impl Into<Option<&'a str>>,
    ) -> Result<DeferredReply, Error> {
        let reason = reason.into().map(Into::into);
        let Some(ticket) = self.ticket.take() else { return Err(Caller::LateReply.into()) };
        check_status(status)?;
        let headers = std::mem::take(&mut self.headers);
        ticket.send(Message::Start { ticket: ticket.number, status, reason, headers })?;
        Ok(DeferredReply { ticket, trailers: Headers::new() })
    }
}

impl fmt::Debug for Deferred {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deferred").field("is_gone", &self.is_gone()).finish_non_exhaustive()
    }
}

/// An answer that another thread is streaming. Dropped before [`end`](Self::end), it closes the connection.
///
/// Pieces wait in the loop's mailbox and then in the connection's output. A thread that has much to send waits for room
/// before each of them:
///
/// ```no_run
/// # fn send(reply: event_http::DeferredReply, file: &mut dyn std::io::Read) -> Result<(), Box<dyn std::error::Error>> {
/// let mut piece = vec![0; 64 << 10];
/// loop {
///     let len = file.read(&mut piece)?;
///     if len == 0 {
///         return Ok(reply.end()?);
///     }
///     reply.wait_for_room(None)?;
///     reply.chunk(&piece[..len])?;
/// }
/// # }
/// ```
#[must_use = "a reply that is dropped before its end closes the connection"]
pub struct DeferredReply {
    ticket: Ticket,
    trailers: Headers,
}

impl DeferredReply {
    /// Sends a piece of the body.
    ///
    /// # Errors
    /// - `is_client_gone` or `is_server_gone` if that is known already.
    /// - `is_ours` if more than [`Limits::max_output_bytes`](crate::Limits::max_output_bytes) are
    ///   [pending](Self::pending_output) already: the thread runs ahead of its client.
    ///   Nothing is sent, and the connection is closed.
    #[doc(alias = "evhttp_send_reply_chunk")]
    pub fn chunk(&self, piece: impl Into<Buffer>) -> Result<(), Error> {
        let piece = piece.into();
        let (flow, number) = (&self.ticket.flow, self.ticket.number);
        if flow.is_full() {
            let _ = self.ticket.send(Message::Dropped(number));
            flow.raise();
            return Err(event_core::Error::OutputFull.into());
        }
        flow.mail(piece.len());
        self.ticket.send(Message::Chunk(number, piece))
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
    /// - `is_client_gone` or `is_server_gone` if that is known already.
    #[doc(alias = "evhttp_send_reply_end")]
    pub fn end(self) -> Result<(), Error> {
        let (number, trailers) = (self.ticket.number, self.trailers);
        self.ticket.send_last(Message::End(number, trailers))
    }

    /// Bytes that have not been handed to the kernel: those on their way to the loop, and those that were with it when
    /// it last told.
    pub fn pending_output(&self) -> usize {
        self.ticket.flow.pending()
    }

    /// False above [`Limits::room`](crate::Limits::room) of pending bytes, and when the client or the server is gone.
    pub fn has_room(&self) -> bool {
        self.ticket.flow.has_room()
    }

    /// Blocks this thread until there is room, or until `timeout` has passed: then false. Never call it on the loop's
    /// own thread, which would have to make the room.
    ///
    /// # Errors
    /// - `is_client_gone` if the client or the server is gone: nobody waits for the rest.
    pub fn wait_for_room(&self, timeout: impl Into<Option<Duration>>) -> Result<bool, Error> {
        let has_room = self.ticket.flow.wait(timeout.into());
        if self.is_gone() { Err(Caller::LateReply.into()) } else { Ok(has_room) }
    }

    /// Whether the client has left, as far as the loop knew a moment ago.
    pub fn is_gone(&self) -> bool {
        self.ticket.flow.is_gone()
    }
}

impl fmt::Debug for DeferredReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeferredReply").field("is_gone", &self.is_gone()).finish_non_exhaustive()
    }
}

/// The way into the server's mailbox, made on first use; `None` if the loop or the server is gone.
fn open_desk(server: &Rc<Inner>) -> Option<Sender<Message>> {
    if let Some((_, sender)) = &server.desk.borrow().mailbox {
        return Some(sender.clone());
    }
    if server.is_gone() {
        return None;
    }
    let handle: &LoopHandle = &server.handle;
    let weak: Weak<Inner> = Rc::downgrade(server);
    let (mailbox, sender) = handle
        .mailbox(move |message| {
            if let Some(server) = weak.upgrade() {
                // A panic, in the Drop of a block that is sent, ends that answer and not the mailbox of all of them.
                guarded("what a deferred answer let go of", || receive(&server, message));
            }
        })
        .ok()?;
    server.desk.borrow_mut().mailbox = Some((mailbox, sender.clone()));
    Some(sender)
}

/// Does what a token's holder asked for. Nothing is borrowed while it is done.
fn receive(server: &Inner, message: Message) {
    let take = |ticket: u64| server.desk.borrow_mut().parked.remove(&ticket);
    let park = |ticket: u64, reply: Reply, flow: Arc<Flow>| {
        // Sending may have dropped a block of the program's that freed the server: nobody would take it out again.
        if !server.is_gone() {
            server.desk.borrow_mut().parked.insert(ticket, Parked::Reply(reply, flow));
        }
    };
    match message {
        Message::Reply { ticket, status, reason, headers, body } => {
            if let Some(Parked::Request(mut request, _)) = take(ticket) {
                *request.reply_headers() = headers;
                note(request.send_reply(status, reason.as_deref(), body));
            }
        }
        Message::Interim { ticket, status, headers } => {
            if let Some(Parked::Request(request, flow)) = take(ticket) {
                note(request.send_interim(status, &headers));
                if !server.is_gone() {
                    server.desk.borrow_mut().parked.insert(ticket, Parked::Request(request, flow));
                }
            }
        }
        Message::Error { ticket, status, reason } => {
            if let Some(Parked::Request(request, _)) = take(ticket) {
                note(request.send_error(status, reason.as_deref()));
            }
        }
        Message::Start { ticket, status, reason, headers } => {
            if let Some(Parked::Request(mut request, flow)) = take(ticket) {
                *request.reply_headers() = headers;
                match request.send_reply_start(status, reason.as_deref()) {
                    Ok(reply) => {
                        reply.tell_room(&flow);
                        park(ticket, reply, flow);
                    }
                    Err(error) => {
                        // Whoever streams it need not wait for anybody.
                        flow.raise();
                        note(Err(error));
                    }
                }
            }
        }
        Message::Chunk(ticket, piece) => {
            if let Some(Parked::Reply(reply, flow)) = take(ticket) {
                let len = piece.len();
                let sent = reply.chunk(piece);
                flow.deliver(len, reply.pending_output());
                park(ticket, reply, flow);
                note(sent);
            }
        }
        Message::End(ticket, trailers) => {
            if let Some(Parked::Reply(mut reply, _)) = take(ticket) {
                reply.set_trailers(trailers);
                note(reply.end());
            }
        }
        Message::Dropped(ticket) => drop(take(ticket)),
    }
}

/// A late answer is harmless; anything else the program should know.
fn note(sent: Result<(), Error>) {
    if let Err(error) = sent
        && !error.is_client_gone()
        && !error.is_server_gone()
    {
        log::warn!("a deferred answer failed: {error}");
    }
}
