//! The load generator.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::modes::{Load, Mode};
use crate::tools::scratch_dir;
use crate::{Outcome, proc};

/// After this long without an answer wrk counts a request as failed.
const TIMEOUT: &str = "10s";

/// Prints what wrk has counted, in one line.
///
/// wrk adds requests that should have been sent while it waited. The latencies of those may lie below the lowest that it has
/// seen, where its percentiles do not look, so that the highest are 0: how many are not found is found out first.
const DONE: &str = "\
function done(summary, latency, requests)
  local e = summary.errors
  local found, not_found = 0, 100
  for _ = 1, 20 do
    local middle = (found + not_found) / 2
    if latency:percentile(middle) > 0 then found = middle else not_found = middle end
  end
  local function percentile(p) return latency:percentile(math.max(p - (100 - found), 0)) end
  print(string.format(\"figures %d %d %d %d %d\", summary.requests, summary.duration,
    e.connect + e.read + e.write + e.status + e.timeout, percentile(50), percentile(99)))
end
";

/// wrk, ready for one mode.
pub(crate) struct Wrk {
    program: PathBuf,
    script: PathBuf,
    seconds: u64,
    cpu: usize,
    load: Load,
}

/// What wrk has counted.
#[derive(Debug, PartialEq)]
pub(crate) struct Figures {
    pub(crate) requests: u64,
    pub(crate) seconds: f64,
    /// Errors of any kind: connect, read, write, status, timeout.
    pub(crate) failed: u64,
    /// Microseconds from a request to its answer: half of all took no longer, and 99 of 100.
    /// None if wrk has no latency at all.
    pub(crate) latency: Option<(f64, f64)>,
}

impl Wrk {
    /// `cpu` is the processor that it runs on.
    pub(crate) fn new(program: &Path, mode: &Mode, seconds: u64, cpu: usize) -> Outcome<Self> {
        let script = scratch_dir()?.join(format!("{}.lua", mode.name));
        fs::write(&script, text(&mode.load))
            .map_err(|error| format!("cannot write {}: {error}", script.display()))?;
        Ok(Self { program: program.to_owned(), script, seconds: mode.seconds(seconds), cpu, load: mode.load })
    }

    /// Loads `url` once; `halfway` is called when half of the time is over.
    pub(crate) fn load(&self, url: &str, halfway: impl FnOnce()) -> Outcome<Figures> {
        let mut command = Command::new(&self.program);
        command
            .args(["-t", "1", "-c", &self.load.connections.to_string()])
            .args(["-d", &format!("{}s", self.seconds), "--timeout", TIMEOUT, "-s"])
            .arg(&self.script)
            .arg(url)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = proc::pinned(self.cpu, || command.spawn())?
            .map_err(|error| format!("cannot start wrk: {error}"))?;
        let began = Instant::now();
        let (half, most) = (Duration::from_secs(self.seconds) / 2, Duration::from_secs(self.seconds + 30));
        let mut halfway = Some(halfway);
        while child.try_wait()?.is_none() {
            if began.elapsed() > most {
                child.kill()?;
                child.wait()?;
                return Err("wrk did not end by itself".into());
            }
            if began.elapsed() >= half
                && let Some(halfway) = halfway.take()
            {
                halfway();
            }
            thread::sleep(Duration::from_millis(10));
        }
        let output = child.wait_with_output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        figures(&text).ok_or_else(|| format!("wrk gave no figures: {}", text.trim()).into())
    }
}

/// The script that makes wrk send the requests of a load and print its counts in one line.
fn text(load: &Load) -> String {
    let mut text = DONE.to_owned();
    text.push_str(&load.work.script());
    if load.depth > 1 {
        text.push_str(&format!(
            "function init(args) batch = string.rep(wrk.format(), {}) end\n\
             function request() return batch end\n",
            load.depth
        ));
    }
    text
}

/// Finds the script's line in what wrk printed.
fn figures(text: &str) -> Option<Figures> {
    let line = text.lines().find_map(|line| line.strip_prefix("figures "))?;
    let mut numbers = line.split(' ').map(str::parse::<u64>);
    let mut next = || numbers.next()?.ok();
    let (requests, micros, failed, half, most) = (next()?, next()?, next()?, next()?, next()?);
    let latency = (half > 0 && most > 0).then_some((half as f64, most as f64));
    Some(Figures { requests, seconds: micros as f64 / 1e6, failed, latency })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_the_script_is_found_among_wrks_own() {
        let text = "Running 2s test\nRequests/sec: 5\nfigures 1000 2000000 3 40 500\n";
        let wanted = Figures { requests: 1000, seconds: 2.0, failed: 3, latency: Some((40.0, 500.0)) };
        assert_eq!(figures(text), Some(wanted));
        assert_eq!(figures("figures 1 2 3 40 0\n").unwrap().latency, None);
        for bad in ["unable to connect", "figures 1000 2000000 3\n", "figures 1 2 3 4 nan\n"] {
            assert_eq!(figures(bad), None, "{bad}");
        }
    }
}
