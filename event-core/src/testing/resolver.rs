//! A resolver that answers as a test has said.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use crate::event::Timer;
use crate::reactor::LoopHandle;
use crate::resolver::{Answer, Family, Query, Resolver};

/// What is said of a name.
#[derive(Clone, Debug)]
enum Said {
    Addresses(Vec<SocketAddr>),
    Errno(i32),
    Text(String),
}

/// An answer, and when it comes.
type Reply = (Duration, Family, Said);

#[derive(Default)]
struct Script {
    names: RefCell<HashMap<String, Vec<Reply>>>,
    asked: RefCell<Vec<Query>>,
    called_off: Cell<usize>,
    open: Cell<usize>,
}

/// A [`Resolver`] that answers as it was told, after as much of the loop's time as it was told, on real kernels as in a
/// simulation. A name of which nothing was said is never answered.
///
/// A clone is another handle on the same one.
#[derive(Clone)]
pub struct ScriptedResolver {
    handle: LoopHandle,
    script: Rc<Script>,
}

impl ScriptedResolver {
    /// One that knows nothing.
    pub fn new(handle: &LoopHandle) -> ScriptedResolver {
        ScriptedResolver { handle: handle.clone(), script: Rc::default() }
    }

    /// Has each query for `name` answered so for a family, `after` it was asked. What is said of one name adds up; the
    /// ports are those of the queries.
    ///
    /// # Panics
    /// If an address is not one.
    pub fn answer(&self, name: &str, after: Duration, family: Family, addresses: &[&str]) {
        let parse = |text: &&str| match text.parse() {
            Ok(ip) => SocketAddr::new(ip, 0),
            Err(_) => panic!("{text} is not an address"),
        };
        self.say(name, after, family, Said::Addresses(addresses.iter().map(parse).collect()));
    }

    /// Has each query for `name` fail for a family, `after` it was asked, with an errno.
    pub fn fail(&self, name: &str, after: Duration, family: Family, errno: i32) {
        self.say(name, after, family, Said::Errno(errno));
    }

    /// Has each query for `name` fail for a family as names do that nobody knows.
    pub fn unknown(&self, name: &str, after: Duration, family: Family) {
        self.say(name, after, family, Said::Text(format!("nobody knows {name}")));
    }

    fn say(&self, name: &str, after: Duration, family: Family, said: Said) {
        self.script.names.borrow_mut().entry(name.to_owned()).or_default().push((after, family, said));
    }

    /// What it was asked so far.
    pub fn queries(&self) -> Vec<Query> {
        self.script.asked.borrow().clone()
    }

    /// How many look-ups somebody waits for.
    pub fn open(&self) -> usize {
        self.script.open.get()
    }

    /// How many look-ups were called off before they were answered.
    pub fn called_off(&self) -> usize {
        self.script.called_off.get()
    }
}

/// Lives as long as somebody waits.
struct Waiting {
    script: Rc<Script>,
    /// Kept, so that a name of which nothing was said has no answer for ever.
    _answer: Answer,
    _timers: Vec<Timer>,
    /// The families of which there is no answer yet.
    open: Rc<Cell<u8>>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.script.open.set(self.script.open.get() - 1);
        if self.open.get() != 0 {
            self.script.called_off.set(self.script.called_off.get() + 1);
        }
    }
}

impl Resolver for ScriptedResolver {
    fn resolve(&self, query: &Query, answer: Answer) -> Box<dyn Any> {
        self.script.asked.borrow_mut().push(query.clone());
        self.script.open.set(self.script.open.get() + 1);
        let said = self.script.names.borrow().get(&query.name).cloned().unwrap_or_default();
        let open = Rc::new(Cell::new(query.family.bits()));
        let mut timers = Vec::new();
        for (after, family, said) in said {
            let (answer, port, open) = (answer.clone(), query.port, open.clone());
            let give = move || {
                let with_port = |address: &SocketAddr| SocketAddr::new(address.ip(), port);
                let result = match &said {
                    Said::Addresses(addresses) => Ok(addresses.iter().map(with_port).collect()),
                    Said::Errno(errno) => Err(io::Error::from_raw_os_error(*errno)),
                    Said::Text(text) => Err(io::Error::new(io::ErrorKind::NotFound, text.clone())),
                };
                open.set(open.get() & !family.bits());
                answer.give(family, result);
            };
            if after.is_zero() {
                give();
                continue;
            }
            let timer = Timer::new(&self.handle, move |_| give());
            if let Ok(timer) = timer {
                let started = timer.set_background(true).and_then(|()| timer.add(after));
                timers.extend(started.is_ok().then_some(timer));
            }
        }
        Box::new(Waiting { script: self.script.clone(), _answer: answer, _timers: timers, open })
    }
}

impl fmt::Debug for ScriptedResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedResolver").field("queries", &self.queries()).finish_non_exhaustive()
    }
}
