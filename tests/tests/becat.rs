//! The `becat` example against a netcat on libevent's bufferevents: both go through the same scripts, and what they
//! print, send and end with is the same.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::channel;
use std::thread;

use socket2::{Domain, Socket, Type};
use tests::PATIENCE;
use tests::under_test::{c_program, example};

/// Ours.
fn ours() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| example("becat"))
}

/// Libevent's, if it can be built here.
fn theirs() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    BUILT.get_or_init(|| c_program("becat")).as_deref()
}

/// What one of them came to.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    stdout: Vec<u8>,
    stderr: String,
    code: Option<i32>,
    /// What the script has seen of it.
    script: String,
}

/// A line of either with what differs from run to run taken out: the numbers of ports and of errors.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some(at) = rest.find([':', '(']) {
        let (before, after) = rest.split_at(at);
        let digits = after[1..].find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len() - 1);
        plain.push_str(before.strip_suffix(' ').filter(|_| after.starts_with('(')).unwrap_or(before));
        if after.starts_with('(') {
            rest = after.split_once(')').map_or("", |parts| parts.1);
        } else {
            plain.push_str(if digits > 0 { ":N" } else { ":" });
            rest = &after[1 + digits..];
        }
    }
    plain + rest
}

fn seen(output: Output, script: String) -> Seen {
    let stderr = plain(&String::from_utf8(output.stderr).unwrap());
    Seen { stdout: output.stdout, stderr, code: output.status.code(), script }
}

fn start(program: &Path, args: &[&str], stdin: Stdio) -> Child {
    let mut command = Command::new(program);
    command.args(args).stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Runs a script with ours and with theirs; what ours came to.
fn both(script: impl Fn(&Path) -> Seen) -> Seen {
    let own = script(ours());
    if let Some(theirs) = theirs() {
        assert_eq!(own, script(theirs), "ours, and libevent's");
    }
    own
}

/// A server for one client, in a thread: what `serve` says of it.
fn server<T: Send + 'static>(
    serve: impl FnOnce(TcpStream) -> T + Send + 'static,
) -> (String, thread::JoinHandle<T>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let thread = thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        serve(stream)
    });
    (port, thread)
}

fn read_all(mut stream: &TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn numbers_that_differ_from_run_to_run_are_taken_out() {
    assert_eq!(plain("becat: connected to 127.0.0.1:81\nx"), "becat: connected to 127.0.0.1:N\nx");
    assert_eq!(plain("becat: refused (os error 111)\n"), "becat: refused\n");
}

#[test]
fn a_client_sends_its_input_and_then_the_end_and_prints_the_answer() {
    let seen = both(|program| {
        let (port, server) = server(|mut stream| {
            let text = read_all(&stream);
            stream.write_all(format!("{} bytes\n", text.len()).as_bytes()).unwrap();
            text
        });
        let mut child = start(program, &["-v", "127.0.0.1", &port], Stdio::piped());
        child.stdin.take().unwrap().write_all(b"hello\nworld\n").unwrap();
        let output = child.wait_with_output().unwrap();
        seen(output, server.join().unwrap())
    });
    assert_eq!((&*seen.stdout, &*seen.script), (&b"12 bytes\n"[..], "hello\nworld\n"));
    assert_eq!(seen.stderr, "becat: connected to 127.0.0.1:N\nbecat: the peer has ended\n");
    assert_eq!(seen.code, Some(0));
}

#[test]
fn a_file_goes_there_and_back_in_small_reads() {
    let path = std::env::temp_dir().join(format!("becat-{}.data", std::process::id()));
    let data: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    std::fs::write(&path, &data).unwrap();
    let seen = both(|program| {
        let (port, server) = server(|stream| {
            let count = std::io::copy(&mut &stream, &mut &stream).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            count.to_string()
        });
        let file = File::open(&path).unwrap();
        let child = start(program, &["-b", "4096", "-K30", "127.0.0.1", &port], file.into());
        let output = child.wait_with_output().unwrap();
        seen(output, server.join().unwrap())
    });
    std::fs::remove_file(&path).unwrap();
    assert!(seen.stdout == data, "{} bytes came back, or others", seen.stdout.len());
    assert_eq!((seen.code, &*seen.stderr, &*seen.script), (Some(0), "", "3000000"));
}

#[test]
fn the_local_address_is_the_one_that_was_asked_for() {
    let seen = both(|program| {
        let (port, server) = server(|stream| stream.peer_addr().unwrap().ip());
        let child = start(program, &["-s", "127.0.0.2", "127.0.0.1", &port], Stdio::null());
        let output = child.wait_with_output().unwrap();
        let from: IpAddr = server.join().unwrap();
        seen(output, from.to_string())
    });
    assert_eq!((seen.code, &*seen.script), (Some(0), "127.0.0.2"));
}

#[test]
fn a_refused_client_says_so_and_fails() {
    let seen = both(|program| {
        // Bound and not listening: nobody else gets the port.
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&"127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap().into()).unwrap();
        let port = socket.local_addr().unwrap().as_socket().unwrap().port().to_string();
        let child = start(program, &["127.0.0.1", &port], Stdio::null());
        seen(child.wait_with_output().unwrap(), String::new())
    });
    assert_eq!((seen.code, &*seen.stderr), (Some(1), "becat: Connection refused\n"));
    assert!(seen.stdout.is_empty());
}

#[test]
fn a_peer_that_is_silent_or_does_not_read_is_given_up_in_time() {
    for (option, is_endless) in [("-t1", false), ("-T1", true)] {
        let seen = both(|program| {
            let (end, ended) = channel::<()>();
            let (port, server) = server(move |stream| {
                let _ = ended.recv();
                drop(stream);
            });
            let stdin = if is_endless { File::open("/dev/zero").unwrap().into() } else { Stdio::piped() };
            let mut child = start(program, &[option, "127.0.0.1", &port], stdin);
            let open = child.stdin.take();
            let output = child.wait_with_output().unwrap();
            drop((open, end));
            server.join().unwrap();
            seen(output, String::new())
        });
        assert_eq!((seen.code, &*seen.stderr), (Some(1), "becat: timed out\n"), "{option}");
    }
}

/// The port in its first line of standard error, and that stream.
fn listening(child: &mut Child) -> (u16, BufReader<std::process::ChildStderr>) {
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    let port = line.trim().strip_prefix("becat: listening on 127.0.0.1:");
    (port.and_then(|port| port.parse().ok()).expect(&line), stderr)
}

#[test]
fn a_server_takes_one_client_and_ends_with_it() {
    let seen = both(|program| {
        let args = ["-l", "-v", "-s", "127.0.0.1", "-p", "0"];
        let mut child = start(program, &args, Stdio::piped());
        let (port, mut stderr) = listening(&mut child);
        child.stdin.take().unwrap().write_all(b"from the server\n").unwrap();
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let got = read_all(&stream);
        stream.write_all(b"abc").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut output = child.wait_with_output().unwrap();
        stderr.read_to_end(&mut output.stderr).unwrap();
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "nobody listens any more");
        seen(output, got)
    });
    assert_eq!((&*seen.stdout, &*seen.script, seen.code), (&b"abc"[..], "from the server\n", Some(0)));
    assert_eq!(seen.stderr, "becat: connection from 127.0.0.1:N\nbecat: the peer has ended\n");
}

#[test]
fn a_server_that_is_told_so_takes_one_client_after_the_other() {
    both(|program| {
        let args = ["-lkv", "-s127.0.0.1", "-p0"];
        let mut child = start(program, &args, Stdio::null());
        let (port, mut stderr) = listening(&mut child);
        let mut stdout = child.stdout.take().unwrap();
        let mut printed = Vec::new();
        for text in ["one", "two", "three"] {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            assert_eq!(read_all(&stream), "", "its input has ended");
            stream.write_all(text.as_bytes()).unwrap();
            drop(stream);
            let mut bytes = vec![0; text.len()];
            stdout.read_exact(&mut bytes).unwrap();
            printed.extend(bytes);
        }
        let mut said = String::new();
        (0..6).for_each(|_| assert_ne!(stderr.read_line(&mut said).unwrap(), 0));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(printed, b"onetwothree");
        Seen { stdout: printed, stderr: plain(&said), code: None, script: String::new() }
    });
}

#[test]
fn what_makes_no_sense_is_refused() {
    for args in
        [&["-x"] as &[&str], &["-t"], &["-p", "many", "-l"], &["a", "b", "c"], &["-l", "127.0.0.1", "http"]]
    {
        let output = start(ours(), args, Stdio::null()).wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(String::from_utf8(output.stderr).unwrap().starts_with("usage: becat"), "{args:?}");
    }
    let output = start(ours(), &["127.0.0.1", "0"], Stdio::null()).wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "becat: there is no port 0 to connect to\n");
}

#[test]
fn a_name_is_found_and_all_its_addresses_are_tried() {
    // Libevent's tries the first alone, which may be IPv6.
    let (port, server) = server(|stream| read_all(&stream));
    let mut child = start(ours(), &["localhost", &port], Stdio::piped());
    child.stdin.take().unwrap().write_all(b"x").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), &*server.join().unwrap()), (Some(0), "x"));
}
