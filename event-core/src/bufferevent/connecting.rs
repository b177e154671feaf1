//! A connect that is under way: the look-up, the sockets that race, the deadlines. It has a slot of the loop's for its
//! steps and its timer, and each socket has one; all that calls the program runs in the first.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::rc::{Rc, Weak};
use std::time::Duration;

use super::connect::{NewSocket, plain};
use super::inner::Inner;
use super::race::{Next, Race};
use crate::address::Target;
use crate::clock::Time;
use crate::error::{ConnectError, ConnectPhase, Error};
use crate::interest::{Ready, What};
use crate::reactor::{Callback, EventId, Kind, LoopHandle, Source};
use crate::resolver::{Family, Part, Parts, Query, Resolver};
use crate::slots::Key;
use crate::sys::Address;

pub(super) type Hook = Box<dyn FnMut(&NewSocket<'_>) -> io::Result<()>>;

/// A name that nobody was asked for yet, and who is to be asked if it is not the loop's resolver.
type Question = (Query, Option<Rc<dyn Resolver>>);

/// What a resolver wants dropped when nobody waits any more, and the resolver, which has to last as long.
type Lookup = (Box<dyn Any>, Rc<dyn Resolver>);

/// What was said of how to connect.
pub(super) struct How {
    pub(super) family: Family,
    pub(super) source: Option<SocketAddr>,
    pub(super) hook: Option<Hook>,
    pub(super) resolver: Option<Rc<dyn Resolver>>,
    pub(super) deadline: Option<Duration>,
    pub(super) attempt_deadline: Option<Duration>,
    pub(super) attempt_delay: Duration,
}

const NO_SLOT: EventId = EventId(Key { index: u32::MAX, generation: u32::MAX });

/// Why it has not connected so far. An error may be of the program's making: what is not kept is handed back, to be
/// dropped with nothing borrowed.
#[derive(Default)]
struct Failures {
    resolve: Option<io::Error>,
    connect: Option<io::Error>,
}

impl Failures {
    fn note_connect(&mut self, error: io::Error) -> Option<io::Error> {
        // Of no way to one address, another says nothing.
        if self.connect.as_ref().is_none_or(is_no_way) || !is_no_way(&error) {
            self.connect.replace(error)
        } else {
            Some(error)
        }
    }

    fn note_resolve(&mut self, error: io::Error) -> Option<io::Error> {
        let says_little =
            |error: &io::Error| error.raw_os_error().is_none() && error.kind() == io::ErrorKind::NotFound;
        if self.resolve.as_ref().is_none_or(says_little) { self.resolve.replace(error) } else { Some(error) }
    }
}

/// Whether an error says no more than that this machine has no way to an address.
fn is_no_way(error: &io::Error) -> bool {
    let errnos = [libc::ENETUNREACH, libc::EHOSTUNREACH, libc::EADDRNOTAVAIL, libc::EAFNOSUPPORT];
    error.raw_os_error().is_some_and(|errno| errnos.contains(&errno))
}

fn timed_out() -> io::Error {
    io::Error::from_raw_os_error(libc::ETIMEDOUT)
}

pub(super) struct Connecting {
    stream: Weak<Inner>,
    handle: LoopHandle,
    id: Cell<EventId>,
    /// Nothing is done any more.
    is_over: Cell<bool>,
    family: Family,
    source: Option<SocketAddr>,
    hook: Cell<Option<Hook>>,
    query: Cell<Option<Question>>,
    parts: RefCell<Option<Rc<Parts>>>,
    lookup: Cell<Option<Lookup>>,
    race: RefCell<Race>,
    /// The sockets that race, the oldest first.
    attempts: RefCell<Vec<Rc<Attempt>>>,
    started: Cell<u64>,
    failures: RefCell<Failures>,
    deadline: Time,
    attempt_deadline: Option<Duration>,
    wake_at: Cell<Time>,
}

/// One socket.
struct Attempt {
    connecting: Weak<Connecting>,
    id: Cell<EventId>,
    /// -1 once it is somebody else's or closed.
    fd: Cell<RawFd>,
    number: u64,
    deadline: Time,
}

/// What a race leaves behind: of the program's, to be dropped last, with nothing borrowed.
#[must_use]
pub(super) struct Remains {
    _hook: Option<Hook>,
    _query: Option<Question>,
    _lookup: Option<Lookup>,
    _parts: Option<Vec<Part>>,
    _failures: Failures,
}

/// A socket that is not yet anybody's: closed if it is not handed on.
struct Fresh<'a> {
    handle: &'a LoopHandle,
    fd: RawFd,
}

impl Fresh<'_> {
    fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Fresh<'_> {
    fn drop(&mut self) {
        self.handle.sys().close(self.fd);
    }
}

impl Connecting {
    /// Sets out; the first step comes in the loop's next turn.
    pub(super) fn new(stream: &Rc<Inner>, target: Target, how: How) -> Result<Rc<Connecting>, Error> {
        let handle = &stream.handle;
        let mut race = Race::new(how.attempt_delay);
        let mut query = None;
        let fits = |address: &Address| fits(address, how.family, how.source);
        match target {
            Target::Addresses(addresses) => race.add(addresses.into_iter().filter(fits)),
            Target::Name(name, port) => {
                let family = how.source.map_or(how.family, |source| match (how.family, source.is_ipv6()) {
                    (Family::Any, true) => Family::V6,
                    (Family::Any, false) => Family::V4,
                    (family, _) => family,
                });
                race.awaits_six = family != Family::V4;
                race.awaits_four = family != Family::V6;
                query = Some((Query { name, port, family }, how.resolver));
            }
        }
        let connecting = Rc::new(Connecting {
            stream: Rc::downgrade(stream),
            handle: handle.clone(),
            id: Cell::new(NO_SLOT),
            is_over: Cell::new(false),
            family: how.family,
            source: how.source,
            hook: Cell::new(how.hook),
            query: Cell::new(query),
            parts: RefCell::default(),
            lookup: Cell::new(None),
            race: RefCell::new(race),
            attempts: RefCell::default(),
            started: Cell::new(0),
            failures: RefCell::default(),
            deadline: how.deadline.map_or(Time::NEVER, |after| handle.clock().after(after)),
            attempt_deadline: how.attempt_deadline,
            wake_at: Cell::new(Time::NEVER),
        });
        let id = handle.insert(Kind::Fd, -1, What::empty(), Callback::Source(connecting.clone()))?;
        connecting.id.set(id);
        let _ = handle.set_priority(id, handle.priority(stream.id.get()));
        handle.activate_internal(id);
        Ok(connecting)
    }

    /// Ends it: closes every socket and calls the look-up off.
    pub(super) fn end(&self) -> Remains {
        self.is_over.set(true);
        let parts = self.parts.take().map(|parts| parts.close());
        for attempt in self.attempts.take() {
            self.end_attempt(&attempt, true);
        }
        let slot = self.handle.remove_slot(self.id.get().0);
        drop(slot);
        Remains {
            _hook: self.hook.take(),
            _query: self.query.take(),
            _lookup: self.lookup.take(),
            _parts: parts,
            _failures: self.failures.take(),
        }
    }

    fn end_attempt(&self, attempt: &Attempt, closes: bool) {
        let slot = self.handle.remove_slot(attempt.id.get().0);
        let fd = attempt.fd.replace(-1);
        if closes && fd >= 0 {
            self.handle.sys().close(fd);
        }
        drop(slot);
    }

    /// Goes on as far as it goes now.
    fn step(self: &Rc<Self>) {
        if self.is_over.get() {
            return;
        }
        let now = self.handle.clock();
        if self.deadline <= now {
            return self.time_is_up();
        }
        self.ask();
        if self.is_over.get() {
            return;
        }
        self.take_parts();
        if self.is_over.get() {
            return;
        }
        self.expire(now);
        let until = loop {
            if self.is_over.get() {
                // The drop of an error was the program's, too.
                return;
            }
            let next = self.race.borrow_mut().next(now);
            match next {
                Next::Over => return self.give_up(),
                Next::Wait(until) => break until,
                Next::Try(address) => {
                    let tried = self.try_address(&address, now);
                    if self.is_over.get() {
                        return;
                    }
                    if let Err(error) = tried {
                        self.race.borrow_mut().failed(true);
                        self.note_connect(error);
                    }
                }
            }
        };
        let attempts = self.attempts.borrow();
        let first = attempts.iter().map(|attempt| attempt.deadline).min().unwrap_or(Time::NEVER);
        drop(attempts);
        self.wake_at.set(until.min(first).min(self.deadline));
        self.handle.arm(self.id.get(), self.wake_at.get());
    }

    fn note_connect(&self, error: io::Error) {
        let unwanted = self.failures.borrow_mut().note_connect(error);
        drop(unwanted);
    }

    /// Asks the resolver, if there is a name and nobody was asked yet.
    fn ask(self: &Rc<Self>) {
        let Some((query, resolver)) = self.query.take() else { return };
        let resolver = resolver.unwrap_or_else(|| self.handle.resolver());
        let parts = Parts::new(&self.handle, self.id.get(), query.family);
        self.parts.replace(Some(parts.clone()));
        let lookup = resolver.resolve(&query, parts.answer());
        if self.is_over.get() {
            // Its own answer has freed the stream.
            drop((lookup, resolver));
        } else {
            self.lookup.set(Some((lookup, resolver)));
        }
    }

    fn take_parts(&self) {
        let Some(parts) = self.parts.borrow().clone() else { return };
        for (family, result) in parts.take() {
            let addresses = result.and_then(|addresses| {
                let fits = |address: &Address| {
                    fits(address, family, None) && fits(address, self.family, self.source)
                };
                let fit: Vec<Address> = addresses.into_iter().map(Address::Ip).filter(fits).collect();
                match fit.is_empty() {
                    true => Err(io::Error::new(io::ErrorKind::NotFound, "the name has no such address")),
                    false => Ok(fit),
                }
            });
            let unwanted = match addresses {
                Ok(addresses) => {
                    self.race.borrow_mut().answered(family, addresses);
                    None
                }
                Err(error) => {
                    self.race.borrow_mut().answered(family, Vec::new());
                    self.failures.borrow_mut().note_resolve(error)
                }
            };
            drop(unwanted);
        }
        if !parts.is_open(Family::Any) {
            self.parts.take();
            let lookup = self.lookup.take();
            drop(lookup);
        }
    }

    /// Ends the attempts that have had their time.
    fn expire(&self, now: Time) {
        let newest = self.started.get();
        let (expired, left) =
            self.attempts.take().into_iter().partition::<Vec<_>, _>(|attempt| attempt.deadline <= now);
        self.attempts.replace(left);
        for attempt in expired {
            self.end_attempt(&attempt, true);
            self.race.borrow_mut().failed(attempt.number == newest);
            self.note_connect(timed_out());
        }
    }

    /// Makes a socket and has it connect. The hook may have ended everything.
    fn try_address(self: &Rc<Self>, address: &Address, now: Time) -> io::Result<()> {
        let sys = self.handle.sys();
        let number = self.started.get() + 1;
        self.started.set(number);
        let fresh = Fresh { handle: &self.handle, fd: sys.socket(address)? };
        if let (Some(source), Address::Ip(_)) = (self.source, address) {
            sys.bind(fresh.fd, &Address::Ip(source))?;
        }
        if let Some(mut hook) = self.hook.take() {
            let result = hook(&NewSocket { handle: &self.handle, fd: fresh.fd, address });
            if self.is_over.get() {
                drop(fresh);
                drop(hook);
                return Ok(());
            }
            self.hook.set(Some(hook));
            result?;
        }
        sys.start_connect(fresh.fd, address)?;
        let attempt = Rc::new(Attempt {
            connecting: Rc::downgrade(self),
            id: Cell::new(NO_SLOT),
            fd: Cell::new(fresh.fd),
            number,
            deadline: self.attempt_deadline.map_or(Time::NEVER, |after| now.after(after)),
        });
        let callback = Callback::Source(attempt.clone());
        let id = self.handle.insert(Kind::Fd, fresh.fd, What::empty(), callback).map_err(plain)?;
        attempt.id.set(id);
        let _ = self.handle.set_priority(id, self.handle.priority(self.id.get()));
        self.handle.set_interest(id, What::WRITE);
        if let Err(error) = self.handle.add_io(id) {
            let slot = self.handle.remove_slot(id.0);
            drop(slot);
            return Err(plain(error));
        }
        fresh.keep();
        self.attempts.borrow_mut().push(attempt);
        Ok(())
    }

    /// A socket has something to say: that it is connected, or why not.
    fn heard(self: &Rc<Self>, attempt: &Rc<Attempt>) {
        if self.is_over.get() || attempt.fd.get() < 0 {
            return;
        }
        self.handle.note_progress();
        match self.handle.sys().take_error(attempt.fd.get()) {
            Ok(None) => self.win(attempt),
            Ok(Some(error)) | Err(error) => self.lose(attempt, error, true),
        }
    }

    fn win(&self, attempt: &Rc<Attempt>) {
        let fd = attempt.fd.get();
        self.attempts.borrow_mut().retain(|other| other.number != attempt.number);
        self.end_attempt(attempt, false);
        let remains = self.end();
        match self.stream.upgrade() {
            Some(stream) => {
                let this = stream.rare_if(|rare| rare.connecting.take()).flatten();
                stream.connected_by(fd);
                drop(this);
            }
            None => self.handle.sys().close(fd),
        }
        drop(remains);
    }

    /// An attempt has failed. What that leads to is the next step's affair, which may call the program.
    fn lose(&self, attempt: &Rc<Attempt>, error: io::Error, closes: bool) {
        self.attempts.borrow_mut().retain(|other| other.number != attempt.number);
        self.end_attempt(attempt, closes);
        self.race.borrow_mut().failed(attempt.number == self.started.get());
        self.handle.activate_internal(self.id.get());
        self.note_connect(error);
    }

    /// Nothing can connect any more.
    fn give_up(&self) {
        let Failures { resolve, connect } = self.failures.take();
        match connect {
            Some(error) => self.fail(ConnectPhase::Connect, error),
            None => {
                // Addresses that were given and did not fit are as none.
                let none = || io::Error::new(io::ErrorKind::NotFound, "there is no such address");
                self.fail(ConnectPhase::Resolve, resolve.unwrap_or_else(none));
            }
        }
    }

    fn time_is_up(&self) {
        let has_found = self.race.borrow().has_found();
        // What is not told drops when all is done.
        let Failures { connect, resolve: _untold } = self.failures.take();
        match connect {
            // Nobody else was being waited for.
            Some(error) if self.attempts.borrow().is_empty() => self.fail(ConnectPhase::Connect, error),
            _ if has_found => self.fail(ConnectPhase::Connect, timed_out()),
            _ => self.fail(ConnectPhase::Resolve, timed_out()),
        }
    }

    fn fail(&self, phase: ConnectPhase, error: io::Error) {
        if self.is_over.get() {
            return;
        }
        let remains = self.end();
        if let Some(stream) = self.stream.upgrade() {
            let this = stream.rare_if(|rare| rare.connecting.take()).flatten();
            stream.connect_failed(ConnectError::new(phase, error));
            drop(this);
        }
        drop(remains);
    }

    /// The loop ends, or a call of the program's has panicked: the stream goes as if it had been freed.
    fn end_stream(&self) {
        if let Some(stream) = self.stream.upgrade() {
            stream.free();
        }
    }
}

fn fits(address: &Address, family: Family, source: Option<SocketAddr>) -> bool {
    let Some(ip) = address.socket_addr() else { return true };
    family.contains(&ip) && source.is_none_or(|source| source.is_ipv4() == ip.is_ipv4())
}

impl Source for Connecting {
    fn ready(self: Rc<Self>, _: &LoopHandle, _: Ready) {
        self.step();
    }

    fn deadline(&self) -> Time {
        self.wake_at.get()
    }

    fn teardown(self: Rc<Self>) {
        self.end_stream();
    }
}

impl Source for Attempt {
    fn ready(self: Rc<Self>, _: &LoopHandle, ready: Ready) {
        if ready.intersects(Ready::READ | Ready::WRITE | Ready::CLOSED)
            && let Some(connecting) = self.connecting.upgrade()
        {
            connecting.heard(&self);
        }
    }

    fn lost(self: Rc<Self>) {
        if let Some(connecting) = self.connecting.upgrade() {
            // The number may be another file's by now: it is not ours to close.
            connecting.lose(&self, io::Error::from_raw_os_error(libc::EBADF), false);
        }
    }

    fn teardown(self: Rc<Self>) {
        if let Some(connecting) = self.connecting.upgrade() {
            connecting.end_stream();
        }
    }
}
