//! Running servers: how each is started, watched and stopped.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::client::{Client, Script};
use crate::configured::TempDir;
use crate::peers::Peer;
use crate::work::Work;
use crate::{Outcome, proc};

/// How long a server may take to be ready; under valgrind what OpenSSL does for HAProxy takes many seconds.
const START: Duration = Duration::from_secs(60);

/// How long a server may take to end after SIGTERM.
const STOP: Duration = Duration::from_secs(15);

/// How a server is to be run.
#[derive(Default)]
pub(crate) struct Launch {
    /// The processor it may run on.
    pub(crate) cpu: Option<usize>,
    /// Program and arguments to put before the server: strace, valgrind.
    pub(crate) wrapper: Vec<OsString>,
    /// What will be asked of it.
    pub(crate) work: Work,
    /// The most clients at once, or 0 for a few.
    pub(crate) connections: usize,
}

/// A running server; dropping it stops it.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    /// What it says on standard error, line by line.
    lines: Receiver<String>,
    script: Arc<Script>,
    /// Goes when the server has ended.
    _dir: Option<TempDir>,
}

impl Server {
    /// Starts `peer` on a free port and waits until it says that it is ready.
    pub(crate) fn start(peer: &Peer, launch: &Launch) -> Outcome<Self> {
        // The port is free again when the listener is dropped; whoever takes it in between makes the start fail.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let start = peer.start(address, launch.work, launch.connections)?;
        let words = [launch.wrapper.clone(), start.words].concat();
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
        let script = Arc::new(Script::new(address, launch.work, peer.reason));
        let mut server = Self { child, address, lines, script, _dir: start.dir };
        if start.says_ready {
            server.wait_for_its_word()?;
        } else {
            server.wait_for_its_socket()?;
        }
        Ok(server)
    }

    fn wait_for_its_word(&self) -> Outcome<()> {
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

    fn wait_for_its_socket(&mut self) -> Outcome<()> {
        let deadline = Instant::now() + START;
        while Instant::now() < deadline {
            if TcpStream::connect(self.address).is_ok() {
                return Ok(());
            }
            self.still_runs()?;
            thread::sleep(Duration::from_millis(10));
        }
        let said: Vec<String> = self.lines.try_iter().collect();
        Err(format!("took no connection: {}", said.join(" | ")).into())
    }

    /// The process that was started: the server, or the tool that runs it.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A new connection to it, for the work that it was started for.
    pub(crate) fn connect(&self) -> Outcome<Client> {
        Client::connect(self.address, &self.script)
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

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpStream};

    use super::*;
    use crate::tools::find_tool;
    use crate::work::MIB;

    /// The bare loop, started for `work`; none without a C compiler.
    fn bare(work: Work) -> Option<Server> {
        match Server::start(&Peer::bare().unwrap(), &Launch { work, ..Launch::default() }) {
            Ok(server) => Some(server),
            Err(why) if why.to_string().starts_with("missing: ") => {
                println!("skipped: {why}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn the_bare_loop_answers_one_by_one_pipelined_and_split_at_every_byte() {
        let Some(server) = bare(Work::Get) else { return };
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
        let Some(server) = bare(Work::Close) else { return };
        for _ in 0..10 {
            let mut client = server.connect().unwrap();
            client.send().unwrap();
            client.last_answer().unwrap();
        }
    }

    #[test]
    fn the_bare_loop_takes_bodies_and_gives_large_answers_one_by_one_and_pipelined() {
        for work in [Work::Post(1), Work::Post(1_000), Work::Post(MIB), Work::Big, Work::File] {
            let Some(server) = bare(work) else { return };
            let mut client = server.connect().unwrap();
            for _ in 0..3 {
                client.get().unwrap();
            }
            client.get_pipelined(3).unwrap();
            server.stop().unwrap();
        }
    }

    #[test]
    fn the_bare_loop_answers_a_post_with_its_last_byte_wherever_it_is_cut() {
        let Some(server) = bare(Work::Post(7)) else { return };
        let mut client = server.connect().unwrap();
        let len = client.get().unwrap();
        let two = Work::Post(7).request(server.address).repeat(2);
        for cut in 1..two.len() {
            let mut stream = TcpStream::connect(server.address).unwrap();
            stream.set_nodelay(true).unwrap();
            stream.write_all(&two[..cut]).unwrap();
            // One loop serves both in the order in which they became ready: by the first of these answers the connection
            // was accepted, by the second the piece was read.
            client.get().unwrap();
            client.get().unwrap();
            // Only where nothing is to come, nothing is waited for.
            let whole = cut >= two.len() / 2;
            stream.set_nonblocking(!whole).unwrap();
            let mut early = [0; 4096];
            let answered = stream.read(&mut early).unwrap_or(0);
            assert_eq!(answered, if whole { len } else { 0 }, "cut at {cut}");
            stream.set_nonblocking(false).unwrap();
            stream.write_all(&two[cut..]).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).unwrap();
            assert_eq!(answered + rest.len(), 2 * len, "cut at {cut}");
        }
    }

    #[test]
    fn a_program_that_ends_at_once_is_an_error_that_repeats_what_it_said() {
        let peer = Peer::plain(find_tool("ls").unwrap());
        let error = Server::start(&peer, &Launch::default()).err().unwrap().to_string();
        assert!(error.contains("127.0.0.1:"), "{error}");
    }
}
