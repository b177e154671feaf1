//! What the command line asks for.

use std::path::PathBuf;

use crate::Outcome;

pub(crate) const USAGE: &str = "\
usage: cargo run --release -p benches -- MEASUREMENT [OPTIONS]

MEASUREMENT is one of
  http, syscalls, allocs, memory   of HTTP servers
  dispatch, timers, posts          of event loops
  throughput                       of streams
  slowloris, bulk                  of our own server: ten thousand slow clients, bodies of 1 GiB
  instructions                     our own, held against instructions.tsv
or, with --features chart,
  chart FIGURES.json OUT.svg       draws what http --json has written

  --rounds N             http, dispatch, timers, posts, throughput: interleaved rounds (5)
  --seconds S            http: whole seconds of load in a round (2)
  --modes A,B            only these modes: http (k1,k64,k400,k4000,close64,pipe16,post1k,post1m,big1m,file1m),
                         dispatch (100/1,1000/100,9000/100), timers (1000,100000,1000000,one),
                         throughput (pair,filters,proxy,le-proxy), bulk (up,slow-up,down,slow-down)
  --connections LOW,HIGH memory: the two counts the slope is taken between (2000,9000)
  --only A,B             only these servers or programs, by name
  --server NAME=PATH     one more server: a program that takes ADDR:PORT, say an older build (repeatable);
                         of dispatch, timers, posts, throughput: an older build of target/release/ours
  --update               instructions: write instructions.tsv anew
  --json FILE            also write the figures as JSON";

/// One of the measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Allocs,
    Bulk,
    Dispatch,
    Http,
    Instructions,
    Memory,
    Posts,
    Slowloris,
    Syscalls,
    Throughput,
    Timers,
}

impl Command {
    const ALL: [Self; 11] = [
        Self::Allocs,
        Self::Bulk,
        Self::Dispatch,
        Self::Http,
        Self::Instructions,
        Self::Memory,
        Self::Posts,
        Self::Slowloris,
        Self::Syscalls,
        Self::Throughput,
        Self::Timers,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Allocs => "allocs",
            Self::Bulk => "bulk",
            Self::Dispatch => "dispatch",
            Self::Http => "http",
            Self::Instructions => "instructions",
            Self::Memory => "memory",
            Self::Posts => "posts",
            Self::Slowloris => "slowloris",
            Self::Syscalls => "syscalls",
            Self::Throughput => "throughput",
            Self::Timers => "timers",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|command| command.name() == name)
    }
}

/// The whole command line.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) command: Command,
    /// At least 1.
    pub(crate) rounds: usize,
    /// At least 1: wrk counts whole seconds.
    pub(crate) seconds: u64,
    /// Empty: all of them.
    pub(crate) modes: Vec<String>,
    /// Two connection counts, the lower one first.
    pub(crate) connections: (usize, usize),
    /// Empty: all of them.
    pub(crate) only: Vec<String>,
    /// Further servers: name and program.
    pub(crate) servers: Vec<(String, PathBuf)>,
    pub(crate) json: Option<PathBuf>,
    /// Write down what is measured instead of complaining about it.
    pub(crate) update: bool,
}

impl Options {
    pub(crate) fn parse(mut args: impl Iterator<Item = String>) -> Outcome<Self> {
        let name = args.next().ok_or("which measurement?")?;
        let command = Command::from_name(&name).ok_or_else(|| format!("no measurement is called {name}"))?;
        let mut options = Self {
            command,
            rounds: 5,
            seconds: 2,
            modes: Vec::new(),
            connections: (2_000, 9_000),
            only: Vec::new(),
            servers: Vec::new(),
            json: None,
            update: false,
        };
        while let Some(arg) = args.next() {
            if arg == "--update" {
                options.update = true;
                continue;
            }
            let value = args.next().ok_or_else(|| format!("{arg} needs a value, or is unknown"))?;
            match arg.as_str() {
                "--connections" => {
                    let (low, high) = value.split_once(',').ok_or("--connections needs LOW,HIGH")?;
                    options.connections = (positive(low)?, positive(high)?);
                    if options.connections.0 >= options.connections.1 {
                        return Err("--connections: LOW must be below HIGH".into());
                    }
                }
                "--json" => options.json = Some(value.into()),
                "--modes" => options.modes = list(&value),
                "--only" => options.only = list(&value),
                "--rounds" => options.rounds = positive(&value)?,
                "--seconds" => options.seconds = positive(&value)? as u64,
                "--server" => {
                    let (name, path) = value.split_once('=').ok_or("--server needs NAME=PATH")?;
                    options.servers.push((name.to_owned(), path.into()));
                }
                _ => return Err(format!("unknown option {arg}").into()),
            }
        }
        Ok(options)
    }

    /// Those of a measurement's `modes` that are asked for.
    ///
    /// # Errors
    /// One is asked for that is not there.
    pub(crate) fn chosen<'a, M>(
        &self,
        modes: &'a [M],
        name: impl Fn(&M) -> &'static str,
    ) -> Outcome<Vec<&'a M>> {
        if let Some(unknown) =
            self.modes.iter().find(|wanted| !modes.iter().any(|mode| name(mode) == **wanted))
        {
            return Err(format!("no mode is called {unknown}").into());
        }
        let wanted =
            |mode: &&M| self.modes.is_empty() || self.modes.iter().any(|wanted| wanted == name(mode));
        Ok(modes.iter().filter(wanted).collect())
    }
}

fn list(value: &str) -> Vec<String> {
    value.split(',').map(str::to_owned).collect()
}

fn positive(value: &str) -> Outcome<usize> {
    match value.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(format!("{value} is not a whole number above 0").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Outcome<Options> {
        Options::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn options_override_the_defaults_they_name_and_no_other() {
        let options = parse("http --rounds 3 --modes k1,close64 --server old=/tmp/old").unwrap();
        assert_eq!(options.command, Command::Http);
        assert_eq!((options.rounds, options.seconds), (3, 2));
        assert_eq!(options.modes, ["k1", "close64"]);
        assert_eq!(options.servers, [("old".to_owned(), PathBuf::from("/tmp/old"))]);
    }

    #[test]
    fn every_measurement_is_found_by_its_name() {
        for command in Command::ALL {
            assert_eq!(Command::from_name(command.name()), Some(command));
        }
    }

    #[test]
    fn the_modes_asked_for_are_chosen_and_an_unknown_one_is_an_error() {
        let modes = ["a", "b", "c"];
        let chosen = |line: &str| parse(line).unwrap().chosen(&modes, |mode| mode).map(|modes| modes.len());
        assert_eq!(chosen("http").unwrap(), 3);
        assert_eq!(chosen("http --modes c,a").unwrap(), 2);
        assert!(chosen("http --modes a,d").is_err());
    }

    #[test]
    fn a_command_line_that_makes_no_sense_is_refused() {
        for line in
            ["", "speed", "http --rounds 0", "http --rounds", "http --fast 1", "memory --connections 9,9"]
        {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
