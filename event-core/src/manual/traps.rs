#![doc = include_str!("traps.md")]

#[cfg(doc)]
use crate::{
    Address, Buffer, BufferEvent, Callbacks, Config, Direction, Event, EventBase, FileSegment, Listener,
    ListenerOptions, LoopEnd, LoopFlags, LoopHandle, Remote, Signal, StreamEvent, Timer, Transport, Watcher,
    What,
};
