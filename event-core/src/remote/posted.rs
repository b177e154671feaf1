//! Closures that other threads have posted: rows of one type each, without a box for every one.
//!
//! A box is made by the sender and freed by the loop, and memory that goes from thread to thread is what costs most of
//! it. A program posts few types of closures, and one type often, so those of a type that follow each other stand in one
//! array, by value, and the array is used again. Where types alternate such rows would be short: there, closures are
//! boxed, which makes them one type again.

use std::any::Any;
use std::collections::VecDeque;

use super::inbox::MESSAGES_PER_TURN;
use crate::reactor::{FirstPanic, LoopHandle};

/// Larger closures are boxed, in bytes: the lock is not held while one is moved, and a row stays small.
pub(super) const BY_VALUE: usize = 64;

pub(super) type Boxed = Box<dyn FnOnce(&LoopHandle) + Send>;

/// No more closures stand in a row, which bounds what is copied when it grows and what memory is kept for the next.
const ROW: usize = MESSAGES_PER_TURN;

/// A row of closures, whatever their type.
pub(crate) trait Posted: Any + Send {
    /// Calls them in order, until none is left, the turn's budget is spent or the loop is to stop. Each is off the row
    /// before it is called.
    fn run(&mut self, handle: &LoopHandle);

    fn is_empty(&self) -> bool;

    /// Drops them unrun, one by one.
    fn discard(&mut self, panic: &mut FirstPanic);
}

struct Row<F> {
    /// The only one so far, which spares an array for a closure whose neighbours are of other types.
    first: Option<F>,
    rest: VecDeque<F>,
}

impl<F: FnOnce(&LoopHandle) + Send + 'static> Posted for Row<F> {
    fn run(&mut self, handle: &LoopHandle) {
        while handle.has_message_budget() {
            let Some(f) = self.first.take().or_else(|| self.rest.pop_front()) else { return };
            handle.take_message_budget();
            f(handle);
            handle.callback_ended();
            if handle.is_stopping() {
                return;
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.first.is_none() && self.rest.is_empty()
    }

    fn discard(&mut self, panic: &mut FirstPanic) {
        self.first.take().into_iter().chain(self.rest.drain(..)).for_each(|f| panic.drop(f));
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn one(_: &LoopHandle) {}

    /// A closure of the type that `number` stands for.
    fn post(number: u8, rows: &mut Vec<Box<dyn Posted>>, spare: &mut Option<Box<dyn Posted>>) {
        let row = match number {
            1 => add(one, rows.last_mut(), spare),
            _ => add(move |_: &LoopHandle| assert_ne!(number, 1), rows.last_mut(), spare),
        };
        rows.extend(row);
    }

    fn clear<F: FnOnce(&LoopHandle) + Send + 'static>(_: F, row: &mut Box<dyn Posted>) {
        if let Some(row) = of_type::<F>(row) {
            row.first = None;
            row.rest.clear();
        }
    }

    #[test]
    fn neighbours_of_a_type_stand_in_one_row() {
        let (mut rows, mut spare) = (Vec::new(), None);
        for number in [1, 1, 1, 2, 2, 1] {
            post(number, &mut rows, &mut spare);
        }
        assert_eq!(rows.len(), 3);
    }

    #[test]
    fn a_row_has_an_end() {
        let (mut rows, mut spare) = (Vec::new(), None);
        (0..2 * ROW + 10).for_each(|_| post(2, &mut rows, &mut spare));
        assert_eq!(rows.len(), 3);
    }

    #[test]
    fn the_spare_row_is_used_by_its_own_type_only() {
        let (mut rows, mut spare) = (Vec::new(), None);
        (0..3).for_each(|_| post(1, &mut rows, &mut spare));
        let mut row = rows.pop().unwrap();
        clear(one, &mut row);
        assert!(row.is_empty());
        let memory = place(&*row);
        spare = Some(row);
        post(2, &mut rows, &mut spare);
        assert!(spare.is_some());
        post(1, &mut rows, &mut spare);
        assert!(spare.is_none());
        assert_eq!(place(&*rows[1]), memory);
    }

    /// Where it stands.
    fn place(row: &dyn Posted) -> *const () {
        std::ptr::from_ref(row).cast()
    }
}
