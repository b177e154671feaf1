//! Programs that do one piece of work, print their figures and end: built, run in turn, compared within a round.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::options::Options;
use crate::peers::{CONTROL, YARD_STICK};
use crate::tools::{built_by_cargo, compiled, peer_workspace, scratch_file};
use crate::{Outcome, proc};

/// How long one run may take; under a tool it is up to a hundred times slower.
const PATIENCE: Duration = Duration::from_secs(120);

/// Where a program comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// `peers/NAME.c` and what it is linked with.
    C(&'static str, &'static [&'static str]),
    /// `peers/mio`.
    Mio,
    /// Nowhere: why it cannot do this.
    None(&'static str),
    /// `src/bin/ours`.
    Ours,
}

/// One row of a measurement: a program, and what it is told besides the arguments that all are given.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) source: Source,
    pub(crate) before: &'static [&'static str],
    pub(crate) after: &'static [&'static str],
}

impl Row {
    pub(crate) const fn c(
        name: &'static str,
        source: &'static str,
        libraries: &'static [&'static str],
    ) -> Self {
        Self { name, source: Source::C(source, libraries), before: &[], after: &[] }
    }
}

/// A program that can be run, or the reason why it cannot.
pub(crate) struct Program {
    pub(crate) name: String,
    /// Or why it is not run, as it stands in the table.
    path: Result<PathBuf, String>,
    before: &'static [&'static str],
    after: &'static [&'static str],
}

/// What a program has printed: name and number, one a line.
pub(crate) type Figures = BTreeMap<String, f64>;

impl Program {
    /// Builds what `options` asks for, the yard-stick first.
    ///
    /// `--server NAME=PATH` adds an older build of `ours`, which is told what the first row of ours is told.
    pub(crate) fn all(rows: &[Row], options: &Options) -> Outcome<Vec<Self>> {
        let wanted = |name: &str| options.only.is_empty() || options.only.iter().any(|only| only == name);
        let mut programs = Vec::new();
        for row in rows.iter().filter(|row| wanted(row.name)) {
            programs.push(Self::build(row)?);
        }
        for (name, path) in &options.servers {
            let row =
                rows.iter().find(|row| row.source == Source::Ours).ok_or("none of these rows is ours")?;
            let path =
                if path.is_file() { Ok(path.clone()) } else { Err("missing: no such file".to_owned()) };
            programs.push(Self { name: name.clone(), path, before: row.before, after: row.after });
        }
        for only in &options.only {
            if !programs.iter().any(|program| &program.name == only) {
                return Err(format!("no program is called {only}").into());
            }
        }
        Ok(programs)
    }

    /// Builds the program of one row.
    pub(crate) fn build(row: &Row) -> Outcome<Self> {
        let path = match row.source {
            Source::C(source, libraries) => compiled(source, libraries)?.map_err(missing),
            Source::Mio => peer_workspace("mio", "mio-peer")?.map_err(missing),
            Source::None(why) => Err(format!("no such mode: {why}")),
            Source::Ours => built_by_cargo(&["-p", "benches", "--bin", "ours"], "ours")?.map_err(missing),
        };
        Ok(Self { name: row.name.to_owned(), path, before: row.before, after: row.after })
    }

    /// Runs it to its end under `wrapper`, on `cpu` alone if one is given.
    ///
    /// # Errors
    /// - what cannot be built here, as `missing: ...`, or cannot do this, as `no such mode: ...`
    /// - a run that fails, or does not end in time
    pub(crate) fn run(&self, args: &[String], wrapper: &[OsString], cpu: Option<usize>) -> Outcome<Figures> {
        let path = self.path.as_ref().map_err(Clone::clone)?;
        let mut words = wrapper.to_vec();
        words.push(path.into());
        words.extend(self.before.iter().map(OsString::from));
        words.extend(args.iter().map(OsString::from));
        words.extend(self.after.iter().map(OsString::from));
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let spawned = match cpu {
            Some(cpu) => proc::pinned(cpu, || command.spawn())?,
            None => command.spawn(),
        };
        let mut child = spawned.map_err(|error| format!("cannot start {:?}: {error}", words[0]))?;
        let deadline = Instant::now() + PATIENCE;
        while child.try_wait()?.is_none() {
            if Instant::now() > deadline {
                child.kill()?;
                child.wait()?;
                return Err(format!("did not end within {PATIENCE:?}").into());
            }
            thread::sleep(Duration::from_millis(5));
        }
        // A few lines fit into any pipe, so that nobody had to read while it ran.
        let output = child.wait_with_output()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{}: {}", output.status, said.trim().replace('\n', " | ")).into());
        }
        let text = String::from_utf8_lossy(&output.stdout);
        figures(&text).ok_or_else(|| format!("no figures: {}", text.trim()).into())
    }

    /// Runs it under a tool that writes its findings to a file; returns what that holds.
    pub(crate) fn run_under(
        &self,
        tool: &Path,
        flags: &[&str],
        file: &str,
        args: &[String],
    ) -> Outcome<String> {
        let log = scratch_file("program")?;
        let mut wrapper: Vec<OsString> = vec![tool.into()];
        wrapper.extend(flags.iter().map(OsString::from));
        let mut word = OsString::from(file);
        word.push(&log);
        wrapper.push(word);
        self.run(args, &wrapper, None)?;
        let text = fs::read_to_string(&log).map_err(|error| format!("{}: {error}", tool.display()))?;
        fs::remove_file(&log)?;
        Ok(text)
    }
}

fn missing(why: String) -> String {
    format!("missing: {why}")
}

fn figures(text: &str) -> Option<Figures> {
    let pairs = text.lines().map(|line| {
        let (name, value) = line.split_once(' ')?;
        Some((name.to_owned(), value.parse().ok()?))
    });
    pairs.collect::<Option<Figures>>().filter(|figures| !figures.is_empty())
}

/// One program through all rounds.
pub(crate) struct Run {
    pub(crate) name: String,
    samples: Vec<Figures>,
    /// Ratios to the yard-stick in the same round.
    ratios: Vec<Figures>,
    /// Its first error; it takes part in no later round.
    pub(crate) error: Option<String>,
}

impl Run {
    /// The figure called `name`, of each round.
    pub(crate) fn values(&self, name: &str) -> Vec<f64> {
        self.samples.iter().filter_map(|sample| sample.get(name).copied()).collect()
    }

    /// The figure called `name` over the yard-stick's, of each round.
    pub(crate) fn ratios(&self, name: &str) -> Vec<f64> {
        self.ratios.iter().filter_map(|sample| sample.get(name).copied()).collect()
    }
}

/// Runs all programs in turn with the same arguments, round after round.
pub(crate) fn rounds<'a>(
    programs: impl Iterator<Item = &'a Program>,
    args: &[String],
    cpu: Option<usize>,
    rounds: usize,
) -> Vec<Run> {
    let programs: Vec<&Program> = programs.collect();
    let run = |program: &&Program| Run {
        name: program.name.clone(),
        samples: Vec::new(),
        ratios: Vec::new(),
        error: None,
    };
    let mut runs: Vec<Run> = programs.iter().map(run).collect();
    for _ in 0..rounds {
        let mut yard_stick: Option<Figures> = None;
        for (program, run) in programs.iter().zip(&mut runs) {
            if run.error.is_some() {
                continue;
            }
            match program.run(args, &[], cpu) {
                Ok(sample) => {
                    if program.name == YARD_STICK {
                        yard_stick = Some(sample.clone());
                    }
                    if let Some(bare) = &yard_stick {
                        let ratio = |(name, value): (&String, &f64)| {
                            bare.get(name).map(|bare| (name.clone(), value / bare))
                        };
                        run.ratios.push(sample.iter().filter_map(ratio).collect());
                    }
                    run.samples.push(sample);
                }
                Err(error) => run.error = Some(error.to_string()),
            }
        }
    }
    runs
}

/// The two rows that stand first everywhere: the yard-stick, and the same program once more.
pub(crate) const fn yard_sticks(source: &'static str, libraries: &'static [&'static str]) -> [Row; 2] {
    [Row::c(YARD_STICK, source, libraries), Row::c(CONTROL, source, libraries)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::find_tool;

    fn shell(script: &'static [&'static str]) -> Program {
        Program { name: "sh".into(), path: Ok(find_tool("sh").unwrap()), before: script, after: &[] }
    }

    #[test]
    fn figures_are_lines_of_a_name_and_a_number_and_nothing_else() {
        let wanted = Figures::from([("ns".to_owned(), 1.5), ("wakes".to_owned(), 3.0)]);
        assert_eq!(figures("ns 1.5\nwakes 3\n"), Some(wanted));
        for text in ["", "ns", "ns fast", "ns 1\nSegmentation fault"] {
            assert_eq!(figures(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_program_that_fails_after_its_figures_is_an_error_that_repeats_what_it_said() {
        let error = shell(&["-c", "echo ns 1; echo lost >&2; exit 3"]).run(&[], &[], None).unwrap_err();
        assert!(error.to_string().contains("lost"), "{error}");
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        let file = scratch_file("rounds").unwrap();
        fs::write(&file, "").unwrap();
        // The machine gets slower from run to run: 1, 2, then 3, 4.
        let script = ["-c", "echo x >> \"$0\"; echo ns $(wc -l < \"$0\")"];
        let mut programs = [shell(&[]), shell(&[])];
        programs[0].name = YARD_STICK.into();
        let args = [script[0], script[1], file.to_str().unwrap()].map(str::to_owned);
        let runs = rounds(programs.iter(), &args, None, 2);
        fs::remove_file(&file).unwrap();
        assert_eq!(runs[1].values("ns"), [2.0, 4.0]);
        assert_eq!(runs[1].ratios("ns"), [2.0, 4.0 / 3.0]);
        assert_eq!(runs[0].ratios("ns"), [1.0, 1.0]);
    }
}
