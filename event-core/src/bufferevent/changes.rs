//! How a stream's buffers change: counted where they are taken out and put back, told by the loop.

use std::rc::Rc;

use super::buffers::Side;
use super::inner::Inner;
use super::state::{Due, State};
use super::{BufferEvent, Direction};

pub(super) type ChangeCallback = Box<dyn FnMut(&BufferEvent, BufferChange)>;

/// What has become of one buffer of a stream since the callback was last called for it: libevent's `evbuffer_cb_info`.
///
/// `before + added - drained` is its length now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[doc(alias = "evbuffer_cb_info")]
pub struct BufferChange {
    /// `READ` for the input, `WRITE` for the output.
    pub buffer: Direction,
    /// Bytes it held then.
    pub before: usize,
    /// Bytes that came in: from the peer, or by a write.
    pub added: usize,
    /// Bytes that went: taken by the program, or handed to the kernel.
    pub drained: usize,
}

/// The changes of both buffers since they were last told.
#[derive(Default)]
pub(super) struct Changes {
    pub(super) cb: Option<ChangeCallback>,
    input: Counts,
    output: Counts,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    before: usize,
    added: usize,
    drained: usize,
}

impl Counts {
    fn note(&mut self, before: usize, after: usize) {
        if self.added == 0 && self.drained == 0 {
            self.before = before;
        }
        self.added += after.saturating_sub(before);
        self.drained += before.saturating_sub(after);
    }

    fn take(&mut self, buffer: Direction) -> Option<BufferChange> {
        let Counts { before, added, drained } = std::mem::take(self);
        (added > 0 || drained > 0).then_some(BufferChange { buffer, before, added, drained })
    }
}

impl BufferEvent {
    /// Sets a callback for changes of the buffers: how many bytes came into the input or output and how many went, since
    /// it was last called. Called by the loop, once for each buffer that has changed, after the read and write callbacks
    /// of the same turn or in the next one: `evbuffer_add_cb` on `bufferevent_get_input` and `bufferevent_get_output`,
    /// with `evbuffer_defer_callbacks`.
    ///
    /// What a guard of [`input`](Self::input) or [`output`](Self::output) adds and takes counts as the difference. The
    /// callback may do anything to the stream, replace itself included; what it changes is told in the next turn. It is
    /// dropped with the stream, and not called any more once that is freed.
    #[doc(alias = "evbuffer_add_cb")]
    pub fn set_buffer_cb(&self, cb: impl FnMut(&BufferEvent, BufferChange) + 'static) {
        self.inner.set_change_cb(Some(Box::new(cb)));
    }

    /// Takes the callback of [`set_buffer_cb`](Self::set_buffer_cb) away; changes are not counted any more.
    #[doc(alias = "evbuffer_remove_cb")]
    pub fn clear_buffer_cb(&self) {
        self.inner.set_change_cb(None);
    }
}

impl Inner {
    fn set_change_cb(self: &Rc<Self>, cb: Option<ChangeCallback>) {
        if self.is_freed() {
            drop(cb);
            return;
        }
        let starts = cb.is_some();
        self.set(State::COUNTS_CHANGES, starts);
        let old = match cb {
            None => self.rare_if(|rare| rare.changes.take()).flatten().and_then(|changes| changes.cb),
            Some(cb) => self.rare_mut(|rare| rare.changes.get_or_insert_default().cb.replace(cb)),
        };
        if starts {
            // A stream with a callback is the loop's.
            let _ = self.start();
        }
        drop(old);
    }

    /// One of the buffers was changed.
    #[inline]
    pub(super) fn note_change(&self, side: Side, before: usize, after: usize) {
        if self.has(State::COUNTS_CHANGES) && before != after {
            self.count_change(side, before, after);
        }
    }

    #[cold]
    fn count_change(&self, side: Side, before: usize, after: usize) {
        self.rare_if(|rare| {
            if let Some(changes) = &mut rare.changes {
                let counts = if side == Side::Input { &mut changes.input } else { &mut changes.output };
                counts.note(before, after);
            }
        });
        if !self.has(State::IN_STEP) {
            self.raise(Due::CHANGED);
        }
    }

    pub(super) fn has_untold_changes(&self) -> bool {
        let changed = |counts: &Counts| counts.added > 0 || counts.drained > 0;
        self.has(State::COUNTS_CHANGES)
            && self.rare(false, |rare| {
                rare.changes.as_ref().is_some_and(|all| changed(&all.input) || changed(&all.output))
            })
    }

    /// Tells what has changed; says whether anybody was called.
    pub(super) fn call_changes(self: &Rc<Self>) -> bool {
        if !self.has(State::COUNTS_CHANGES) {
            return false;
        }
        let mut called = false;
        for buffer in [Direction::READ, Direction::WRITE] {
            let (change, cb) = self
                .rare_if(|rare| {
                    let Some(changes) = &mut rare.changes else { return (None, None) };
                    let is_input = buffer == Direction::READ;
                    let counts = if is_input { &mut changes.input } else { &mut changes.output };
                    match counts.take(buffer) {
                        Some(change) => (Some(change), changes.cb.take()),
                        None => (None, None),
                    }
                })
                .unwrap_or_default();
            let (Some(change), Some(mut cb)) = (change, cb) else { continue };
            called = true;
            cb(&BufferEvent { inner: self.clone() }, change);
            let unwanted = if self.is_freed() {
                Some(cb)
            } else {
                // Back only where it came from, unless it was replaced or taken away meanwhile.
                self.rare_mut(|rare| match &mut rare.changes {
                    Some(changes) if changes.cb.is_none() => changes.cb.replace(cb),
                    _ => Some(cb),
                })
            };
            drop(unwanted);
        }
        called
    }
}
