//! Which address is tried next, and when: RFC 8305, without sockets and without a clock.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::Time;
use crate::resolver::Family;
use crate::sys::Address;

/// How long an answer for IPv6 is waited for when there is one for IPv4 (RFC 8305, section 3).
const RESOLUTION_DELAY: Duration = Duration::from_millis(50);

/// How long an attempt is alone before the next begins (RFC 8305, section 5).
pub(super) const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// As many addresses are tried: more than any sane name has, and each may be a descriptor.
pub(super) const MOST_ATTEMPTS: usize = 32;

/// What is to happen now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing that is under way or to come can connect any more.
    Over,
    /// This address is to be tried; then ask again.
    Try(Address),
    /// Nothing until then, unless something is heard before.
    Wait(Time),
}

/// The addresses that are left, and the order of the families.
#[derive(Debug)]
pub(super) struct Race {
    /// In their own order. What is of no family, a path, stands with the second.
    six: VecDeque<Address>,
    four: VecDeque<Address>,
    /// An answer of IPv6, or of IPv4, is to come.
    pub(super) awaits_six: bool,
    pub(super) awaits_four: bool,
    /// Whether IPv6 comes next.
    six_is_next: bool,
    /// Until when IPv4 waits for IPv6, once that is known.
    held_until: Option<Time>,
    /// When the next attempt begins, if those that run have not failed before.
    next_at: Time,
    running: usize,
    left: usize,
    delay: Duration,
}

impl Race {
    /// Nothing is known, and nothing is to come.
    pub(super) fn new(delay: Duration) -> Race {
        Race {
            six: VecDeque::new(),
            four: VecDeque::new(),
            awaits_six: false,
            awaits_four: false,
            six_is_next: true,
            held_until: None,
            next_at: Time::default(),
            running: 0,
            left: MOST_ATTEMPTS,
            delay,
        }
    }

    /// The answer for a family, or for both, has come.
    pub(super) fn answered(&mut self, family: Family, addresses: Vec<Address>) {
        self.awaits_six = self.awaits_six && family == Family::V4;
        self.awaits_four = self.awaits_four && family == Family::V6;
        self.add(addresses);
    }

    /// Addresses have come. If they are the first, and of both families, theirs is the order of the families.
    pub(super) fn add(&mut self, addresses: impl IntoIterator<Item = Address>) {
        let mut is_first = self.is_untried() && self.six.is_empty() && self.four.is_empty();
        for address in addresses {
            let is_six = address.socket_addr().is_some_and(|ip| ip.is_ipv6());
            if is_first && !self.awaits_six && !self.awaits_four {
                self.six_is_next = is_six;
            }
            is_first = false;
            let list = if is_six { &mut self.six } else { &mut self.four };
            // What comes twice, or beyond what is tried, is not kept.
            if list.len() < MOST_ATTEMPTS && !list.contains(&address) {
                list.push_back(address);
            }
        }
    }

    /// Whether any address has ever been known.
    pub(super) fn has_found(&self) -> bool {
        !self.is_untried() || !self.six.is_empty() || !self.four.is_empty()
    }

    fn is_untried(&self) -> bool {
        self.left == MOST_ATTEMPTS
    }

    pub(super) fn next(&mut self, now: Time) -> Next {
        let none_left = self.left == 0 || self.six.is_empty() && self.four.is_empty();
        if none_left {
            let waits = self.running > 0 || self.left > 0 && (self.awaits_six || self.awaits_four);
            return if waits { Next::Wait(Time::NEVER) } else { Next::Over };
        }
        if self.is_untried() && self.awaits_six && self.six.is_empty() {
            let until = *self.held_until.get_or_insert(now.after(RESOLUTION_DELAY));
            if now < until {
                return Next::Wait(until);
            }
        }
        if self.running > 0 && now < self.next_at {
            return Next::Wait(self.next_at);
        }
        let takes_six = !self.six.is_empty() && (self.six_is_next || self.four.is_empty());
        let taken = if takes_six { self.six.pop_front() } else { self.four.pop_front() };
        let Some(address) = taken else { return Next::Over };
        self.six_is_next = !takes_six;
        self.left -= 1;
        self.running += 1;
        self.next_at = now.after(self.delay);
        Next::Try(address)
    }

    /// An attempt has failed; the newest has nobody to wait for.
    pub(super) fn failed(&mut self, was_newest: bool) {
        self.running = self.running.saturating_sub(1);
        if was_newest {
            self.next_at = Time::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    fn address(text: &str) -> Address {
        text.parse().unwrap()
    }

    fn all(texts: &[&str]) -> Vec<Address> {
        texts.iter().map(|text| address(text)).collect()
    }

    /// The addresses in the order in which they are tried if each fails at once.
    fn order(race: &mut Race) -> Vec<String> {
        let mut order = Vec::new();
        while let Next::Try(address) = race.next(at(0)) {
            order.push(address.to_string());
            race.failed(true);
        }
        order
    }

    #[test]
    fn families_take_turns_beginning_with_that_of_the_first_address() {
        let mut race = Race::new(ATTEMPT_DELAY);
        race.add(all(&["1.0.0.1:1", "1.0.0.2:1", "[::1]:1", "1.0.0.3:1", "[::2]:1", "1.0.0.1:1"]));
        assert_eq!(order(&mut race), ["1.0.0.1:1", "[::1]:1", "1.0.0.2:1", "[::2]:1", "1.0.0.3:1"]);
        assert_eq!(race.next(at(0)), Next::Over);
        let mut race = Race::new(ATTEMPT_DELAY);
        race.add(all(&["[::1]:1", "[::2]:1", "1.0.0.1:1"]));
        assert_eq!(order(&mut race), ["[::1]:1", "1.0.0.1:1", "[::2]:1"]);
    }

    #[test]
    fn an_attempt_is_alone_for_a_quarter_of_a_second_unless_it_fails() {
        let mut race = Race::new(ATTEMPT_DELAY);
        race.add(all(&["1.0.0.1:1", "1.0.0.2:1", "1.0.0.3:1", "1.0.0.4:1"]));
        assert_eq!(race.next(at(0)), Next::Try(address("1.0.0.1:1")));
        assert_eq!(race.next(at(249)), Next::Wait(at(250)));
        assert_eq!(race.next(at(250)), Next::Try(address("1.0.0.2:1")));
        race.failed(false);
        assert_eq!(race.next(at(260)), Next::Wait(at(500)), "the newest still has its time");
        race.failed(true);
        assert_eq!(race.next(at(260)), Next::Try(address("1.0.0.3:1")));
        assert_eq!(race.next(at(510)), Next::Try(address("1.0.0.4:1")));
        assert_eq!(race.next(at(510)), Next::Wait(Time::NEVER));
        race.failed(false);
        race.failed(true);
        assert_eq!(race.next(at(510)), Next::Over);
    }

    #[test]
    fn four_waits_for_six_and_not_for_long() {
        let started = || {
            let mut race = Race::new(ATTEMPT_DELAY);
            (race.awaits_six, race.awaits_four) = (true, true);
            assert_eq!(race.next(at(0)), Next::Wait(Time::NEVER));
            race.answered(Family::V4, all(&["1.0.0.1:1", "1.0.0.2:1"]));
            assert_eq!(race.next(at(10)), Next::Wait(at(60)));
            race
        };
        let mut race = started();
        assert_eq!(race.next(at(60)), Next::Try(address("1.0.0.1:1")), "the time is over");
        race.answered(Family::V6, all(&["[::1]:1"]));
        assert_eq!(race.next(at(70)), Next::Wait(at(310)));
        assert_eq!(race.next(at(310)), Next::Try(address("[::1]:1")), "what comes late takes its turn");
        let mut race = started();
        race.answered(Family::V6, all(&["[::1]:1"]));
        assert_eq!(race.next(at(20)), Next::Try(address("[::1]:1")), "it came in time");
        let mut race = started();
        race.answered(Family::V6, Vec::new());
        assert_eq!(race.next(at(20)), Next::Try(address("1.0.0.1:1")), "there is none");
    }

    #[test]
    fn six_waits_for_nobody() {
        let mut race = Race::new(ATTEMPT_DELAY);
        (race.awaits_six, race.awaits_four) = (true, true);
        race.answered(Family::V6, all(&["[::1]:1"]));
        assert_eq!(race.next(at(0)), Next::Try(address("[::1]:1")));
        race.failed(true);
        assert_eq!(race.next(at(0)), Next::Wait(Time::NEVER), "the other answer may bring more");
        race.answered(Family::V4, Vec::new());
        assert_eq!(race.next(at(0)), Next::Over);
    }

    #[test]
    fn no_more_than_a_few_addresses_are_tried() {
        let mut race = Race::new(ATTEMPT_DELAY);
        race.add((0..200).map(|n| Address::Ip(([10, 0, 0, n], 1).into())));
        assert_eq!(order(&mut race).len(), MOST_ATTEMPTS);
        assert_eq!(race.next(at(0)), Next::Over);
    }
}
