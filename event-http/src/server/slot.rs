//! A place for one callback of the program's, which may replace itself or end its owner while it runs.

use std::cell::Cell;

use crate::server::guarded;

/// The callback is on loan while it runs.
pub(crate) struct Slot<F> {
    callback: Cell<Option<F>>,
    is_set: Cell<bool>,
    /// None is kept any more: one that captures what it belongs to would keep that for ever.
    closed: Cell<bool>,
}

impl<F> Default for Slot<F> {
    fn default() -> Slot<F> {
        Slot { callback: Cell::new(None), is_set: Cell::new(false), closed: Cell::new(false) }
    }
}

impl<F> Slot<F> {
    pub(crate) fn is_set(&self) -> bool {
        self.is_set.get()
    }

    pub(crate) fn set(&self, callback: Option<F>) {
        let callback = if self.closed.get() { None } else { callback };
        self.is_set.set(callback.is_some());
        let old = self.callback.replace(callback);
        drop(old);
    }

    pub(crate) fn close(&self) {
        self.closed.set(true);
        self.set(None);
    }

    /// Calls it with `call`; `None` if there is none, it runs already, or it panics.
    pub(crate) fn call<R>(&self, name: &str, call: impl FnOnce(&mut F) -> R) -> Option<R> {
        let mut callback = self.callback.take()?;
        let mut result = None;
        // Set anew means replaced; unset means taken away, by itself in both cases.
        guarded(name, || result = Some(call(&mut callback)));
        let newer = self.callback.take();
        if newer.is_none() && self.is_set.get() {
            self.callback.set(Some(callback));
        } else {
            self.callback.set(newer);
            guarded("a drop", || drop(callback));
        }
        result
    }
}
