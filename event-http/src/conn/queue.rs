//! Requests that were read and not yet answered, in the order in which their answers must leave.

use std::collections::VecDeque;

use crate::encode::{Mode, ReplyTo};

/// Names an exchange for the life of its connection; numbers are never used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Seq(u64);

/// A request and what is known of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exchange {
    pub(crate) to: ReplyTo,
    pub(crate) state: State,
    /// Behind its answer the connection is another protocol's.
    pub(crate) hands_over: bool,
}

/// How far an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Its head is not written.
    Waiting,
    /// Its head is written, its end is not.
    Streaming(Mode),
    /// All of it is written.
    Done,
}

/// Where the bytes of an answer go.
#[derive(Debug)]
pub(crate) enum Turn<'a, B> {
    /// To the connection.
    Now,
    /// Into a buffer that is kept until the answers before it have left.
    Later(&'a mut B),
    /// Nowhere: the exchange is over, or one before it ends the connection.
    Gone,
}

/// What became of the queue when the answer at its front was done.
#[derive(Debug)]
pub(crate) enum Advance<B> {
    /// The next exchange is at the front now; what it wrote so far follows the answer before it.
    Turn(B),
    /// Every request is answered.
    Empty,
    /// That answer was the last of HTTP: the connection is another protocol's now.
    HandOver,
    /// That answer was the last: flush, then close. The exchanges behind it are void; drop them with nothing held.
    Last(Option<Box<Rest<B>>>),
}

/// The exchanges behind the front one, each with what it wrote ahead of its turn.
#[derive(Debug)]
pub(crate) struct Rest<B> {
    exchanges: VecDeque<(Exchange, B)>,
}

/// The exchanges of a connection, oldest first.
///
/// The front one, which writes straight to the connection, lies inline, so that a connection without pipelined
/// requests allocates nothing here.
#[derive(Debug)]
pub(crate) struct Queue<B> {
    /// Number of the front exchange; if there is none, of the next one.
    first: u64,
    front: Option<Exchange>,
    /// Never `Some` and empty, and never `Some` while `front` is `None`.
    rest: Option<Box<Rest<B>>>,
}

impl<B: Default> Queue<B> {
    pub(crate) fn new() -> Queue<B> {
        Queue { first: 0, front: None, rest: None }
    }

    /// Puts an exchange behind the others.
    #[inline]
    pub(crate) fn open(&mut self, to: ReplyTo) -> Seq {
        let exchange = Exchange { to, state: State::Waiting, hands_over: false };
        if self.front.is_none() {
            self.front = Some(exchange);
            return Seq(self.first);
        }
        self.open_behind(exchange)
    }

    #[inline(never)]
    fn open_behind(&mut self, exchange: Exchange) -> Seq {
        let rest = self.rest.get_or_insert_with(|| Box::new(Rest { exchanges: VecDeque::new() }));
        rest.exchanges.push_back((exchange, B::default()));
        Seq(self.first + rest.exchanges.len() as u64)
    }

    /// Takes the front exchange out if its answer is done.
    ///
    /// Call it until it gives `None`: the next one may have been done long ago.
    pub(crate) fn advance(&mut self) -> Option<Advance<B>> {
        let front = self.front.filter(|front| front.state == State::Done)?;
        if front.to.close {
            // Numbers that were given must not come again.
            self.first += self.len() as u64;
            self.front = None;
            return Some(Advance::Last(self.rest.take()));
        }
        self.first += 1;
        self.front = None;
        if front.hands_over {
            return Some(Advance::HandOver);
        }
        let Some((exchange, held)) = self.rest.as_mut().and_then(|rest| rest.exchanges.pop_front()) else {
            return Some(Advance::Empty);
        };
        if self.rest.as_ref().is_some_and(|rest| rest.exchanges.is_empty()) {
            self.rest = None;
        }
        self.front = Some(exchange);
        Some(Advance::Turn(held))
    }

    /// Where the answer of `seq` is to be written.
    pub(crate) fn turn(&mut self, seq: Seq) -> Turn<'_, B> {
        let Some(index) = self.index(seq) else { return Turn::Gone };
        if index == 0 {
            return if self.front.is_some() { Turn::Now } else { Turn::Gone };
        }
        if self.exchanges().take(index).any(|exchange| exchange.to.close) {
            return Turn::Gone;
        }
        match self.rest.as_mut().and_then(|rest| rest.exchanges.get_mut(index - 1)) {
            Some((_, held)) => Turn::Later(held),
            None => Turn::Gone,
        }
    }

    pub(crate) fn get_mut(&mut self, seq: Seq) -> Option<&mut Exchange> {
        match self.index(seq)? {
            0 => self.front.as_mut(),
            index => self.rest.as_mut()?.exchanges.get_mut(index - 1).map(|(exchange, _)| exchange),
        }
    }

    pub(crate) fn get(&self, seq: Seq) -> Option<&Exchange> {
        match self.index(seq)? {
            0 => self.front.as_ref(),
            index => self.rest.as_ref()?.exchanges.get(index - 1).map(|(exchange, _)| exchange),
        }
    }

    /// The exchange of `seq`, if there is no other.
    #[inline]
    pub(crate) fn only(&self, seq: Seq) -> Option<&Exchange> {
        self.front.as_ref().filter(|_| seq.0 == self.first && self.rest.is_none())
    }

    /// Takes the only exchange out, which is done and ends nothing.
    #[inline]
    pub(crate) fn close_only(&mut self) {
        debug_assert!(self.front.is_some() && self.rest.is_none());
        self.first += 1;
        self.front = None;
    }

    /// The exchange that was opened last, if it is still there.
    pub(crate) fn last(&self) -> Option<Seq> {
        self.front.map(|_| self.newest())
    }

    /// The number that was given last, also when its exchange is over.
    pub(crate) fn newest(&self) -> Seq {
        Seq((self.first + self.len() as u64).saturating_sub(1))
    }

    /// How many exchanges there were, those that are not over included.
    pub(crate) fn opened(&self) -> u64 {
        self.first + self.len() as u64
    }

    /// Exchanges that are not over.
    pub(crate) fn len(&self) -> usize {
        usize::from(self.front.is_some()) + self.rest.as_ref().map_or(0, |rest| rest.exchanges.len())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.front.is_none()
    }

    /// True if `seq` is the exchange whose answer is due on the wire.
    pub(crate) fn is_front(&self, seq: Seq) -> bool {
        self.front.is_some() && seq.0 == self.first
    }

    /// The exchange whose answer is due on the wire.
    pub(crate) fn front(&self) -> Option<Seq> {
        self.front.map(|_| Seq(self.first))
    }

    /// What the exchanges behind the front have written.
    pub(crate) fn held(&self) -> impl Iterator<Item = &B> {
        self.rest.iter().flat_map(|rest| rest.exchanges.iter().map(|(_, held)| held))
    }

    /// The place of `seq`, zero for the front.
    fn index(&self, seq: Seq) -> Option<usize> {
        usize::try_from(seq.0.checked_sub(self.first)?).ok()
    }

    fn exchanges(&self) -> impl Iterator<Item = &Exchange> {
        self.front
            .iter()
            .chain(self.rest.iter().flat_map(|rest| rest.exchanges.iter().map(|(exchange, _)| exchange)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::framing::Asked;
    use crate::head::Version;

    const TO: ReplyTo = ReplyTo { asked: Asked::Other, version: Version::Http11, close: false };

    fn done(queue: &mut Queue<Vec<u8>>, seq: Seq) {
        queue.get_mut(seq).unwrap().state = State::Done;
    }

    fn write(queue: &mut Queue<Vec<u8>>, seq: Seq, wire: &mut Vec<u8>, text: &str) -> bool {
        match queue.turn(seq) {
            Turn::Now => wire.extend_from_slice(text.as_bytes()),
            Turn::Later(held) => held.extend_from_slice(text.as_bytes()),
            Turn::Gone => return false,
        }
        true
    }

    #[test]
    fn answers_leave_in_order_whatever_order_they_come_in() {
        let mut queue = Queue::<Vec<u8>>::new();
        let mut wire = Vec::new();
        let seqs = [queue.open(TO), queue.open(TO), queue.open(TO)];
        assert!(write(&mut queue, seqs[2], &mut wire, "c"));
        done(&mut queue, seqs[2]);
        assert!(write(&mut queue, seqs[1], &mut wire, "b"));
        assert!(queue.advance().is_none());
        assert!(write(&mut queue, seqs[0], &mut wire, "a"));
        done(&mut queue, seqs[0]);
        let Some(Advance::Turn(held)) = queue.advance() else { panic!("the second is next") };
        assert!(queue.is_front(seqs[1]));
        wire.extend(held);
        assert!(queue.advance().is_none(), "the second is not done");
        assert!(write(&mut queue, seqs[1], &mut wire, "B"));
        done(&mut queue, seqs[1]);
        let Some(Advance::Turn(held)) = queue.advance() else { panic!("the third is next") };
        wire.extend(held);
        assert!(matches!(queue.advance(), Some(Advance::Empty)));
        assert!(queue.advance().is_none());
        assert_eq!(wire, b"abBc");
        assert!(queue.rest.is_none(), "an idle queue holds no memory");
        assert!(!write(&mut queue, seqs[2], &mut wire, "late"));
    }

    #[test]
    fn nothing_follows_an_answer_that_closes() {
        let mut queue = Queue::<Vec<u8>>::new();
        let mut wire = Vec::new();
        let first = queue.open(ReplyTo { close: true, ..TO });
        let second = queue.open(TO);
        assert!(!write(&mut queue, second, &mut wire, "void"));
        done(&mut queue, first);
        let Some(Advance::Last(rest)) = queue.advance() else { panic!("the first closes") };
        assert_eq!(rest.map(|rest| rest.exchanges.len()), Some(1));
        assert!(queue.is_empty() && queue.get(second).is_none() && queue.get(first).is_none());
        assert_ne!(queue.open(TO), second, "a number is not used again");
    }

    #[test]
    fn numbers_are_not_used_again() {
        let mut queue = Queue::<Vec<u8>>::new();
        let first = queue.open(TO);
        assert!(queue.is_front(first) && queue.last() == Some(first));
        done(&mut queue, first);
        assert!(matches!(queue.advance(), Some(Advance::Empty)));
        let second = queue.open(TO);
        assert_ne!(first, second);
        assert!(queue.get(first).is_none() && queue.get(second).is_some());
    }
}
