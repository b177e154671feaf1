//! Two streams joined: what either reads the other writes, no faster than it leaves. What a proxy is.

use std::cell::Cell;
use std::rc::Rc;

use super::rare::DEFAULT_ROOM;
use super::{BufferEvent, Callbacks, Direction, StreamEvent};
use crate::error::Error;

/// How two joined streams came to their end: what the callback of [`BufferEvent::splice`] gets.
#[derive(Debug)]
#[non_exhaustive]
pub struct Spliced {
    /// Bytes taken from the stream that `splice` was called on.
    pub there: u64,
    /// Bytes taken from the other one.
    pub back: u64,
    /// Which events ended it: `EOF` if both have ended, else those of the stream that failed.
    pub event: StreamEvent,
    /// Why it failed; `None` for an end and a timeout.
    pub error: Option<Error>,
}

type EndCallback = Box<dyn FnOnce(Spliced)>;

impl BufferEvent {
    /// Joins two streams: what either reads, and what lies in its input now, goes to the other. Both are enabled, their
    /// callbacks replaced; timeouts and deadlines stay as they are.
    ///
    /// A stream's output holds at most the high mark of writing (1 MiB unless [set](Self::set_watermark) before): the
    /// other one is not read while there is no room for more, and again once no more than half is left. So a peer that
    /// does not read costs that much and no more.
    ///
    /// The end of one is passed on behind its bytes ([`shutdown_write`](Self::shutdown_write)) and the way back stays
    /// open; when both have ended both are freed. An error of one, or a write timeout, closes both [with a
    /// reset](Self::close_with_reset), so that what was cut off does not look whole on the other side either. A read
    /// timeout or a deadline ends both once what they hold is sent, [however long that takes](Self::close_after_flush).
    /// Freeing one from outside, or joining it to a third, ends the other in that way, too. The same two may be joined anew.
    ///
    /// `on_end` is called by the loop, once: when both have ended and all is sent, when one has failed, or when a timeout
    /// has passed. It is dropped uncalled if a stream is freed from outside. Joined streams belong to the loop.
    ///
    /// ```
    /// use event_core::{Address, BufferEvent, EventBase, Listener};
    ///
    /// let mut base = EventBase::new()?;
    /// let upstream: std::net::SocketAddr = "127.0.0.1:8080".parse()?;
    /// let listener = Listener::bind(&base, "127.0.0.1:0", move |listener, accepted| {
    ///     let client = accepted.into_stream();
    ///     if let Ok(server) = BufferEvent::connect(client.handle(), &Address::Ip(upstream)) {
    ///         let _ = client.splice(&server, |end| println!("{} there, {} back", end.there, end.back));
    ///     }
    /// })?;
    /// # listener.free();
    /// base.dispatch()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - `Error::Invalid` if both are the same stream.
    /// - `Error::Io` if the backend refuses an fd; `Error::Stale` if a stream was freed; `Error::LoopGone`,
    ///   `Error::Forked`. Nothing is joined then, and `on_end` is dropped; callbacks may have been replaced.
    pub fn splice(&self, other: &BufferEvent, on_end: impl FnOnce(Spliced) + 'static) -> Result<(), Error> {
        if self == other {
            return Err(Error::Invalid("a stream cannot be joined to itself"));
        }
        self.inner.check()?;
        other.inner.check()?;
        let joint = Rc::new(Joint::default());
        joint.on_end.set(Some(Box::new(on_end)));
        let caps = (self.cap()?, other.cap()?);
        let _joining = (Joining::of(self), Joining::of(other));
        let joined = self
            .join(Half { to: other.clone(), joint: joint.clone(), side: 0, cap: caps.1, own_cap: caps.0 })
            .and_then(|()| {
                other.join(Half {
                    to: self.clone(),
                    joint: joint.clone(),
                    side: 1,
                    cap: caps.0,
                    own_cap: caps.1,
                })
            });
        if joined.is_err() {
            joint.over.set(true);
            self.clear_callbacks();
            other.clear_callbacks();
        }
        joined
    }

    /// How much the output may hold.
    fn cap(&self) -> Result<usize, Error> {
        Ok(self.watermark(Direction::WRITE)?.1.unwrap_or(DEFAULT_ROOM).max(2))
    }

    fn join(&self, half: Half) -> Result<(), Error> {
        // It hears of its own output when that has come down to half, and lets the other read on.
        self.set_watermark(Direction::WRITE, half.own_cap / 2, Some(half.own_cap));
        self.make_room(&half.to, half.cap);
        self.set_callbacks(half);
        // Whatever is read goes to the other; a low mark would hold the end of a message back.
        self.inner.rare_mut(|rare| rare.read_low = 0);
        self.enable(Direction::READ | Direction::WRITE)?;
        // What came before: bytes, and an end that was told to somebody else.
        self.inner.tell_end_again();
        self.trigger_at_marks(Direction::READ)
    }

    /// Lets one visit read as much as there is room for in the output of `to`; says how much that is.
    fn make_room(&self, to: &BufferEvent, cap: usize) -> usize {
        let room = cap.saturating_sub(to.pending_output());
        // No visit of nothing: with so little room it is not read at all.
        let _ = self.set_max_single_read(Some(room.max(1)));
        room
    }
}

/// What both halves share.
#[derive(Default)]
struct Joint {
    moved: [Cell<u64>; 2],
    ended: [Cell<bool>; 2],
    on_end: Cell<Option<EndCallback>>,
    /// Nothing more is to be done when a half goes.
    over: Cell<bool>,
}

impl Joint {
    fn tell(&self, event: StreamEvent, error: Option<Error>) {
        if let Some(on_end) = self.on_end.take() {
            on_end(Spliced { there: self.moved[0].get(), back: self.moved[1].get(), event, error });
        }
    }
}

/// Marks the time in which a stream is joined. If the same two were joined before, neither ends because of that.
struct Joining<'a>(&'a BufferEvent);

impl Joining<'_> {
    fn of(stream: &BufferEvent) -> Joining<'_> {
        stream.inner.rare_mut(|rare| rare.joining = true);
        Joining(stream)
    }
}

impl Drop for Joining<'_> {
    fn drop(&mut self) {
        self.0.inner.rare_if(|rare| rare.joining = false);
    }
}

/// The callbacks of one of the two.
struct Half {
    to: BufferEvent,
    joint: Rc<Joint>,
    side: usize,
    /// The most that may wait in the output of `to`.
    cap: usize,
    /// The most that may wait in the output of the stream itself.
    own_cap: usize,
}

impl Half {
    /// Moves the input on, and pauses reading where there is no room for more.
    fn pass(&self, bev: &BufferEvent) {
        let data = bev.read_buffer();
        if data.is_empty() {
            return;
        }
        let moved = &self.joint.moved[self.side];
        moved.set(moved.get() + data.len() as u64);
        // Full or freed: its own half hears of it.
        let _ = self.to.write(data);
        if bev.make_room(&self.to, self.cap) < self.cap.div_ceil(2) {
            bev.disable(Direction::READ);
        }
    }

    fn fail(&self, bev: &BufferEvent, event: StreamEvent) {
        let error = bev.error().filter(|_| event.contains(StreamEvent::ERROR));
        self.joint.over.set(true);
        bev.close_with_reset();
        self.to.close_with_reset();
        self.joint.tell(event, error);
    }

    /// Both have ended: tells so once all is sent.
    fn finish(&self, bev: &BufferEvent) {
        let has_ended = self.joint.ended.iter().all(Cell::get);
        if has_ended && bev.pending_output() == 0 && self.to.pending_output() == 0 {
            self.joint.tell(StreamEvent::EOF | StreamEvent::READING, None);
        }
    }

    fn wind_up(&self, bev: &BufferEvent, event: StreamEvent) {
        self.joint.over.set(true);
        bev.close_after_flush();
        self.to.close_after_flush();
        self.joint.tell(event, None);
    }
}

impl Callbacks for Half {
    fn on_read(&mut self, bev: &BufferEvent) {
        self.pass(bev);
    }

    /// No more than half of what may wait is left: the other one may read on.
    fn on_write(&mut self, bev: &BufferEvent) {
        self.to.make_room(bev, self.own_cap);
        if !self.joint.over.get() && !self.to.enabled().contains(Direction::READ) {
            let _ = self.to.enable(Direction::READ);
        }
        self.finish(bev);
    }

    fn on_event(&mut self, bev: &BufferEvent, event: StreamEvent) {
        if event.contains(StreamEvent::ERROR) || event.contains(StreamEvent::TIMEOUT | StreamEvent::WRITING) {
            self.fail(bev, event);
        } else if event.contains(StreamEvent::EOF) {
            self.pass(bev);
            self.joint.ended[self.side].set(true);
            self.joint.over.set(self.joint.ended.iter().all(Cell::get));
            self.to.shutdown_write();
            self.finish(bev);
        } else if event.contains(StreamEvent::TIMEOUT) {
            self.wind_up(bev, event);
        }
    }

    fn on_deadline(&mut self, bev: &BufferEvent) {
        self.wind_up(bev, StreamEvent::TIMEOUT);
    }
}

impl Drop for Half {
    /// Freed from outside, or its callbacks were replaced: the other one gets no more.
    fn drop(&mut self) {
        if !self.joint.over.replace(true) && !self.to.inner.rare(false, |rare| rare.joining) {
            self.to.close_after_flush();
        }
    }
}
