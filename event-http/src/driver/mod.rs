//! One connection: joins a stream's bytes to the state machine, and the state machine's steps to the program.
//!
//! The only folder that knows both `BufferEvent` and `conn`. Nothing is borrowed while the program runs.

mod answer;
mod body;
mod deadlines;
mod hooks;
mod read;
mod upgrade;

use std::cell::{Cell, RefCell};
use std::net::SocketAddrV4;
use std::rc::Rc;
use std::time::Duration;

use event_core::{Address, Buffer, BufferEvent, Callbacks, Direction, StreamEvent};

use crate::conn::{Conn, Eof, Linger, Seq, State, Turn};
use crate::encode::Mode;
use crate::error::{Caller, Error, Ours};
use crate::head::{Headers, RequestHead};
use crate::server::{BodyDue, BodyState, Completion, Gone, Hook, Inner};

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Requests are read and answered.
    Open,
    /// The last answer is written; when it is flushed, the stream closes.
    Closing,
    /// The last answer is written; when it is flushed, lingering begins.
    Flushing,
    /// The write side is shut; input is thrown away for a while.
    Lingering,
    /// The last answer hands the connection to another protocol, in the next turn.
    Upgrading,
    /// It is over: the stream is the program's.
    Upgraded,
    /// It is over: the client left, or the connection was closed.
    Closed,
    /// It is over: the server was freed.
    ServerGone,
}

/// A request of which the body is still to come.
struct Incoming {
    seq: Seq,
    taker: Taker,
    /// What came and was not handed on.
    body: Buffer,
}

/// What becomes of a body.
enum Taker {
    /// It is gathered for the handler.
    Head(Box<RequestHead>),
    /// The program has the request.
    Early(Box<Early>),
}

/// A request that was handed out before its body.
#[derive(Default)]
struct Early {
    /// Where the body goes; `None` while the program does not say.
    state: Option<Rc<BodyState>>,
    /// It is whole, with these trailers, and that is still to be told.
    ended: Option<Headers>,
    /// Since when it is not read because the program is not ready for it.
    waits: Option<Duration>,
}

impl Incoming {
    fn early(&mut self) -> Option<&mut Early> {
        match &mut self.taker {
            Taker::Head(_) => None,
            Taker::Early(early) => Some(early),
        }
    }

    /// Who gets the body piece by piece.
    fn into_state(self) -> Option<Rc<BodyState>> {
        match self.taker {
            Taker::Head(_) => None,
            Taker::Early(early) => early.state,
        }
    }
}

/// What a connection has only while something is under way, or if its client's address is of a rarer kind.
#[derive(Default)]
struct Extra {
    incoming: Option<Incoming>,
    linger: Option<Linger>,
    hooks: Vec<Hook>,
    peer: Option<Address>,
    /// Bytes behind the last request that were thrown away.
    junk: usize,
    /// Requests that wait for the head of their answer, if that has a deadline, and since when.
    handed: Vec<(Seq, Duration)>,
    /// What gets the stream when HTTP is over.
    upgrade: Option<UpgradeCallback>,
}

impl Extra {
    fn is_empty(&self) -> bool {
        self.is_resting() && self.peer.is_none()
    }

    /// Whether nothing is under way.
    fn is_resting(&self) -> bool {
        self.incoming.is_none()
            && self.linger.is_none()
            && self.hooks.is_empty()
            && self.junk == 0
            && self.handed.is_empty()
            && self.upgrade.is_none()
    }
}

pub(crate) use upgrade::UpgradeCallback;

pub(crate) struct Connection {
    bev: BufferEvent,
    server: Rc<Inner>,
    core: RefCell<Conn<Buffer>>,
    /// What an idle connection does not have.
    extra: Cell<Option<Box<Extra>>>,
    /// Requests and unfinished answers that are with the program: they keep the loop running.
    lent: Cell<u32>,
    /// The client's address, if it is of this kind; others stand in `extra`.
    peer: Option<SocketAddrV4>,
    /// Where the server's table has this connection.
    key: Cell<u32>,
    stage: Cell<Stage>,
    /// Inside `pump`: it goes on by itself.
    pumping: Cell<bool>,
    /// Reading waits for an answer to leave.
    paused: Cell<bool>,
    /// What is left of the input waits for the next turn.
    yields: Cell<bool>,
    /// The client has sent its last byte, perhaps behind requests that are still to be read.
    finished: Cell<bool>,
    /// The program was asked about the next request.
    asked: Cell<bool>,
    /// Closing has to wait for input that the peer is still sending.
    lingers: Cell<bool>,
    /// The last answer ends where the connection does, and was given up: it must not look whole.
    cut: Cell<bool>,
}

// Besides its stream, this is what an idle connection holds.
const _: () = assert!(size_of::<Connection>() <= 152);

/// The stream's end of a connection. Dropped with the stream.
struct Link(Rc<Connection>);

impl Callbacks for Link {
    fn on_read(&mut self, _: &BufferEvent) {
        self.0.pump();
    }

    fn on_write(&mut self, _: &BufferEvent) {
        self.0.drained();
    }

    fn on_event(&mut self, _: &BufferEvent, event: StreamEvent) {
        if event.intersects(StreamEvent::ERROR | StreamEvent::TIMEOUT) {
            self.0.reset();
        } else if event.contains(StreamEvent::EOF) {
            self.0.finished();
        }
    }

    fn on_deadline(&mut self, _: &BufferEvent) {
        self.0.expired();
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.0.over(Stage::Closed);
    }
}

impl Connection {
    /// Starts to serve a stream.
    pub(crate) fn start(server: &Rc<Inner>, bev: BufferEvent, peer: Address) -> Option<Rc<Connection>> {
        let now = server.handle.elapsed();
        let (peer, other) = match peer {
            Address::Ip(std::net::SocketAddr::V4(address)) => (Some(address), None),
            Address::Unix(None) => (None, None),
            other => (None, Some(other)),
        };
        let connection = Rc::new(Connection {
            bev,
            server: server.clone(),
            core: RefCell::new(Conn::new(now)),
            extra: Cell::new(None),
            lent: Cell::new(0),
            peer,
            key: Cell::new(u32::MAX),
            stage: Cell::new(Stage::Open),
            pumping: Cell::new(false),
            paused: Cell::new(false),
            yields: Cell::new(false),
            finished: Cell::new(false),
            asked: Cell::new(false),
            lingers: Cell::new(false),
            cut: Cell::new(false),
        });
        if other.is_some() {
            connection.extra(|extra| extra.peer = other);
        }
        connection.key.set(server.insert(connection.clone())?);
        connection.bev.set_callbacks(Link(connection.clone()));
        if let Err(error) = connection.bev.enable(Direction::READ) {
            log::debug!("a connection could not be served: {error}");
            connection.bev.free();
            return None;
        }
        if connection.bev.pending_input() > 0 {
            // The program has read before it handed the stream over.
            connection.yields.set(connection.bev.trigger(Direction::READ).is_ok());
        }
        connection.arm();
        Some(connection)
    }

    pub(crate) fn peer(&self) -> Address {
        match self.peer {
            Some(address) => Address::Ip(address.into()),
            None => self.extra(|extra| extra.peer.clone()).unwrap_or(Address::Unix(None)),
        }
    }

    /// Looks at what an idle connection does not have, or changes it. `f` is ours and drops nothing of the program's.
    fn extra<T>(&self, f: impl FnOnce(&mut Extra) -> T) -> T {
        let mut extra = self.extra.take();
        let result = f(extra.get_or_insert_default());
        self.extra.set(extra.filter(|extra| !extra.is_empty()));
        result
    }

    /// Whether anything is under way that an idle connection does not have.
    #[inline]
    fn has_extra(&self) -> bool {
        let extra = self.extra.take();
        let is_under_way = extra.as_ref().is_some_and(|extra| !extra.is_resting());
        self.extra.set(extra);
        is_under_way
    }

    /// The request of which the body is still to come.
    #[inline]
    fn take_incoming(&self) -> Option<Incoming> {
        let mut extra = self.extra.take()?;
        let incoming = extra.incoming.take();
        self.extra.set(Some(extra).filter(|extra| !extra.is_empty()));
        incoming
    }

    pub(crate) fn server(&self) -> &Rc<Inner> {
        &self.server
    }

    /// A request, or its unfinished answer, goes to the program: that keeps the loop running, while the connection
    /// lives.
    #[inline]
    pub(crate) fn lend(&self) {
        let lent = self.lent.get();
        self.lent.set(lent + 1);
        if lent == 0 && self.check().is_ok() {
            self.bev.set_held(true);
        }
    }

    /// It has come back.
    #[inline]
    pub(crate) fn take_back(&self) {
        let lent = self.lent.get().saturating_sub(1);
        self.lent.set(lent);
        if lent == 0 && self.stage.get() != Stage::Upgraded {
            self.bev.set_held(false);
        }
    }

    /// Whether answers can still be given.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.stage.get() {
            Stage::Closed | Stage::Upgraded => Err(Caller::LateReply.into()),
            Stage::ServerGone => Err(Ours::ServerGone.into()),
            // By the program, which may have kept a handle on a stream that it gave to `serve`.
            _ if self.bev.is_freed() => Err(Caller::LateReply.into()),
            _ => Ok(()),
        }
    }

    /// Whether an answer of `seq` would go nowhere.
    pub(crate) fn is_gone(&self, seq: Seq) -> bool {
        self.check().is_err() || matches!(self.core.borrow_mut().turn(seq), Turn::Gone)
    }

    /// Refuses the client before it has asked anything.
    pub(crate) fn refuse(self: &Rc<Self>, error: &Error) {
        let seq = self.core.borrow_mut().refuse();
        // Its request is on its way, and a reset that answers it could overtake the refusal.
        self.lingers.set(true);
        self.fail(Some(seq), error);
    }

    // What the stream tells.

    /// All output has been handed to the kernel.
    fn drained(self: &Rc<Self>) {
        if self.stage.get() == Stage::Open
            && !(self.paused.get() || self.finished.get() || self.has_extra())
            && self.bev.pending_output() == 0
            && self.has_near_deadline()
            && self.core.borrow_mut().on_all_drained(self.server.handle.elapsed())
        {
            return;
        }
        self.run_room_hooks();
        if self.bev.pending_output() > 0 {
            // Only down to the mark of `watch_room`.
            return self.arm();
        }
        let now = self.server.handle.elapsed();
        match self.stage.get() {
            Stage::Open => {
                self.core.borrow_mut().on_drained(now);
                // A client that waits for `100 Continue` sends nothing by itself.
                let waits = self.paused.get() || self.core.borrow().owes_continue();
                if waits {
                    self.resume();
                }
            }
            Stage::Flushing => self.linger(),
            _ => {}
        }
        for hook in self.written_hooks() {
            hook.complete(Completion::Sent);
        }
        if self.finished.get() {
            self.run_gone_hooks(Gone::Finished);
        }
        self.arm();
    }

    /// The client will send no more; it may still read.
    fn finished(self: &Rc<Self>) {
        self.finished.set(true);
        match self.stage.get() {
            Stage::Open if self.reads_on() => self.run_gone_hooks(Gone::Finished),
            Stage::Open => self.end_of_input(),
            // An answer under way is still sent.
            Stage::Closing | Stage::Flushing => {
                self.stage.set(Stage::Closing);
                self.close_if_ended();
            }
            // It has what it waited for.
            Stage::Lingering => self.free(),
            // Whoever gets the stream is told.
            Stage::Upgrading => {}
            Stage::Closed | Stage::ServerGone | Stage::Upgraded => {}
        }
        self.arm();
    }

    /// All that the client has sent is read.
    fn end_of_input(self: &Rc<Self>) {
        let unfinished = self.take_incoming();
        let eof = self.core.borrow_mut().on_eof();
        if let Eof::InBody(seq) = eof {
            // Its answer will never be asked for.
            let _ = self.finish(seq);
        }
        body::cut_off(unfinished);
        if self.core.borrow().outstanding() == 0 {
            self.stage.set(Stage::Closing);
            return self.close_if_ended();
        }
        self.run_gone_hooks(Gone::Finished);
    }

    /// The stream has failed.
    fn reset(self: &Rc<Self>) {
        self.stage.set(Stage::Closed);
        self.run_gone_hooks(Gone::Reset);
        self.free();
    }

    // The end.

    /// The last answer is written: close behind it, at once or in stages (RFC 9112 section 9.6).
    #[inline]
    fn close_if_ended(self: &Rc<Self>) {
        if self.stage.get() == Stage::Closing {
            self.close_ended();
        }
    }

    fn close_ended(self: &Rc<Self>) {
        if self.cut.get() {
            self.settle_hooks();
            self.bev.close_with_reset();
            return;
        }
        // After a FIN nothing can come that would be answered with a reset.
        let lingers = !self.finished.get() && (self.lingers.get() || self.bev.pending_input() > 0);
        if !lingers || self.bev.enabled().is_empty() {
            self.settle_hooks();
            self.bev.close_after_flush();
            return;
        }
        self.stage.set(Stage::Flushing);
        let _ = self.bev.enable(Direction::READ);
        if self.bev.pending_output() == 0 {
            self.linger();
        }
    }

    fn linger(self: &Rc<Self>) {
        self.stage.set(Stage::Lingering);
        self.bev.shutdown_write();
        let rules = self.server.rules();
        let linger = Linger::new(self.server.handle.elapsed(), &rules.limits);
        self.extra(|extra| extra.linger = Some(linger));
        // `bound_junk` may have ended it.
        let _ = self.bev.enable(Direction::READ);
        self.arm();
    }

    /// Takes no more requests; closes now if none is out.
    pub(crate) fn stop(self: &Rc<Self>) {
        if self.stage.get() != Stage::Open {
            return;
        }
        if self.core.borrow_mut().stop() {
            self.stage.set(Stage::Closing);
            if !self.pumping.get() {
                self.close_if_ended();
                self.arm();
            }
        }
    }

    /// Frees the stream; what has left before has left.
    fn free(&self) {
        self.settle_hooks();
        self.free_stream();
    }

    /// An answer that is cut off here must not look whole: to who reads up to the end, an end is as good as another.
    fn free_stream(&self) {
        let is_cut = {
            let core = self.core.borrow();
            let front = core.front().and_then(|seq| core.exchange(seq));
            front.is_some_and(|exchange| exchange.state == State::Streaming(Mode::UntilClose))
        };
        if is_cut || self.cut.get() || self.bev.pending_output() > 0 {
            self.bev.close_with_reset();
        } else {
            self.bev.free();
        }
    }

    /// Closes now.
    pub(crate) fn close(&self, server_gone: bool) {
        self.settle_hooks();
        let stage = if server_gone { Stage::ServerGone } else { Stage::Closed };
        self.set_over(stage);
        // First: what drops after it is the program's, and may panic.
        self.free_stream();
        self.over(stage);
    }

    fn set_over(&self, stage: Stage) {
        if !matches!(self.stage.get(), Stage::Closed | Stage::ServerGone | Stage::Upgraded) {
            self.stage.set(stage);
        }
    }

    /// The connection has ended; its requests' hooks run in the loop's next turn.
    fn over(&self, stage: Stage) {
        self.set_over(stage);
        let unfinished = self.take_incoming();
        let unheard_upgrade = self.extra(|extra| extra.upgrade.take());
        let key = self.key.replace(u32::MAX);
        if key != u32::MAX {
            self.server.remove(key);
        }
        let completion = match self.stage.get() {
            Stage::ServerGone => Completion::ServerGone,
            Stage::Upgraded => Completion::Sent,
            _ => Completion::ClientGone,
        };
        // Whoever was to hear of it has heard.
        let mut unheard = Vec::new();
        for mut hook in self.take_hooks(|_| true) {
            unheard.extend(hook.take_gone());
            self.server.queue_hook(hook, completion);
        }
        if let Some(state) = unfinished.and_then(Incoming::into_state) {
            let due = BodyDue(state);
            self.server.queue_call(move || due.fail(completion));
        }
        drop((unheard, unheard_upgrade));
    }
}
