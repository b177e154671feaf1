//! A few threads for what blocks: tasks go in, their results come back to the loop by its mailbox.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::{Rc, Weak};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::error::Error;
use crate::reactor::{Guest, LoopHandle};
use crate::remote::{Mailbox, Sender};
use crate::sys;

/// As many threads as there may be: enough that one name server that does not answer holds up few others.
const MOST_THREADS: usize = 4;

/// A thread that has had nothing to do for so long ends.
const IDLE: Duration = Duration::from_secs(10);

/// What the threads do.
type Work<T, O> = fn(&T) -> O;

/// Gets the result, or nothing if the work has panicked. Code of ours, that runs on the loop with nothing borrowed.
type Done<O> = Box<dyn FnOnce(Option<O>)>;

struct Jobs<T> {
    queue: VecDeque<(u64, T)>,
    threads: usize,
    idle: usize,
    closed: bool,
}

/// What the loop and its threads share.
struct Shared<T> {
    jobs: Mutex<Jobs<T>>,
    come: Condvar,
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, Jobs<T>> {
        // Nothing that could panic runs under it.
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next job; `None` if the thread is to end, which is then counted no more.
    fn next(&self) -> Option<(u64, T)> {
        let mut jobs = self.lock();
        jobs.idle += 1;
        let mut is_over = false;
        loop {
            let job = if jobs.closed { None } else { jobs.queue.pop_front() };
            if job.is_some() || jobs.closed || is_over {
                jobs.idle -= 1;
                jobs.threads -= usize::from(job.is_none());
                return job;
            }
            let waited = self.come.wait_timeout(jobs, IDLE).unwrap_or_else(PoisonError::into_inner);
            is_over = waited.1.timed_out();
            jobs = waited.0;
        }
    }
}

/// The threads of this process, and the way back from them. None of it is of use in the child of a fork.
struct Crew<T, O> {
    shared: Arc<Shared<T>>,
    sender: Sender<(u64, Option<O>)>,
    mailbox: Mailbox<(u64, Option<O>)>,
    forks: u64,
}

/// Runs `work` on at most four threads, which start when they are first needed and end when they were idle for long, at
/// the latest with the loop. A loop has one for each `T` and `O`.
pub(crate) struct Workers<T, O> {
    handle: LoopHandle,
    work: Work<T, O>,
    crew: RefCell<Option<Crew<T, O>>>,
    /// What is out, by number: kept so that the child of a fork can begin it anew.
    out: RefCell<BTreeMap<u64, (T, Done<O>)>>,
    next: Cell<u64>,
}

impl<T: Clone + Send + 'static, O: Send + 'static> Workers<T, O> {
    /// The loop's.
    pub(crate) fn of(handle: &LoopHandle, work: Work<T, O>) -> Result<Rc<Workers<T, O>>, Error> {
        handle.guest(|| {
            Ok(Rc::new(Workers {
                handle: handle.clone(),
                work,
                crew: RefCell::default(),
                out: RefCell::default(),
                next: Cell::new(0),
            }))
        })
    }

    /// Hands a task in. `done` is called by the loop, unless the ticket is dropped before.
    pub(crate) fn begin(self: &Rc<Self>, task: T, done: Done<O>) -> io::Result<Ticket<T, O>> {
        let number = self.next.get();
        self.next.set(number + 1);
        self.out.borrow_mut().insert(number, (task.clone(), done));
        let ticket = Ticket { workers: Rc::downgrade(self), number };
        self.submit(number, task)?;
        Ok(ticket)
    }

    /// How many threads there are.
    #[cfg(test)]
    fn threads(&self) -> usize {
        self.crew.borrow().as_ref().map_or(0, |crew| crew.shared.lock().threads)
    }

    fn submit(self: &Rc<Self>, number: u64, task: T) -> io::Result<()> {
        let (shared, sender) = self.crew()?;
        let starts = {
            let mut jobs = shared.lock();
            jobs.queue.push_back((number, task));
            let starts = jobs.idle < jobs.queue.len() && jobs.threads < MOST_THREADS;
            jobs.threads += usize::from(starts);
            starts
        };
        if !starts {
            shared.come.notify_one();
            return Ok(());
        }
        let (theirs, work) = (shared.clone(), self.work);
        let started = thread::Builder::new().name("event-worker".to_owned()).spawn(move || {
            while let Some((number, task)) = theirs.next() {
                let output = catch_unwind(AssertUnwindSafe(|| work(&task))).ok();
                // The loop may be gone: then nobody wants it, and there is no next one.
                let _ = sender.send((number, output));
            }
        });
        let Err(error) = started else { return Ok(()) };
        let mut jobs = shared.lock();
        jobs.threads -= 1;
        if jobs.threads > 0 {
            // The others will come to it.
            return Ok(());
        }
        jobs.queue.retain(|job| job.0 != number);
        Err(error)
    }

    /// What this process's threads share, and the way back from them.
    fn crew(self: &Rc<Self>) -> io::Result<Way<T, O>> {
        if let Some(crew) = &*self.crew.borrow() {
            return Ok((crew.shared.clone(), crew.sender.clone()));
        }
        let workers = Rc::downgrade(self);
        let answered = move |(number, output)| {
            let Some(workers) = Weak::upgrade(&workers) else { return };
            let entry = workers.out.borrow_mut().remove(&number);
            if let Some((_, done)) = entry {
                done(output);
            }
        };
        let (mailbox, sender) = self.handle.mailbox(answered).map_err(io::Error::other)?;
        let jobs = Jobs { queue: VecDeque::new(), threads: 0, idle: 0, closed: false };
        let shared = Arc::new(Shared { jobs: Mutex::new(jobs), come: Condvar::new() });
        let way = (shared.clone(), sender.clone());
        self.crew.replace(Some(Crew { shared, sender, mailbox, forks: sys::fork_count() }));
        Ok(way)
    }
}

type Way<T, O> = (Arc<Shared<T>>, Sender<(u64, Option<O>)>);

impl<T, O> Crew<T, O> {
    fn end(self) {
        if self.forks != sys::fork_count() {
            // The threads are the parent's, and so is whoever holds the locks.
            self.mailbox.detach();
            std::mem::forget((self.shared, self.sender));
            return;
        }
        let unread = {
            let mut jobs = self.shared.lock();
            jobs.closed = true;
            std::mem::take(&mut jobs.queue)
        };
        self.shared.come.notify_all();
        drop((unread, self.mailbox));
    }
}

impl<T: Clone + Send + 'static, O: Send + 'static> Guest for Workers<T, O> {
    fn after_fork(&self) {
        let crew = self.crew.take();
        let Some(crew) = crew else { return };
        if crew.forks == sys::fork_count() {
            self.crew.replace(Some(crew));
            return;
        }
        crew.end();
        let Ok(this) = Workers::of(&self.handle, self.work) else { return };
        let tasks: Vec<(u64, T)> =
            self.out.borrow().iter().map(|(number, entry)| (*number, entry.0.clone())).collect();
        for (number, task) in tasks {
            if this.submit(number, task).is_err() {
                let entry = self.out.borrow_mut().remove(&number);
                if let Some((_, done)) = entry {
                    done(None);
                }
            }
        }
    }

    fn teardown(&self) {
        let crew = self.crew.take();
        if let Some(crew) = crew {
            crew.end();
        }
        let out = self.out.take();
        drop(out);
    }
}

/// A task that is out. Dropping it calls it off: a result that comes later is dropped.
pub(crate) struct Ticket<T, O> {
    workers: Weak<Workers<T, O>>,
    number: u64,
}

impl<T, O> Drop for Ticket<T, O> {
    fn drop(&mut self) {
        let Some(workers) = self.workers.upgrade() else { return };
        let entry = workers.out.borrow_mut().remove(&self.number);
        let shared = match &*workers.crew.borrow() {
            Some(crew) if entry.is_some() && crew.forks == sys::fork_count() => Some(crew.shared.clone()),
            _ => None,
        };
        if let Some(shared) = shared {
            // Not begun yet: it shall take no thread's time.
            shared.lock().queue.retain(|job| job.0 != self.number);
        }
        drop(entry);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::sync::mpsc::Receiver;

    use super::*;
    use crate::base::EventBase;
    use crate::testing::Sim;

    /// What a thread does: says that it has begun, and waits until it may go on.
    #[derive(Clone)]
    struct Wait {
        begun: mpsc::Sender<u32>,
        go: Arc<Mutex<Receiver<()>>>,
        number: u32,
    }

    fn wait(task: &Wait) -> u32 {
        task.begun.send(task.number).unwrap();
        let _ = task.go.lock().unwrap_or_else(PoisonError::into_inner).recv();
        assert_ne!(task.number, 99);
        task.number
    }

    struct Stage {
        base: EventBase,
        workers: Rc<Workers<Wait, u32>>,
        tasks: Box<dyn Fn(u32) -> Wait>,
        begun: Receiver<u32>,
        go: mpsc::Sender<()>,
        done: Rc<RefCell<Vec<Option<u32>>>>,
    }

    fn stage() -> Stage {
        let base = Sim::new(1).event_base().unwrap();
        let workers = Workers::of(&base, wait).unwrap();
        let (begin, begun) = mpsc::channel();
        let (go, gone) = mpsc::channel();
        let gone = Arc::new(Mutex::new(gone));
        let tasks = Box::new(move |number| Wait { begun: begin.clone(), go: gone.clone(), number });
        Stage { base, workers, tasks, begun, go, done: Rc::default() }
    }

    impl Stage {
        fn begin(&self, number: u32) -> Ticket<Wait, u32> {
            let done = self.done.clone();
            let note = move |output| done.borrow_mut().push(output);
            self.workers.begin((self.tasks)(number), Box::new(note)).unwrap()
        }

        fn run_until(&mut self, count: usize) {
            while self.done.borrow().len() < count {
                self.base.run(crate::LoopFlags::ONCE | crate::LoopFlags::NO_EXIT_ON_EMPTY).unwrap();
            }
        }
    }

    #[test]
    fn four_threads_at_most_and_none_before_there_is_work() {
        let mut stage = stage();
        assert_eq!(stage.workers.threads(), 0);
        let tickets: Vec<_> = (0..6).map(|number| stage.begin(number)).collect();
        assert_eq!(stage.workers.threads(), 4);
        let mut begun: Vec<u32> = (0..4).map(|_| stage.begun.recv().unwrap()).collect();
        begun.sort_unstable();
        assert_eq!(begun, [0, 1, 2, 3]);
        (0..6).for_each(|_| stage.go.send(()).unwrap());
        stage.run_until(6);
        assert_eq!(stage.workers.threads(), 4);
        drop(tickets);
        let mut done: Vec<u32> = stage.done.take().into_iter().flatten().collect();
        done.sort_unstable();
        assert_eq!(done, [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn what_is_called_off_is_told_nobody_and_takes_no_thread() {
        let mut stage = stage();
        let tickets: Vec<_> = (0..4).map(|number| stage.begin(number)).collect();
        stage.begun.iter().take(4).for_each(|_| {});
        let waiting = stage.begin(4);
        drop((waiting, tickets));
        let last = stage.begin(5);
        (0..5).for_each(|_| stage.go.send(()).unwrap());
        stage.run_until(1);
        drop(last);
        assert_eq!(stage.done.take(), [Some(5)]);
        assert_eq!(stage.begun.try_iter().collect::<Vec<_>>(), [5], "the fourth was never begun");
    }

    #[test]
    fn work_that_panics_is_a_result_of_nothing() {
        let mut stage = stage();
        let ticket = stage.begin(99);
        stage.go.send(()).unwrap();
        stage.run_until(1);
        assert_eq!(stage.done.take(), [None]);
        drop(ticket);
    }

    #[test]
    fn a_loop_that_ends_takes_the_callbacks_along_and_lets_the_threads_end() {
        let stage = stage();
        let token = Rc::new(());
        let held = token.clone();
        let note = move |_: Option<u32>| drop(held);
        let ticket = stage.workers.begin((stage.tasks)(0), Box::new(note)).unwrap();
        stage.begun.recv().unwrap();
        let shared = stage.workers.crew.borrow().as_ref().unwrap().shared.clone();
        drop(stage.base);
        assert_eq!(Rc::strong_count(&token), 1);
        stage.go.send(()).unwrap();
        while shared.lock().threads > 0 {
            thread::yield_now();
        }
        drop(ticket);
    }
}
