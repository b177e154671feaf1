//! Real clients against a server on a real kernel: curl, and with `LOAD=1` the load tools.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use event_core::{Config, EventBase, LoopEnd, Sender};
use event_http::{Limits, Request, Server};
use tests::http::PAGE;
use tests::tools::tool;

/// More than is uploaded: a client that goes on sending is sure to see why it was refused only if a lingering close reads
/// all of it.
const LINGER: u64 = 16 << 20;

/// A server on a thread of its own, stopped when this is dropped.
struct Running {
    address: SocketAddr,
    stop: Sender<()>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start(method: &'static str) -> Running {
        let (sender, receiver) = channel();
        let thread = std::thread::spawn(move || {
            let config = EventBase::supported_methods()
                .filter(|other| *other != method)
                .fold(Config::new().ignore_env(), Config::avoid_method);
            let mut base = EventBase::with_config(config).unwrap();
            let server = Server::new(&base).unwrap();
            server.set_limits(Limits { max_linger_bytes: Some(LINGER), ..Limits::default() });
            server.set_gencb(|req: Request| req.send_reply(200, "Client", PAGE));
            server
                .set_cb("/echo", |mut req: Request| {
                    let mut body = req.take_body();
                    write!(body, "|{}", req.method());
                    req.send_reply(200, None, body)
                })
                .unwrap();
            server
                .set_cb("/stream", |req: Request| {
                    let reply = req.send_reply_start(200, None)?;
                    for n in 0..1000 {
                        reply.chunk(format!("{n}\n"))?;
                    }
                    reply.end()
                })
                .unwrap();
            let address = server.bind("127.0.0.1:0").unwrap().local_address().unwrap().socket_addr().unwrap();
            let stopping = server.clone();
            let (mailbox, stop) = base
                .mailbox(move |()| {
                    stopping.shutdown(Duration::from_secs(10));
                })
                .unwrap();
            sender.send((address, stop)).unwrap();
            assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
            assert_eq!(server.connection_count(), 0);
            drop(mailbox);
        });
        let (address, stop) = receiver.recv().unwrap();
        Running { address, stop, thread: Some(thread) }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Ends when the last connection has ended.
        let _ = self.stop.send(());
        let result = self.thread.take().unwrap().join();
        if !std::thread::panicking() {
            result.unwrap();
        }
    }
}

fn each_method(test: impl Fn(&Running)) {
    for method in EventBase::supported_methods() {
        test(&Running::start(method));
    }
}

/// Runs a program to its end and returns what it printed.
#[track_caller]
fn run(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{text}{errors}", output.status);
    text
}

#[test]
fn curl_gets_heads_and_posts() {
    let Some(curl) = tool("curl") else { return };
    each_method(|server| {
        let get = |args: &[&str], path: &str| {
            run(Command::new(&curl).args(["-sS", "--max-time", "20"]).args(args).arg(server.url(path)))
        };
        assert_eq!(get(&[], "/"), PAGE);
        assert_eq!(get(&["--http1.0"], "/"), PAGE);
        let head = get(&["-I"], "/");
        assert!(
            head.starts_with("HTTP/1.1 200 Client\r\n") && head.contains("Content-Length: 23\r\n"),
            "{head}"
        );
        // Above 1 kB older versions expect a 100; asked for here, so that all do.
        let body = "b".repeat(2_000_000);
        let file = std::env::temp_dir().join(format!("event-http-curl-{}", std::process::id()));
        std::fs::write(&file, &body).unwrap();
        let data = format!("@{}", file.display());
        let path = file.display().to_string();
        let echoed = body.clone() + "|POST";
        assert_eq!(get(&["--data-binary", &data], "/echo"), echoed);
        let verbose =
            get(&["-H", "Expect: 100-continue", "--data-binary", &data, "--stderr", "-", "-v"], "/echo");
        assert!(verbose.contains("HTTP/1.1 100 Continue") && verbose.contains("HTTP/1.1 200 OK"));
        assert_eq!(get(&["-H", "Transfer-Encoding: chunked", "--data-binary", &data], "/echo"), echoed);
        assert_eq!(get(&["-T", &path], "/echo"), body + "|PUT");
        std::fs::remove_file(&file).unwrap();
        let lines: String = (0..1000).map(|n| format!("{n}\n")).collect();
        assert_eq!(get(&[], "/stream"), lines);
        assert_eq!(get(&["--http1.0"], "/stream"), lines);
        let twice = run(Command::new(&curl)
            .args(["-sS", "--max-time", "20", "-w", "%{num_connects}"])
            .args([server.url("/"), server.url("/")]));
        assert_eq!(twice, format!("{PAGE}1{PAGE}0"), "the connection is used again");
    });
}

#[test]
fn a_refused_upload_is_seen_by_curl() {
    let Some(curl) = tool("curl") else { return };
    each_method(|server| {
        let file = std::env::temp_dir().join(format!("event-http-large-{}", std::process::id()));
        std::fs::write(&file, vec![b'x'; 9 << 20]).unwrap();
        for expect in ["Expect:", "Expect: 100-continue"] {
            let status = run(Command::new(&curl)
                .args([
                    "-sS",
                    "--max-time",
                    "20",
                    "-o",
                    "/dev/null",
                    "-w",
                    "%{http_code}",
                    "-H",
                    expect,
                    "--data-binary",
                ])
                .arg(format!("@{}", file.display()))
                .arg(server.url("/echo")));
            assert_eq!(status, "413");
        }
        std::fs::remove_file(&file).unwrap();
    });
}

/// Whether the load tools are to run; they take seconds. They do so one at a time, each with the machine to itself,
/// while the result is held.
fn load() -> Option<MutexGuard<'static, ()>> {
    static ONE: Mutex<()> = Mutex::new(());
    let load = std::env::var_os("LOAD").is_some_and(|value| value == "1");
    if !load {
        println!("skipped: LOAD is not 1");
        return None;
    }
    Some(ONE.lock().unwrap_or_else(PoisonError::into_inner))
}

#[test]
fn ab_fails_no_request() {
    let Some(_alone) = load() else { return };
    let Some(ab) = tool("ab") else { return };
    each_method(|server| {
        for args in [
            &["-c", "10", "-n", "1500"][..],
            &["-k", "-c", "200", "-n", "10000"],
            &["-c", "200", "-n", "2000"],
        ] {
            let text = run(Command::new(&ab).args(["-q", "-s", "20"]).args(args).arg(server.url("/")));
            assert!(text.contains("Failed requests:        0\n"), "{args:?}: {text}");
            assert!(!text.contains("Non-2xx"), "{args:?}: {text}");
            let complete = format!("Complete requests:      {}\n", args[args.len() - 1]);
            assert!(text.contains(&complete), "{args:?}: {text}");
        }
    });
}

#[test]
fn httperf_sees_no_error() {
    let Some(_alone) = load() else { return };
    let Some(httperf) = tool("httperf") else { return };
    each_method(|server| {
        let text = run(Command::new(&httperf).args([
            "--hog",
            "--server",
            "127.0.0.1",
            "--port",
            &server.address.port().to_string(),
            "--num-conn",
            "1000",
            "--num-call",
            "10",
            "--rate",
            "300",
            "--timeout",
            "5",
        ]));
        assert!(text.contains("Errors: total 0 "), "{text}");
        assert!(text.contains("replies 10000 "), "{text}");
    });
}

#[test]
fn wrk_sees_no_error() {
    let Some(_alone) = load() else { return };
    let Some(wrk) = tool("wrk") else { return };
    each_method(|server| {
        let text = run(Command::new(&wrk)
            .args(["-c", "400", "-d", "2s", "-t", "2", "--timeout", "30s"])
            .arg(server.url("/")));
        assert!(!text.contains("Socket errors") && !text.contains("Non-2xx"), "{text}");
        assert!(text.contains("requests in"), "{text}");
    });
}

#[test]
fn h2load_sees_no_error() {
    let Some(_alone) = load() else { return };
    let Some(h2load) = tool("h2load") else { return };
    each_method(|server| {
        // One at a time, and sixteen pipelined on each connection.
        for streams in ["1", "16"] {
            let text = run(Command::new(&h2load)
                .args(["--h1", "-n", "20000", "-c", "100", "-t", "1", "-m", streams])
                .arg(server.url("/")));
            let all =
                "20000 total, 20000 started, 20000 done, 20000 succeeded, 0 failed, 0 errored, 0 timeout";
            assert!(text.contains(all) && text.contains("status codes: 20000 2xx,"), "-m {streams}: {text}");
        }
    });
}
