//! Idle streams: what one more costs in resident memory. Each has sent back a byte before it is counted.

use std::cell::Cell;
use std::fs;
use std::os::unix::net::UnixStream;

use event_core::{BufferEvent, Callbacks, Direction, EventBase, LoopFlags, StreamEvent};
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::socket::{MsgFlags, send};

use crate::Outcome;

/// Descriptors besides those of the streams.
const SPARE: i32 = 64;

thread_local! {
    /// As in the C peer, nothing is kept for a stream but the stream.
    static ECHOED: Cell<usize> = const { Cell::new(0) };
}

struct Echo;

impl Callbacks for Echo {
    fn on_read(&mut self, bev: &BufferEvent) {
        echo(bev);
    }
}

fn echo(bev: &BufferEvent) {
    ECHOED.set(ECHOED.get() + 1);
    // Refused only beyond the bound.
    let _taken = bev.write(bev.read_buffer());
}

pub(crate) fn run(args: &[&str]) -> Outcome<()> {
    let &[low, high, by @ ("objects" | "closures")] = args else {
        return Err("streams LOW HIGH objects|closures".into());
    };
    let (low, high) = (low.parse::<usize>()?, high.parse::<usize>()?);
    if low >= high {
        return Err("LOW must be below HIGH".into());
    }
    let mut ours = Vec::with_capacity(high);
    let mut theirs = Vec::with_capacity(high);
    for _ in 0..high {
        let (one, other) = UnixStream::pair()?;
        // Out of the way: the fds of one side are as dense as those of a server are.
        let far = fcntl(&other, FcntlArg::F_DUPFD_CLOEXEC(i32::try_from(high)? + SPARE))?;
        ours.push(one);
        theirs.push(far);
    }
    let mut base = EventBase::new()?;
    let mut ours = ours.into_iter();
    let mut open = |base: &mut EventBase, from: usize, to: usize| -> Outcome<()> {
        for (at, stream) in ours.by_ref().take(to - from).enumerate() {
            let bev = BufferEvent::new(base, stream)?;
            if by == "objects" {
                bev.set_callbacks(Echo);
            } else {
                bev.set_read_cb(echo);
                bev.set_event_cb(|bev, event| {
                    if !event.contains(StreamEvent::CONNECTED) {
                        bev.free();
                    }
                });
            }
            bev.enable(Direction::READ)?;
            send(theirs[from + at], b"e", MsgFlags::MSG_NOSIGNAL)?;
            while ECHOED.get() <= from + at {
                base.run(LoopFlags::NONBLOCK)?;
            }
        }
        base.run(LoopFlags::NONBLOCK)?;
        Ok(())
    };
    open(&mut base, 0, low)?;
    let before = resident()?;
    open(&mut base, low, high)?;
    let after = resident()?;
    println!("bytes {:.3}", (after as f64 - before as f64) / (high - low) as f64);
    Ok(())
}

/// Resident memory of this process. Counted by the kernel page by page; `statm` is behind by some.
fn resident() -> Outcome<u64> {
    let text = fs::read_to_string("/proc/self/smaps_rollup")?;
    let line = text.lines().find_map(|line| line.strip_prefix("Rss:")).ok_or("no Rss in smaps_rollup")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}
