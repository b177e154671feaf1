//! Bit sets: what a program asks of an event, what it is told, and what a backend is asked for.

use bitflags::bitflags;

bitflags! {
    /// What an event waits for, and how: the `short what` of `event_new`.
    ///
    /// A timeout is not asked for here but by giving `add` a duration.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct What: u8 {
        /// Data, an end of file or a connection can be read.
        #[doc(alias = "EV_READ")]
        const READ = 0x02;
        /// Bytes can be written.
        #[doc(alias = "EV_WRITE")]
        const WRITE = 0x04;
        /// Stays added after its callback; without it an event is one-shot.
        #[doc(alias = "EV_PERSIST")]
        const PERSIST = 0x10;
        /// Edge-triggered: reported once for each change, where the backend has `EDGE`.
        #[doc(alias = "EV_ET")]
        const ET = 0x20;
        /// The peer has closed its sending side, found out without reading, where the backend has `EARLY_CLOSE`.
        #[doc(alias = "EV_CLOSED")]
        const CLOSED = 0x80;
    }
}

bitflags! {
    /// Why a callback runs; several bits may be set at once.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Ready: u8 {
        /// The timeout given to `add` has passed.
        #[doc(alias = "EV_TIMEOUT")]
        const TIMEOUT = 0x01;
        /// Reading will not block.
        #[doc(alias = "EV_READ")]
        const READ = 0x02;
        /// Writing will not block.
        #[doc(alias = "EV_WRITE")]
        const WRITE = 0x04;
        /// The signal was delivered.
        #[doc(alias = "EV_SIGNAL")]
        const SIGNAL = 0x08;
        /// The peer has closed its sending side.
        #[doc(alias = "EV_CLOSED")]
        const CLOSED = 0x80;
    }
}

bitflags! {
    /// What a backend is asked to watch on one fd: the union over the fd's events.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(crate) struct Interest: u8 {
        const READ = 0x02;
        const WRITE = 0x04;
        const EDGE = 0x20;
        const CLOSED = 0x80;
    }
}

bitflags! {
    /// What a backend reports of one fd. Hang-up and error stay apart: the reactor decides what they mean.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(crate) struct Report: u8 {
        const READ = 0x02;
        const WRITE = 0x04;
        const HUP = 0x08;
        const ERR = 0x10;
        /// The fd is not open (`POLLNVAL`): its events end with `Error::Stale`.
        const INVALID = 0x20;
        const CLOSED = 0x80;
    }
}

bitflags! {
    /// What a backend can do: libevent's `EV_FEATURE_*`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    #[doc(alias = "event_method_feature")]
    pub struct Features: u8 {
        /// Edge-triggered events.
        #[doc(alias = "EV_FEATURE_ET")]
        const EDGE = 0x01;
        /// Adding, removing and reporting one fd costs the same however many are watched.
        #[doc(alias = "EV_FEATURE_O1")]
        const O1 = 0x02;
        /// Any kind of fd can be watched, regular files too.
        #[doc(alias = "EV_FEATURE_FDS")]
        const ANY_FD = 0x04;
        /// `What::CLOSED` is reported.
        #[doc(alias = "EV_FEATURE_EARLY_CLOSE")]
        const EARLY_CLOSE = 0x08;
    }
}

impl What {
    /// The part that a backend has to know.
    pub(crate) fn interest(self) -> Interest {
        // The two sets share their bit values, so this is a mask.
        Interest::from_bits_truncate(self.bits())
    }
}
