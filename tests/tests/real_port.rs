//! A whole server in C on libevent (`tests/c/line_server.c`) and its port (`examples/examples/line_server.rs`): one script
//! drives both and must see the same. What they cost is printed: `cargo test --release -p tests --test real_port costs --
//! --nocapture`.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use event_core::EventBase;
use tests::PATIENCE;
use tests::under_test::{Program, c_program, command, connect, root};

/// One of the two servers, running.
struct Running {
    program: Program,
    lines: SocketAddr,
    status: SocketAddr,
}

impl Running {
    fn start(mut command: Command, args: &[&str]) -> Running {
        command.args(["-l", "0", "-s", "0"]).args(args).stdin(Stdio::null());
        let program = Program::run(&mut command);
        let first = program.line();
        let addresses = first.strip_prefix("lines on ").and_then(|rest| rest.split_once(", status on "));
        let (lines, status) = addresses.expect(&first);
        Running { program, lines: lines.parse().unwrap(), status: status.parse().unwrap() }
    }

    fn client(&self) -> Client {
        Client(BufReader::new(connect(self.lines)))
    }

    /// The status, the content type and the body of an answer.
    fn get(&self, path: &str) -> (String, String, String) {
        let mut stream = connect(self.status);
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").expect(&answer);
        let field = |line: &str| line.to_lowercase().strip_prefix("content-type: ").map(str::to_owned);
        let status = head.split(' ').nth(1).unwrap_or_default();
        (status.to_owned(), head.lines().find_map(field).unwrap_or_default(), body.to_owned())
    }

    /// Waits until the status page begins so: what other connections did may be on its way.
    fn status_becomes(&self, expected: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (status, content_type, body) = self.get("/status");
            if body.starts_with(expected) || Instant::now() > deadline {
                return format!("{status} {content_type}\n{body}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

struct Client(BufReader<TcpStream>);

impl Client {
    fn say(&mut self, text: &str) {
        self.0.get_ref().write_all(text.as_bytes()).unwrap();
    }

    /// The next line as it is; empty at the end.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line
    }

    fn ask(&mut self, text: &str) -> String {
        self.say(text);
        self.line()
    }

    fn rest(mut self) -> String {
        let mut rest = String::new();
        self.0.read_to_string(&mut rest).unwrap();
        rest
    }
}

/// Runs the script with the example on every backend and with the program in C, if it can be built here; each must see what
/// is expected.
fn both(args: &[&str], expected: &[&str], script: impl Fn(Running) -> Vec<String> + Sync) {
    let seen: Vec<(&str, Vec<String>)> = std::thread::scope(|scope| {
        let script = &script;
        let mut runs = Vec::new();
        for method in EventBase::supported_methods() {
            let run = scope.spawn(move || script(Running::start(command("line_server", method), args)));
            runs.push((method, run));
        }
        if let Some(binary) = c_program("line_server") {
            runs.push(("C", scope.spawn(move || script(Running::start(Command::new(binary), args)))));
        }
        runs.into_iter().map(|(of, run)| (of, run.join().unwrap())).collect()
    });
    for (of, seen) in seen {
        assert_eq!(seen, expected, "{of}");
    }
}

#[test]
fn every_command_is_answered_alike() {
    let commands = [
        ("echo hello world\n", "hello world\n"),
        ("echo with a carriage return\r\n", "with a carriage return\n"),
        ("echo\n", "\n"),
        ("echo  two blanks \n", " two blanks \n"),
        ("get colour\n", "none\n"),
        ("set colour dark red\n", "ok\n"),
        ("get colour\n", "value dark red\n"),
        ("set colour blue\n", "ok\n"),
        ("get colour\n", "value blue\n"),
        ("set colour\n", "error: no such command\n"),
        ("set colour \n", "ok\n"),
        ("set  empty key\n", "ok\n"),
        ("get \n", "value empty key\n"),
        ("get\n", "error: no such command\n"),
        ("factor 360\n", "factors 360: 2 2 2 3 3 5\n"),
        ("factor 1\n", "factors 1: 1\n"),
        ("factor 999999999989\n", "factors 999999999989: 999999999989\n"),
        ("factor 0\n", "error: not a number from 1 to 1000000000000\n"),
        ("factor 1000000000001\n", "error: not a number from 1 to 1000000000000\n"),
        ("factor 99999999999999999999999\n", "error: not a number from 1 to 1000000000000\n"),
        ("factor -3\n", "error: not a number from 1 to 1000000000000\n"),
        ("factor +3\n", "error: not a number from 1 to 1000000000000\n"),
        ("factor 3x\n", "error: not a number from 1 to 1000000000000\n"),
        ("factor \n", "error: not a number from 1 to 1000000000000\n"),
        ("factor\n", "error: no such command\n"),
        ("ECHO\n", "error: no such command\n"),
        ("\n", "error: no such command\n"),
        ("\r\n", "error: no such command\n"),
        ("quit\n", "bye\n"),
    ];
    let expected: Vec<&str> = commands.iter().map(|(_, answer)| *answer).chain([""]).collect();
    both(&[], &expected, |server| {
        let mut client = server.client();
        let mut seen: Vec<String> = commands.iter().map(|(command, _)| client.ask(command)).collect();
        seen.push(client.rest());
        seen
    });
}

#[test]
fn lines_come_in_pieces_and_many_at_once_and_nothing_is_answered_after_quit() {
    both(&[], &["1\n2\n", "abc\nbye\n", "bye\n"], |server| {
        let mut client = server.client();
        let mut seen = Vec::new();
        client.say("echo 1\nec");
        let first = client.line();
        client.say("ho 2\n");
        seen.push(first + &client.line());
        client.say("echo abc\nquit\necho not any more\n");
        seen.push(client.rest());
        seen.push(server.client().ask("quit\n"));
        seen
    });
}

#[test]
fn an_end_of_input_is_answered_to_the_end() {
    both(&[], &["1\n2\n", "two\n"], |server| {
        let mut client = server.client();
        client.say("echo 1\necho 2\necho no line");
        client.0.get_ref().shutdown(Shutdown::Write).unwrap();
        vec![client.rest(), server.client().ask("echo two\n")]
    });
}

#[test]
fn a_line_that_is_too_long_ends_its_client_and_no_other() {
    let longest = format!("{}\n", "x".repeat(1024 - 5));
    both(&[], &[&longest, "error: line too long\n", "error: line too long\n", "here\n"], |server| {
        let (mut fits, mut whole, mut endless) = (server.client(), server.client(), server.client());
        let fitting = fits.ask(&format!("echo {longest}"));
        whole.say(&format!("{}\n", "x".repeat(1025)));
        endless.say(&"x".repeat(1025));
        vec![fitting, whole.rest(), endless.rest(), fits.ask("echo here\n")]
    });
}

#[test]
fn keys_are_bounded() {
    let expected = ["ok\n", "error: full\n", "ok\n", "none\n"];
    both(&[], &expected, |server| {
        let mut client = server.client();
        let many: String = (0..1000).map(|n| format!("set {n} x\n")).collect();
        client.say(&many);
        let answers: Vec<String> = (0..1000).map(|_| client.line()).collect();
        vec![
            answers[999].clone(),
            client.ask("set another x\n"),
            client.ask("set 7 y\n"),
            client.ask("get another\n"),
        ]
    });
}

#[test]
fn jobs_do_not_hold_up_other_answers_are_bounded_and_outlive_their_client() {
    let expected = [
        "error: too many jobs\n",
        "first\n",
        "16 answers",
        "200 text/plain\nclients 1\nlines 19\njobs 17\nkeys 0\n",
    ];
    both(&[], &expected, |server| {
        let mut client = server.client();
        // The largest prime below the bound: each takes the worker a while, and all are read at once.
        let slow = "factor 999999999989\n".repeat(17);
        client.say(&format!("{slow}echo first\n"));
        let mut seen = vec![client.line(), client.line()];
        let answers =
            (0..16).map(|_| client.line()).filter(|line| line.ends_with(": 999999999989\n")).count();
        seen.push(format!("{answers} answers"));
        let mut gone = server.client();
        gone.say("factor 999999999989\n");
        drop(gone);
        seen.push(server.status_becomes("clients 1\nlines 19\njobs 17\n"));
        seen
    });
}

#[test]
fn an_idle_client_is_sent_away_and_one_that_speaks_is_not() {
    // Long enough for a machine that is held up between two lines of the busy one.
    both(&["-i", "2000"], &["bye: idle\n", "still\n", "bye: idle\n"], |server| {
        let (idle, mut busy) = (server.client(), server.client());
        let (mut said, start) = (String::new(), Instant::now());
        while start.elapsed() < Duration::from_millis(2500) {
            said = busy.ask("echo still\n");
            std::thread::sleep(Duration::from_millis(50));
        }
        vec![idle.rest(), said, busy.rest()]
    });
}

#[test]
fn the_status_page_tells_what_there_is_and_other_paths_are_not_found() {
    let expected = [
        "200 text/plain\nclients 0\nlines 0\njobs 0\nkeys 0\n",
        "200 text/plain\nclients 2\nlines 3\njobs 1\nkeys 1\n",
        "200 text/plain\nclients 1\nlines 3\njobs 1\nkeys 1\n",
        "404",
        "1 clients, 3 lines, 1 jobs",
    ];
    both(&[], &expected, |server| {
        let mut seen = vec![server.status_becomes("clients 0")];
        let (mut one, mut two) = (server.client(), server.client());
        one.ask("set key value\n");
        two.ask("factor 4\n");
        two.ask("echo\n");
        seen.push(server.status_becomes("clients 2\nlines 3\n"));
        drop(one);
        seen.push(server.status_becomes("clients 1"));
        seen.push(server.get("/other").0);
        server.program.signal("USR1");
        seen.push(server.program.line());
        seen
    });
}

#[test]
fn a_signal_ends_it_when_everybody_has_been_told() {
    for signal in ["INT", "TERM"] {
        let expected = ["stopping", "bye: stopping\n", "bye: stopping\n", "done", "status Some(0)"];
        both(&[], &expected, |server| {
            let (mut one, mut two) = (server.client(), server.client());
            one.ask("echo\n");
            two.ask("echo\n");
            server.program.signal(signal);
            let mut seen = vec![server.program.line(), one.rest(), two.rest()];
            let (status, rest) = server.program.end();
            seen.extend(rest);
            seen.push(format!("status {:?}", status.code()));
            seen
        });
    }
}

#[test]
fn what_makes_no_sense_is_refused_with_the_usage() {
    let refused = |mut command: Command| {
        let output = command.arg("-x").arg("1").output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), said.lines().last().unwrap_or_default().to_owned())
    };
    let expected = (Some(1), "usage: line_server [-l port] [-s port] [-i milliseconds]".to_owned());
    assert_eq!(refused(command("line_server", "poll")), expected);
    if let Some(binary) = c_program("line_server") {
        assert_eq!(refused(Command::new(binary)), expected);
    }
}

/// Lines that are neither blank nor comment.
fn code_lines(path: &str) -> usize {
    let text = fs::read_to_string(root().join(path)).unwrap();
    let is_code = |line: &&str| {
        let line = line.trim();
        !line.is_empty() && !["//", "/*", "*/", "* "].iter().any(|mark| line.starts_with(mark)) && line != "*"
    };
    text.lines().filter(is_code).count()
}

#[test]
fn the_guide_gives_the_lines_of_both_as_they_are() {
    let guide = fs::read_to_string(root().join("event-core/src/manual/porting.md")).unwrap();
    let [c, rust] = ["tests/c/line_server.c", "examples/examples/line_server.rs"].map(code_lines);
    let said = format!("{c} lines of code there, {rust} here");
    assert!(guide.contains(&said), "the guide should say: {said}");
}

/// The processor time of a process so far, and what it holds in memory, in KiB.
fn cost(id: u32) -> (Duration, u64) {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    let ticks: u64 = [11, 12].iter().map(|at| fields[*at].parse::<u64>().unwrap()).sum();
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let held = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    // A tick is 10 ms on Linux.
    (Duration::from_millis(ticks * 10), held.trim().trim_end_matches(" kB").parse().unwrap())
}

#[test]
fn costs_are_printed() {
    if !cfg!(target_os = "linux") {
        println!("skipped: /proc");
        return;
    }
    let idle = 200;
    let (writers, batches, batch) = (4, if cfg!(debug_assertions) { 100 } else { 1000 }, 50);
    let mut servers = vec![("Rust", command("line_server", "epoll"), "examples/examples/line_server.rs")];
    servers
        .extend(c_program("line_server").map(|binary| ("C", Command::new(binary), "tests/c/line_server.c")));
    let build = if cfg!(debug_assertions) { "debug build: CPU means nothing" } else { "release build" };
    println!("{} lines by {writers} clients, {batch} at a time; {build}", writers * batches * batch);
    for (name, command, source) in servers {
        let server = Running::start(command, &[]);
        let (_, before) = cost(server.program.id());
        let clients: Vec<Client> = (0..idle).map(|_| server.client()).collect();
        server.status_becomes(&format!("clients {idle}"));
        let (start, held) = cost(server.program.id());
        let address = server.lines;
        let talk = move || {
            let mut stream = connect(address);
            let request = "echo some words\n".repeat(batch);
            let mut answer = vec![0; "some words\n".len() * batch];
            for _ in 0..batches {
                stream.write_all(request.as_bytes()).unwrap();
                stream.read_exact(&mut answer).unwrap();
                assert!(answer.ends_with(b"words\nsome words\n"));
            }
        };
        let threads: Vec<_> = (0..writers).map(|_| std::thread::spawn(talk)).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let (end, _) = cost(server.program.id());
        let lines = writers * batches * batch;
        println!(
            "{name:<5} {:>4} lines of code; {:>6.2} us CPU a line; {:>6} KiB at start; {:>6.0} B a client that is idle",
            code_lines(source),
            (end - start).as_secs_f64() * 1e6 / lines as f64,
            before,
            (held - before) as f64 * 1024.0 / f64::from(idle),
        );
        drop(clients);
    }
}
