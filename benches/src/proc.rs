//! What the kernel tells of processes, and where they may run: /proc, limits, affinity.

use std::fs;
use std::time::Duration;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;

use crate::Outcome;

/// Processor time that a process and its descendants have used.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cpu {
    /// Time on a processor, to the nanosecond, of all threads, those that have ended included.
    pub(crate) run: Duration,
    /// Clock ticks seen in user mode: coarse, good for the share only.
    pub(crate) user_ticks: u64,
    /// Clock ticks seen in the kernel.
    pub(crate) system_ticks: u64,
}

impl Cpu {
    /// What was used between `earlier` and `self`.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            run: self.run.saturating_sub(earlier.run),
            user_ticks: self.user_ticks.saturating_sub(earlier.user_ticks),
            system_ticks: self.system_ticks.saturating_sub(earlier.system_ticks),
        }
    }

    /// The share of the ticks that fell into user mode; none if there was no tick at all.
    pub(crate) fn user_share(self) -> Option<f64> {
        let all = self.user_ticks + self.system_ticks;
        (all > 0).then(|| self.user_ticks as f64 / all as f64)
    }
}

/// Sums the processor time of `pid` and all its descendants.
pub(crate) fn cpu(pid: u32) -> Outcome<Cpu> {
    let mut sum = Cpu::default();
    for pid in family(pid) {
        // Not /proc/PID/schedstat: a thread that ends takes its time with it there.
        let time = clock_getcpuclockid(raw(pid)?).and_then(|clock| clock.now());
        sum.run += time.map_err(|error| format!("processor time of process {pid}: {error}"))?.into();
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let (user, system) = ticks(&stat).ok_or("/proc/PID/stat: not in the form of proc(5)")?;
        sum.user_ticks += user;
        sum.system_ticks += system;
    }
    Ok(sum)
}

/// Fields 14 and 15 of a stat line (proc(5)). The name in field 2 may hold blanks and brackets itself.
fn ticks(stat: &str) -> Option<(u64, u64)> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ').skip(11);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// Resident memory in bytes of `pid` and all its descendants.
pub(crate) fn resident(pid: u32) -> Outcome<u64> {
    let mut sum = 0;
    for pid in family(pid) {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
        let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
        sum += kib * 1024;
    }
    Ok(sum)
}

/// The most resident memory in bytes that `pid` alone has ever had.
pub(crate) fn peak(pid: u32) -> Outcome<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib * 1024)
}

/// The number of descriptors that `pid` and its descendants hold open.
pub(crate) fn open_files(pid: u32) -> Outcome<usize> {
    let mut sum = 0;
    for pid in family(pid) {
        sum += fs::read_dir(format!("/proc/{pid}/fd"))?.count();
    }
    Ok(sum)
}

/// `pid` first, then its descendants.
pub(crate) fn family(pid: u32) -> Vec<u32> {
    let mut found = vec![pid];
    let mut at = 0;
    while at < found.len() {
        let pid = found[at];
        for thread in threads(pid).unwrap_or_default() {
            // The file needs CONFIG_PROC_CHILDREN; without it only servers of one process are measured.
            let text = fs::read_to_string(format!("/proc/{pid}/task/{thread}/children")).unwrap_or_default();
            found.extend(text.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
        at += 1;
    }
    found
}

fn threads(pid: u32) -> Outcome<Vec<u32>> {
    let path = format!("/proc/{pid}/task");
    let entries = fs::read_dir(&path).map_err(|error| format!("{path}: {error}"))?;
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
}

/// One line on what was measured on: kernel and processor.
pub(crate) fn machine() -> String {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let count = cpus.lines().filter(|line| line.starts_with("processor")).count();
    format!("Linux {}, {count} processors ({})", kernel.trim(), model.map_or("unknown", |(_, model)| model))
}

/// Lets this process, and the servers it starts, open as many files as they may.
pub(crate) fn raise_open_file_limit() -> Outcome<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
        .map_err(|error| format!("cannot raise the open-file limit: {error}"))?;
    Ok(())
}

/// The open-file limit in force.
pub(crate) fn open_file_limit() -> Outcome<u64> {
    Ok(getrlimit(Resource::RLIMIT_NOFILE)?.0)
}

/// The processors this thread may run on.
pub(crate) fn allowed_cpus() -> Outcome<Vec<usize>> {
    let set = sched_getaffinity(THIS_THREAD)?;
    Ok((0..CpuSet::count()).filter(|&cpu| set.is_set(cpu) == Ok(true)).collect())
}

/// Runs `start` while this thread may only run on `cpu`: what it starts inherits that.
pub(crate) fn pinned<T>(cpu: usize, start: impl FnOnce() -> T) -> Outcome<T> {
    let before = sched_getaffinity(THIS_THREAD)?;
    let mut only = CpuSet::new();
    only.set(cpu)?;
    sched_setaffinity(THIS_THREAD, &only)?;
    let result = start();
    sched_setaffinity(THIS_THREAD, &before)?;
    Ok(result)
}

/// What sched_setaffinity(2) takes for the calling thread.
const THIS_THREAD: Pid = Pid::from_raw(0);

/// Sends SIGTERM; that the process has gone already is no error.
pub(crate) fn terminate(pid: u32) {
    if let Ok(pid) = raw(pid) {
        let _gone = kill(pid, Signal::SIGTERM);
    }
}

fn raw(pid: u32) -> Outcome<Pid> {
    Ok(Pid::from_raw(i32::try_from(pid)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_found_behind_a_name_with_brackets_and_blanks() {
        let stat = "7 (a) b) (c) S 1 7 7 0 -1 4194560 100 0 0 0 42 17 0 0 20 0 1 0 5 6 7";
        assert_eq!(ticks(stat), Some((42, 17)));
    }

    #[test]
    fn the_time_of_this_process_grows_while_it_works() {
        let pid = std::process::id();
        let before = cpu(pid).unwrap();
        let mut sum = 0_u64;
        while cpu(pid).unwrap().since(before).run < Duration::from_millis(20) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(resident(pid).unwrap() > 100_000);
    }

    #[test]
    fn the_time_of_threads_that_have_ended_is_not_lost() {
        let pid = std::process::id();
        let before = cpu(pid).unwrap();
        let worker = std::thread::spawn(move || {
            while cpu(pid).unwrap().since(before).run < Duration::from_millis(30) {
                std::hint::spin_loop();
            }
        });
        worker.join().unwrap();
        assert!(cpu(pid).unwrap().since(before).run >= Duration::from_millis(30));
    }

    #[test]
    fn pinning_ends_with_the_call() {
        let before = allowed_cpus().unwrap();
        let inside = pinned(before[0], || allowed_cpus().unwrap()).unwrap();
        assert_eq!(inside, [before[0]]);
        assert_eq!(allowed_cpus().unwrap(), before);
    }
}
