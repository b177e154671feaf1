//! What a stream is and where it stands, and what is to be told of it: two sets of bits.

use bitflags::bitflags;

bitflags! {
    /// What a stream is and where it stands.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) struct State: u64 {
        const READ_ENABLED = 0x0001;
        const WRITE_ENABLED = 0x0002;
        /// Freed: nothing happens any more.
        const FREED = 0x0004;
        /// A connect is under way.
        const CONNECTING = 0x0008;
        /// The peer will send no more; its EOF event was or will be delivered.
        const EOF = 0x0010;
        /// Inside the loop's step for this stream: output is flushed at its end.
        const IN_STEP = 0x0020;
        /// Stands in the loop's flush list.
        const UNFLUSHED = 0x0040;
        /// The kernel took less than it was given: writing waits for readiness.
        const BLOCKED = 0x0080;
        const CLOSE_AFTER_FLUSH = 0x0100;
        const SHUTDOWN_AFTER_FLUSH = 0x0200;
        /// The fd is closed with the stream.
        const OWNS_FD = 0x0400;
        const PAIR = 0x0800;
        const TRANSPORT = 0x1000;
        /// Keeps the loop running, as the loop was told.
        const HELD = 0x2000;
        /// The write side was shut down.
        const WRITE_SHUT = 0x4000;
        /// A callback is running and is to be put back: nobody has taken the callbacks away meanwhile.
        const LENT = 0x8000;
        /// The other end of a pair will write no more, which is told once this one reads.
        const UNTOLD_EOF = 0x1_0000;
        /// The output is out of its cell: that the cell is empty does not mean that all is sent.
        const OUTPUT_OUT = 0x2_0000;
        /// The fd stands with the loop.
        const REGISTERED = 0x4_0000;
        /// The output is over its bound, and the callbacks were or will be told.
        const OVERFULL = 0x8_0000;
        /// Keeps the loop running whatever it does: `set_held`.
        const PINNED = 0x10_0000;
        /// There is a rare part: without this bit nobody needs to look for it.
        const RARE = 0x20_0000;
        /// There is no fd to move bytes over, until one is attached.
        const DETACHED = 0x40_0000;
        /// Somebody wants to know how the buffers change.
        const COUNTS_CHANGES = 0x80_0000;
        /// The output has passed its high mark, and has not come down to half of it since.
        const NO_ROOM = 0x100_0000;
        /// Got another fd in the step that runs: what was found out about the old one is told nobody.
        const REPLACED = 0x200_0000;
        /// The input lies in its place and holds something: so that nobody has to look.
        const HAS_INPUT = 0x400_0000;
        /// The same of the output.
        const HAS_OUTPUT = 0x800_0000;
        /// Where the buffers lie (`buffers.rs`): the input in the first place.
        const INPUT_FIRST = 0x1000_0000;
        const OUTPUT_FIRST = 0x2000_0000;
        const INPUT_SECOND = 0x4000_0000;
        const OUTPUT_SECOND = 0x8000_0000;
        /// What the callback that runs has written needs no write callback, if all of it is sent when that returns.
        const UNATTENDED = 0x1_0000_0000;
        /// Stands on another stream, with a filter in between.
        const FILTER = 0x2_0000_0000;
        /// Another stream stands on this one, and gets all that happens.
        const UNDER_FILTER = 0x4_0000_0000;
        /// The stream above takes nothing now, so nothing is read.
        const HELD_BACK = 0x8_0000_0000;
        /// The filter above can do nothing with what the input holds until more comes.
        const NEEDED = 0x1000_0000_0000;
        /// This stream's filter can do nothing with what the output holds until more comes.
        const NEEDED_OUT = 0x2000_0000_0000;
        /// The filter could go on with the input if there were room.
        const STUCK = 0x10_0000_0000;
        /// The same of the output.
        const STUCK_OUT = 0x20_0000_0000;
        /// Output was handed down since the write callback last came.
        const SENT_BELOW = 0x40_0000_0000;
        /// The filter knows that no more output comes.
        const FINISHED = 0x80_0000_0000;
        /// The filter is to give out what it holds back.
        const FLUSHES = 0x100_0000_0000;
        /// Has a rate limit, of its own or of a group.
        const LIMITED = 0x200_0000_0000;
        /// The limit lets nothing be read now.
        const READ_LIMITED = 0x400_0000_0000;
        /// The limit lets nothing be written now.
        const WRITE_LIMITED = 0x800_0000_0000;
    }
}

bitflags! {
    /// What is to be delivered, in this order: connected, read, write, room, deadline, changes, the other events.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(super) struct Due: u16 {
        const CONNECTED = 0x001;
        const READ = 0x002;
        const WRITE = 0x004;
        const READ_EOF = 0x008;
        const READ_ERROR = 0x010;
        const WRITE_ERROR = 0x020;
        /// An error of no direction: a failed connect, a full buffer, a lost fd.
        const ERROR = 0x040;
        const READ_TIMEOUT = 0x080;
        const WRITE_TIMEOUT = 0x100;
        const DEADLINE = 0x200;
        /// The other end of a pair has put something into the input; whether that is a `READ` is seen in the step.
        const ARRIVED = 0x400;
        /// A transport may hold more than it gave.
        const AGAIN = 0x800;
        /// The buffers have changed outside of the step.
        const CHANGED = 0x1000;
        /// The output has room again.
        const ROOM = 0x2000;
        /// Events of the program's own: `trigger_event`.
        const TRIGGERED = 0x4000;
        /// What says something of the fd, and nothing of another one.
        const OF_FD = Due::CONNECTED.bits() | Due::READ_EOF.bits() | Due::READ_ERROR.bits() | Due::WRITE_ERROR.bits()
            | Due::ERROR.bits() | Due::READ_TIMEOUT.bits() | Due::WRITE_TIMEOUT.bits() | Due::AGAIN.bits();
    }
}
