//! What the tests of streams share: callbacks that write down what they see.

use std::cell::RefCell;
use std::fs::File;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};

use event_core::{BufferEvent, Callbacks, Direction, StreamEvent};

/// What happened, in order, as words.
#[derive(Clone, Default)]
pub struct Seen(Rc<RefCell<Vec<String>>>);

impl Seen {
    /// Nothing so far.
    pub fn new() -> Seen {
        Seen::default()
    }

    /// Writes something down.
    pub fn push(&self, what: impl Into<String>) {
        self.0.borrow_mut().push(what.into());
    }

    /// Everything since the last call.
    pub fn take(&self) -> Vec<String> {
        self.0.take()
    }

    /// Everything there is, which stays.
    pub fn all(&self) -> Vec<String> {
        self.0.borrow().clone()
    }

    /// How much there is.
    pub fn len(&self) -> usize {
        self.0.borrow().len()
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The bits of an event as words, in the order of their values.
pub fn words(event: StreamEvent) -> String {
    event.iter_names().map(|(name, _)| name.to_lowercase()).collect::<Vec<_>>().join(" ")
}

/// Callbacks that write everything down.
pub struct Recorder {
    /// Where to.
    pub seen: Seen,
    /// Whether the read callback takes the input.
    pub drains: bool,
    /// Whether every event but `CONNECTED` frees the stream.
    pub frees: bool,
}

impl Recorder {
    /// Takes the input and frees at every end.
    pub fn new(seen: &Seen) -> Recorder {
        Recorder { seen: seen.clone(), drains: true, frees: true }
    }

    /// Takes the input and leaves the stream alone whatever happens.
    pub fn patient(seen: &Seen) -> Recorder {
        Recorder { seen: seen.clone(), drains: true, frees: false }
    }

    /// Leaves the input where it is.
    pub fn idle(seen: &Seen) -> Recorder {
        Recorder { seen: seen.clone(), drains: false, frees: true }
    }

    /// Gives a stream a [`new`](Self::new) one and has it read; what that writes down.
    pub fn on(stream: &BufferEvent) -> Seen {
        recorded(stream, Recorder::new)
    }

    /// The same with a [`patient`](Self::patient) one.
    pub fn patient_on(stream: &BufferEvent) -> Seen {
        recorded(stream, Recorder::patient)
    }

    /// The same with an [`idle`](Self::idle) one.
    pub fn idle_on(stream: &BufferEvent) -> Seen {
        recorded(stream, Recorder::idle)
    }
}

fn recorded(stream: &BufferEvent, recorder: fn(&Seen) -> Recorder) -> Seen {
    let seen = Seen::new();
    stream.set_callbacks(recorder(&seen));
    stream.enable(Direction::READ).unwrap();
    seen
}

impl Callbacks for Recorder {
    fn on_read(&mut self, bev: &BufferEvent) {
        if self.drains {
            self.seen.push(format!("read {}", String::from_utf8_lossy(&bev.read_buffer().to_vec())));
        } else {
            self.seen.push(format!("has {}", bev.pending_input()));
        }
    }

    fn on_write(&mut self, bev: &BufferEvent) {
        self.seen.push(format!("wrote, {} left", bev.pending_output()));
    }

    fn on_event(&mut self, bev: &BufferEvent, event: StreamEvent) {
        self.seen.push(words(event));
        if self.frees && !event.contains(StreamEvent::CONNECTED) {
            bev.free();
        }
    }

    fn on_deadline(&mut self, _: &BufferEvent) {
        self.seen.push("deadline");
    }
}

/// Sends everything back and frees at every end.
pub struct Echo;

impl Callbacks for Echo {
    fn on_read(&mut self, bev: &BufferEvent) {
        let data = bev.read_buffer();
        let _ = bev.write(data);
    }
}

/// A path for a unix-domain socket that no other test has.
pub fn socket_path() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("event-core-{}-{n}.sock", std::process::id()))
}

/// Counts its clones that are dropped: captured by a callback, it tells when that goes.
#[derive(Clone)]
pub struct Canary(pub Rc<()>);

impl Canary {
    /// A canary of which nobody has a clone.
    pub fn new() -> Canary {
        Canary(Rc::new(()))
    }

    /// How many clones are alive.
    pub fn alive(&self) -> usize {
        Rc::strong_count(&self.0) - 1
    }
}

impl Default for Canary {
    fn default() -> Canary {
        Canary::new()
    }
}

type Release = Rc<dyn Fn(u32)>;

thread_local! {
    static RELEASE: RefCell<Option<Release>> = const { RefCell::new(None) };
}

/// Memory whose release is told: `Bytes::from_owner` wants an owner that could cross threads, so what it does when it
/// goes stands with the thread.
pub struct Block {
    bytes: Vec<u8>,
    name: u32,
}

impl Block {
    /// `len` times `byte`, as a block called `name`.
    pub fn bytes(name: u32, byte: u8, len: usize) -> event_core::Bytes {
        event_core::Bytes::from_owner(Block { bytes: vec![byte; len], name })
    }
}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let then = RELEASE.try_with(|release| release.borrow().clone());
        if let Ok(Some(then)) = then {
            then(self.name);
        }
    }
}

/// Has `then` called with the name of each block of this thread that is released, until the result is dropped.
#[must_use = "dropping it ends it"]
pub fn on_release(then: impl Fn(u32) + 'static) -> impl Drop {
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            let old = RELEASE.take();
            drop(old);
        }
    }
    RELEASE.set(Some(Rc::new(then)));
    End
}

/// A file of these bytes, open to read and write, which has no name any more.
pub fn nameless_file(bytes: &[u8]) -> File {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("event-core-{}-{n}.file", std::process::id()));
    std::fs::write(&path, bytes).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    file
}
