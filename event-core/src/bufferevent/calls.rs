//! A stream's callbacks: set, taken away, and called. One that runs is on loan: whatever it does to its stream, it is put
//! back only if the stream lives, has no other by then, and its callbacks were not taken away.

use std::rc::Rc;

use super::inner::Inner;
use super::rare::Rare;
use super::state::State;
use super::{BufferEvent, Callbacks, StreamEvent};

impl Inner {
    pub(super) fn set_callbacks(self: &Rc<Self>, callbacks: Option<Box<dyn Callbacks>>) {
        if self.is_freed() {
            drop(callbacks);
            return;
        }
        let starts = callbacks.is_some();
        self.set(State::LENT, false);
        let old = self.callbacks.replace(callbacks);
        let closures = self.take_closures();
        if starts {
            // A stream with a callback is the loop's.
            let _ = self.start();
        }
        drop((old, closures));
    }

    pub(super) fn set_closure<T>(self: &Rc<Self>, set: impl FnOnce(&mut Rare) -> Option<T>) {
        if self.is_freed() {
            return;
        }
        let old = self.rare_mut(set);
        let object = self.callbacks.take();
        let _ = self.start();
        drop((old, object));
    }

    pub(super) fn take_closures(&self) -> Option<impl Sized + use<>> {
        self.rare_if(|rare| {
            (rare.read_cb.take(), rare.write_cb.take(), rare.event_cb.take(), rare.room_cb.take())
        })
    }

    pub(super) fn call(self: &Rc<Self>, f: impl FnOnce(&mut dyn Callbacks, &BufferEvent)) -> bool {
        let Some(mut callbacks) = self.callbacks.take() else { return false };
        let bev = BufferEvent { inner: self.clone() };
        self.set(State::LENT, true);
        f(&mut *callbacks, &bev);
        if self.has(State::LENT) && !self.is_freed() && !self.has_closures() {
            self.callbacks.set(Some(callbacks));
        } else {
            drop(callbacks);
        }
        true
    }

    #[inline]
    pub(super) fn leave_unattended(&self) {
        if self.has(State::IN_STEP) && self.has(State::LENT) {
            self.set(State::UNATTENDED, true);
        }
    }

    pub(super) fn has_closures(&self) -> bool {
        self.rare(false, |rare| {
            rare.read_cb.is_some()
                || rare.write_cb.is_some()
                || rare.event_cb.is_some()
                || rare.room_cb.is_some()
        })
    }

    pub(super) fn call_read(self: &Rc<Self>) {
        if self.call(|callbacks, bev| callbacks.on_read(bev)) {
            return;
        }
        let cb = self.rare_if(|rare| rare.read_cb.take()).flatten();
        let Some(mut cb) = cb else { return };
        self.set(State::LENT, true);
        cb(&BufferEvent { inner: self.clone() });
        self.put_back_closure(cb, |rare| &mut rare.read_cb);
    }

    pub(super) fn call_write(self: &Rc<Self>) {
        if self.call(|callbacks, bev| callbacks.on_write(bev)) {
            return;
        }
        let cb = self.rare_if(|rare| rare.write_cb.take()).flatten();
        let Some(mut cb) = cb else { return };
        self.set(State::LENT, true);
        cb(&BufferEvent { inner: self.clone() });
        self.put_back_closure(cb, |rare| &mut rare.write_cb);
    }

    pub(super) fn call_room(self: &Rc<Self>) {
        if self.call(|callbacks, bev| callbacks.on_room(bev)) {
            return;
        }
        let cb = self.rare_if(|rare| rare.room_cb.take()).flatten();
        let Some(mut cb) = cb else { return };
        self.set(State::LENT, true);
        cb(&BufferEvent { inner: self.clone() });
        self.put_back_closure(cb, |rare| &mut rare.room_cb);
    }

    pub(super) fn call_event(self: &Rc<Self>, event: StreamEvent) {
        if self.call(|callbacks, bev| callbacks.on_event(bev, event)) {
            return;
        }
        let cb = self.rare_if(|rare| rare.event_cb.take()).flatten();
        match cb {
            Some(mut cb) => {
                self.set(State::LENT, true);
                cb(&BufferEvent { inner: self.clone() }, event);
                self.put_back_closure(cb, |rare| &mut rare.event_cb);
            }
            // Nobody handles it.
            None if !event.contains(StreamEvent::CONNECTED) => self.free(),
            None => {}
        }
    }

    pub(super) fn call_deadline(self: &Rc<Self>) {
        self.call(|callbacks, bev| callbacks.on_deadline(bev));
    }

    pub(super) fn put_back_closure<T>(&self, cb: T, place: impl FnOnce(&mut Rare) -> &mut Option<T>) {
        let unwanted = if self.is_freed() || !self.has(State::LENT) {
            Some(cb)
        } else {
            self.rare_mut(|rare| {
                let place = place(rare);
                if place.is_some() { Some(cb) } else { place.replace(cb) }
            })
        };
        drop(unwanted);
    }
}
