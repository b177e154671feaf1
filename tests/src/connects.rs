//! What the tests of connecting share: a world with a resolver, and notes of what was tried and told.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;

use event_core::testing::{Reach, ScriptedResolver, Sim};
use event_core::{
    Address, Answer, BufferEvent, Connect, Direction, Error, EventBase, Listener, LoopEnd, LoopHandle,
    NewSocket, Query, Resolver, ToAddress,
};

use crate::Bed;
use crate::streams::{Echo, Seen, words};

/// Where and when attempts began, in milliseconds.
pub type Tries = Rc<RefCell<Vec<(u128, String)>>>;

/// A simulated world with a loop, a resolver, and what happened.
pub struct Stage {
    /// The world.
    pub sim: Sim,
    /// Its loop.
    pub base: EventBase,
    /// Its resolver.
    pub resolver: ScriptedResolver,
    /// Where and when attempts began.
    pub tries: Tries,
    /// What streams were told.
    pub seen: Seen,
}

impl Stage {
    /// Says what becomes of connects to an address.
    pub fn reach(&self, address: &str, reach: Reach) {
        self.sim.set_reach(&address.parse().unwrap(), Some(reach));
    }

    /// A connect whose attempts are noted.
    pub fn connect(&self, target: impl ToAddress) -> Connect {
        let (sim, tries) = (self.sim.clone(), self.tries.clone());
        let note = move |socket: &NewSocket<'_>| {
            assert!(socket.fd().is_none(), "the number is not the system's");
            tries.borrow_mut().push((sim.elapsed().as_millis(), socket.address().to_string()));
            Ok(())
        };
        Connect::new(target).resolver(Rc::new(self.resolver.clone())).on_socket(note)
    }

    /// Starts, notes each event with its time, and frees at the end.
    pub fn start(&self, connect: Connect) -> BufferEvent {
        let stream = connect.start(&self.base).unwrap();
        self.note(&stream);
        stream
    }

    /// Notes each event of a stream with its time, and frees at the end.
    pub fn note(&self, stream: &BufferEvent) {
        let (sim, seen) = (self.sim.clone(), self.seen.clone());
        stream.set_event_cb(move |bev, event| {
            let why = bev.error().map(|error| format!(" {}", why(&error))).unwrap_or_default();
            seen.push(format!("{} {}{why}", sim.elapsed().as_millis(), words(event)));
            bev.free();
        });
    }

    /// Runs the loop until nothing is left.
    pub fn run(&mut self) {
        assert_eq!(self.base.dispatch().unwrap(), LoopEnd::Empty);
    }

    /// What was tried, as lines of milliseconds and addresses.
    pub fn tried(&self) -> Vec<String> {
        self.tries.take().into_iter().map(|(at, address)| format!("{at} {address}")).collect()
    }
}

/// An empty world.
pub fn stage(bed: &Bed) -> Stage {
    let sim = bed.sim().unwrap().clone();
    let base = bed.base();
    let resolver = ScriptedResolver::new(&base);
    Stage { sim, base, resolver, tries: Rc::default(), seen: Seen::new() }
}

/// The phase and errno of a failed connect, or its text.
pub fn why(error: &Error) -> String {
    let Error::Connect(error) = error else { return format!("{error:?}") };
    match error.raw_os_error() {
        Some(errno) => format!("{:?} {errno}", error.phase()),
        None => format!("{:?} {}", error.phase(), error.cause()),
    }
}

/// A listener that echoes, where it listens, and how many have come.
pub fn echo(base: &LoopHandle, at: impl ToAddress) -> (Listener, Address, Rc<Cell<usize>>) {
    let come = Rc::new(Cell::new(0));
    let count = come.clone();
    let listener = Listener::bind(base, at, move |_, accepted| {
        count.set(count.get() + 1);
        let bev = accepted.into_stream();
        bev.set_callbacks(Echo);
        bev.enable(Direction::READ).unwrap();
    });
    let listener = listener.unwrap();
    let address = listener.local_address().unwrap();
    (listener, address, come)
}

/// Its port, which it has.
pub fn port(address: &Address) -> u16 {
    address.port().unwrap()
}

/// A resolver of a few lines.
pub struct Does<F>(pub F);

impl<F: Fn(&Query, Answer) -> Box<dyn Any>> Resolver for Does<F> {
    fn resolve(&self, query: &Query, answer: Answer) -> Box<dyn Any> {
        (self.0)(query, answer)
    }
}

/// The same, to be handed on.
pub fn by(resolve: impl Fn(&Query, Answer) -> Box<dyn Any> + 'static) -> Rc<dyn Resolver> {
    Rc::new(Does(resolve))
}

/// The address of a text that is one.
pub fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}
