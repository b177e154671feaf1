//! Two streams joined: what either reads the other writes, no faster than it leaves. What a proxy is.

use std::cell::Cell;
use std::rc::{Rc, Weak};

use super::inner::Inner;
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
    /// Freeing one from outside, giving it other callbacks, or joining it to a third, ends the other in that way, too. One
    /// that is taken out like that reads on, with the marks and bounds that it had before. The same two may be joined anew.
    ///
    /// `on_end` is called by the loop, once: when both have ended and all is sent, when one has failed, or when a timeout
    /// has passed. It is dropped uncalled if a stream is freed from outside. Joined streams belong to the loop.
    ///
    /// ```
    /// use event_core::{Address, BufferEvent, EventBase, Listener};
    ///
    /// let mut base = EventBase::new()?;
    /// let upstream: std::net::SocketAddr = "127.0.0.1:8080".parse()?;
    /// let listener = Listener::bind(&base, "127.0.0.1:0", move |_, accepted| {
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
        let _joining = (Joining::of(self), Joining::of(other));
        // Taken out of what they are joined to, they are what they were before.
        self.clear_callbacks();
        other.clear_callbacks();
        let caps = [self.cap()?, other.cap()?];
        let half = |own: &BufferEvent, to: &BufferEvent, side: usize| Half {
            own: Rc::downgrade(&own.inner),
            before: Before::of(own),
            to: to.clone(),
            joint: joint.clone(),
            side,
            cap: caps[1 - side],
            own_cap: caps[side],
        };
        let joined = self.join(half(self, other, 0)).and_then(|()| other.join(half(other, self, 1)));
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
        half.joint.make_room(half.side, self, &half.to, half.cap);
        self.set_callbacks(half);
        // Whatever is read goes to the other; a low mark would hold the end of a message back.
        self.inner.rare_mut(|rare| rare.read_low = 0);
        self.enable(Direction::READ | Direction::WRITE)?;
        // What came before: bytes, and an end that was told to somebody else.
        self.inner.tell_end_again();
        self.trigger_at_marks(Direction::READ)
    }
}

/// What both halves share.
#[derive(Default)]
struct Joint {
    moved: [Cell<u64>; 2],
    ended: [Cell<bool>; 2],
    /// What a visit may read, as it was last set.
    single: [Cell<usize>; 2],
    /// Does not read, for want of room in the other.
    paused: [Cell<bool>; 2],
    on_end: Cell<Option<EndCallback>>,
    /// Nothing more is to be done when a half goes.
    over: Cell<bool>,
}

impl Joint {
    /// Lets one visit of `bev` read as much as there is room for in the output of `to`; says how much that is.
    fn make_room(&self, side: usize, bev: &BufferEvent, to: &BufferEvent, cap: usize) -> usize {
        let room = cap.saturating_sub(to.pending_output());
        // No visit of nothing: with so little room it is not read at all.
        self.single[side].set(room.max(1));
        bev.inner.rare_mut(|rare| rare.max_single_read = room.max(1));
        room
    }

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

/// What joining a stream changes of it.
#[derive(Clone, Copy)]
struct Before {
    max_single_read: usize,
    read_low: usize,
    write_low: usize,
    write_high: usize,
}

impl Before {
    fn of(stream: &BufferEvent) -> Before {
        stream.inner.rare_mut(|rare| Before {
            max_single_read: rare.max_single_read,
            read_low: rare.read_low,
            write_low: rare.write_low,
            write_high: rare.write_high,
        })
    }
}

/// The callbacks of one of the two.
struct Half {
    own: Weak<Inner>,
    before: Before,
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
        let Half { to, joint, side, cap, .. } = self;
        if joint.make_room(*side, bev, to, *cap) < cap.div_ceil(2) {
            joint.paused[*side].set(true);
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

    /// Makes the stream what it was, but for what the program has set meanwhile.
    fn restore(&self) {
        let Some(own) = self.own.upgrade().filter(|own| !own.is_freed()) else { return };
        let Half { before, joint, side, own_cap, .. } = self;
        own.rare_if(|rare| {
            if rare.max_single_read == joint.single[*side].get() {
                rare.max_single_read = before.max_single_read;
            }
            if rare.read_low == 0 {
                rare.read_low = before.read_low;
            }
            if (rare.write_low, rare.write_high) == (own_cap / 2, *own_cap) {
                (rare.write_low, rare.write_high) = (before.write_low, before.write_high);
            }
        });
        own.output_changed();
        own.input_changed();
        if !joint.over.get() && joint.paused[*side].get() {
            // What the backend refuses is an event of the stream's.
            let _ = own.enable(Direction::READ);
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
        let Half { to, joint, side, own_cap, .. } = self;
        if !joint.over.get() {
            joint.make_room(1 - *side, to, bev, *own_cap);
            joint.paused[1 - *side].set(false);
            if !to.enabled().contains(Direction::READ) {
                let _ = to.enable(Direction::READ);
            }
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
        self.restore();
        if !self.joint.over.replace(true) && !self.to.inner.rare(false, |rare| rare.joining) {
            self.to.close_after_flush();
        }
    }
}
