//! The table of raw-byte cases over real sockets: this server passes every row, and what others pass is printed.
//!
//! `cargo test -p tests --test http_peers -- --nocapture` prints the counts and the rows that are not passed. nginx is
//! asked for no more than its own answers (`return`), which come before the body, so rows that cut a body say little
//! of it.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use event_core::{Address, EventBase};
use event_http::{Request, Server};
use tests::cases::{Case, Outcome, Then, cases};
use tests::tools::tool;
use tests::{PATIENCE, Peer};

/// A server that is silent for as long has nothing more to say, if what it said is what the row wants.
const QUIET: Duration = Duration::from_millis(400);

/// For as long another program is waited for to say what a row wants. On a busy machine its count is then too small.
const WAIT: Duration = Duration::from_secs(2);

/// Rows that are run at a time, each a connection.
const BATCH: usize = 250;

/// One row on its way.
struct Run<'a> {
    case: &'a Case,
    peer: Peer,
    piece: usize,
    sent: usize,
    finished: bool,
    got: Vec<u8>,
    ended: bool,
    active: Instant,
}

impl Run<'_> {
    fn step(&mut self, patience: Duration) {
        let (bytes, ended) = self.peer.read();
        let mut moved = bytes.len();
        self.got.extend(bytes);
        self.ended |= ended;
        if let Some(piece) = self.case.pieces.get(self.piece) {
            let count = self.peer.write(&piece[self.sent..]);
            (self.sent, moved) = (self.sent + count, moved + count);
            let last = self.piece + 1 == self.case.pieces.len();
            // Between pieces the server has its say.
            let waits_for_100 = self.case.outcome.statuses.contains(&(100, false));
            let told = !waits_for_100 || self.got.windows(4).any(|four| four == b" 100");
            let time = if told { QUIET / 2 } else { patience };
            if self.sent == piece.len() && (last || self.active.elapsed() > time) {
                (self.piece, self.sent) = (self.piece + 1, 0);
                moved += 1;
            }
        } else if self.case.then == Then::Finish && !self.finished {
            self.finished = true;
            if !self.ended {
                self.peer.shutdown_write();
            }
        }
        if moved > 0 {
            self.active = Instant::now();
        }
    }

    fn is_over(&self, echoes: Echoes, patience: Duration) -> bool {
        let silence = self.active.elapsed();
        let sent = self.piece == self.case.pieces.len();
        self.ended || (sent && silence > QUIET && (silence > patience || self.passes(echoes)))
    }

    /// Whether what came is what the rule allows. Of the requests that were run only so much is compared as `echoes`
    /// says.
    fn passes(&self, echoes: Echoes) -> bool {
        let first = std::iter::once(&self.case.outcome);
        first.chain(&self.case.also).enumerate().any(|(at, outcome)| {
            let Some(answers) = answers(&self.got, outcome, self.ended) else { return false };
            // The rows say for their first outcome what is run.
            let bodies = answers.iter().filter(|(status, body)| *status == 200 && body.is_some());
            let bodies: Vec<_> = bodies.map(|(_, body)| body.as_deref().unwrap()).collect();
            let shown = self.case.runs.iter().zip(outcome.statuses.iter().filter(|status| status.0 >= 200));
            let shown = shown.filter(|(_, status)| status.0 == 200 && !status.1).map(|(run, _)| run);
            at > 0 || shown.zip(bodies).all(|(run, body)| echoes.is_of(body, run))
        })
    }
}

/// How much of a request a server's answer shows.
#[derive(Clone, Copy)]
enum Echoes {
    All,
    /// The request line.
    Line,
}

impl Echoes {
    fn is_of(self, body: &[u8], run: &[u8]) -> bool {
        match self {
            Echoes::All => body == run,
            Echoes::Line => {
                let version = body.iter().rposition(|byte| *byte == b' ').unwrap_or(0);
                run.starts_with(&body[..version])
            }
        }
    }
}

/// Status and body of each answer, if they are those of the outcome; the body is `None` where there is none.
fn answers(mut bytes: &[u8], outcome: &Outcome, ended: bool) -> Option<Vec<(u16, Option<Vec<u8>>)>> {
    let mut all = Vec::new();
    for &(status, is_head) in &outcome.statuses {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let line = head.strip_prefix("HTTP/1.")?;
        if line.get(2..5)?.parse() != Ok(status) {
            return None;
        }
        bytes = &bytes[end + 4..];
        let field = |name: &str| {
            let mut fields = head.lines().filter_map(|line| line.split_once(':'));
            fields.find(|field| field.0.eq_ignore_ascii_case(name)).map(|field| field.1.trim())
        };
        if is_head || status < 200 || status == 204 || status == 304 {
            all.push((status, None));
            continue;
        }
        let len = match field("Content-Length") {
            Some(len) => len.parse().ok()?,
            None if ended => bytes.len(),
            None => return None,
        };
        all.push((status, Some(bytes.get(..len)?.to_vec())));
        bytes = &bytes[len..];
    }
    (bytes.is_empty() && outcome.closes == ended).then_some(all)
}

/// Runs the table and prints what comes of it; gives how many rows there are, and how many of them are passed.
fn run(name: &str, echoes: Echoes, patience: Duration, connect: impl Fn() -> Peer) -> (usize, usize) {
    let all = cases();
    let rows: Vec<_> = all.iter().filter(|case| !matches!(case.then, Then::Seconds(_))).collect();
    let mut failed = Vec::new();
    for batch in rows.chunks(BATCH) {
        let start = |case| Run {
            case,
            peer: connect(),
            piece: 0,
            sent: 0,
            finished: false,
            got: Vec::new(),
            ended: false,
            active: Instant::now(),
        };
        let mut runs: Vec<_> = batch.iter().map(|case| start(case)).collect();
        while !runs.iter().all(|run| run.is_over(echoes, patience)) {
            runs.iter_mut().filter(|run| !run.ended).for_each(|run| run.step(patience));
            // Another process is to run meanwhile.
            std::thread::sleep(Duration::from_millis(1));
        }
        failed.extend(runs.iter().filter(|run| !run.passes(echoes)).map(|run| {
            let first = run.got.split(|byte| *byte == b'\r').next().unwrap_or_default();
            let end = if run.ended { "close" } else { "open" };
            format!("{} ({}; {end})", run.case.id, first.escape_ascii())
        }));
    }
    let passed = rows.len() - failed.len();
    println!("{name}: {passed} of {} rows", rows.len());
    println!("  not passed: {}", failed.join(", "));
    (rows.len(), passed)
}

/// A server of another program's, ended with this value.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A directory of this test's own.
fn directory(name: &str) -> PathBuf {
    let directory = std::env::temp_dir().join(format!("http-peers-{}-{name}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    directory
}

#[test]
fn this_server_passes_every_row() {
    let (send, receive) = std::sync::mpsc::channel();
    let server = std::thread::spawn(move || {
        let mut base = EventBase::new().unwrap();
        let http = Server::new(&base).unwrap();
        http.set_gencb(|req: Request| {
            let mut line = format!("{} {}=", req.method(), req.target()).into_bytes();
            line.extend(req.body().to_vec());
            let status = req.path().get(1..).and_then(|status| status.parse().ok());
            req.send_reply(status.filter(|status| (200..600).contains(status)).unwrap_or(200), None, line)
        });
        let Address::Ip(address) = http.bind("127.0.0.1:0").unwrap().local_address().unwrap() else {
            panic!()
        };
        send.send((address, base.remote())).unwrap();
        base.dispatch().unwrap();
    });
    let (address, remote) = receive.recv().unwrap();
    let (rows, passed) = run("event-http", Echoes::All, PATIENCE, || Peer::tcp(address));
    remote.loopbreak().unwrap();
    server.join().unwrap();
    assert_eq!(passed, rows);
}

#[test]
fn rows_can_fail_as_nginx_shows() {
    let Some(nginx) = tool("nginx") else { return };
    let place = directory("nginx");
    let socket = place.join("socket");
    let config = format!(
        "daemon off; master_process off; pid {0}/pid; error_log {0}/error crit;\n\
         events {{ worker_connections 1000; }}\n\
         http {{\n\
         access_log off; client_max_body_size 8m; client_body_temp_path {0}/body; proxy_temp_path {0}/proxy;\n\
         fastcgi_temp_path {0}/fastcgi; uwsgi_temp_path {0}/uwsgi; scgi_temp_path {0}/scgi;\n\
         server {{\n\
         listen unix:{1};\n\
         location / {{ return 200 \"$request\"; }}\n\
         location = /204 {{ return 204; }}\n\
         location = /205 {{ return 205; }}\n\
         location = /304 {{ return 304; }}\n\
         location = /404 {{ return 404; }}\n\
         }} }}\n",
        place.display(),
        socket.display()
    );
    fs::write(place.join("config"), config).unwrap();
    let mut command = Command::new(nginx);
    command.arg("-e").arg(place.join("error")).arg("-c").arg(place.join("config"));
    let mut program = Program(command.stderr(Stdio::null()).spawn().unwrap());
    let start = Instant::now();
    while UnixStream::connect(&socket).is_err() {
        let error = fs::read_to_string(place.join("error")).unwrap_or_default();
        assert!(program.0.try_wait().unwrap().is_none(), "nginx does not start: {error}");
        assert!(start.elapsed() < PATIENCE, "nginx does not listen: {error}");
        std::thread::sleep(Duration::from_millis(5));
    }
    let connect = || {
        let stream = UnixStream::connect(&socket).unwrap();
        stream.set_nonblocking(true).unwrap();
        Peer::Unix(stream)
    };
    let (rows, passed) = run("nginx", Echoes::Line, WAIT, connect);
    drop(program);
    let _ = fs::remove_dir_all(&place);
    assert!(
        passed > rows / 2 && passed < rows,
        "a peer that passes all rows, or few, is not what it should be"
    );
}

#[test]
fn rows_can_fail_as_libevent_shows() {
    let Some(compiler) = tool("cc") else { return };
    if !Path::new("/usr/include/event2/http.h").is_file() {
        println!("skipped: libevent-dev");
        let required = std::env::var_os("REQUIRE_TOOLS").is_some_and(|value| !value.is_empty());
        assert!(!required, "libevent-dev is not installed, and REQUIRE_TOOLS is set");
        return;
    }
    let place = directory("libevent");
    let binary = place.join("server");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/libevent_cases.c");
    let mut build = Command::new(compiler);
    build.args(["-O1", "-Wall", "-Werror", "-o"]).arg(&binary).arg(source).arg("-levent");
    assert!(build.status().unwrap().success());
    let mut program = Program(Command::new(&binary).stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(program.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], line.trim().parse().unwrap()));
    let (rows, passed) = run("libevent", Echoes::All, WAIT, || Peer::tcp(address));
    drop(program);
    let _ = fs::remove_dir_all(&place);
    assert!(
        passed > rows / 2 && passed < rows,
        "a peer that passes all rows, or few, is not what it should be"
    );
}
