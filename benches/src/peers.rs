//! The servers that are compared: where each comes from, and how it is told what to do.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::Outcome;
use crate::client::REASON;
use crate::configured::{self, TempDir};
use crate::options::{Command, Options};
use crate::tools::{self, compiled, find_tool, peer_workspace};
use crate::work::{self, Work};

/// The yard-stick's name: ratios are taken to the server that is called this.
pub(crate) const YARD_STICK: &str = "bare";

/// The same program once more: what differs between the two is noise.
pub(crate) const CONTROL: &str = "bare again";

/// Our own.
pub(crate) const OURS: &str = "event-http";

/// How a server is told what to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// By arguments, everything: it reads no more of a request than where it ends.
    Bare,
    /// Our own with long bodies, whatever it is to do.
    Bulk,
    /// By the path of a request.
    ByPath,
    Haproxy,
    Libevent,
    /// As `ByPath`, but it never closes.
    May,
    Nginx,
    /// The example, or the program with large answers.
    Ours,
    /// Whatever program was given: it answers `/` only.
    Plain,
}

/// A server that can be started, or the reason why it cannot.
pub(crate) struct Peer {
    pub(crate) name: String,
    program: Result<PathBuf, String>,
    /// The one with large answers, where that is another.
    large: Option<Result<PathBuf, String>>,
    /// What stands behind the 200 in its answers.
    pub(crate) reason: &'static str,
    kind: Kind,
}

/// One way to run a server.
pub(crate) struct Start {
    /// The program and its arguments.
    pub(crate) words: Vec<OsString>,
    /// It says so when it is ready; any other is ready when it takes connections.
    pub(crate) says_ready: bool,
    /// What must live as long as it does.
    pub(crate) dir: Option<TempDir>,
}

impl Peer {
    /// Builds or finds every server that `options` asks for, the yard-stick first.
    pub(crate) fn all(options: &Options) -> Outcome<Vec<Self>> {
        let mut peers = Vec::new();
        let wanted = |name: &str| options.only.is_empty() || options.only.iter().any(|only| only == name);
        let bare = compiled("bare", &[])?;
        for name in [YARD_STICK, CONTROL] {
            // What is counted rather than timed comes out alike: no control is needed.
            let measured = name == YARD_STICK || options.command == Command::Http;
            if measured && wanted(name) {
                peers.push(Self::new(name, bare.clone(), REASON, Kind::Bare));
            }
        }
        if wanted("libevent") {
            let program = compiled("libevent", &["-levent"])?;
            peers.push(Self::new("libevent", program, REASON, Kind::Libevent));
        }
        for (name, kind) in [("nginx", Kind::Nginx), ("haproxy", Kind::Haproxy)] {
            if wanted(name) {
                let program = find_server(name).ok_or_else(|| format!("{name} is not installed"));
                peers.push(Self::new(name, program, "OK", kind));
            }
        }
        if wanted("hyper") {
            peers.push(Self::new("hyper", peer_workspace("hyper", "hyper-peer")?, "OK", Kind::ByPath));
        }
        if wanted("may_minihttp") {
            let program = peer_workspace("may_minihttp", "may-peer")?;
            peers.push(Self::new("may_minihttp", program, "Ok", Kind::May));
        }
        if wanted(OURS) {
            peers.push(Self::ours()?);
        }
        for (name, path) in &options.servers {
            let program = if path.is_file() { Ok(path.clone()) } else { Err("no such file".to_owned()) };
            peers.push(Self::new(name, program, REASON, Kind::Plain));
        }
        for only in &options.only {
            if !peers.iter().any(|peer| &peer.name == only) {
                return Err(format!("no server is called {only}").into());
            }
        }
        Ok(peers)
    }

    fn new(name: &str, program: Result<PathBuf, String>, reason: &'static str, kind: Kind) -> Self {
        Self { name: name.to_owned(), program, large: None, reason, kind }
    }

    /// Our own servers, both built now: nothing is to be built while others are measured.
    pub(crate) fn ours() -> Outcome<Self> {
        let small = Self::new(OURS, our_example()?, REASON, Kind::Ours);
        Ok(Self { large: Some(our_server()?), ..small })
    }

    /// Our own server of long bodies.
    pub(crate) fn bulk() -> Outcome<Self> {
        let program = tools::built_by_cargo(&["-p", "benches", "--bin", "ours"], "ours")?;
        Ok(Self::new(OURS, program, REASON, Kind::Bulk))
    }

    /// The bare loop.
    #[cfg(test)]
    pub(crate) fn bare() -> Outcome<Self> {
        Ok(Self::new(YARD_STICK, compiled("bare", &[])?, REASON, Kind::Bare))
    }

    /// Any program that takes `ADDR:PORT`.
    #[cfg(test)]
    pub(crate) fn plain(program: PathBuf) -> Self {
        Self::new("plain", Ok(program), REASON, Kind::Plain)
    }

    /// How to have it do `work` on `address`, for up to `connections` clients.
    ///
    /// # Errors
    /// - `missing: ...` if there is no such program here
    /// - `no such mode: ...` if it cannot do this
    pub(crate) fn start(&self, address: SocketAddr, work: Work, connections: usize) -> Outcome<Start> {
        let program = self.program.as_ref().map_err(|why| format!("missing: {why}"))?;
        let address_word = OsString::from(address.to_string());
        let with_address = |program: &Path, more: Vec<OsString>| Start {
            words: [vec![program.into(), address_word.clone()], more].concat(),
            says_ready: true,
            dir: None,
        };
        let file = || -> Outcome<Vec<OsString>> { Ok(vec!["file".into(), work::file()?.into()]) };
        match (self.kind, work) {
            (Kind::Bulk, _) => Ok(Start {
                words: vec![program.into(), "bulk".into(), address_word],
                says_ready: true,
                dir: None,
            }),
            (Kind::May, Work::Close) => Err("no such mode: it never closes a connection".into()),
            (Kind::Plain, Work::Big | Work::File) => Err("no such mode: it has one answer".into()),
            (Kind::Ours, Work::Big | Work::File) => {
                let large = self.large.as_ref().unwrap_or(&self.program);
                let large = large.as_ref().map_err(|why| format!("missing: {why}"))?;
                Ok(with_address(large, vec![work::file()?.into()]))
            }
            (Kind::Bare | Kind::Libevent, Work::Big) => Ok(with_address(program, vec!["big".into()])),
            (Kind::Bare, Work::Close) => Ok(with_address(program, vec!["close".into()])),
            (Kind::Bare, Work::Post(len)) => {
                Ok(with_address(program, vec!["post".into(), len.to_string().into()]))
            }
            (Kind::Bare | Kind::Libevent | Kind::ByPath | Kind::May, Work::File) => {
                Ok(with_address(program, file()?))
            }
            (Kind::Nginx | Kind::Haproxy, _) => {
                let made = match self.kind {
                    Kind::Nginx => configured::nginx(address, work, connections)?,
                    _ => configured::haproxy(address, work, connections)?,
                };
                let words = [vec![program.into()], made.words].concat();
                Ok(Start { words, says_ready: false, dir: Some(made.dir) })
            }
            (Kind::Libevent | Kind::ByPath | Kind::May | Kind::Ours | Kind::Plain | Kind::Bare, _) => {
                Ok(with_address(program, Vec::new()))
            }
        }
    }
}

/// Daemons lie where only root's `PATH` leads.
fn find_server(name: &str) -> Option<PathBuf> {
    let elsewhere = || ["/usr/sbin", "/usr/local/sbin"].map(|dir| Path::new(dir).join(name));
    find_tool(name).or_else(|| elsewhere().into_iter().find(|file| file.is_file()))
}

/// The example server.
fn our_example() -> Outcome<Result<PathBuf, String>> {
    let what = ["-p", "examples", "--example", "generic_handler"];
    tools::built_by_cargo(&what, "examples/generic_handler")
}

/// The server with large answers.
fn our_server() -> Outcome<Result<PathBuf, String>> {
    tools::built_by_cargo(&["-p", "benches", "--bin", "server"], "server")
}
