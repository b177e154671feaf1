//! The protocols between threads, in every order in which their steps can fall.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p event-core --release loom`

use std::sync::atomic::Ordering;

use loom::sync::atomic::{AtomicBool as Checked, Ordering::SeqCst};
use loom::thread;

use super::inbox::WakeFlag;
use super::mailbox::Post;
use super::*;
use crate::slots::Key;
use crate::sys::Wake;

/// Readable from `wake` to `clear`, like an eventfd.
struct FakeWake {
    readable: Checked,
}

impl FakeWake {
    fn new() -> Arc<FakeWake> {
        Arc::new(FakeWake { readable: Checked::new(false) })
    }

    fn is_readable(&self) -> bool {
        self.readable.load(SeqCst)
    }
}

impl Wake for FakeWake {
    fn wake(&self) {
        self.readable.store(true, SeqCst);
    }

    fn clear(&self) {
        self.readable.store(false, SeqCst);
    }
}

const ID: EventId = EventId(Key { index: 0, generation: 0 });

fn letter() -> Op {
    Op::Activate(ID, Ready::READ)
}

/// What one turn of the loop finds.
#[derive(Default)]
struct Found {
    exit: bool,
    stop: bool,
    ops: usize,
}

/// What the loop does when its wait tells of a wake. It looks at nothing while none is told: it sleeps.
fn turn(wake: &FakeWake, shared: &Shared, clear: fn(&WakeFlag)) -> Found {
    if !wake.is_readable() {
        return Found::default();
    }
    clear(&shared.flag);
    let Stops { exit, stop } = shared.take_stops();
    Found { exit, stop, ops: look(shared) }
}

/// What the loop takes out of its inbox. No lock tells it to look.
fn look(shared: &Shared) -> usize {
    if !shared.has_ops() {
        return 0;
    }
    let taken = Taken::default();
    taken.fill(shared);
    taken.close().len()
}

/// Two threads push, one of them twice, while the loop takes turns. Whatever is left when they are done must still be
/// told. It takes three: one that the loop is woken for, one that comes while it clears, one that finds the flag set.
///
/// A loop that is not asleep also takes what it sees unasked. Then the wake-up comes late, and a push while it is
/// cleared finds an empty inbox, so that it wakes, too.
fn no_message_is_slept_on(unasked: bool, clear: fn(&WakeFlag)) {
    loom::model(move || {
        let wake = FakeWake::new();
        let shared = Shared::new(wake.clone());
        let threads = [1, 2].map(|count| {
            let shared = shared.clone();
            thread::spawn(move || (0..count).for_each(|_| assert!(shared.push(letter()).is_ok())))
        });
        let mut taken = if unasked { look(&shared) } else { 0 };
        taken += turn(&wake, &shared, clear).ops;
        for thread in threads {
            thread.join().unwrap();
        }
        taken += turn(&wake, &shared, clear).ops;
        assert_eq!(taken, 3, "the loop sleeps on a message");
        assert!(!shared.has_ops(), "it would turn without work");
    });
}

#[test]
fn loom_no_message_is_slept_on() {
    no_message_is_slept_on(false, WakeFlag::clear);
}

#[test]
fn loom_a_loop_that_looks_unasked_sleeps_on_no_message() {
    no_message_is_slept_on(true, WakeFlag::clear);
}

#[test]
#[should_panic(expected = "the loop sleeps on a message")]
fn loom_the_other_order_of_clearing_loses_a_wake() {
    no_message_is_slept_on(true, |flag| {
        flag.pending.swap(false, Ordering::AcqRel);
        flag.wake.clear();
    });
}

#[test]
fn loom_no_stop_is_slept_on() {
    loom::model(|| {
        let wake = FakeWake::new();
        let shared = Shared::new(wake.clone());
        let (one, other) = (Remote::new(shared.clone()), Remote::new(shared.clone()));
        let exit = thread::spawn(move || one.loopexit().unwrap());
        let stop = thread::spawn(move || other.loopbreak().unwrap());
        let first = turn(&wake, &shared, WakeFlag::clear);
        exit.join().unwrap();
        stop.join().unwrap();
        let second = turn(&wake, &shared, WakeFlag::clear);
        assert!(first.exit || second.exit);
        assert!(first.stop || second.stop);
    });
}

#[test]
fn loom_what_is_pushed_while_the_loop_goes_is_refused_or_handed_back() {
    loom::model(|| {
        let shared = Shared::new(FakeWake::new());
        let other = shared.clone();
        let pusher = thread::spawn(move || other.push(letter()).is_ok());
        let handed_back = shared.close().len();
        let accepted = pusher.join().unwrap();
        assert_eq!(
            handed_back,
            usize::from(accepted),
            "an accepted message is in the queue that is handed back"
        );
        assert!(shared.push(letter()).is_err());
        let taken = Taken::default();
        taken.fill(&shared);
        assert_eq!(taken.close().len(), 0);
    });
}

/// A sender and its mailbox's letters, on a loop that is only an inbox.
fn mailbox(shared: &Arc<Shared>) -> (Sender<u32>, Arc<Post<u32>>) {
    let post = Post::new();
    (Sender::new(shared.clone(), ID, post.clone()), post)
}

/// What the mailbox's callback does for one request to look.
fn read(post: &Post<u32>, found: &Found, got: &mut Vec<u32>) {
    let mut batch = Vec::new();
    for _ in 0..found.ops {
        loop {
            post.take(&mut batch);
            if batch.is_empty() {
                break;
            }
            got.append(&mut batch);
        }
    }
}

#[test]
fn loom_no_letter_is_left_lying() {
    loom::model(|| {
        let wake = FakeWake::new();
        let shared = Shared::new(wake.clone());
        let (sender, post) = mailbox(&shared);
        let thread = thread::spawn(move || (1..=2).for_each(|n| assert!(sender.send(n).is_ok())));
        let mut got = Vec::new();
        read(&post, &turn(&wake, &shared, WakeFlag::clear), &mut got);
        thread.join().unwrap();
        read(&post, &turn(&wake, &shared, WakeFlag::clear), &mut got);
        assert_eq!(got, [1, 2]);
    });
}

#[test]
fn loom_two_senders_lose_nothing() {
    loom::model(|| {
        let wake = FakeWake::new();
        let shared = Shared::new(wake.clone());
        let (sender, post) = mailbox(&shared);
        let other = sender.clone();
        let threads = [
            thread::spawn(move || assert!(sender.send(1).is_ok())),
            thread::spawn(move || assert!(other.send(2).is_ok())),
        ];
        let mut got = Vec::new();
        read(&post, &turn(&wake, &shared, WakeFlag::clear), &mut got);
        for thread in threads {
            thread.join().unwrap();
        }
        read(&post, &turn(&wake, &shared, WakeFlag::clear), &mut got);
        got.sort_unstable();
        assert_eq!(got, [1, 2]);
    });
}

#[test]
fn loom_a_letter_to_a_closing_mailbox_is_dropped_there_or_handed_back() {
    loom::model(|| {
        let shared = Shared::new(FakeWake::new());
        let (sender, post) = mailbox(&shared);
        let thread = thread::spawn(move || sender.send(1));
        let unread = post.close();
        match thread.join().unwrap() {
            Ok(()) => assert_eq!(unread, [1]),
            Err(SendError(back)) => assert_eq!((back, unread.len()), (1, 0)),
        }
    });
}

#[test]
fn loom_a_letter_to_a_loop_that_goes_is_dropped_there_or_handed_back() {
    loom::model(|| {
        let shared = Shared::new(FakeWake::new());
        let (sender, post) = mailbox(&shared);
        let thread = thread::spawn(move || sender.send(1));
        // The order of the loop's end: the inbox first, then each mailbox.
        drop(shared.close());
        let unread = post.close();
        match thread.join().unwrap() {
            Ok(()) => assert_eq!(unread, [1]),
            Err(SendError(back)) => assert_eq!((back, unread.len()), (1, 0)),
        }
    });
}
