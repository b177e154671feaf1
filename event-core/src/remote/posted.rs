//! Closures that other threads have posted: rows of one type each, without a box for every one.
//!
//! A box is made by the sender and freed by the loop, and memory that goes from thread to thread is what costs most of
//! it. A program posts few types of closures, and one type often, so those of a type that follow each other stand in one
//! array, by value, and the array is used again.

use std::any::Any;
use std::collections::VecDeque;

use super::inbox::MESSAGES_PER_TURN;
use crate::reactor::LoopHandle;

/// No more closures stand in a row, which bounds what is copied when it grows and what memory is kept for the next.
const ROW: usize = MESSAGES_PER_TURN;

/// A row of closures, whatever their type.
pub(crate) trait Posted: Any + Send {
    /// Calls them in order, until none is left, the turn's budget is spent or the loop is to stop. Each is off the row
    /// before it is called.
    fn run(&mut self, handle: &LoopHandle);

    fn is_empty(&self) -> bool;
}

struct Row<F> {
    /// The only one so far, which spares an array for a closure whose neighbours are of other types.
    first: Option<F>,
    rest: VecDeque<F>,
}

impl<F: FnOnce(&LoopHandle) + Send + 'static> Posted for Row<F> {
    fn run(&mut self, handle: &LoopHandle) {
        while !self.is_empty() && handle.take_message_budget() {
            let Some(f) = self.first.take().or_else(|| self.rest.pop_front()) else { return };
            f(handle);
            if handle.is_stopping() {
                return;
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.first.is_none() && self.rest.is_empty()
    }
}

impl<F> Row<F> {
    fn push(&mut self, f: F) {
        if self.rest.capacity() == 0 && self.first.is_none() {
            self.first = Some(f);
        } else {
            self.rest.push_back(f);
        }
    }
}

/// Adds a closure to the last row, if that is of its type and not full, or else to a new one, which is returned: the
/// spare one if it is of its type.
pub(super) fn add<F: FnOnce(&LoopHandle) + Send + 'static>(
    f: F,
    last: Option<&mut Box<dyn Posted>>,
    spare: &mut Option<Box<dyn Posted>>,
) -> Option<Box<dyn Posted>> {
    let mut room = 0;
    if let Some(row) = last.and_then(of_type::<F>) {
        if row.rest.len() < ROW {
            row.push(f);
            return None;
        }
        // There are many: it will not grow step by step.
        room = ROW;
    }
    if let Some(row) = spare.as_mut().and_then(of_type::<F>) {
        row.push(f);
        return spare.take();
    }
    let mut row = Row { first: None, rest: VecDeque::with_capacity(room) };
    row.push(f);
    Some(Box::new(row))
}

fn of_type<F: 'static>(row: &mut Box<dyn Posted>) -> Option<&mut Row<F>> {
    let row: &mut dyn Any = &mut **row;
    row.downcast_mut()
}
