//! Where a stream keeps its two buffers: in the room of one, as an idle stream has neither. The first that is put down
//! takes the place there is; a second one at the same time goes into a box.

use std::cell::Cell;
use std::mem;

use super::inner::Inner;
use super::state::State;
use crate::buffer::Buffer;

/// One of the two buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Input,
    Output,
}

impl Side {
    /// The bits that say whether it holds something, and in which place it lies.
    #[inline]
    fn bits(self) -> (State, State, State) {
        match self {
            Side::Input => (State::HAS_INPUT, State::INPUT_FIRST, State::INPUT_SECOND),
            Side::Output => (State::HAS_OUTPUT, State::OUTPUT_FIRST, State::OUTPUT_SECOND),
        }
    }
}

/// The places. Which buffer lies where is in the stream's state.
#[derive(Default)]
pub(super) struct Buffers {
    first: Cell<Buffer>,
    /// Made when it is needed, kept until the end of the step.
    second: Cell<Option<Box<Buffer>>>,
}

impl Inner {
    /// How many bytes a buffer holds; 0 while it is out.
    #[inline]
    pub(super) fn len(&self, side: Side) -> usize {
        let (held, first, _) = side.bits();
        if !self.has(held) {
            return 0;
        }
        if self.has(first) {
            let buffer = self.buffers.first.take();
            let len = buffer.len();
            lay(&self.buffers.first, buffer);
            return len;
        }
        let boxed = self.buffers.second.take();
        let len = boxed.as_ref().map_or(0, |buffer| buffer.len());
        self.buffers.second.set(boxed);
        len
    }

    /// How many bytes of the output lie in memory; 0 while it is out.
    pub(super) fn memory_len(&self) -> usize {
        let output = self.take(Side::Output);
        let len = output.memory_len();
        self.put(Side::Output, output);
        len
    }

    /// Whether there is output, other than what is out of its place.
    #[inline]
    pub(super) fn has_output(&self) -> bool {
        self.has(State::HAS_OUTPUT)
    }

    /// Whether a buffer lies in its place, if only an empty one with memory.
    #[inline]
    pub(super) fn lies(&self, side: Side) -> bool {
        let (_, first, second) = side.bits();
        self.has(first | second)
    }

    /// Whether nothing is to be seen to when a buffer comes back that is empty now: nothing lies in its place, nobody counts
    /// changes, and the step that runs sees to the rest.
    #[inline]
    pub(super) fn rests_without(&self, side: Side) -> bool {
        let (_, first, second) = side.bits();
        self.has(State::IN_STEP) && !self.has(first | second | State::COUNTS_CHANGES)
    }

    /// Takes a buffer out of its place.
    #[inline]
    pub(super) fn take(&self, side: Side) -> Buffer {
        let (held, first, second) = side.bits();
        let state = self.state.get();
        self.state.set(state - (held | first | second));
        if state.contains(first) {
            return self.buffers.first.take();
        }
        if state.contains(second) { self.take_second() } else { Buffer::new() }
    }

    fn take_second(&self) -> Buffer {
        let mut boxed = self.buffers.second.take();
        let buffer = boxed.as_mut().map(|buffer| mem::take(&mut **buffer)).unwrap_or_default();
        self.buffers.second.set(boxed);
        buffer
    }

    /// Puts a buffer down whose place is empty.
    #[inline]
    pub(super) fn put(&self, side: Side, buffer: Buffer) {
        if buffer.is_bare() {
            return;
        }
        let (held, first, second) = side.bits();
        let mut state = self.state.get();
        debug_assert!(!state.intersects(first | second), "the buffer that lies there would be lost");
        state.set(held, !buffer.is_empty());
        if state.intersects(State::INPUT_FIRST | State::OUTPUT_FIRST) {
            self.state.set(state | second);
            self.put_second(buffer);
        } else {
            self.state.set(state | first);
            lay(&self.buffers.first, buffer);
        }
    }

    /// Puts a block of the pool down that is not empty, where neither buffer lies.
    #[inline]
    pub(super) fn put_block(&self, side: Side, block: Vec<u8>) {
        let (held, first, _) = side.bits();
        debug_assert!(!block.is_empty() && !self.lies(Side::Input) && !self.lies(Side::Output));
        self.state.set(self.state.get() | held | first);
        lay(&self.buffers.first, Buffer::of_block(block));
    }

    fn put_second(&self, buffer: Buffer) {
        let boxed = match self.buffers.second.take() {
            Some(mut boxed) => {
                *boxed = buffer;
                boxed
            }
            None => Box::new(buffer),
        };
        self.buffers.second.set(Some(boxed));
    }

    /// Gives up the box for a second buffer unless one lies in it.
    #[inline]
    pub(super) fn settle_places(&self) {
        if !self.has(State::INPUT_SECOND | State::OUTPUT_SECOND) {
            let second = self.buffers.second.take();
            if second.is_some() {
                drop(second);
            }
        }
    }
}

/// Puts a buffer where an empty one without memory lies, which nobody needs to drop: that is code at every place that
/// looks at a buffer.
#[inline]
fn lay(place: &Cell<Buffer>, buffer: Buffer) {
    forget_bare(place.replace(buffer));
}

/// Lets go of a buffer that is known to have no memory.
#[inline]
pub(super) fn forget_bare(buffer: Buffer) {
    debug_assert!(buffer.is_bare());
    mem::forget(buffer);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Sim;

    #[test]
    fn each_comes_back_as_it_was_put_whatever_the_other_does() {
        let base = Sim::new(1).event_base().unwrap();
        // Every order of five puts and takes.
        for order in 0..4_usize.pow(5) {
            let stream = Inner::new(base.handle(), -1, State::DETACHED);
            let (mut input, mut output) = (String::new(), String::new());
            for step in 0..5 {
                match order / 4_usize.pow(step) % 4 {
                    0 => {
                        stream.take(Side::Input);
                        input = format!("i{step}");
                        stream.put(Side::Input, Buffer::from(input.as_str()));
                    }
                    1 => {
                        stream.take(Side::Output);
                        output = format!("output {step}");
                        stream.put(Side::Output, Buffer::from(output.as_str()));
                    }
                    2 => assert_eq!(stream.take(Side::Input), *mem::take(&mut input)),
                    _ => assert_eq!(stream.take(Side::Output), *mem::take(&mut output)),
                }
                if order % 3 == 0 {
                    stream.settle_places();
                }
                assert_eq!((stream.len(Side::Input), stream.len(Side::Output)), (input.len(), output.len()));
                assert_eq!(stream.has_output(), !output.is_empty());
            }
        }
    }

    #[test]
    fn reserved_memory_is_kept_and_the_box_goes_when_one_place_is_enough() {
        let base = Sim::new(1).event_base().unwrap();
        let stream = Inner::new(base.handle(), -1, State::DETACHED);
        let mut reserved = Buffer::new();
        reserved.reserve(1000).unwrap();
        let held = reserved.held();
        stream.put(Side::Input, Buffer::from("x"));
        stream.put(Side::Output, reserved);
        assert_eq!((stream.len(Side::Input), stream.len(Side::Output), stream.has_output()), (1, 0, false));
        stream.settle_places();
        assert_eq!(stream.take(Side::Output).held(), held);
        stream.settle_places();
        assert!(stream.buffers.second.take().is_none());
        assert_eq!(stream.take(Side::Input), "x");
    }
}
