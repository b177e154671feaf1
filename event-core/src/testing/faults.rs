//! Faults on demand in the calls between the library and its kernel.

use std::rc::Rc;

use crate::base::EventBase;
use crate::config::Config;
use crate::error::Error;
use crate::sys::{Call, Calls, Fault, Faulty, Plan, Sys};

/// Faults to come: has chosen calls of the library to its kernel, real or simulated, fail or move less.
///
/// Calls are numbered from 1 on, for each kind, from the making of this value, over all loops that follow it. So a test
/// runs once without faults, reads [`Faults::count`], and then runs again for each number with new faults. A clone is
/// another handle on the same plan.
///
/// An `EAGAIN` made up here takes an edge-triggered report away for good; [`Script`](super::Script) does not.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    plan: Rc<Plan>,
}

impl Faults {
    /// Makes a plan in which nothing fails.
    pub fn new() -> Faults {
        Faults::default()
    }

    /// A loop on a real kernel, with faults.
    ///
    /// # Errors
    /// As `EventBase::with_config`, and those of the faults that hit the making of the loop.
    pub fn event_base(&self, config: Config) -> Result<EventBase, Error> {
        EventBase::configured(self.wrap(config.kernel()?), &config)
    }

    /// The kernel `sys` with these faults.
    pub(crate) fn wrap(&self, sys: Rc<dyn Sys>) -> Rc<dyn Sys> {
        Rc::new(Faulty::new(sys, Rc::clone(&self.plan)))
    }

    /// Has the `nth` call of a kind fail with `errno`, without doing anything.
    ///
    /// # Panics
    /// If calls of this kind cannot fail: see [`Call::is_fallible`].
    pub fn fail(&self, call: Call, nth: u64, errno: i32) {
        assert!(call.is_fallible(), "{call:?} cannot fail");
        self.plan.add(call, nth, false, Fault::Fail(errno));
    }

    /// Has the `nth` call of a kind and all after it fail with `errno`, until [`Faults::clear`].
    ///
    /// # Panics
    /// If calls of this kind cannot fail: see [`Call::is_fallible`].
    pub fn fail_from(&self, call: Call, nth: u64, errno: i32) {
        assert!(call.is_fallible(), "{call:?} cannot fail");
        self.plan.add(call, nth, true, Fault::Fail(errno));
    }

    /// Has the `nth` call of a kind move at most `bytes`, but at least 1.
    ///
    /// # Panics
    /// If calls of this kind move no bytes: see [`Call::moves_bytes`].
    pub fn cut(&self, call: Call, nth: u64, bytes: usize) {
        assert!(call.moves_bytes(), "{call:?} moves no bytes");
        self.plan.add(call, nth, false, Fault::Cut(bytes));
    }

    /// Takes back all faults that have not happened. The counts go on.
    pub fn clear(&self) {
        self.plan.clear();
    }

    /// How many calls of a kind were made so far, failed ones included.
    pub fn count(&self, call: Call) -> u64 {
        self.plan.calls()[call]
    }

    /// How many calls of each kind were made so far.
    pub fn calls(&self) -> Calls {
        self.plan.calls()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::panic::catch_unwind;

    use super::*;
    use crate::testing::Sim;

    #[test]
    fn a_sweep_fails_each_call_of_a_clean_run_in_turn() {
        // A tiny program: reads until the end of the stream, gives up at the first error.
        let run = |faults: &Faults| {
            let sim = Sim::new(1);
            let sys = faults.wrap(sim.sys());
            let (fd, peer) = sim.pair();
            peer.write_all(b"abcdef").unwrap();
            peer.close();
            let mut text = Vec::with_capacity(100);
            let end = loop {
                match sys.recv(fd, &Cell::default(), &mut text, 2) {
                    Ok(0) => break 0,
                    Ok(_) => {}
                    Err(error) => break error.raw_os_error().unwrap(),
                }
            };
            (text, end)
        };
        let faults = Faults::new();
        assert_eq!(run(&faults), (b"abcdef".to_vec(), 0));
        assert_eq!(faults.count(Call::Recv), 4);
        assert_eq!(faults.calls().total(), 4);
        for nth in 1..=4 {
            let faults = Faults::new();
            faults.fail(Call::Recv, nth, libc::EIO);
            assert_eq!(run(&faults), (b"abcdef"[..2 * (nth as usize - 1)].to_vec(), libc::EIO));
        }
        let faults = Faults::new();
        faults.cut(Call::Recv, 1, 1);
        faults.fail_from(Call::Recv, 3, libc::EIO);
        assert_eq!(run(&faults), (b"abc".to_vec(), libc::EIO));
        faults.clear();
        assert_eq!(run(&faults).1, 0);
    }

    #[test]
    fn what_cannot_happen_cannot_be_planned() {
        assert!(catch_unwind(|| Faults::new().fail(Call::Close, 1, libc::EIO)).is_err());
        assert!(catch_unwind(|| Faults::new().fail_from(Call::SignalDel, 1, libc::EIO)).is_err());
        assert!(catch_unwind(|| Faults::new().cut(Call::Wait, 1, 1)).is_err());
    }
}
