//! How much a stream holds and moves: marks, bounds, and what a visit may read and write.

use std::rc::Rc;

use super::buffers::Side;
use super::inner::Inner;
use super::rare::{Cause, DEFAULT_MAX, DEFAULT_ROOM};
use super::state::{Due, State};
use super::{BufferEvent, Direction};
use crate::buffer::READ_BLOCK;
use crate::error::Error;

/// A read that fills its block is repeated at most so often in one visit, so that one sender cannot hold the loop.
pub(super) const READS_PER_VISIT: usize = 4;

/// A visit writes at most so much before the others get their turn.
pub(super) const BYTES_PER_VISIT: usize = 1 << 20;

/// So much beyond that goes with it: a turn of its own would cost more.
const VISIT_SLACK: usize = BYTES_PER_VISIT / 16;

impl BufferEvent {
    /// Sets the marks of one or both directions. Reading: the read callback waits for `low` bytes, and reading pauses
    /// while the input holds `high` (`None`: only `max_input` bounds it; at least `low`). Writing: the write callback
    /// comes when no more than `low` bytes are left; above `high` (`None`: 1 MiB) the output [has no
    /// room](Self::has_room), which stops nobody: it is for whoever fills it to ask.
    #[doc(alias = "bufferevent_setwatermark")]
    pub fn set_watermark(&self, direction: Direction, low: usize, high: Option<usize>) {
        self.inner.set_watermark(direction, low, high);
    }

    /// The marks of one direction, as they are in effect: (low, high).
    ///
    /// # Errors
    /// - `Error::Invalid` unless it is exactly one direction.
    #[doc(alias = "bufferevent_getwatermark")]
    pub fn watermark(&self, direction: Direction) -> Result<(usize, Option<usize>), Error> {
        let bounded = |high: usize| Some(high).filter(|&high| high < usize::MAX);
        match direction {
            Direction::READ => {
                Ok(self.inner.rare((0, None), |rare| (rare.read_low, bounded(rare.read_high))))
            }
            Direction::WRITE => Ok(self
                .inner
                .rare((0, Some(DEFAULT_ROOM)), |rare| (rare.write_low, bounded(rare.write_high)))),
            _ => Err(Error::Invalid("marks are those of one direction")),
        }
    }

    /// Bounds what the stream may hold: as much input as `max_input` that nobody takes, or more output than
    /// `max_output`, is an `ERROR` event. Input that is full is not read any more until it is enabled again; a high mark
    /// up to `max_input` pauses in silence instead. `None` is no bound; both are 16 MiB at first. Output that lies in a file
    /// does not count: it takes no memory.
    pub fn set_max(&self, max_input: Option<usize>, max_output: Option<usize>) {
        self.inner.set_max(max_input, max_output);
    }

    /// Whether the output is not above its high mark. A producer that stops when it is hears by
    /// [`Callbacks::on_room`](super::Callbacks::on_room) when to go on.
    pub fn has_room(&self) -> bool {
        self.inner.has_room()
    }

    /// Sets how many bytes one visit of the loop reads at most: what is left in the socket waits for the next turn.
    /// `None` is what a stream has at first, 256 KiB.
    ///
    /// # Errors
    /// - `Error::Invalid` for 0, which would stand still: [`disable`](Self::disable) stops reading.
    #[doc(alias = "bufferevent_set_max_single_read")]
    pub fn set_max_single_read(&self, bytes: Option<usize>) -> Result<(), Error> {
        let bytes = at_least_one(bytes)?;
        self.inner.rare_mut(|rare| rare.max_single_read = bytes);
        Ok(())
    }

    /// Sets how many bytes one visit of the loop writes at most; the rest waits for another. `None` is what a
    /// stream has at first, 1 MiB, or a little more when that is all there is.
    ///
    /// # Errors
    /// - `Error::Invalid` for 0, which would stand still: [`disable`](Self::disable) stops writing.
    #[doc(alias = "bufferevent_set_max_single_write")]
    pub fn set_max_single_write(&self, bytes: Option<usize>) -> Result<(), Error> {
        let bytes = at_least_one(bytes)?;
        self.inner.rare_mut(|rare| rare.max_single_write = bytes);
        Ok(())
    }

    /// How many bytes one visit reads at most.
    #[doc(alias = "bufferevent_get_max_single_read")]
    pub fn max_single_read(&self) -> usize {
        self.inner.rare(READ_PER_VISIT, |rare| rare.max_single_read.min(READ_PER_VISIT))
    }

    /// How many bytes one visit writes at most.
    #[doc(alias = "bufferevent_get_max_single_write")]
    pub fn max_single_write(&self) -> usize {
        self.inner.write_budget()
    }

    /// How many bytes the next visit may read, going by marks and rate limits: 0 while reading is off, paused or over.
    #[doc(alias = "bufferevent_get_max_to_read")]
    pub fn max_to_read(&self) -> usize {
        let most = self.inner.room().min(READ_PER_VISIT).min(self.inner.peek_quota(Side::Input));
        if self.inner.may_read() { most } else { 0 }
    }

    /// How many bytes the next visit may write: 0 while writing is off, a connect is under way, or a rate limit says so.
    #[doc(alias = "bufferevent_get_max_to_write")]
    pub fn max_to_write(&self) -> usize {
        let most = self.inner.write_budget().min(self.inner.peek_quota(Side::Output));
        if self.inner.may_write() { most } else { 0 }
    }
}

/// What a visit reads at most unless it is told to read less.
pub(super) const READ_PER_VISIT: usize = READS_PER_VISIT * READ_BLOCK;

fn at_least_one(bytes: Option<usize>) -> Result<usize, Error> {
    match bytes {
        None => Ok(usize::MAX),
        Some(0) => Err(Error::Invalid("a visit that moves nothing gets nowhere")),
        Some(bytes) => Ok(bytes),
    }
}

impl Inner {
    pub(super) fn set_max(self: &Rc<Self>, max_input: Option<usize>, max_output: Option<usize>) {
        self.rare_mut(|rare| {
            rare.max_input = max_input.unwrap_or(usize::MAX);
            rare.max_output = max_output.unwrap_or(usize::MAX);
        });
        self.output_changed();
        self.input_changed();
        if !self.has(State::IN_STEP) {
            self.check_input_full();
        }
    }

    pub(super) fn set_watermark(self: &Rc<Self>, direction: Direction, low: usize, high: Option<usize>) {
        self.rare_mut(|rare| {
            if direction.contains(Direction::READ) {
                rare.read_low = low;
                // A mark below the other would pause for ever before the first callback.
                rare.read_high = high.map_or(usize::MAX, |high| high.max(low));
            }
            if direction.contains(Direction::WRITE) {
                rare.write_low = low;
                rare.write_high = high.unwrap_or(DEFAULT_ROOM);
            }
        });
        self.output_changed();
        self.input_changed();
    }

    /// How many bytes may be read now.
    pub(super) fn room(&self) -> usize {
        self.room_beside(self.len(Side::Input))
    }

    /// How many bytes may be read now into an input that holds `len`.
    pub(super) fn room_beside(&self, len: usize) -> usize {
        if !self.has(State::RARE) {
            return DEFAULT_MAX.saturating_sub(len);
        }
        let (high, max, single) =
            self.rare((0, 0, 0), |rare| (rare.read_high, rare.max_input, rare.max_single_read));
        let most = if self.has(State::NEEDED) && len >= high {
            // The mark holds nothing but less than one message of the filter's: up to the bound, once more as much.
            len.saturating_add(high.max(1)).min(max)
        } else {
            high.min(max)
        };
        most.saturating_sub(len).min(single)
    }

    /// How many bytes a visit may write.
    pub(super) fn write_budget(&self) -> usize {
        self.rare(BYTES_PER_VISIT, |rare| rare.max_single_write.min(BYTES_PER_VISIT))
    }

    /// How many bytes a visit may write of so many.
    pub(super) fn write_budget_of(&self, left: usize) -> usize {
        let usual = if left <= BYTES_PER_VISIT + VISIT_SLACK { left } else { BYTES_PER_VISIT };
        self.rare(usual, |rare| rare.max_single_write.min(usual))
    }

    pub(super) fn has_room(&self) -> bool {
        self.unsent(self.len(Side::Output)) <= self.write_high()
    }

    /// How much the output may still take.
    pub(super) fn room_for_output(&self) -> usize {
        let (len, high) = (self.len(Side::Output), self.write_high());
        if self.has(State::NEEDED_OUT) && len >= high {
            // As for the input: once more as much, up to the bound.
            return self.rare(DEFAULT_MAX, |rare| rare.max_output).saturating_sub(len).min(high.max(1));
        }
        high.saturating_sub(len)
    }

    fn write_high(&self) -> usize {
        self.rare(DEFAULT_ROOM, |rare| rare.write_high)
    }

    /// The output holds `len` bytes by now. Says whether that is room again, which is told once for each time it was
    /// gone.
    #[inline]
    pub(super) fn finds_room(&self, len: usize) -> bool {
        (len > DEFAULT_ROOM || self.has(State::NO_ROOM | State::RARE)) && self.finds_room_beyond(len)
    }

    fn finds_room_beyond(&self, len: usize) -> bool {
        if self.has(State::NO_ROOM) {
            let found = len <= self.write_high() / 2;
            self.set(State::NO_ROOM, !found);
            return found;
        }
        if len > self.write_high() {
            self.set(State::NO_ROOM, true);
        }
        false
    }

    /// Whether the output, of `len` bytes, takes more memory than the bound. What lies in a file takes none.
    #[inline]
    pub(super) fn is_over_full(&self, len: usize) -> bool {
        let max = self.rare(DEFAULT_MAX, |rare| rare.max_output);
        len > max && self.memory_len() > max
    }

    /// Input at the library's own bound that nobody took is an event, not a silent stop.
    pub(super) fn check_input_full(&self) {
        if !self.wants_read() || self.due.get().contains(Due::ARRIVED) {
            return;
        }
        let len = self.len(Side::Input);
        let (max, high) = self.rare((DEFAULT_MAX, usize::MAX), |rare| (rare.max_input, rare.read_high));
        if len >= max && (high > max || self.has(State::NEEDED)) {
            self.set(State::READ_ENABLED, false);
            self.fail(Cause::InputFull, Due::ERROR);
        }
    }
}
