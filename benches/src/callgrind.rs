//! User instructions, counted by valgrind's callgrind: figures that repeat.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use crate::Outcome;
use crate::peers::Peer;
use crate::programs::Program;
use crate::servers::{Launch, Server};
use crate::tools::scratch_file;
use crate::work::Work;

/// Two runs of different length; what differs between them is the work of the difference alone.
pub(crate) struct Lengths {
    pub(crate) short: u64,
    pub(crate) long: u64,
}

impl Lengths {
    fn slope(&self, mut count: impl FnMut(u64) -> Outcome<u64>) -> Outcome<f64> {
        let (short, long) = (count(self.short)?, count(self.long)?);
        Ok((long as f64 - short as f64) / (self.long - self.short) as f64)
    }
}

/// The profile itself goes nowhere: only the sum in the log is wanted.
const FLAGS: [&str; 2] = ["--tool=callgrind", "--callgrind-out-file=/dev/null"];

const LOG: &str = "--log-file=";

/// Instructions for each piece of work of a program, whose arguments for a number of pieces `args` gives.
pub(crate) fn of_program(
    program: &Program,
    valgrind: &Path,
    lengths: &Lengths,
    args: impl Fn(u64) -> Vec<String>,
) -> Outcome<f64> {
    lengths.slope(|pieces| collected(&program.run_under(valgrind, &FLAGS, LOG, &args(pieces))?))
}

/// Instructions for each request of a server: `depth` come in one write, and a client for as many batches as there are or,
/// if the work is to close, one for each.
pub(crate) fn of_server(
    peer: &Peer,
    valgrind: &Path,
    lengths: &Lengths,
    work: Work,
    depth: usize,
) -> Outcome<f64> {
    let batches = lengths.slope(|batches| {
        let log = scratch_file("callgrind")?;
        let mut file = OsString::from(LOG);
        file.push(&log);
        let mut wrapper: Vec<OsString> = vec![valgrind.into()];
        wrapper.extend(FLAGS.map(OsString::from));
        wrapper.push(file);
        let server = Server::start(peer, &Launch { wrapper, work, ..Launch::default() })?;
        if work == Work::Close {
            for _ in 0..batches {
                let mut client = server.connect()?;
                client.send()?;
                client.last_answer()?;
            }
        } else {
            let mut client = server.connect()?;
            (0..batches).try_for_each(|_| client.get_pipelined(depth))?;
        }
        server.stop()?;
        let text = fs::read_to_string(&log).map_err(|error| format!("valgrind left no log: {error}"))?;
        fs::remove_file(&log)?;
        collected(&text)
    })?;
    Ok(batches / depth as f64)
}

/// Finds the sum in callgrind's log.
fn collected(log: &str) -> Outcome<u64> {
    let sum = log.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok());
    sum.ok_or_else(|| format!("callgrind's log has no sum: {}", log.trim().replace('\n', " | ")).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_found_in_the_log() {
        let log = "==7== Callgrind, a call-graph generating cache profiler\n==7== Events    : Ir\n==7== Collected : 7668453\n";
        assert_eq!(collected(log).unwrap(), 7_668_453);
        assert!(collected("==7== killed").is_err());
    }

    #[test]
    fn the_slope_leaves_out_what_happens_once() {
        let lengths = Lengths { short: 10, long: 30 };
        assert_eq!(lengths.slope(|pieces| Ok(1_000 + 7 * pieces)).unwrap(), 7.0);
    }
}
