//! The same work written for mio: dispatch over socket pairs, and posts through its waker.
//!
//!     mio-peer dispatch PAIRS ACTIVE WRITES pass|stay
//!     mio-peer posts MESSAGES

use std::error::Error;
use std::io::{ErrorKind, Read, Write};
use std::process::ExitCode;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use mio::net::UnixStream;
use mio::{Events, Interest, Poll, Token, Waker};
use nix::time::{ClockId, clock_gettime};

type Outcome = Result<(), Box<dyn Error>>;

const THREADS: usize = 4;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = match args[..] {
        ["dispatch", pairs, active, writes, how] => dispatch(pairs, active, writes, how == "stay"),
        ["posts", messages] => posts(messages),
        _ => Err("usage: dispatch PAIRS ACTIVE WRITES pass|stay, or posts MESSAGES".into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mio-peer: {error}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(pairs: &str, active: &str, writes: &str, stay: bool) -> Outcome {
    let (pairs, active): (usize, usize) = (pairs.parse()?, active.parse()?);
    let mut left: u64 = writes.parse()?;
    let total = active as u64 + left;
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(512);
    let (mut readers, mut writers) = (Vec::with_capacity(pairs), Vec::with_capacity(pairs));
    for at in 0..pairs {
        let (mut reader, writer) = UnixStream::pair()?;
        poll.registry().register(&mut reader, Token(at), Interest::READABLE)?;
        readers.push(reader);
        writers.push(writer);
    }
    let timeout = if stay { None } else { Some(Duration::ZERO) };
    poll.poll(&mut events, Some(Duration::ZERO))?;
    for i in 0..active {
        writers[i * (pairs / active)].write_all(b"e")?;
    }
    let (start, mut reads) = (Instant::now(), 0);
    while reads < total {
        poll.poll(&mut events, timeout)?;
        for event in &events {
            let at = event.token().0;
            // mio is edge-triggered: a read that leaves room in its block has taken all there was (epoll(7)).
            let mut block = [0; 16];
            let n = match readers[at].read(&mut block) {
                Ok(n @ 1..) => n as u64,
                Ok(_) => return Err("a pair has closed".into()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                Err(error) => return Err(error.into()),
            };
            reads += n;
            for _ in 0..n.min(left) {
                left -= 1;
                writers[(at + 1) % pairs].write_all(b"e")?;
            }
        }
    }
    println!("ns {:.3}", start.elapsed().as_secs_f64() * 1e9 / total as f64);
    Ok(())
}

fn posts(messages: &str) -> Outcome {
    let each = messages.parse::<u64>()? / THREADS as u64;
    let mut left = each * THREADS as u64;
    if left == 0 {
        return Err("a message for each thread at least".into());
    }
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(16);
    let waker = Arc::new(Waker::new(poll.registry(), Token(0))?);
    let waiting = Arc::new(Mutex::new(Vec::new()));
    let barrier = Arc::new(Barrier::new(THREADS + 1));
    let senders: Vec<_> = (0..THREADS as u64)
        .map(|thread| {
            let (waker, waiting, barrier) = (waker.clone(), waiting.clone(), barrier.clone());
            thread::spawn(move || {
                barrier.wait();
                for number in 0..each {
                    let mut waiting = waiting.lock().unwrap();
                    let first = waiting.is_empty();
                    waiting.push(thread << 32 | number);
                    drop(waiting);
                    if first {
                        waker.wake().unwrap();
                    }
                }
            })
        })
        .collect();
    let (start, start_cpu) = (Instant::now(), cpu()?);
    barrier.wait();
    let (mut wakes, mut next, mut taken) = (0, [0; THREADS], Vec::new());
    while left > 0 {
        poll.poll(&mut events, None)?;
        wakes += 1;
        std::mem::swap(&mut taken, &mut *waiting.lock().unwrap());
        for message in taken.drain(..) {
            let (thread, number) = ((message >> 32) as usize, message & 0xFFFF_FFFF);
            if next[thread] != number {
                return Err("a message came out of order".into());
            }
            next[thread] += 1;
            left -= 1;
        }
    }
    let (took, took_cpu) = (start.elapsed(), cpu()? - start_cpu);
    for sender in senders {
        sender.join().map_err(|_| "a sender panicked")?;
    }
    let total = (each * THREADS as u64) as f64;
    println!("ns {:.3}", took.as_secs_f64() * 1e9 / total);
    println!("cpu {:.3}", took_cpu.as_secs_f64() * 1e9 / total);
    println!("wakes {wakes}");
    Ok(())
}

/// Processor time of all threads of this process.
fn cpu() -> Result<Duration, Box<dyn Error>> {
    Ok(clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID)?.into())
}
