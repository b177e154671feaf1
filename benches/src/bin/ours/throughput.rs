//! One stream of large blocks: through a socket pair, without and with filters, and through two joined streams.

use std::cell::Cell;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use event_core::{BufferEvent, Direction, EventBase, Filter};
use nix::time::{ClockId, clock_gettime};

use crate::Outcome;

pub(crate) fn run(args: &[&str]) -> Outcome<()> {
    let &[mode @ ("filters" | "pair" | "proxy"), mib, block] = args else {
        return Err("throughput filters|pair|proxy MIB BLOCK_KIB".into());
    };
    let (total, block) = (mib.parse::<usize>()? << 20, block.parse::<usize>()? << 10);
    if total == 0 || block == 0 {
        return Err("a MiB in blocks of a KiB at least".into());
    }
    let (took, cpu, arrived) = match mode {
        "filters" => pair(total, block, LAYERS)?,
        "pair" => pair(total, block, 0)?,
        _ => proxy(total, block)?,
    };
    if arrived != total {
        return Err(format!("{arrived} of {total} bytes arrived").into());
    }
    let kib = total as f64 / 1024.0;
    println!("ns {:.3}", took.as_secs_f64() * 1e9 / kib);
    println!("cpu {:.3}", cpu.as_secs_f64() * 1e9 / kib);
    Ok(())
}

/// How many filters there are at each end in `filters`.
const LAYERS: usize = 3;

/// Passes everything on.
struct Identity;

impl Filter for Identity {}

/// Both ends belong to the loop, and have so many filters that pass everything on.
fn pair(total: usize, block: usize, layers: usize) -> Outcome<(Duration, Duration, usize)> {
    let mut base = EventBase::new()?;
    let (out, into) = UnixStream::pair()?;
    let (mut out, mut into) = (BufferEvent::new(&base, out)?, BufferEvent::new(&base, into)?);
    for _ in 0..layers {
        out = BufferEvent::filter(&out, Identity)?;
        into = BufferEvent::filter(&into, Identity)?;
    }
    let arrived = Rc::new(Cell::new(0));
    let (count, handle) = (arrived.clone(), base.handle());
    into.set_read_cb(move |bev| {
        let mut input = bev.input();
        let n = input.len();
        input.drain(n);
        count.set(count.get() + n);
        if count.get() >= total {
            // Fails only without a loop, and one is calling.
            let _it_runs = handle.loopbreak();
        }
    });
    into.enable(Direction::READ)?;
    let bytes = vec![b'x'; block];
    let mut left = total;
    let mut refill = move |bev: &BufferEvent| {
        let n = block.min(left);
        left -= n;
        if n > 0 {
            // Refused only beyond the bound, and the output is empty.
            let _taken = bev.write(&bytes[..n]);
        }
    };
    let (start, start_cpu) = (Instant::now(), cpu()?);
    refill(&out);
    out.set_write_cb(refill);
    base.dispatch()?;
    Ok((start.elapsed(), cpu()? - start_cpu, arrived.get()))
}

/// The loop passes on what one thread writes and another reads.
fn proxy(total: usize, block: usize) -> Outcome<(Duration, Duration, usize)> {
    let mut base = EventBase::new()?;
    let (ours, mut source) = UnixStream::pair()?;
    let one = BufferEvent::new(&base, ours)?;
    let (ours, mut sink) = UnixStream::pair()?;
    let other = BufferEvent::new(&base, ours)?;
    let done = base.handle();
    let last = other.clone();
    one.splice(&other, move |_| {
        drop(last);
        let _it_runs = done.loopexit(None);
    })?;
    let (start, start_cpu) = (Instant::now(), cpu()?);
    let writer = thread::spawn(move || {
        let bytes = vec![b'x'; block];
        let mut left = total;
        while left > 0 {
            let n = block.min(left);
            source.write_all(&bytes[..n])?;
            left -= n;
        }
        source.shutdown(Shutdown::Write)?;
        Ok::<UnixStream, std::io::Error>(source)
    });
    let reader = thread::spawn(move || {
        let mut room = vec![0; 1 << 18];
        let mut arrived = 0;
        loop {
            match sink.read(&mut room)? {
                0 => return Ok::<usize, std::io::Error>(arrived),
                n => arrived += n,
            }
        }
    });
    base.dispatch()?;
    let spent = cpu()? - start_cpu;
    let arrived = reader.join().map_err(|_| "the reader panicked")??;
    let took = start.elapsed();
    writer.join().map_err(|_| "the writer panicked")??;
    Ok((took, spent, arrived))
}

/// Processor time of this thread, which is the loop's.
fn cpu() -> Outcome<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?.into())
}
