//! The watchers of a loop: what runs right before and right after every wait.

use std::time::Duration;

use super::extras::Uses;
use crate::error::Error;
use crate::reactor::LoopHandle;

/// Gets how long the loop is about to wait, at most; a check watcher gets nothing.
pub(crate) type WatcherCallback = Box<dyn FnMut(&LoopHandle, Option<Duration>)>;

/// When a watcher runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    Check,
    Prepare,
}

/// The watchers of one kind, in the order of their making.
#[derive(Default)]
pub(super) struct Watchers {
    /// Ascending by id; the callback is gone while it runs.
    list: Vec<(u64, Option<WatcherCallback>)>,
    next_id: u64,
}

impl Watchers {
    fn at(&self, id: u64) -> Result<usize, usize> {
        self.list.binary_search_by_key(&id, |entry| entry.0)
    }

    fn add(&mut self, callback: WatcherCallback) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.list.push((id, Some(callback)));
        id
    }

    fn remove(&mut self, id: u64) -> Option<WatcherCallback> {
        let at = self.at(id).ok()?;
        self.list.remove(at).1
    }

    /// The callback of the first one from `from` on and before `end`, with its id.
    fn take(&mut self, from: u64, end: u64) -> Option<(u64, WatcherCallback)> {
        let at = self.at(from).unwrap_or_else(|at| at);
        let next = self.list[at..].iter_mut().take_while(|entry| entry.0 < end);
        next.filter_map(|(id, callback)| Some((*id, callback.take()?))).next()
    }

    /// Returns the callback if the watcher was freed while it ran.
    fn put_back(&mut self, id: u64, callback: WatcherCallback) -> Option<WatcherCallback> {
        match self.at(id) {
            Ok(at) => self.list[at].1.replace(callback),
            Err(_) => Some(callback),
        }
    }
}

/// Frees the watcher whose callback panics.
struct FreeOnPanic<'a> {
    handle: &'a LoopHandle,
    when: When,
    id: u64,
    armed: bool,
}

impl Drop for FreeOnPanic<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.handle.free_watcher(self.when, self.id);
        }
    }
}

impl LoopHandle {
    fn watchers(&self, when: When) -> (&std::cell::RefCell<Watchers>, Uses) {
        match when {
            When::Check => (&self.reactor.extras.check, Uses::CHECK),
            When::Prepare => (&self.reactor.extras.prepare, Uses::PREPARE),
        }
    }

    pub(crate) fn add_watcher(&self, when: When, callback: WatcherCallback) -> Result<u64, Error> {
        if let Err(error) = self.check() {
            drop(callback);
            return Err(error);
        }
        let (watchers, uses) = self.watchers(when);
        let id = watchers.borrow_mut().add(callback);
        self.reactor.extras.set(uses, true);
        Ok(id)
    }

    /// Frees a watcher. Its callback is dropped at once or, if it is running, when it returns.
    pub(crate) fn free_watcher(&self, when: When, id: u64) {
        let (watchers, uses) = self.watchers(when);
        let (callback, is_last) = {
            let mut watchers = watchers.borrow_mut();
            (watchers.remove(id), watchers.list.is_empty())
        };
        if is_last {
            self.reactor.extras.set(uses, false);
        }
        drop(callback);
    }

    /// Runs the watchers of one kind, in order. One that is made meanwhile runs next time.
    pub(super) fn run_watchers(&self, when: When, timeout: Option<Duration>) {
        let (watchers, _) = self.watchers(when);
        let (mut from, end) = (0, watchers.borrow().next_id);
        loop {
            let next = watchers.borrow_mut().take(from, end);
            let Some((id, mut callback)) = next else { break };
            from = id + 1;
            let mut guard = FreeOnPanic { handle: self, when, id, armed: true };
            callback(self, timeout);
            guard.armed = false;
            let unwanted = watchers.borrow_mut().put_back(id, callback);
            drop(unwanted);
        }
    }

    /// The loop ends: all callbacks, to be dropped with nothing borrowed.
    pub(super) fn take_watchers(&self) -> impl Iterator<Item = impl Sized + use<>> + use<> {
        let extras = &self.reactor.extras;
        extras.set(Uses::CHECK | Uses::PREPARE, false);
        let prepare = std::mem::take(&mut extras.prepare.borrow_mut().list);
        let check = std::mem::take(&mut extras.check.borrow_mut().list);
        prepare.into_iter().chain(check)
    }
}
