//! A filter that compresses: what goes through it is deflated on its way out and inflated on its way in.
//!
//! Try: cargo run --example compress
//!
//! A client sends a text to a server in the same program, which sends it back; each end has a filter.

use std::cell::Cell;
use std::io;
use std::rc::Rc;

use event_core::{
    Buffer, BufferEvent, Direction, Error, EventBase, Filter, Filtered, FlushMode, Listener, StreamEvent,
};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

struct Zlib {
    deflate: Compress,
    inflate: Decompress,
}

impl Filter for Zlib {
    fn output(
        &mut self,
        from: &mut Buffer,
        to: &mut Buffer,
        room: usize,
        mode: FlushMode,
    ) -> io::Result<Filtered> {
        let flush = match mode {
            FlushMode::Normal => FlushCompress::None,
            FlushMode::Flush => FlushCompress::Sync,
            FlushMode::Finished => FlushCompress::Finish,
        };
        let mut space = vec![0; room.min(64 << 10)];
        let (taken, made) = (self.deflate.total_in(), self.deflate.total_out());
        let data = from.pullup(from.len()).unwrap_or_default();
        self.deflate.compress(data, &mut space, flush).map_err(io::Error::other)?;
        let made = (self.deflate.total_out() - made) as usize;
        from.drain((self.deflate.total_in() - taken) as usize);
        to.add(&space[..made]);
        // With space left it has given all it can.
        Ok(if made < space.len() { Filtered::NeedMore } else { Filtered::Done })
    }

    fn input(
        &mut self,
        from: &mut Buffer,
        to: &mut Buffer,
        room: usize,
        mode: FlushMode,
    ) -> io::Result<Filtered> {
        let mut space = vec![0; room.min(64 << 10)];
        let (taken, made) = (self.inflate.total_in(), self.inflate.total_out());
        let status = self.inflate.decompress(from.contiguous(), &mut space, FlushDecompress::None)?;
        let made = (self.inflate.total_out() - made) as usize;
        from.drain((self.inflate.total_in() - taken) as usize);
        to.add(&space[..made]);
        if mode == FlushMode::Finished && from.is_empty() && made == 0 && status != Status::StreamEnd {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(Filtered::Done)
    }
}

fn compressed(wire: &BufferEvent) -> Result<BufferEvent, Error> {
    let (deflate, inflate) = (Compress::new(Compression::default(), true), Decompress::new(true));
    BufferEvent::filter(wire, Zlib { deflate, inflate })
}

fn main() -> Result<(), Error> {
    let mut base = EventBase::new()?;
    let listener = Listener::bind(&base, "127.0.0.1:0", |listener, accepted| {
        listener.free();
        let Ok(bev) = compressed(&accepted.into_stream()) else { return };
        bev.set_read_cb(|bev| drop(bev.write(bev.read_buffer())));
        // The filter is told of the end, and puts an end of its own behind the bytes.
        bev.set_event_cb(|bev, _| bev.close_after_flush());
        let _ = bev.enable(Direction::READ);
    })?;
    let wire = BufferEvent::connect(&base, &listener.local_address()?)?;
    let (went, came) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let (sent, back) = (went.clone(), came.clone());
    wire.set_buffer_cb(move |_, change| {
        if change.buffer == Direction::WRITE {
            sent.set(sent.get() + change.drained);
        }
    });
    let bev = compressed(&wire)?;
    bev.set_read_cb(move |bev| back.set(back.get() + bev.read_buffer().len()));
    bev.set_event_cb(move |bev, event| match bev.error() {
        Some(error) => eprintln!("{event:?}: {}", examples::reason(&error)),
        None if event == StreamEvent::CONNECTED => {}
        None => println!("{} bytes went, and {} came back", went.get(), came.get()),
    });
    bev.enable(Direction::READ)?;
    bev.write("The quick brown fox jumps over the lazy dog.\n".repeat(2000))?;
    bev.shutdown_write();
    base.dispatch().map(drop)
}
