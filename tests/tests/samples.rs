//! Ports of libevent's samples beside programs in C that do the same on libevent (`tests/c`): both go through one script,
//! and what they print and send is compared.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use event_core::EventBase;
use tests::PATIENCE;
use tests::under_test::{Program, c_program, command, connect};

/// What a script saw of a program, a line each.
type Seen = Vec<String>;

/// Runs the script with the program in C, if it can be built here, and with the example on every backend; all must see the
/// same, and the first of it must be what `expected` says.
fn alike(name: &str, expected: &[&str], script: impl Fn(&dyn Fn(&[&str]) -> Command) -> Seen + Sync) {
    let seen: Vec<(String, Seen)> = std::thread::scope(|scope| {
        let script = &script;
        let mut runs = Vec::new();
        for method in EventBase::supported_methods() {
            let run = scope.spawn(move || script(&|args| with_args(command(name, method), args)));
            runs.push((method.to_owned(), run));
        }
        if let Some(binary) = c_program(name) {
            let run = scope.spawn(move || script(&|args| with_args(Command::new(&binary), args)));
            runs.push(("C".to_owned(), run));
        }
        runs.into_iter().map(|(of, run)| (of, run.join().unwrap())).collect()
    });
    for (of, seen) in seen {
        assert_eq!(seen, expected, "{name}: {of}");
    }
}

fn with_args(mut command: Command, args: &[&str]) -> Command {
    command.args(args).stdin(Stdio::null());
    command
}

/// The rest of what it prints, and its status.
fn end(program: Program) -> Seen {
    let (status, mut lines) = program.end();
    lines.push(format!("status {:?}", status.code()));
    lines
}

/// Digits are the machine's, or chance.
fn without_numbers(line: &str) -> String {
    let mut text: String = line.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    while text.contains("00") {
        text = text.replace("00", "0");
    }
    text
}

/// A directory of its own, removed in the end.
struct Place(PathBuf);

impl Place {
    fn new() -> Place {
        static LAST: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let number = LAST.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("event-samples-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Place(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn event_read_fifo_prints_what_is_written_and_removes_its_pipe() {
    let expected = [
        "waiting for what is written to event.fifo",
        "read 6 bytes: hello",
        "read 8 bytes: another",
        "done",
        "status Some(0)",
        "the pipe is gone: true",
    ];
    alike("event_read_fifo", &expected, |start| {
        let place = Place::new();
        let fifo = place.0.join("event.fifo");
        let program = Program::run(start(&[]).current_dir(&place.0));
        let mut seen = vec![program.line()];
        // Each writer opens and closes the pipe: its end is not the end of the program.
        for text in ["hello\n", "another\n"] {
            std::fs::OpenOptions::new().write(true).open(&fifo).unwrap().write_all(text.as_bytes()).unwrap();
            seen.push(program.line());
        }
        program.signal("INT");
        seen.extend(end(program));
        seen.push(format!("the pipe is gone: {}", !fifo.exists()));
        seen
    });
}

#[test]
fn event_read_fifo_takes_the_place_of_an_old_pipe_and_of_nothing_else() {
    let expected =
        ["waiting for what is written to event.fifo", "status Some(0)", "status Some(1)", "precious"];
    alike("event_read_fifo", &expected, |start| {
        let place = Place::new();
        let fifo = place.0.join("event.fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let program = Program::run(start(&[]).current_dir(&place.0));
        let mut seen = vec![program.line()];
        program.signal("INT");
        seen.extend(end(program).pop());
        std::fs::write(&fifo, "precious").unwrap();
        let refused = start(&[]).current_dir(&place.0).output().unwrap();
        seen.push(format!("status {:?}", refused.status.code()));
        assert!(String::from_utf8_lossy(&refused.stderr).contains("exists"), "{refused:?}");
        seen.push(std::fs::read_to_string(&fifo).unwrap());
        seen
    });
}

#[test]
fn signal_test_ends_by_itself_at_the_third_signal() {
    let expected = [
        "waiting for three SIGINT",
        "signal 2, number 1",
        "signal 2, number 2",
        "signal 2, number 3",
        "done",
        "status Some(0)",
    ];
    alike("signal_test", &expected, |start| {
        let program = Program::run(&mut start(&[]));
        let mut seen = vec![program.line()];
        for _ in 0..3 {
            program.signal("INT");
            seen.push(program.line());
        }
        seen.extend(end(program));
        seen
    });
}

#[test]
fn time_test_ticks_every_two_seconds_with_either_kind_of_timer() {
    let ticks = ["0.0 seconds have passed", "0.0 seconds have passed"];
    for args in [&[] as &[&str], &["-p"]] {
        alike("time_test", &ticks, |start| {
            let program = Program::run(&mut start(args));
            let lines = [program.line(), program.line()];
            // Together at least: a persistent tick that was late is followed by one that is not. Since the program reads
            // the time before it arms the timer, nothing is early; the other clock of the one in C may be by a little.
            let seconds = lines.iter().map(|line| line.split(' ').next().unwrap().parse::<f64>().unwrap());
            let sum: f64 = seconds.sum();
            assert!(sum > 3.98, "{lines:?}");
            lines.iter().map(|line| without_numbers(line)).collect()
        });
    }
}

#[test]
fn time_test_refuses_what_it_does_not_know() {
    alike("time_test", &["status Some(1)", "usage: time_test [-p]"], |start| {
        let output = start(&["-x"]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        vec![format!("status {:?}", output.status.code()), said.lines().next().unwrap().to_owned()]
    });
}

#[test]
fn watch_timing_says_each_second_how_long_handlers_take_and_how_late_the_loop_wakes() {
    let line = "handlers: p0 0.0 ms, p0 0.0 ms; late: p0 0.0 ms, p0 0.0 ms";
    alike("watch_timing", &[line, line, "done", "status Some(0)"], |start| {
        let program = Program::run(&mut start(&[]));
        let lines = [program.line(), program.line()];
        for line in &lines {
            let numbers: Vec<f64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
            let [p50, p95, late_p50, late_p95] = numbers[..] else { panic!("{line}") };
            assert!(0.0 <= p50 && p50 <= p95 && 0.0 < p95, "{line}");
            assert!(0.0 <= late_p50 && late_p50 <= late_p95, "{line}");
        }
        let mut seen: Seen = lines.iter().map(|line| without_numbers(line)).collect();
        program.signal("INT");
        // A third report may be on its way.
        seen.extend(end(program).into_iter().filter(|line| !line.starts_with("handlers")));
        seen
    });
}

#[test]
fn hello_world_greets_each_client_hangs_up_and_ends_after_sigint() {
    let expected = [
        "client: Hello, World!\n",
        "the greeting has left",
        "client: Hello, World!\n",
        "the greeting has left",
        "interrupted: the end is in two seconds",
        "client: Hello, World!\n",
        "the greeting has left",
        "done",
        "status Some(0)",
    ];
    alike("hello_world", &expected, |start| {
        // The example takes an address, the program in C a port.
        let is_example = start(&[]).get_program().to_string_lossy().contains("examples");
        let program = Program::run(&mut start(&[if is_example { "127.0.0.1:0" } else { "0" }]));
        let line = program.line();
        let address = line.split(' ').nth(2).and_then(|text| text.parse::<SocketAddr>().ok()).expect(&line);
        let address = SocketAddr::from(([127, 0, 0, 1], address.port()));
        let mut seen = Seen::new();
        let mut greet = |program: &Program| {
            let mut stream = connect(address);
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut greeting = String::new();
            stream.read_to_string(&mut greeting).unwrap();
            seen.push(format!("client: {greeting}"));
            seen.push(program.line());
        };
        greet(&program);
        greet(&program);
        program.signal("INT");
        let interrupted = program.line();
        greet(&program);
        seen.insert(4, interrupted);
        seen.extend(end(program));
        seen
    });
}

/// Status, Content-Type, Content-Length and body of an answer, a line each.
fn ask_http(stream: impl Read + Write, request: &str) -> Seen {
    let mut stream = stream;
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").expect(&answer);
    let field = |name: &str| {
        let value = |line: &str| line.to_lowercase().strip_prefix(name).map(str::to_owned);
        head.lines().find_map(value).unwrap_or_default()
    };
    let status = head.split(' ').nth(1).unwrap_or_default();
    let of = format!("{status} {} {}", field("content-type: "), field("content-length: "));
    let short = |line: &str| if line.len() < 200 { line.to_owned() } else { format!("{} bytes", line.len()) };
    [of].into_iter().chain(body.lines().map(short)).collect()
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
}

#[test]
fn http_server_serves_files_lists_directories_and_prints_the_rest() {
    let expected = [
        "200 text/plain 6",
        "hello",
        "200 application/misc 200000",
        "200000 bytes",
        "200 text/html 0",
        "200 text/html 179",
        "<html><head><title>/</title><base href=\"/\"></head><body><ul>",
        "<li><a href=\"a%20b\">a b</a>",
        "<li><a href=\"empty.html\">empty.html</a>",
        "<li><a href=\"x.txt\">x.txt</a>",
        "</ul></body></html>",
        "200 text/html 123",
        "<html><head><title>/a b</title><base href=\"/a b/\"></head><body><ul>",
        "<li><a href=\"%26%3C\">&amp;&lt;</a>",
        "</ul></body></html>",
        "404",
        "404",
        "404",
        "200 0",
        "200 0",
        "asked for /x.txt",
        "GET /dump?a=b",
        "Host: a",
        "Connection: close",
        "",
        "",
        "asked for /upload",
        "POST /upload",
        "Host: a",
        "Content-Length: 4",
        "Connection: close",
        "",
        "body",
        "413",
        "status Some(0)",
    ];
    alike("http_server", &expected, |start| {
        let place = Place::new();
        std::fs::write(place.0.join("x.txt"), "hello\n").unwrap();
        std::fs::write(place.0.join("empty.html"), "").unwrap();
        std::fs::create_dir(place.0.join("a b")).unwrap();
        std::fs::write(place.0.join("a b/&<"), "x".repeat(200_000)).unwrap();
        let root = place.0.to_str().unwrap();
        let program = Program::run(&mut start(&["-H", "127.0.0.1", "-m", "100", "-v", root]));
        let line = program.line();
        let address = line.strip_prefix("listening on ").and_then(|text| text.parse::<SocketAddr>().ok());
        let address = address.expect(&line);
        let ask = |request: &str| ask_http(connect(address), request);
        let first = |request: &str| ask(request)[0].split(' ').next().unwrap().to_owned();
        let mut seen = ask(&get("/x.txt"));
        let mut printed = vec![program.line()];
        for path in ["/a%20b/%26%3c", "/empty.html", "/", "/a%20b"] {
            seen.extend(ask(&get(path)));
            program.line();
        }
        for path in ["/none", "/../etc/passwd", "/a%20b/%2e%2e/x.txt"] {
            seen.push(first(&get(path)));
            program.line();
        }
        let upload = |n: usize| {
            format!("POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: {n}\r\nConnection: close\r\n\r\n")
        };
        for (request, lines) in [(get("/dump?a=b"), 5), (upload(4) + "body", 7)] {
            let answer = ask(&request);
            seen.push(format!("{} {}", &answer[0][..3], answer[0].rsplit(' ').next().unwrap()));
            printed.extend((0..lines).map(|_| program.line()));
        }
        seen.append(&mut printed);
        seen.push(first(&upload(101)));
        program.signal("INT");
        seen.extend(end(program));
        seen
    });
}

#[test]
fn http_server_listens_on_a_unix_socket_and_replaces_an_old_one_if_told() {
    let expected = ["200", "refused: true", "200", "status Some(0)"];
    alike("http_server", &expected, |start| {
        let place = Place::new();
        let socket = place.0.join("socket");
        let path = socket.to_str().unwrap();
        let status = || {
            let stream = std::os::unix::net::UnixStream::connect(&socket).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            ask_http(stream, &get("/"))[0].split(' ').next().unwrap().to_owned()
        };
        let mut first = start(&["-U", path, "/usr/share"]);
        let program = Program::run(&mut first);
        assert_eq!(program.line(), format!("listening on unix:{path}"));
        let mut seen = vec![status()];
        // Killed, so that its socket stays.
        drop(program);
        let refused = start(&["-U", path, "/usr/share"]).output().unwrap();
        seen.push(format!("refused: {}", !refused.status.success()));
        let program = Program::run(&mut start(&["-u", "-U", path, "/usr/share"]));
        program.line();
        seen.push(status());
        program.signal("INT");
        seen.extend(end(program));
        seen
    });
}

/// What comes until the end, or until a reset.
fn all_of(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _reset = stream.read_to_end(&mut bytes);
    bytes
}

#[test]
fn le_proxy_passes_on_both_ways_and_closes_one_side_behind_what_is_on_its_way_when_the_other_ends() {
    let expected = [
        "listening on 127.0.0.1",
        "1000 bytes, then 5241880 that end: the same true",
        "hello, bye, and the end",
        "nobody behind: 0 bytes and the end",
        "status None",
    ];
    alike("le_proxy", &expected, |start| {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let program = Program::run(&mut start(&["127.0.0.1:0", &server.local_addr().unwrap().to_string()]));
        let line = program.line();
        let address = line.split(' ').nth(2).and_then(|text| text.parse().ok());
        let address: SocketAddr = address.expect(&line);
        let mut seen = vec![format!("listening on {}", address.ip())];
        // The client hangs up, and all that it sent arrives, although nobody reads for a while.
        let data: Vec<u8> = (0..5_u32 << 20).map(|n| (n % 251) as u8).collect();
        let mut client = connect(address);
        let (mut inside, _) = server.accept().unwrap();
        let sent = data.clone();
        let thread = std::thread::spawn(move || client.write_all(&sent).unwrap());
        let mut first = [0; 1000];
        inside.read_exact(&mut first).unwrap();
        let rest = all_of(&mut inside);
        thread.join().unwrap();
        let same = first == data[..1000] && rest == data[1000..];
        seen.push(format!("1000 bytes, then {} that end: the same {same}", rest.len()));
        // The server hangs up, and so the client is told, without a half-close on the way.
        let mut client = connect(address);
        let (mut inside, _) = server.accept().unwrap();
        client.write_all(b"hello").unwrap();
        let mut hello = [0; 5];
        inside.read_exact(&mut hello).unwrap();
        inside.write_all(b"bye").unwrap();
        inside.shutdown(Shutdown::Write).unwrap();
        let bye = all_of(&mut client);
        let end = if inside.read(&mut [0; 5]).unwrap_or(0) == 0 { "the end" } else { "more" };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        seen.push(format!("{}, {}, and {end}", text(&hello), text(&bye)));
        drop((server, inside));
        seen.push(format!("nobody behind: {} bytes and the end", all_of(&mut connect(address)).len()));
        program.signal("KILL");
        let (status, _) = program.end();
        seen.push(format!("status {:?}", status.code()));
        seen
    });
}
