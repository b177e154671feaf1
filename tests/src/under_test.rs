//! Examples and C programs run as processes, as their users do.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, Once};
use std::time::{Duration, Instant, SystemTime};

use event_core::EventBase;

use crate::PATIENCE;
use crate::tools::tool;

/// Where cargo has put an example of the same profile as this test. `cargo test --workspace` has built them all; a
/// test of this package alone has not, and then they are built here.
pub fn example(name: &str) -> PathBuf {
    static BUILD: Once = Once::new();
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().and_then(|deps| deps.parent()).unwrap();
    let path = profile.join("examples").join(name);
    BUILD.call_once(|| {
        let sources = ["event-core/src", "event-http/src", "examples"].map(|part| newest(&root().join(part)));
        if changed(&path) < sources.into_iter().max().unwrap() {
            let mut cargo = Command::new(env!("CARGO"));
            cargo.args(["build", "-p", "examples", "--examples"]).current_dir(root());
            if profile.ends_with("release") {
                cargo.arg("--release");
            }
            assert!(cargo.status().unwrap().success(), "the examples do not build");
        }
    });
    assert!(path.exists(), "there is no example {name}: {}", path.display());
    path
}

/// The repository.
pub fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// When a file last changed; long ago if there is none.
fn changed(path: &Path) -> SystemTime {
    path.metadata().and_then(|data| data.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// When the newest file under a directory last changed.
fn newest(path: &Path) -> SystemTime {
    let Ok(entries) = path.read_dir() else { return changed(path) };
    entries.map(|entry| newest(&entry.unwrap().path())).max().unwrap_or(SystemTime::UNIX_EPOCH)
}

/// A command that runs an example on one backend: all others are avoided.
pub fn command(name: &str, method: &str) -> Command {
    let mut command = Command::new(example(name));
    command.stdin(Stdio::null());
    for other in EventBase::supported_methods() {
        let variable = format!("EVENT_NO{}", other.to_uppercase());
        if other == method {
            command.env_remove(variable);
        } else {
            command.env(variable, "1");
        }
    }
    command
}

/// A running example, killed if the test ends first.
pub struct Program {
    child: Child,
    lines: Receiver<String>,
}

/// Reads to the end, so that a program that talks much never blocks on a full pipe.
fn lines_of(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            let _nobody_listens = sender.send(line);
        }
    });
    lines
}

impl Program {
    /// One that speaks on standard output.
    pub fn start(name: &str, method: &str, args: &[&str]) -> Program {
        Program::run(command(name, method).args(args))
    }

    /// Starts any command and listens to its standard output.
    pub fn run(command: &mut Command) -> Program {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let stdout = child.stdout.take().unwrap();
        Program { child, lines: lines_of(stdout) }
    }

    /// One that speaks on standard error.
    pub fn start_server(name: &str, method: &str, args: &[&str]) -> Program {
        let mut child = command(name, method).args(args).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = child.stderr.take().unwrap();
        Program { child, lines: lines_of(stderr) }
    }

    /// The next line it prints.
    pub fn line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("the example prints no further line")
    }

    /// Expects this as the next line.
    #[track_caller]
    pub fn expect(&self, line: &str) {
        assert_eq!(self.line(), line);
    }

    /// The address in its first line, `listening on ADDRESS with METHOD`.
    pub fn address(&self, method: &str) -> SocketAddr {
        let line = self.line();
        let address = line.strip_prefix("listening on ").and_then(|rest| rest.strip_suffix(method));
        address.and_then(|rest| rest.strip_suffix(" with ")).and_then(|text| text.parse().ok()).expect(&line)
    }

    /// Waits for its end, with everything read that it has printed.
    pub fn end(mut self) -> (ExitStatus, Vec<String>) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                let rest = std::iter::from_fn(|| self.lines.recv_timeout(PATIENCE).ok()).collect();
                return (status, rest);
            }
            assert!(Instant::now() < deadline, "the example does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Expects it to end well after these last lines.
    pub fn ends_with(self, lines: &[&str]) {
        let (status, rest) = self.end();
        assert_eq!(rest, lines);
        assert!(status.success(), "{status}");
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal, such as `INT`.
    pub fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client that waits for [`PATIENCE`] at most.
pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Runs an example that must fail, and returns what it says.
pub fn failing(name: &str, args: &[&str]) -> String {
    let output = command(name, "poll").args(args).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// Starts a server on a port that the system chooses, which its first line names.
pub fn started(name: &str, method: &str) -> (Program, u16) {
    let program = Program::start_server(name, method, &["127.0.0.1:0"]);
    let line = program.line();
    let port = line.rsplit([' ', ':']).next().and_then(|port| port.parse().ok());
    (program, port.unwrap_or_else(|| panic!("{name} names no port: {line}")))
}

/// A compiler for C that is to find libevent.
///
/// Without one or without libevent's headers prints `skipped: ...` and gives `None`; where `REQUIRE_TOOLS` is set it fails
/// the test instead.
pub fn c_compiler() -> Option<PathBuf> {
    let compiler = tool("cc")?;
    if Path::new("/usr/include/event2/event.h").is_file() {
        return Some(compiler);
    }
    println!("skipped: libevent-dev");
    let required = std::env::var_os("REQUIRE_TOOLS").is_some_and(|value| !value.is_empty());
    assert!(!required, "libevent-dev is not installed, and REQUIRE_TOOLS is set");
    None
}

/// Builds `tests/c/NAME.c` against libevent, once for each test binary, and says where it is; `None` without a
/// [`c_compiler`].
pub fn c_program(name: &str) -> Option<PathBuf> {
    let compiler = c_compiler()?;
    // Under the name of this very binary: several may run side by side.
    let test = std::env::current_exe().unwrap();
    let directory = test.with_file_name(format!("{}-c", test.file_name().unwrap().to_string_lossy()));
    std::fs::create_dir_all(&directory).unwrap();
    let binary = directory.join(name);
    let source = root().join(format!("tests/c/{name}.c"));
    static BUILT: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let mut built = BUILT.lock().unwrap();
    if !built.insert(binary.clone()) {
        return Some(binary);
    }
    let mut build = Command::new(compiler);
    build
        .args(["-O2", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", "-pthread", "-o"])
        .arg(&binary)
        .arg(source);
    assert!(
        build.args(["-levent", "-levent_pthreads"]).status().unwrap().success(),
        "{name}.c does not build"
    );
    Some(binary)
}
