//! Which public types may cross threads, held by the compiler.

use crate::{
    Address, Buffer, BufferChange, CommonTimeout, Config, ConnectError, ConnectPhase, Error, EventCount,
    EventId, EventInfo, Family, Features, FileSegment, LoopEnd, LoopFlags, Query, Ready, Remote, SendError,
    Sender, Spliced, Stats, StreamEvent, Target, Waker, What,
};

const fn send<T: Send>() {}
const fn send_and_sync<T: Send + Sync>() {}

const _: () = {
    send_and_sync::<Address>();
    send_and_sync::<BufferChange>();
    send_and_sync::<CommonTimeout>();
    send_and_sync::<Config>();
    send_and_sync::<ConnectError>();
    send_and_sync::<ConnectPhase>();
    send_and_sync::<Error>();
    send_and_sync::<EventCount>();
    send_and_sync::<EventId>();
    send_and_sync::<EventInfo>();
    send_and_sync::<Features>();
    send_and_sync::<Family>();
    send_and_sync::<FileSegment>();
    send_and_sync::<LoopEnd>();
    send_and_sync::<LoopFlags>();
    send_and_sync::<Query>();
    send_and_sync::<Ready>();
    send_and_sync::<Remote>();
    send_and_sync::<SendError<u8>>();
    send_and_sync::<Sender<u8>>();
    send_and_sync::<Spliced>();
    send_and_sync::<Stats>();
    send_and_sync::<StreamEvent>();
    send_and_sync::<Target>();
    send_and_sync::<Waker>();
    send_and_sync::<What>();
    // A message is handed over, not shared.
    send_and_sync::<Sender<std::cell::Cell<u8>>>();
    // A worker thread builds an answer.
    send::<Buffer>();
};

/// What belongs to the loop stays on its thread, and so does what a message may not carry.
///
/// ```compile_fail,E0277
/// fn send<T: Send>() {}
/// send::<event_core::EventBase>();
/// ```
/// ```compile_fail,E0277
/// fn send<T: Send>() {}
/// send::<event_core::LoopHandle>();
/// ```
/// ```compile_fail,E0277
/// fn send<T: Send>() {}
/// send::<event_core::Event>();
/// ```
/// ```compile_fail,E0277
/// fn send<T: Send>() {}
/// send::<event_core::Timer>();
/// ```
/// ```compile_fail,E0277
/// fn send<T: Send>() {}
/// send::<event_core::Signal>();
/// ```
/// ```compile_fail,E0277
/// fn send<T: Send>() {}
/// send::<event_core::Watcher>();
/// ```
/// ```compile_fail,E0277
/// fn send<T: Send>() {}
/// send::<event_core::Mailbox<u8>>();
/// ```
/// ```compile_fail,E0277
/// fn send<T: Send>() {}
/// send::<event_core::BufferEvent>();
/// ```
/// ```compile_fail,E0277
/// fn send<T: Send>() {}
/// send::<event_core::Listener>();
/// ```
/// ```compile_fail,E0277
/// fn send<T: Send>() {}
/// send::<event_core::Accepted>();
/// ```
/// ```compile_fail,E0277
/// fn send<T: Send>() {}
/// send::<event_core::Sender<std::rc::Rc<u8>>>();
/// ```
/// ```compile_fail,E0277
/// fn sync<T: Sync>() {}
/// sync::<event_core::LoopHandle>();
/// ```
/// ```compile_fail,E0277
/// let base = event_core::EventBase::new()?;
/// let (mailbox, sender) = base.mailbox(|_: std::rc::Rc<u8>| {})?;
/// # Ok::<(), event_core::Error>(())
/// ```
/// ```compile_fail,E0277
/// let base = event_core::EventBase::new()?;
/// let handle = base.handle();
/// base.remote().post(move |_| drop(handle))?;
/// # Ok::<(), event_core::Error>(())
/// ```
///
/// A loop is neither run nor dropped by its own callbacks, which get no `&mut EventBase`:
///
/// ```compile_fail,E0596
/// # use event_core::{EventBase, Timer};
/// let base = EventBase::new()?;
/// base.dispatch()?;
/// # Ok::<(), event_core::Error>(())
/// ```
/// ```compile_fail,E0505
/// # use event_core::{EventBase, Timer};
/// let mut base = EventBase::new()?;
/// let timer = Timer::new(&base, move |_| drop(base))?;
/// # Ok::<(), event_core::Error>(())
/// ```
/// ```compile_fail,E0599
/// let base = event_core::EventBase::new()?;
/// base.handle().dispatch()?;
/// # Ok::<(), event_core::Error>(())
/// ```
///
/// The same with what is right compiles:
///
/// ```
/// fn send<T: Send>() {}
/// send::<event_core::Sender<String>>();
/// let mut base = event_core::EventBase::new()?;
/// let waker = base.waker();
/// base.remote().post(move |_| waker.wake())?;
/// base.dispatch()?;
/// # Ok::<(), event_core::Error>(())
/// ```
#[cfg(doctest)]
struct StaysOnItsThread;
