//! Runs the examples as their users do, on every backend, and looks at what they print and do.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

use event_core::EventBase;
use socket2::{Domain, Socket, Type};
use tests::PATIENCE;
use tests::under_test::{Program, connect, failing, root, started};

/// A port that refuses connections until somebody calls `listen`, and that nobody else can get meanwhile.
fn reserved() -> (Socket, SocketAddr) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    (socket, address)
}

#[test]
fn raw_fd_prints_what_the_child_prints_as_it_comes() {
    for method in EventBase::supported_methods() {
        let program = Program::start("raw_fd", method, &[]);
        program.expect(&format!("watching a pipe with {method}"));
        program.ends_with(&["line 1", "line 2", "line 3", "the child has closed its end"]);
    }
}

#[test]
fn timer_fires_once_and_five_times_and_ends() {
    for method in EventBase::supported_methods() {
        let program = Program::start("timer", method, &[]);
        program.expect(&format!("timers on {method}"));
        let (status, mut lines) = program.end();
        assert!(status.success(), "{status}");
        let last = lines.pop().unwrap();
        let took = last.strip_prefix("no timer is left after ").and_then(|rest| rest.strip_suffix(" ms"));
        let took: u64 = took.and_then(|text| text.parse().ok()).expect(&last);
        assert!(took >= 500, "the fifth tick is due after 500 ms, not {took}");
        // On a machine that was held up the one-shot timer may be late, but nothing is early or missing.
        let ticks: Vec<&String> = lines.iter().filter(|line| *line != "once").collect();
        assert_eq!(ticks, ["tick 1", "tick 2", "tick 3", "tick 4", "tick 5"]);
        let once: Vec<usize> = (0..lines.len()).filter(|at| lines[*at] == "once").collect();
        assert!(once.len() == 1 && once[0] >= 2, "{lines:?}");
    }
}

#[test]
fn signals_are_counted_and_sigint_ends() {
    for method in EventBase::supported_methods() {
        let program = Program::start("signals", method, &[]);
        assert!(program.line().starts_with(&format!("waiting for signals with {method}: ")));
        // The kernel merges what is sent before it is delivered, so each is waited for.
        for (signal, line) in [("USR1", "SIGUSR1: 1"), ("TERM", "SIGTERM: 1"), ("USR1", "SIGUSR1: 2")] {
            program.signal(signal);
            program.expect(line);
        }
        program.signal("INT");
        program.expect("SIGINT: 1");
        program.ends_with(&["SIGINT in all: 1", "SIGTERM in all: 1", "SIGUSR1 in all: 2"]);
    }
}

#[test]
fn sigchld_reaps_each_child_when_it_ends() {
    for method in EventBase::supported_methods() {
        let program = Program::start("sigchld", method, &[]);
        program.expect(&format!("reaping children with {method}"));
        let (status, mut lines) = program.end();
        assert!(status.success(), "{status}");
        assert_eq!(lines.pop().as_deref(), Some("all children have ended"));
        // On a machine that was held up they may end in another order.
        lines.sort();
        assert_eq!(lines, ["killed: signal: 9 (SIGKILL)", "quick: exit status: 0", "slow: exit status: 3"]);
    }
}

#[test]
fn inside_another_loop_runs_the_events_of_both() {
    let mut driven = 0;
    for method in EventBase::supported_methods() {
        if method == "poll" {
            continue; // It has no fd to watch.
        }
        driven += 1;
        let program = Program::start("inside_another_loop", method, &[]);
        program.expect(&format!("{method} inside another loop"));
        let (status, lines) = program.end();
        assert!(status.success(), "{status}");
        let inner: Vec<_> = lines.iter().filter(|line| line.starts_with("inner tick")).collect();
        assert_eq!(inner, ["inner tick 1", "inner tick 2", "inner tick 3"]);
        for line in ["inner message: hello", "outer timer", "the inner loop has ended"] {
            assert_eq!(lines.iter().filter(|other| *other == line).count(), 1, "{lines:?}");
        }
    }
    assert!(driven > 0);
    assert!(failing("inside_another_loop", &[]).contains("use another backend"));
}

#[test]
fn mailbox_gets_every_message_in_order() {
    for method in EventBase::supported_methods() {
        let program = Program::start("mailbox", method, &[]);
        program.expect(&format!("a mailbox on {method}"));
        let squares = (1..=5).map(|n| format!("{n} squared is {}", n * n));
        let lines: Vec<String> = squares.chain(["the sum is 55".to_owned()]).collect();
        program.ends_with(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

#[test]
fn udp_sends_each_datagram_back_to_its_sender() {
    for method in EventBase::supported_methods() {
        let program = Program::start("udp", method, &["127.0.0.1:0"]);
        let address = program.address(method);
        let clients = [UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap()];
        let large = vec![7; 60_000];
        for (client, data) in clients.iter().zip([b"hello".as_slice(), &large]) {
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            client.send_to(data, address).unwrap();
        }
        for (client, data) in clients.iter().zip([b"hello".as_slice(), &large]) {
            let mut back = vec![0; 1 << 16];
            let (n, sender) = client.recv_from(&mut back).unwrap();
            assert_eq!((&back[..n], sender), (data, address));
        }
    }
}

#[test]
fn echo_gives_back_everything_and_then_closes() {
    for method in EventBase::supported_methods() {
        let program = Program::start("echo", method, &["127.0.0.1:0"]);
        let address = program.address(method);
        let mut idle = connect(address);
        let stream = connect(address);
        // More than the kernel's buffers and the server's bound together: it has to wait until we read.
        let data: Vec<u8> = (0..20_u32 << 20).map(|n| (n % 251) as u8).collect();
        let mut writer = stream.try_clone().unwrap();
        let sent = data.clone();
        let thread = std::thread::spawn(move || {
            writer.write_all(&sent).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        // The other client is served all the same.
        idle.write_all(b"me too").unwrap();
        let mut back = [0; 6];
        idle.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"me too");
        let mut back = Vec::new();
        (&stream).read_to_end(&mut back).unwrap();
        assert!(back == data, "{} bytes of {} came back, or others", back.len(), data.len());
        thread.join().unwrap();
        let local = stream.local_addr().unwrap();
        program.expect(&format!("{local} is done: {} bytes", data.len()));
    }
}

#[test]
fn hello_world_greets_hangs_up_and_ends_two_seconds_after_sigint() {
    for method in EventBase::supported_methods() {
        let program = Program::start("hello_world", method, &["127.0.0.1:0"]);
        let address = program.address(method);
        for mut stream in [connect(address), connect(address)] {
            let mut greeting = String::new();
            stream.read_to_string(&mut greeting).unwrap();
            assert_eq!(greeting, "Hello, World!\n");
            program.expect("the greeting has left");
        }
        program.signal("INT");
        program.expect("interrupted: the end is in two seconds");
        let start = Instant::now();
        // It serves until then.
        let mut greeting = String::new();
        connect(address).read_to_string(&mut greeting).unwrap();
        assert_eq!(greeting, "Hello, World!\n");
        program.ends_with(&["the greeting has left", "done"]);
        assert!(start.elapsed() > Duration::from_secs(1), "{:?}", start.elapsed());
    }
}

/// One who chats.
struct Chatter(BufReader<TcpStream>);

impl Chatter {
    fn new(address: SocketAddr, name: &str) -> Chatter {
        let mut chatter = Chatter(BufReader::new(connect(address)));
        let guest = chatter.line();
        let guest = guest.strip_prefix("* you are ").expect(&guest);
        chatter.say(&format!("/name {name}\n"));
        chatter.hears(&format!("* {guest} is now {name}"));
        chatter
    }

    fn say(&self, text: &str) {
        self.0.get_ref().write_all(text.as_bytes()).unwrap();
    }

    /// The next line; empty at the end.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    #[track_caller]
    fn hears(&mut self, line: &str) {
        assert_eq!(self.line(), line);
    }
}

#[test]
fn chat_passes_lines_on_and_tells_who_comes_and_goes() {
    for method in EventBase::supported_methods() {
        let program = Program::start("chat", method, &["127.0.0.1:0"]);
        let address = program.address(method);
        let mut ann = Chatter::new(address, "ann");
        let mut bob = Chatter::new(address, "bob");
        ann.hears("* guest2 is here");
        ann.hears("* guest2 is now bob");
        ann.say("hello\r\nand \x1b[31mred\n");
        bob.hears("ann: hello");
        bob.hears("ann: and [31mred");
        for name in ["ann", "bob", ""] {
            bob.say(&format!("/name {name}\n"));
            bob.hears("* another name, please");
        }
        let mut cyd = Chatter::new(address, "cyd");
        for chatter in [&mut ann, &mut bob] {
            chatter.hears("* guest3 is here");
            chatter.hears("* guest3 is now cyd");
        }
        // Half a line is none.
        cyd.say("to be ");
        cyd.say("continued\n/quit\nnot said any more\n");
        cyd.hears("* bye");
        cyd.hears("");
        for chatter in [&mut ann, &mut bob] {
            chatter.hears("cyd: to be continued");
            chatter.hears("* cyd has quit");
        }
        bob.say(&"x".repeat(5000));
        ann.hears("* bob wrote too long a line and is dropped");
        let dan = Chatter::new(address, "dan");
        ann.hears("* guest4 is here");
        ann.hears("* guest4 is now dan");
        drop(dan);
        ann.hears("* dan has left");
    }
}

#[test]
fn chat_drops_who_does_not_read_and_the_others_go_on() {
    for method in EventBase::supported_methods() {
        let program = Program::start("chat", method, &["127.0.0.1:0"]);
        let address = program.address(method);
        let ann = Chatter::new(address, "ann");
        let mut bob = Chatter::new(address, "bob");
        let _deaf = Chatter::new(address, "deaf");
        bob.hears("* guest3 is here");
        bob.hears("* guest3 is now deaf");
        // Line by line, so that bob is never behind; the kernel holds some megabytes for the one who does not read.
        let line = "x".repeat(4000);
        let dropped = (0..10_000).any(|_| {
            ann.say(&format!("{line}\n"));
            let heard = bob.line();
            let is_line = heard == format!("ann: {line}");
            assert!(is_line || heard == "* deaf reads too slowly and is dropped", "{heard}");
            !is_line
        });
        assert!(dropped);
        ann.say("still here\n");
        let said: Vec<String> = (0..2).map(|_| bob.line()).collect();
        assert!(said.contains(&"ann: still here".to_owned()), "{said:?}");
    }
}

#[test]
fn client_talks_to_echo() {
    for method in EventBase::supported_methods() {
        let server = Program::start("echo", method, &["127.0.0.1:0"]);
        let address = server.address(method).to_string();
        let client = Program::start("client", method, &[&address, "3"]);
        client.expect(&format!("3 rounds with {method}"));
        client.expect(&format!("connected to {address}"));
        client.ends_with(&["answer: round 1", "answer: round 2", "answer: round 3", "3 rounds are done"]);
        let by_name = address.replace("127.0.0.1", "localhost");
        let client = Program::start("client", method, &[&by_name, "1"]);
        client.expect(&format!("1 rounds with {method}"));
        client.expect(&format!("connected to {by_name}"));
        client.ends_with(&["answer: round 1", "1 rounds are done"]);
    }
}

#[test]
fn proxy_stands_between_client_and_echo_and_says_what_went_through() {
    for method in EventBase::supported_methods() {
        let server = Program::start("echo", method, &["127.0.0.1:0"]);
        let behind = server.address(method).to_string();
        let proxy = Program::start("proxy", method, &["127.0.0.1:0", &behind]);
        let stream = connect(proxy.address(method));
        let data: Vec<u8> = (0..5_u32 << 20).map(|n| (n % 251) as u8).collect();
        let mut writer = stream.try_clone().unwrap();
        let sent = data.clone();
        let thread = std::thread::spawn(move || {
            writer.write_all(&sent).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        let mut back = Vec::new();
        (&stream).read_to_end(&mut back).unwrap();
        assert!(back == data, "{} bytes of {} came back, or others", back.len(), data.len());
        thread.join().unwrap();
        let local = stream.local_addr().unwrap();
        proxy.expect(&format!("{local} is done: {0} bytes there, {0} back", data.len()));
    }
}

#[test]
fn le_proxy_takes_a_port_alone_and_says_how_it_is_called() {
    let method = EventBase::supported_methods().next().unwrap();
    let (socket, address) = reserved();
    drop(socket);
    let proxy = Program::start("le_proxy", method, &[&address.port().to_string(), "127.0.0.1:9"]);
    assert_eq!(proxy.address(method).to_string(), address.to_string());
    for bad in [&["7000"][..], &["x", "127.0.0.1:9"], &["7000", "nowhere"], &["-s", "7000", "127.0.0.1:9"]] {
        let (status, lines) = Program::start("le_proxy", method, bad).end();
        assert_eq!(status.code(), Some(1));
        assert_eq!(lines[1], "   le_proxy <listen-on-addr> <connect-to-addr>");
    }
}

#[test]
fn compress_sends_little_and_gets_all_of_it_back() {
    for method in EventBase::supported_methods() {
        let (status, lines) = Program::start("compress", method, &[]).end();
        assert!(status.success() && lines.len() == 1, "{lines:?}");
        let numbers: Vec<usize> = lines[0].split(' ').filter_map(|word| word.parse().ok()).collect();
        let [went, came] = numbers[..] else { panic!("{lines:?}") };
        assert!(came == 90_000 && went < 1000, "{lines:?}");
    }
}

#[test]
fn client_backs_off_while_it_is_refused_and_goes_on_after_a_close() {
    for method in EventBase::supported_methods() {
        let (socket, address) = reserved();
        let client = Program::start("client", method, &[&address.to_string(), "2"]);
        client.expect(&format!("2 rounds with {method}"));
        let refused = client.line();
        assert!(refused.contains("refused") && refused.ends_with(": trying again in 100ms"), "{refused}");
        assert!(client.line().ends_with(": trying again in 200ms"));
        socket.listen(8).unwrap();
        let listener = TcpListener::from(socket);
        for round in ["round 1\n", "round 2\n"] {
            let (stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            assert_eq!(line, round);
            (&stream).write_all(line.as_bytes()).unwrap();
        }
        client.expect(&format!("connected to {address}"));
        client.expect("answer: round 1");
        // The answer has made it forget the refusals.
        client.expect("the server has closed the connection: trying again in 100ms");
        client.expect(&format!("connected to {address}"));
        client.ends_with(&["answer: round 2", "2 rounds are done"]);
    }
}

#[test]
fn client_gives_up_after_five_failures_and_says_what_to_do() {
    let (_socket, address) = reserved();
    let said = failing("client", &[&address.to_string(), "1"]);
    assert!(said.contains("refused") && said.contains("cargo run --example echo"), "{said}");
}

#[test]
fn a_port_that_is_taken_is_said_so_with_what_to_do() {
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    for name in ["chat", "echo", "generic_handler", "hello_world", "proxy", "udp", "worker_thread"] {
        let address = if name == "udp" { udp.local_addr().unwrap() } else { tcp.local_addr().unwrap() };
        let said = failing(name, &[&address.to_string()]);
        assert!(said.contains("in use") && said.contains("give another address"), "{name}: {said}");
    }
    let port = tcp.local_addr().unwrap().port().to_string();
    for args in [["-l", &port, "-s", "0"], ["-l", "0", "-s", &port]] {
        let said = failing("line_server", &args);
        assert!(said.contains("in use") && said.contains("give another address"), "{args:?}: {said}");
    }
}

#[test]
fn an_argument_that_makes_no_sense_is_refused() {
    for args in [&["8081"] as &[&str], &["nowhere"], &["127.0.0.1:1", "none"], &["127.0.0.1:1", "0"]] {
        let said = failing("client", args);
        assert!(said.starts_with("usage: client HOST:PORT"), "{args:?}: {said}");
    }
}

/// The README's words between backquotes and its indented lines that begin so.
fn readme_commands(program: &str) -> Vec<&'static str> {
    let readme = include_str!("../../README.md");
    let indented = readme.lines().filter_map(|line| line.strip_prefix("    "));
    indented.chain(readme.split('`')).filter(|text| text.starts_with(program)).collect()
}

#[test]
fn every_example_that_the_readme_names_is_run_by_a_test() {
    let commands = readme_commands("cargo run ");
    assert!(commands.len() >= 8, "{commands:?}");
    let files = std::fs::read_dir(root().join("tests/tests")).unwrap().map(|entry| entry.unwrap().path());
    let tests: Vec<String> = files.filter_map(|file| std::fs::read_to_string(file).ok()).collect();
    for command in commands {
        let Some((_, name)) = command.rsplit_once("--example ") else {
            assert!(command.contains(" -p benches "), "{command}");
            continue;
        };
        let source = root().join(format!("examples/examples/{name}.rs"));
        assert!(source.exists(), "there is no example {name}");
        let quoted = format!("\"{name}\"");
        assert!(tests.iter().any(|test| test.contains(&quoted)), "no test starts {name}");
    }
}

#[test]
fn generic_handler_answers_as_the_readme_says() {
    let Some(curl) = tests::tools::tool("curl") else { return };
    let lines = readme_commands("curl ");
    let [line] = lines[..] else { panic!("the README has one curl line, not {lines:?}") };
    for method in EventBase::supported_methods() {
        let (program, port) = started("generic_handler", method);
        let words = line.replace(":8081", &format!(":{port}"));
        assert_ne!(words, line, "the README's curl line names the port");
        let mut command = Command::new(&curl);
        let output =
            command.args(["-sS", "--max-time", "20"]).args(words.split(' ').skip(1)).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let body = String::from_utf8(output.stdout).unwrap();
        assert!(body.ends_with("Thanks for the request!"), "{body}");
        program.signal("TERM");
        let (status, rest) = program.end();
        assert!(status.success(), "{status}: {rest:?}");
    }
}

#[test]
fn a_server_refuses_what_is_no_address() {
    for name in ["generic_handler", "worker_thread"] {
        for text in ["8081", "127.0.0.1", "127.0.0.1:80x", "127.0.0.1:99999"] {
            let said = failing(name, &[text]);
            assert!(said.starts_with(&format!("{text}: an address is IP:PORT, ")), "{said}");
        }
    }
}

#[test]
fn worker_thread_counts_words_for_several_clients_at_once() {
    for method in EventBase::supported_methods() {
        let (program, port) = started("worker_thread", method);
        let clients: Vec<TcpStream> =
            (0..3).map(|_| connect(SocketAddr::from(([127, 0, 0, 1], port)))).collect();
        for (n, mut client) in clients.iter().enumerate() {
            let text = "word ".repeat(n + 1);
            let head =
                format!("POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {}", text.len());
            client.write_all(format!("{head}\r\n\r\n{text}").as_bytes()).unwrap();
        }
        for (n, mut client) in clients.iter().enumerate() {
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
            assert!(answer.ends_with(&format!("\r\n\r\n{} words\n", n + 1)), "{answer}");
        }
        drop(program);
    }
}
