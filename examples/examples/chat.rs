//! A chat room: each client's lines go to all others. Who reads too slowly is dropped, so that nobody has to wait.
//!
//! Try: cargo run --example chat                   (or: cargo run --example chat unix:/tmp/chat.sock)
//! and in two other terminals: nc (or: cargo run --example becat --) 127.0.0.1 7779, then a line, /name NAME, or /quit

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use event_core::{BufferEvent, Callbacks, Direction, Eol, Error, EventBase, Listener, StreamEvent};
use examples::{argument, cannot_listen};

/// The longest line, and how much may wait for a client that does not read, besides what the kernel holds.
const LIMITS: (usize, usize) = (4096, 64 * 1024);

/// Who is there, by number: the name and the stream.
#[derive(Default)]
struct Room(RefCell<BTreeMap<usize, (String, BufferEvent)>>);

impl Room {
    /// Writes a line to all but one. A stream that it is too much for gets an event for that, later.
    fn tell(&self, except: usize, line: &str) {
        for (_, (_, bev)) in self.0.borrow().iter().filter(|(id, _)| **id != except) {
            let _ = bev.write(format!("{line}\n"));
        }
    }

    fn name(&self, id: usize) -> String {
        self.0.borrow().get(&id).map_or_else(String::new, |(name, _)| name.clone())
    }

    /// False if somebody has the name, or it is none.
    fn rename(&self, id: usize, new: &str) -> bool {
        let mut members = self.0.borrow_mut();
        let is_free = !new.is_empty() && members.values().all(|(name, _)| name != new);
        members.get_mut(&id).filter(|_| is_free).map(|(name, _)| new.clone_into(name)).is_some()
    }

    fn leave(&self, id: usize, why: &str) {
        let name = self.name(id);
        if self.0.borrow_mut().remove(&id).is_some() {
            self.tell(id, &format!("* {name} {why}"));
        }
    }
}

struct Member {
    id: usize,
    room: Rc<Room>,
}

impl Callbacks for Member {
    fn on_read(&mut self, bev: &BufferEvent) {
        while let Some(line) = bev.input().readln(Eol::Crlf) {
            // Control characters would do things to the others' terminals.
            let line: String = String::from_utf8_lossy(&line).chars().filter(|c| !c.is_control()).collect();
            let name = self.room.name(self.id);
            if line == "/quit" {
                self.room.leave(self.id, "has quit");
                let _ = bev.write("* bye\n");
                return bev.close_after_flush();
            }
            match line.strip_prefix("/name ") {
                None => self.room.tell(self.id, &format!("{name}: {line}")),
                Some(new) if self.room.rename(self.id, new) => {
                    self.room.tell(0, &format!("* {name} is now {new}"));
                }
                Some(_) => drop(bev.write("* another name, please\n")),
            }
        }
    }

    fn on_event(&mut self, bev: &BufferEvent, _: StreamEvent) {
        let why = match bev.error() {
            Some(Error::OutputFull) => "reads too slowly and is dropped",
            Some(Error::InputFull) => "wrote too long a line and is dropped",
            _ => "has left",
        };
        self.room.leave(self.id, why);
        bev.free();
    }
}

fn main() -> Result<(), Error> {
    let address = argument("127.0.0.1:7779");
    let mut base = EventBase::new()?;
    let (room, mut last) = (Rc::new(Room::default()), 0);
    let listener = Listener::bind(&base, &address, move |_, accepted| {
        last += 1;
        let (id, bev) = (last, accepted.into_stream());
        bev.set_max(Some(LIMITS.0), Some(LIMITS.1));
        bev.set_callbacks(Member { id, room: room.clone() });
        let _ = bev.write(format!("* you are guest{id}\n"));
        let _ = bev.enable(Direction::READ);
        room.0.borrow_mut().insert(id, (format!("guest{id}"), bev));
        room.tell(id, &format!("* guest{id} is here"));
    })
    .unwrap_or_else(|error| cannot_listen(&address, error));
    println!("listening on {} with {}", listener.local_address()?, base.method());
    base.dispatch().map(|_| ())
}
