//! Filters: what stands between a stream and the one over it.

use std::io;

use super::{BufferEvent, Direction};
use crate::buffer::Buffer;
use crate::error::Error;

/// How urgently a filter is to give out what it has: libevent's `bufferevent_flush_mode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[doc(alias = "bufferevent_flush_mode")]
pub enum FlushMode {
    /// As it likes: it may hold something back until more comes.
    #[default]
    #[doc(alias = "BEV_NORMAL")]
    Normal,
    /// Whatever it holds back is to go now.
    #[doc(alias = "BEV_FLUSH")]
    Flush,
    /// Nothing more comes: whatever it holds back is to go, and whatever marks the end.
    #[doc(alias = "BEV_FINISHED")]
    Finished,
}

/// What a filter says when it returns: libevent's `bufferevent_filter_result`. `BEV_ERROR` is an `Err`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "bufferevent_filter_result")]
pub enum Filtered {
    /// It has done something. It is called again if that was not all: if bytes are left, or it was to flush. A call that
    /// neither takes nor gives a byte is the last one, whatever it says.
    #[doc(alias = "BEV_OK")]
    Done,
    /// It can do nothing with what there is until more comes.
    #[doc(alias = "BEV_NEED_MORE")]
    NeedMore,
}

/// What stands between a stream and the one over it: the two functions of `bufferevent_filter_new` with their `ctx`.
///
/// Each takes bytes off the front of `from` and appends to `to`, which may hold bytes from before. A method that is not
/// written passes everything on. `room` is how much `to` should get; what is beyond it is kept, too. It is at least 1.
///
/// They are called by the loop, never inside a call of the program's, and may do anything, such as freeing either
/// stream; the filter is then dropped when it returns. While it runs the two buffers look empty from elsewhere, and what
/// is written to the stream waits behind `from`: a filter is not called again from within.
///
/// # Errors
/// An error of `input` ends reading and is the `ERROR` event (with `READING`) of the stream above; what was appended
/// before is delivered first. One of `output` ends writing in the same way. [`BufferEvent::error`] has its errno or, for
/// others, its kind.
pub trait Filter {
    /// From the stream below to the program. At the end of the stream below it is called with
    /// [`FlushMode::Finished`]; bytes that it then leaves are an `UnexpectedEof`.
    ///
    /// # Errors
    /// Anything ends reading.
    #[doc(alias = "bufferevent_filter_cb")]
    fn input(
        &mut self,
        from: &mut Buffer,
        to: &mut Buffer,
        room: usize,
        mode: FlushMode,
    ) -> io::Result<Filtered> {
        let _ = mode;
        from.remove_buffer(to, room);
        Ok(Filtered::Done)
    }

    /// From the program to the stream below. It is called with [`FlushMode::Finished`] before a
    /// [`shutdown_write`](BufferEvent::shutdown_write) or a [`close_after_flush`](BufferEvent::close_after_flush) takes
    /// effect; bytes that it then leaves are a `WriteZero`.
    ///
    /// # Errors
    /// Anything ends writing.
    #[doc(alias = "bufferevent_filter_cb")]
    fn output(
        &mut self,
        from: &mut Buffer,
        to: &mut Buffer,
        room: usize,
        mode: FlushMode,
    ) -> io::Result<Filtered> {
        let _ = mode;
        from.remove_buffer(to, room);
        Ok(Filtered::Done)
    }
}

/// Two closures as a filter.
struct Closures<I, O> {
    input: I,
    output: O,
}

impl<I, O> Filter for Closures<I, O>
where
    I: FnMut(&mut Buffer, &mut Buffer, usize, FlushMode) -> io::Result<Filtered>,
    O: FnMut(&mut Buffer, &mut Buffer, usize, FlushMode) -> io::Result<Filtered>,
{
    fn input(
        &mut self,
        from: &mut Buffer,
        to: &mut Buffer,
        room: usize,
        mode: FlushMode,
    ) -> io::Result<Filtered> {
        (self.input)(from, to, room, mode)
    }

    fn output(
        &mut self,
        from: &mut Buffer,
        to: &mut Buffer,
        room: usize,
        mode: FlushMode,
    ) -> io::Result<Filtered> {
        (self.output)(from, to, room, mode)
    }
}

impl BufferEvent {
    /// Makes a stream over another one, with a filter in between: what `under` reads is the new stream's input once it has
    /// passed the filter, and what is written to the new stream passes it on its way into `under`. Filters can be stacked,
    /// 32 of them, on any kind of stream.
    ///
    /// From here on `under` belongs to the new stream. It reads while that reads, and is freed with it. Its callbacks are
    /// dropped, and none set later are called: its events come to the new stream, which has callbacks, marks, bounds,
    /// timeouts and rate limits of its own, and so has `under`. Both belong to the loop.
    ///
    /// Output moves down while `under` has [room](Self::has_room), input up while the new stream may read: so each layer
    /// holds what its marks allow, and no more but for a filter that can do nothing with as much: `under` then reads beyond
    /// its high mark, up to its [`max_input`](Self::set_max). [`pending_output`](Self::pending_output) of the new stream counts what
    /// the streams below have not sent, too, and only when that is 0 is all sent: `on_write`, `on_room` and
    /// [`close_after_flush`](Self::close_after_flush) go by it.
    ///
    /// ```
    /// use event_core::{Buffer, BufferEvent, Direction, EventBase, Filter, Filtered, FlushMode};
    ///
    /// struct Xor(u8);
    /// impl Xor {
    ///     fn pass(&self, from: &mut Buffer, to: &mut Buffer, room: usize) -> std::io::Result<Filtered> {
    ///         let mut bytes = from.split_to(from.len().min(room)).into_vec();
    ///         bytes.iter_mut().for_each(|byte| *byte ^= self.0);
    ///         to.add_buffer(&mut bytes.into());
    ///         Ok(Filtered::Done)
    ///     }
    /// }
    /// impl Filter for Xor {
    ///     fn input(&mut self, from: &mut Buffer, to: &mut Buffer, room: usize, _: FlushMode) -> std::io::Result<Filtered> {
    ///         self.pass(from, to, room)
    ///     }
    ///     fn output(&mut self, from: &mut Buffer, to: &mut Buffer, room: usize, _: FlushMode) -> std::io::Result<Filtered> {
    ///         self.pass(from, to, room)
    ///     }
    /// }
    ///
    /// let mut base = EventBase::new()?;
    /// let (one, other) = BufferEvent::pair(&base)?;
    /// let (ours, theirs) = (BufferEvent::filter(&one, Xor(42))?, BufferEvent::filter(&other, Xor(42))?);
    /// theirs.set_read_cb(|bev| println!("{:?}", bev.read_buffer()));
    /// theirs.enable(Direction::READ)?;
    /// ours.write("in clear at both ends only")?;
    /// ours.close_after_flush();
    /// base.dispatch()?;
    /// # Ok::<(), event_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// - `Error::Invalid` if `under` is under a filter already, or over 31 of them. Nothing has changed then.
    /// - `Error::Io` if the backend refuses an fd; `Error::Stale` if `under` was freed; `Error::LoopGone`,
    ///   `Error::Forked`.
    #[doc(alias = "bufferevent_filter_new")]
    pub fn filter(under: &BufferEvent, filter: impl Filter + 'static) -> Result<BufferEvent, Error> {
        let inner = under.inner.stack(Box::new(filter))?;
        Ok(BufferEvent { inner })
    }

    /// Like [`filter`](Self::filter), with a closure for each way; see [`Filter::input`] and [`Filter::output`].
    ///
    /// # Errors
    /// As [`filter`](Self::filter).
    #[doc(alias = "bufferevent_filter_new")]
    pub fn filter_with(
        under: &BufferEvent,
        input: impl FnMut(&mut Buffer, &mut Buffer, usize, FlushMode) -> io::Result<Filtered> + 'static,
        output: impl FnMut(&mut Buffer, &mut Buffer, usize, FlushMode) -> io::Result<Filtered> + 'static,
    ) -> Result<BufferEvent, Error> {
        BufferEvent::filter(under, Closures { input, output })
    }

    /// The stream that this one is a filter over; `None` for other streams and once it was freed.
    #[doc(alias = "bufferevent_get_underlying")]
    pub fn underlying(&self) -> Option<BufferEvent> {
        self.inner.below().map(|inner| BufferEvent { inner })
    }

    /// Has the filters of a stream, from this one down, give out what they hold back: their [`Filter::output`] for
    /// `WRITE`, this stream's [`Filter::input`] for `READ`. The loop does it, when the callback returns for `WRITE`, in
    /// the next turn for `READ`; `Normal` asks for nothing in particular.
    ///
    /// `Finished` ends what the filters write and no more: a socket stays open, an end of a pair gets its end, as in
    /// libevent. [`shutdown_write`](Self::shutdown_write) and [`close_after_flush`](Self::close_after_flush) do so by
    /// themselves. On a stream without a filter there is nothing to give out.
    ///
    /// # Errors
    /// - `Error::Stale` if the stream was freed; `Error::LoopGone`, `Error::Forked`.
    #[doc(alias = "bufferevent_flush")]
    pub fn flush(&self, direction: Direction, mode: FlushMode) -> Result<(), Error> {
        self.inner.flush_layers(direction, mode)
    }
}
