//! The servers under test: how each is built, started, watched and stopped.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::options::{Command as Measurement, Options};
use crate::tools::{self, compiled};
use crate::{Outcome, proc};

/// The yard-stick's name: ratios are taken to the server that is called this.
pub(crate) const YARD_STICK: &str = "bare";

/// The same program once more: what differs between the two is noise.
pub(crate) const CONTROL: &str = "bare again";

/// How long a server may take to say that it is ready; valgrind needs seconds.
const START: Duration = Duration::from_secs(30);

/// How long a server may take to end after SIGTERM.
const STOP: Duration = Duration::from_secs(15);

/// A server that can be started, or the reason why it cannot.
pub(crate) struct Peer {
    pub(crate) name: String,
    pub(crate) program: Result<PathBuf, String>,
    /// Does not look at `Connection: close` and must be told to close by the argument `close`.
    told_to_close: bool,
    /// What stands before the address on its command line.
    before: &'static [&'static str],
}

impl Peer {
    /// Builds or finds every server that `options` asks for, the yard-stick first.
    pub(crate) fn all(options: &Options) -> Outcome<Vec<Self>> {
        let mut peers = Vec::new();
        let wanted = |name: &str| options.only.is_empty() || options.only.iter().any(|only| only == name);
        let bare = compiled("bare", &[])?;
        for name in [YARD_STICK, CONTROL] {
            // What is counted rather than timed comes out alike: no control is needed.
            let measured = name == YARD_STICK || options.command == Measurement::Http;
            if measured && wanted(name) {
                peers.push(Self {
                    name: name.into(),
                    program: bare.clone(),
                    told_to_close: true,
                    before: &[],
                });
            }
        }
        if wanted("libevent") {
            let program = compiled("libevent", &["-levent"])?;
            peers.push(Self { name: "libevent".into(), program, told_to_close: false, before: &[] });
        }
        if wanted("event-http") {
            peers.push(Self::ours()?);
        }
        for (name, path) in &options.servers {
            let program = if path.is_file() { Ok(path.clone()) } else { Err("no such file".to_owned()) };
            peers.push(Self { name: name.clone(), program, told_to_close: false, before: &[] });
        }
        for only in &options.only {
            if !peers.iter().any(|peer| &peer.name == only) {
                return Err(format!("no server is called {only}").into());
            }
        }
        Ok(peers)
    }

    /// Our own example server.
    pub(crate) fn ours() -> Outcome<Self> {
        Ok(Self { name: "event-http".into(), program: our_example()?, told_to_close: false, before: &[] })
    }

    /// Our own server of long bodies.
    pub(crate) fn bulk() -> Outcome<Self> {
        let program = tools::built_by_cargo(&["-p", "benches", "--bin", "ours"], "ours")?;
        Ok(Self { name: "event-http".into(), program, told_to_close: false, before: &["bulk"] })
    }

    /// The program, or an error that says why there is none.
    pub(crate) fn program(&self) -> Outcome<&Path> {
        match &self.program {
            Ok(path) => Ok(path),
            Err(why) => Err(format!("missing: {why}").into()),
        }
    }
}

/// How a server is to be run.
#[derive(Default)]
pub(crate) struct Launch {
    /// The processor it may run on.
    pub(crate) cpu: Option<usize>,
    /// Program and arguments to put before the server: strace, valgrind.
    pub(crate) wrapper: Vec<OsString>,
    /// Each connection will carry one request.
    pub(crate) one_request: bool,
}

/// A running server; dropping it stops it.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    /// What it says on standard error, line by line.
    lines: Receiver<String>,
}

impl Server {
    /// Starts `peer` on a free port and waits until it says that it is ready.
    pub(crate) fn start(peer: &Peer, launch: &Launch) -> Outcome<Self> {
        let program = peer.program()?;
        // The port is free again when the listener is dropped; whoever takes it in between makes the start fail.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let mut words = launch.wrapper.clone();
        words.push(program.into());
        words.extend(peer.before.iter().map(OsString::from));
        words.push(address.to_string().into());
        if launch.one_request && peer.told_to_close {
            words.push("close".into());
        }
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let spawned = match launch.cpu {
            Some(cpu) => proc::pinned(cpu, || command.spawn())?,
            None => command.spawn(),
        };
        let mut child = spawned.map_err(|error| format!("cannot start {:?}: {error}", words[0]))?;
        let stderr = child.stderr.take().ok_or("standard error was not piped")?;
        let (sender, lines) = channel();
        // Reads to the end, so that a server that talks much never blocks on a full pipe.
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let _nobody_listens = sender.send(line);
            }
        });
        let server = Self { child, address, lines };
        server.wait_until_ready()?;
        Ok(server)
    }

    fn wait_until_ready(&self) -> Outcome<()> {
        let deadline = Instant::now() + START;
        let mut said = Vec::new();
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) if line.starts_with("Server started on port") => return Ok(()),
                Ok(line) => said.push(line),
                Err(error) => return Err(format!("did not start ({error}): {}", said.join(" | ")).into()),
            }
        }
    }

    /// The process that was started: the server, or the tool that runs it.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A new connection to it.
    pub(crate) fn connect(&self) -> Outcome<Client> {
        Client::connect(self.address)
    }

    /// Asks the server to end, and waits for it and for the tool that runs it.
    pub(crate) fn stop(mut self) -> Outcome<ExitStatus> {
        self.end()
    }

    /// An error if the server has ended by itself.
    pub(crate) fn still_runs(&mut self) -> Outcome<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => {
                let said: Vec<String> = self.lines.try_iter().collect();
                Err(format!("ended by itself ({status}): {}", said.join(" | ")).into())
            }
        }
    }

    fn end(&mut self) -> Outcome<ExitStatus> {
        if let Some(status) = self.child.try_wait()? {
            return Ok(status);
        }
        // Under strace the server is a child of the tool, which then writes its table and ends by itself.
        let family = proc::family(self.pid());
        let servers = if family.len() > 1 { &family[1..] } else { &family[..] };
        servers.iter().for_each(|&pid| proc::terminate(pid));
        let deadline = Instant::now() + STOP;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            thread::sleep(Duration::from_millis(5));
        }
        self.child.kill()?;
        self.child.wait()?;
        Err(format!("did not end within {STOP:?} of SIGTERM and was killed").into())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("benches: server on {}: {error}", self.address);
        }
    }
}

/// The example server.
fn our_example() -> Outcome<Result<PathBuf, String>> {
    let what = ["-p", "examples", "--example", "generic_handler"];
    tools::built_by_cargo(&what, "examples/generic_handler")
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpStream};

    use super::*;
    use crate::tools::find_tool;

    fn bare() -> Option<Peer> {
        let program = compiled("bare", &[]).unwrap();
        if let Err(why) = &program {
            println!("skipped: {why}");
            return None;
        }
        Some(Peer { name: YARD_STICK.into(), program, told_to_close: true, before: &[] })
    }

    #[test]
    fn the_bare_loop_answers_one_by_one_pipelined_and_split_at_every_byte() {
        let Some(peer) = bare() else { return };
        let server = Server::start(&peer, &Launch::default()).unwrap();
        let mut client = server.connect().unwrap();
        let len = client.get().unwrap();
        client.get_pipelined(16).unwrap();
        client.get_pipelined(3_000).unwrap();
        let two = b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\nHost: b\r\n\r\n";
        for cut in 1..two.len() {
            let mut stream = TcpStream::connect(server.address).unwrap();
            stream.set_nodelay(true).unwrap();
            stream.write_all(&two[..cut]).unwrap();
            // One loop serves both in the order in which they became ready: this answer says that the piece was read.
            client.get().unwrap();
            stream.write_all(&two[cut..]).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let mut all = Vec::new();
            stream.read_to_end(&mut all).unwrap();
            assert_eq!(all.len(), 2 * len, "cut at {cut}");
        }
        server.stop().unwrap();
    }

    #[test]
    fn a_peer_told_to_close_closes_after_its_answer() {
        let Some(peer) = bare() else { return };
        let launch = Launch { one_request: true, ..Launch::default() };
        let server = Server::start(&peer, &launch).unwrap();
        for _ in 0..10 {
            server.connect().unwrap().get_and_close().unwrap();
        }
    }

    #[test]
    fn a_program_that_ends_at_once_is_an_error_that_repeats_what_it_said() {
        let program = Ok(find_tool("ls").unwrap());
        let peer = Peer { name: "ls".into(), program, told_to_close: false, before: &[] };
        let error = Server::start(&peer, &Launch::default()).err().unwrap().to_string();
        assert!(error.contains("127.0.0.1:"), "{error}");
    }
}
