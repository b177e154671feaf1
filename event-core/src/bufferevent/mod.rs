//! `BufferEvent`: a stream with an input and an output buffer, and callbacks on them.

mod attach;
mod borrowed;
mod bucket;
mod buffers;
mod calls;
mod changes;
mod connect;
mod connecting;
mod end;
mod files;
mod filter;
mod group;
mod guard;
mod inner;
mod layers;
mod limits;
mod pair;
mod race;
mod rare;
mod rate_limit;
mod splice;
mod state;
mod step;
mod timing;
mod transport;

use std::any::Any;
use std::fmt;
use std::os::fd::{IntoRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::time::Duration;

use bitflags::bitflags;

use crate::buffer::Buffer;
use crate::clock::Time;
use crate::error::{ConnectError, ConnectPhase, Error};
use crate::reactor::LoopHandle;
use crate::sys::Address;

pub use bucket::RateLimit;
use buffers::Side;
pub use changes::BufferChange;
pub use connect::{Connect, NewSocket};
pub use filter::{Filter, Filtered, FlushMode};
pub use group::RateLimitGroup;
pub use guard::{BufferGuard, Scoped};
use inner::Inner;
pub use splice::Spliced;
use state::State;
pub use transport::Transport;

/// A write of so few bytes is copied behind what is there: a piece of its own costs more, and only so many pieces
/// leave in one call.
const COPIED: usize = 128;

bitflags! {
    /// What happened to a stream besides data: libevent's `BEV_EVENT_*`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct StreamEvent: u8 {
        /// It happened while reading.
        #[doc(alias = "BEV_EVENT_READING")]
        const READING = 0x01;
        /// It happened while writing.
        #[doc(alias = "BEV_EVENT_WRITING")]
        const WRITING = 0x02;
        /// The peer will send no more. Writing still works if the peer still reads.
        #[doc(alias = "BEV_EVENT_EOF")]
        const EOF = 0x10;
        /// Reading, writing or connecting failed: [`BufferEvent::error`] says how. With `READING` or `WRITING` where one
        /// of them did; alone for a connect, and for an input or output that is full (see [`BufferEvent::set_max`]).
        #[doc(alias = "BEV_EVENT_ERROR")]
        const ERROR = 0x20;
        /// Nothing moved for as long as the timeout of that direction allows; the direction is disabled.
        #[doc(alias = "BEV_EVENT_TIMEOUT")]
        const TIMEOUT = 0x40;
        /// The connection is made. Comes before any data.
        #[doc(alias = "BEV_EVENT_CONNECTED")]
        const CONNECTED = 0x80;
    }
}

bitflags! {
    /// One or both directions of a stream.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Direction: u8 {
        /// From the peer to us.
        const READ = 0x02;
        /// From us to the peer.
        const WRITE = 0x04;
    }
}

/// The callbacks of one stream, as one object: what `bufferevent_setcb` takes apart into three functions and an `arg`.
///
/// Each is called by the loop, never inside a call of the program's, and may do anything to the stream, freeing it and
/// replacing this object included; the object is then dropped when the callback returns.
pub trait Callbacks {
    /// New data has arrived and the input holds at least the low mark. Called again for new data only, not for what
    /// was left in the input.
    #[doc(alias = "bufferevent_data_cb")]
    fn on_read(&mut self, bev: &BufferEvent);

    /// Output has been sent and what is left is at or below the low mark (0 unless set): room for more.
    #[doc(alias = "bufferevent_data_cb")]
    fn on_write(&mut self, bev: &BufferEvent) {
        let _ = bev;
    }

    /// Something else happened. Unless this is written, everything but `CONNECTED` frees the stream.
    #[doc(alias = "bufferevent_event_cb")]
    fn on_event(&mut self, bev: &BufferEvent, event: StreamEvent) {
        if !event.contains(StreamEvent::CONNECTED) {
            bev.free();
        }
    }

    /// The output, which was above its high mark of writing (1 MiB unless set), has come down to half of it: whoever
    /// looked at [`BufferEvent::has_room`] and stopped may go on.
    fn on_room(&mut self, bev: &BufferEvent) {
        let _ = bev;
    }

    /// The deadline of [`BufferEvent::set_deadline`] has passed.
    fn on_deadline(&mut self, bev: &BufferEvent) {
        let _ = bev;
    }
}

/// A stream with buffers: libevent's `bufferevent`.
///
/// A clonable handle on an object that the loop owns: once it is enabled, has a callback, is written to or connects, the
/// loop keeps it until [`free`](Self::free), until an end or error that nobody handles, until it has ended both ways,
/// or until the loop ends, and dropping handles does nothing. Before that, dropping the last handle frees it.
///
/// A new stream has WRITE enabled and READ disabled. What is written leaves when the running callback returns, or, from
/// another object's callback, at the latest when the batch ends.
///
/// ```
/// use event_core::{BufferEvent, Callbacks, Direction, EventBase};
///
/// struct Upper;
/// impl Callbacks for Upper {
///     fn on_read(&mut self, bev: &BufferEvent) {
///         let text = bev.input().take_all().to_vec();
///         let _ = bev.write(&text.to_ascii_uppercase()[..]);
///         bev.close_after_flush();
///     }
/// }
///
/// let mut base = EventBase::new()?;
/// let (ours, theirs) = BufferEvent::pair(&base)?;
/// ours.set_callbacks(Upper);
/// ours.enable(Direction::READ)?;
/// theirs.set_read_cb(|bev| println!("{:?}", bev.input()));
/// theirs.enable(Direction::READ)?;
/// theirs.write("hello")?;
/// base.dispatch()?;
/// # Ok::<(), event_core::Error>(())
/// ```
#[derive(Clone)]
#[doc(alias = "bufferevent")]
pub struct BufferEvent {
    inner: Rc<Inner>,
}

impl BufferEvent {
    /// Makes a stream of a socket, pipe or terminal, which is made non-blocking and closed when the stream is freed.
    ///
    /// # Errors
    /// - `Error::Io` if it cannot be made non-blocking; `Error::LoopGone`, `Error::Forked`.
    #[doc(alias = "bufferevent_socket_new")]
    pub fn new(handle: &LoopHandle, fd: impl Into<OwnedFd>) -> Result<BufferEvent, Error> {
        handle.check()?;
        let fd = fd.into().into_raw_fd();
        let stream = BufferEvent::made(handle, fd, State::OWNS_FD);
        handle.sys().set_nonblocking(fd)?;
        Ok(stream)
    }

    /// Makes a stream of an fd that stays the caller's: it is not closed here, and must not be closed before the
    /// stream is freed. It must be non-blocking.
    ///
    /// # Errors
    /// - `Error::LoopGone`, `Error::Forked`.
    #[doc(alias = "bufferevent_socket_new")]
    pub fn from_borrowed_fd(handle: &LoopHandle, fd: RawFd) -> Result<BufferEvent, Error> {
        handle.check()?;
        Ok(BufferEvent::made(handle, fd, State::empty()))
    }

    /// Makes a stream over a transport, which brings its own fd.
    ///
    /// # Errors
    /// - `Error::LoopGone`, `Error::Forked`.
    pub fn with_transport(
        handle: &LoopHandle,
        transport: impl Transport + 'static,
    ) -> Result<BufferEvent, Error> {
        handle.check()?;
        let stream = BufferEvent::made(handle, transport.fd(), State::TRANSPORT);
        stream.inner.rare_mut(|rare| rare.transport = Some(Box::new(transport)));
        Ok(stream)
    }

    /// Starts to connect to one address, in this call; [`Connect`] tries many, looks names up and has deadlines.
    /// `CONNECTED` or `ERROR` comes to the event callback, never inside this call; what is written
    /// until then is sent afterwards.
    ///
    /// # Errors
    /// - `Error::Io` if the system cannot even try: no descriptor, no route, a bad path. A refusal is an event.
    /// - `Error::LoopGone`, `Error::Forked`.
    #[doc(alias = "bufferevent_socket_connect")]
    pub fn connect(handle: &LoopHandle, address: &Address) -> Result<BufferEvent, Error> {
        handle.check()?;
        let state = State::OWNS_FD | State::CONNECTING;
        let (fd, refused) = match handle.sys().connect(address) {
            Ok(fd) => (fd, None),
            Err(error) if error.raw_os_error() == Some(libc::ECONNREFUSED) => (-1, Some(error)),
            Err(error) => return Err(error.into()),
        };
        let stream = BufferEvent::made(handle, fd, state);
        stream.inner.touch_write();
        stream.inner.start()?;
        if let Some(error) = refused {
            stream.inner.connect_failed(ConnectError::new(ConnectPhase::Connect, error));
        }
        Ok(stream)
    }

    /// Makes two streams that are each other's peer, in memory: what one writes is in the other's input as soon as that
    /// reads and has room below its high mark. Freeing one is the other's `EOF` at once, whether it reads or not;
    /// [`shutdown_write`](Self::shutdown_write) is its `EOF` when it reads.
    ///
    /// # Errors
    /// - `Error::LoopGone`, `Error::Forked`.
    #[doc(alias = "bufferevent_pair_new")]
    pub fn pair(handle: &LoopHandle) -> Result<(BufferEvent, BufferEvent), Error> {
        handle.check()?;
        let one = BufferEvent::made(handle, -1, State::PAIR);
        let other = BufferEvent::made(handle, -1, State::PAIR);
        one.inner.rare_mut(|rare| rare.partner = Rc::downgrade(&other.inner));
        other.inner.rare_mut(|rare| rare.partner = Rc::downgrade(&one.inner));
        Ok((one, other))
    }

    /// The other end of a pair; `None` for other streams and when it was freed.
    #[doc(alias = "bufferevent_pair_get_partner")]
    pub fn partner(&self) -> Option<BufferEvent> {
        self.inner.partner().map(|inner| BufferEvent { inner })
    }

    /// Adopts an fd that the loop's own kernel made.
    pub(crate) fn accepted(handle: &LoopHandle, fd: RawFd) -> BufferEvent {
        BufferEvent::made(handle, fd, State::OWNS_FD)
    }

    /// Drops `kept` when the stream is freed, with nothing borrowed.
    pub(crate) fn keep_until_freed(&self, kept: Box<dyn Any>) {
        let old = self.inner.rare_mut(|rare| rare.kept.replace(kept));
        drop(old);
    }

    fn made(handle: &LoopHandle, fd: RawFd, state: State) -> BufferEvent {
        BufferEvent { inner: Rc::new(Inner::new(handle.clone(), fd, state)) }
    }

    /// Sets the callbacks as one object, which the stream then owns. It replaces whatever callbacks there were.
    #[doc(alias = "bufferevent_setcb")]
    pub fn set_callbacks(&self, callbacks: impl Callbacks + 'static) {
        self.inner.set_callbacks(Some(Box::new(callbacks)));
    }

    /// Takes all callbacks away. The stream goes on; an end or error then frees it.
    #[doc(alias = "bufferevent_setcb")]
    pub fn clear_callbacks(&self) {
        self.inner.set_callbacks(None);
    }

    /// Sets the read callback alone; see [`Callbacks::on_read`]. What was set before in its place, or an object, is dropped,
    /// inside its own callback when that returns.
    #[doc(alias = "bufferevent_setcb")]
    pub fn set_read_cb(&self, cb: impl FnMut(&BufferEvent) + 'static) {
        self.inner.set_closure(|rare| rare.read_cb.replace(Box::new(cb)));
    }

    /// Sets the write callback alone; see [`Callbacks::on_write`]. What was set before in its place, or an object, is dropped,
    /// inside its own callback when that returns.
    #[doc(alias = "bufferevent_setcb")]
    pub fn set_write_cb(&self, cb: impl FnMut(&BufferEvent) + 'static) {
        self.inner.set_closure(|rare| rare.write_cb.replace(Box::new(cb)));
    }

    /// Sets the event callback alone; see [`Callbacks::on_event`]. What was set before in its place, or an object, is dropped,
    /// inside its own callback when that returns.
    #[doc(alias = "bufferevent_setcb")]
    pub fn set_event_cb(&self, cb: impl FnMut(&BufferEvent, StreamEvent) + 'static) {
        self.inner.set_closure(|rare| rare.event_cb.replace(Box::new(cb)));
    }

    /// Sets the room callback alone; see [`Callbacks::on_room`]. What was set before in its place, or an object, is dropped,
    /// inside its own callback when that returns.
    pub fn set_room_cb(&self, cb: impl FnMut(&BufferEvent) + 'static) {
        self.inner.set_closure(|rare| rare.room_cb.replace(Box::new(cb)));
    }

    /// Starts one or both directions. From here on the loop owns the stream.
    ///
    /// # Errors
    /// - `Error::Io` if the backend refuses the fd.
    /// - `Error::Stale` if the stream was freed; `Error::LoopGone`, `Error::Forked`.
    #[doc(alias = "bufferevent_enable")]
    pub fn enable(&self, direction: Direction) -> Result<(), Error> {
        self.inner.enable(direction)
    }

    /// Stops one or both directions, and their timeouts. What lies in the buffers stays.
    #[doc(alias = "bufferevent_disable")]
    pub fn disable(&self, direction: Direction) {
        self.inner.disable(direction);
    }

    /// Which directions are enabled.
    #[doc(alias = "bufferevent_get_enabled")]
    #[inline]
    pub fn enabled(&self) -> Direction {
        self.inner.enabled()
    }

    /// Appends to the output. Nothing is sent inside this call; from the stream's own callback it leaves when that
    /// returns.
    ///
    /// # Errors
    /// - `Error::OutputFull` if the output now holds more than `max_output`: the bytes are kept, and an `ERROR` event
    ///   is queued.
    /// - `Error::Stale` if the stream was freed; `Error::LoopGone`.
    #[doc(alias = "bufferevent_write")]
    #[doc(alias = "bufferevent_write_buffer")]
    pub fn write(&self, data: impl Into<Buffer>) -> Result<(), Error> {
        let mut data = data.into();
        self.inner.write(|output| {
            if data.len() <= COPIED && !output.is_empty() && !data.has_files() {
                data.chunks().for_each(|piece| output.add(piece));
            } else {
                output.add_buffer(&mut data);
            }
        })
    }

    /// Appends what `f` writes at the end of the output, in place: at least `room` bytes are free there.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    #[inline]
    pub fn write_with(&self, room: usize, f: impl FnOnce(&mut Vec<u8>)) -> Result<(), Error> {
        self.inner.write_with(room, f)
    }

    /// Leaves out the write callback for what the stream's own callback that runs has written, if all of it is sent when that
    /// returns: for an owner that has nothing to do then. If some is left the write callback comes at once, with that still
    /// in the output, and again as ever. Does nothing outside of the stream's callbacks.
    #[inline]
    pub fn leave_unattended(&self) {
        self.inner.leave_unattended();
    }

    /// Takes the whole input.
    #[doc(alias = "bufferevent_read_buffer")]
    pub fn read_buffer(&self) -> Buffer {
        self.input().take_all()
    }

    /// Takes up to `out.len()` bytes of the input and returns how many.
    #[doc(alias = "bufferevent_read")]
    pub fn read(&self, out: &mut [u8]) -> usize {
        self.input().remove(out)
    }

    /// The input. The guard owns it until it is dropped: nothing is borrowed, and it may be used at any time, in every
    /// callback and outside the loop. Draining it below the high mark lets reading go on.
    #[doc(alias = "bufferevent_get_input")]
    #[inline]
    pub fn input(&self) -> BufferGuard {
        BufferGuard::take(&self.inner, Side::Input)
    }

    /// The output. The guard owns it until it is dropped; what it holds then is sent as after `write`.
    #[doc(alias = "bufferevent_get_output")]
    pub fn output(&self) -> BufferGuard {
        BufferGuard::take(&self.inner, Side::Output)
    }

    /// Bytes of the output that have not been handed to the kernel; of a filter, those of the streams below included.
    #[inline]
    pub fn pending_output(&self) -> usize {
        self.inner.pending_output()
    }

    /// Bytes that lie in the input.
    pub fn pending_input(&self) -> usize {
        self.inner.len(Side::Input)
    }

    /// Sets how long reading, and writing while output is pending or a connect is under way, may stand still before a
    /// `TIMEOUT` event. Reading that is disabled, or paused by the high mark, does not stand still: its time starts anew
    /// afterwards.
    #[doc(alias = "bufferevent_set_timeouts")]
    pub fn set_timeouts(&self, read: Option<Duration>, write: Option<Duration>) {
        self.inner.set_timeouts(read, write);
    }

    /// Sets a point in time at which `on_deadline` is called, or takes it away. It is reckoned like
    /// [`LoopHandle::elapsed`]. Moving it later costs nothing.
    #[inline]
    pub fn set_deadline(&self, deadline: Option<Duration>) {
        self.inner.set_deadline(deadline.map_or(Time::NEVER, |deadline| Time::default().after(deadline)));
    }

    /// Whether the stream keeps the loop running even if it neither reads nor has anything to send: while its owner
    /// waits for something else. Off at first.
    #[inline]
    pub fn set_held(&self, held: bool) {
        self.inner.set_held(held);
    }

    /// Runs the read or write callback in the next turn, whatever the buffers hold: `BEV_TRIG_IGNORE_WATERMARKS`.
    ///
    /// # Errors
    /// - `Error::Stale` if the stream was freed; `Error::LoopGone`, `Error::Forked`.
    #[doc(alias = "bufferevent_trigger")]
    pub fn trigger(&self, direction: Direction) -> Result<(), Error> {
        self.inner.trigger(direction)
    }

    /// Runs the callbacks of those directions in the next turn whose low mark is met now: the input holds as much, the
    /// output no more.
    ///
    /// # Errors
    /// - `Error::Stale` if the stream was freed; `Error::LoopGone`, `Error::Forked`.
    #[doc(alias = "bufferevent_trigger")]
    pub fn trigger_at_marks(&self, direction: Direction) -> Result<(), Error> {
        self.inner.trigger_at_marks(direction)
    }

    /// Has the event callback called in the next turn with these events, beside what there may be of the stream's own.
    /// Nothing else happens: a made-up `TIMEOUT` disables nothing. If nobody handles events, anything but `CONNECTED`
    /// frees the stream.
    ///
    /// # Errors
    /// - `Error::Stale` if the stream was freed; `Error::LoopGone`, `Error::Forked`.
    #[doc(alias = "bufferevent_trigger_event")]
    pub fn trigger_event(&self, event: StreamEvent) -> Result<(), Error> {
        self.inner.trigger_event(event)
    }

    /// Sends as much of the output as the kernel takes now, 1 MiB at most, instead of when the callback returns; says
    /// whether nothing is left. Nothing is sent while a guard of [`output`](Self::output) is held, while writing is
    /// disabled or a connect is under way. On a filter nothing is filtered here: what the streams below hold is sent, and
    /// nothing is left if no layer holds anything.
    ///
    /// No callback runs inside this call: the write callback, or the event of an error, comes in the next turn. A stream
    /// that was to be closed after its output may be freed here.
    ///
    /// # Errors
    /// - `Error::Io` if the kernel refuses, also told as an event.
    /// - `Error::Stale` if the stream was freed; `Error::LoopGone`, `Error::Forked`.
    #[doc(alias = "bufferevent_flush")]
    pub fn try_flush(&self) -> Result<bool, Error> {
        self.inner.try_flush()
    }

    /// When output last got on, reckoned like [`LoopHandle::elapsed`]: bytes were handed to the kernel, or came into an
    /// empty output.
    #[inline]
    pub fn last_written(&self) -> Duration {
        Duration::from_nanos(self.inner.last_write.get().as_nanos())
    }

    /// Why the stream got an `ERROR` event.
    #[doc(alias = "EVUTIL_SOCKET_ERROR")]
    pub fn error(&self) -> Option<Error> {
        self.inner.error()
    }

    /// Frees the stream now: it closes, unsent bytes are lost, the callbacks are dropped (after the one that runs has
    /// returned) and no further one comes. Freeing twice is harmless.
    #[doc(alias = "bufferevent_free")]
    pub fn free(&self) {
        self.inner.free();
    }

    /// Frees the stream now, as [`free`](Self::free), and tells the peer of a reset instead of an end (an abortive close:
    /// SO_LINGER of 0), so that what it has got does not look whole. What it has not read yet may be lost to it. The
    /// other end of a pair gets `ERROR` with ECONNRESET. Where there are no resets (unix-domain sockets, pipes, an fd
    /// that stays the caller's) it is a plain close.
    pub fn close_with_reset(&self) {
        self.inner.close_with_reset();
    }

    /// Frees the stream when all output has been sent, what a guard holds included, or when sending it fails: at once if
    /// there is nothing to send, writing is disabled or there is no fd. Nothing is read any more. Where sending fails the
    /// close is a [reset](Self::close_with_reset), so that what was cut off does not look whole. A peer that does not
    /// read is cut off by the write timeout or a deadline, if there is one.
    pub fn close_after_flush(&self) {
        self.inner.close_after_flush();
    }

    /// Tells the peer that nothing more will be written, once all output has been sent. A stream whose peer has ended,
    /// too, is then freed.
    pub fn shutdown_write(&self) {
        self.inner.shutdown_write();
    }

    /// Whether the stream was freed.
    #[inline]
    pub fn is_freed(&self) -> bool {
        self.inner.is_freed()
    }

    /// Sets the priority of the stream's callbacks, and of the streams it is a filter over; 0 is the most urgent.
    ///
    /// # Errors
    /// - `Error::Invalid` if there is no such priority or the stream is queued to run.
    /// - `Error::Stale`, `Error::LoopGone`, `Error::Forked`.
    #[doc(alias = "bufferevent_priority_set")]
    pub fn set_priority(&self, priority: u8) -> Result<(), Error> {
        self.inner.start()?;
        if let Some(below) = self.underlying() {
            // Whose steps call this stream's callbacks.
            below.set_priority(priority)?;
        }
        self.inner.handle.set_priority(self.inner.id.get(), priority)
    }

    /// The priority of the stream's callbacks. From here on the loop owns the stream.
    ///
    /// # Errors
    /// - `Error::Stale`, `Error::LoopGone`, `Error::Forked`.
    #[doc(alias = "bufferevent_get_priority")]
    pub fn priority(&self) -> Result<u8, Error> {
        self.inner.start()?;
        Ok(self.inner.handle.priority(self.inner.id.get()))
    }

    /// The fd, if the stream has one; that of the lowest stream if this is a filter.
    #[doc(alias = "bufferevent_getfd")]
    pub fn fd(&self) -> Option<RawFd> {
        if let Some(below) = self.underlying() {
            return below.fd();
        }
        Some(self.inner.fd.get()).filter(|&fd| fd >= 0)
    }

    /// The peer's address.
    ///
    /// # Errors
    /// - `Error::Stale` if the stream has no socket any more; `Error::Io` as the system says.
    pub fn peer_address(&self) -> Result<Address, Error> {
        let fd = self.fd().ok_or(Error::Stale)?;
        Ok(self.inner.handle.sys().peer_address(fd)?)
    }

    /// The loop the stream belongs to.
    #[doc(alias = "bufferevent_get_base")]
    pub fn handle(&self) -> &LoopHandle {
        &self.inner.handle
    }

    /// A unique owner whose drop frees the stream.
    pub fn scoped(self) -> Scoped {
        Scoped { stream: self }
    }
}

impl PartialEq for BufferEvent {
    /// Whether both are handles on the same stream.
    fn eq(&self, other: &BufferEvent) -> bool {
        Rc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for BufferEvent {}

impl fmt::Debug for BufferEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferEvent")
            .field("fd", &self.inner.fd.get())
            .field("state", &self.inner.state.get())
            .finish_non_exhaustive()
    }
}
