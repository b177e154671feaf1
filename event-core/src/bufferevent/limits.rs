//! How much a stream holds and moves: marks, bounds, and what a visit may read and write.

use std::rc::Rc;

use super::Direction;
use super::inner::Inner;
use super::rare::{Cause, DEFAULT_MAX};
use super::state::{Due, State};

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
            }
        });
        self.input_changed();
    }

    /// How many bytes may be read now.
    pub(super) fn room(&self) -> usize {
        let most = self.rare(DEFAULT_MAX, |rare| rare.read_high.min(rare.max_input));
        most.saturating_sub(self.peek_len(&self.input))
    }

    pub(super) fn over_full(&self) -> bool {
        self.peek_len(&self.output) > self.rare(DEFAULT_MAX, |rare| rare.max_output)
    }

    /// Input at the library's own bound that nobody took is an event, not a silent stop.
    pub(super) fn check_input_full(&self) {
        if !self.wants_read() || self.due.get().contains(Due::ARRIVED) {
            return;
        }
        let len = self.peek_len(&self.input);
        let (max, high) = self.rare((DEFAULT_MAX, usize::MAX), |rare| (rare.max_input, rare.read_high));
        if len >= max && high > max {
            self.set(State::READ_ENABLED, false);
            self.fail(Cause::InputFull, Due::ERROR);
        }
    }
}
