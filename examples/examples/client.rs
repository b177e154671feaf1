//! A TCP client: sends a line, waits for it to come back, and so on for some rounds. When the server refuses or closes
//! it tries again after a while, each time after twice as long, and gives up after five failures in a row.
//!
//! Try: cargo run --example echo, and in another terminal: cargo run --example client localhost:7777 3

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use event_core::{BufferEvent, Callbacks, Connect, Direction, Eol, Error};
use event_core::{EventBase, LoopHandle, StreamEvent, ToAddress, What};
use examples::{argument, reason};

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MOST_FAILURES: u32 = 5;
const PATIENCE: Duration = Duration::from_secs(5);

/// What outlives a connection.
struct Task {
    address: String, // or a name
    rounds: u32,
    done: Cell<u32>,
    failures: Cell<u32>, // since the last answer
}

/// One connection.
struct Session(Rc<Task>);

fn ask(task: &Task, bev: &BufferEvent) {
    let _ = bev.write(format!("round {}\n", task.done.get() + 1));
}

impl Callbacks for Session {
    fn on_read(&mut self, bev: &BufferEvent) {
        let Some(line) = bev.input().readln(Eol::Lf) else { return };
        println!("answer: {}", String::from_utf8_lossy(&line));
        self.0.failures.set(0);
        self.0.done.set(self.0.done.get() + 1);
        if self.0.done.get() < self.0.rounds {
            ask(&self.0, bev);
        } else {
            bev.free(); // the last thing the loop waits for: it ends
        }
    }

    fn on_event(&mut self, bev: &BufferEvent, event: StreamEvent) {
        if event.contains(StreamEvent::CONNECTED) {
            println!("connected to {}", self.0.address);
            return ask(&self.0, bev);
        }
        let why = match bev.error() {
            Some(error) => reason(&error),
            None if event.contains(StreamEvent::TIMEOUT) => format!("no answer in {PATIENCE:?}"),
            None => "the server has closed the connection".to_owned(),
        };
        bev.free();
        try_later(bev.handle(), &self.0, &why);
    }
}

fn connect(handle: &LoopHandle, task: &Rc<Task>) {
    let enabled = Connect::new(&task.address).start(handle).and_then(|stream| {
        stream.set_timeouts(Some(PATIENCE), Some(PATIENCE));
        stream.set_callbacks(Session(task.clone()));
        stream.enable(Direction::READ)
    });
    if let Err(error) = enabled {
        try_later(handle, task, &reason(&error));
    }
}

fn try_later(handle: &LoopHandle, task: &Rc<Task>, why: &str) {
    let failures = task.failures.get() + 1;
    task.failures.set(failures);
    if failures == MOST_FAILURES {
        eprintln!("{why}, {failures} times in a row: is a server there? Start one: cargo run --example echo");
        std::process::exit(1);
    }
    let pause = FIRST_PAUSE * 2_u32.pow(failures - 1);
    println!("{why}: trying again in {pause:?}");
    let (again, task) = (handle.clone(), task.clone());
    let _ = handle.once(-1, What::empty(), Some(pause), move |_| connect(&again, &task));
}

fn main() -> Result<(), Error> {
    let address = argument("127.0.0.1:7777");
    let rounds = std::env::args().nth(2).map_or(3, |text| text.parse().unwrap_or(0));
    if address.to_target().is_err() || rounds == 0 {
        eprintln!("usage: client HOST:PORT ROUNDS, such as client localhost:7777 3");
        std::process::exit(1);
    }
    let mut base = EventBase::new()?;
    println!("{rounds} rounds with {}", base.method());
    let task = Rc::new(Task { address, rounds, done: Cell::new(0), failures: Cell::new(0) });
    connect(&base, &task);
    base.dispatch()?;
    println!("{} rounds are done", task.done.get());
    Ok(())
}
