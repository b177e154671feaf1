//! `Resolver`: who finds the addresses of a name. Unless a program brings its own, the system's `getaddrinfo` does, in
//! threads.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::rc::Rc;

use crate::error::Error;
use crate::reactor::{EventId, Guest, LoopHandle};
use crate::workers::Workers;

/// Which addresses are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Family {
    /// Both families.
    #[default]
    Any,
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Whether an address is of this family.
    pub fn contains(self, address: &SocketAddr) -> bool {
        match self {
            Family::Any => true,
            Family::V4 => address.is_ipv4(),
            Family::V6 => address.is_ipv6(),
        }
    }

    /// As bits: 1 for IPv4, 2 for IPv6.
    pub(crate) const fn bits(self) -> u8 {
        match self {
            Family::Any => 3,
            Family::V4 => 1,
            Family::V6 => 2,
        }
    }
}

/// What a [`Resolver`] is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Query {
    /// The name: not empty, and no number.
    pub name: String,
    /// The port that the addresses are to have.
    pub port: u16,
    /// Addresses of the other family are of no use.
    pub family: Family,
}

/// Finds the addresses of names, for the loop's own thread: what a DNS client is to the library.
///
/// It is called by the loop on a fresh stack, and may do what a callback may.
///
/// ```
/// use std::any::Any;
///
/// use event_core::{Answer, EventBase, Family, Query, Resolver};
///
/// /// Knows one name.
/// struct OneName;
///
/// impl Resolver for OneName {
///     fn resolve(&self, query: &Query, answer: Answer) -> Box<dyn Any> {
///         if query.name == "home" {
///             answer.give(Family::Any, Ok(vec![([127, 0, 0, 1], query.port).into()]));
///         }
///         Box::new(()) // there is nothing to call off
///     }
/// }
///
/// let base = EventBase::new()?;
/// base.set_resolver(OneName)?;
/// # Ok::<(), event_core::Error>(())
/// ```
pub trait Resolver {
    /// Starts to look a name up. What is found is given to `answer`, now or later, at once or for each family apart.
    ///
    /// The result is dropped when nobody waits for the answer any more, because it is whole or because the stream was
    /// freed: its `Drop` calls off what is still under way.
    fn resolve(&self, query: &Query, answer: Answer) -> Box<dyn Any>;
}

/// An answer for a family, or for both.
pub(crate) type Part = (Family, io::Result<Vec<SocketAddr>>);

/// What has come, for the one who waits for it.
pub(crate) struct Parts {
    handle: LoopHandle,
    /// Activated for each part.
    waiter: EventId,
    come: RefCell<Vec<Part>>,
    /// The families of which there is no answer yet; none if nobody waits.
    open: Cell<u8>,
}

impl Parts {
    pub(crate) fn new(handle: &LoopHandle, waiter: EventId, family: Family) -> Rc<Parts> {
        let open = Cell::new(family.bits());
        Rc::new(Parts { handle: handle.clone(), waiter, come: RefCell::default(), open })
    }

    /// The right to answer.
    pub(crate) fn answer(self: &Rc<Self>) -> Answer {
        Answer { giver: Rc::new(Giver { parts: self.clone() }) }
    }

    pub(crate) fn take(&self) -> Vec<Part> {
        self.come.take()
    }

    /// Whether the answer for any of a family's addresses is still to come.
    pub(crate) fn is_open(&self, family: Family) -> bool {
        self.open.get() & family.bits() != 0
    }

    /// Nobody waits any more. What has come is of the resolver's making, and dropped by the caller.
    pub(crate) fn close(&self) -> Vec<Part> {
        self.open.set(0);
        self.come.take()
    }

    fn give(&self, family: Family, result: io::Result<Vec<SocketAddr>>) -> bool {
        let fresh = family.bits() & self.open.get();
        let family = match fresh {
            0 => return false,
            1 => Family::V4,
            2 => Family::V6,
            _ => Family::Any,
        };
        self.open.set(self.open.get() & !fresh);
        self.come.borrow_mut().push((family, result));
        self.handle.activate_internal(self.waiter);
        true
    }
}

struct Giver {
    parts: Rc<Parts>,
}

impl Drop for Giver {
    fn drop(&mut self) {
        if self.parts.is_open(Family::Any) {
            self.parts.give(Family::Any, Err(io::Error::other("the resolver gave no answer")));
        }
    }
}

/// Takes the answer to a [`Query`]. A clone answers the same one.
///
/// What is given is acted on in the loop's next turn, never inside the call. Dropping the last clone says that there is
/// nothing more: what has no answer yet has failed.
#[derive(Clone)]
pub struct Answer {
    giver: Rc<Giver>,
}

impl Answer {
    /// The whole answer for a family, or for both: all its addresses, in the order in which they are best tried, or why
    /// there are none. Addresses of another family are left out. Of the addresses of one stream, 32 are tried at most.
    ///
    /// Only the first answer for a family counts. Says whether anybody waited for this one.
    pub fn give(&self, family: Family, result: io::Result<Vec<SocketAddr>>) -> bool {
        self.giver.parts.give(family, result)
    }

    /// Whether somebody waits for the answer of this family, or of either.
    pub fn is_wanted(&self, family: Family) -> bool {
        self.giver.parts.is_open(family)
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").field("wanted", &self.is_wanted(Family::Any)).finish()
    }
}

/// The system's own way: `getaddrinfo`, which blocks, in at most four threads of the loop's.
struct System {
    handle: LoopHandle,
}

fn getaddrinfo(query: &(String, u16)) -> io::Result<Vec<SocketAddr>> {
    Ok((query.0.as_str(), query.1).to_socket_addrs()?.collect())
}

impl Resolver for System {
    fn resolve(&self, query: &Query, answer: Answer) -> Box<dyn Any> {
        let task = (query.name.clone(), query.port);
        let late = answer.clone();
        let done = move |output: Option<io::Result<Vec<SocketAddr>>>| {
            // Of a panic nothing is left but that the answer is dropped.
            if let Some(output) = output {
                late.give(Family::Any, output);
            }
        };
        let workers = Workers::of(&self.handle, getaddrinfo).map_err(io::Error::other);
        match workers.and_then(|workers| workers.begin(task, Box::new(done))) {
            Ok(ticket) => Box::new(ticket),
            Err(error) => {
                answer.give(Family::Any, Err(error));
                Box::new(())
            }
        }
    }
}

/// The loop's own resolver, where the program has set one.
#[derive(Default)]
struct Chosen {
    resolver: RefCell<Option<Rc<dyn Resolver>>>,
}

impl Guest for Chosen {
    fn teardown(&self) {
        let resolver = self.resolver.take();
        drop(resolver);
    }
}

impl LoopHandle {
    /// Sets who looks names up for this loop's streams from now on, unless they say otherwise. Look-ups that are under
    /// way stay with the one before, which is dropped once they are over.
    ///
    /// Without it that is the system's `getaddrinfo`, in at most four threads, which start when they are first needed and
    /// end when they have had nothing to do for ten seconds. It has no deadline of its own.
    ///
    /// # Errors
    /// - `Error::LoopGone` if the `EventBase` was dropped; `Error::Forked`.
    pub fn set_resolver(&self, resolver: impl Resolver + 'static) -> Result<(), Error> {
        self.check()?;
        let chosen = self.guest(|| Ok(Rc::<Chosen>::default()))?;
        let old = chosen.resolver.replace(Some(Rc::new(resolver)));
        drop(old);
        Ok(())
    }

    /// Who looks names up.
    pub(crate) fn resolver(&self) -> Rc<dyn Resolver> {
        let chosen = self.find_guest::<Chosen>().and_then(|chosen| chosen.resolver.borrow().clone());
        chosen.unwrap_or_else(|| Rc::new(System { handle: self.clone() }))
    }
}
