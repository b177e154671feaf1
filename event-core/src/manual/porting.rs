#![doc = include_str!("porting.md")]

#[cfg(doc)]
use crate::{
    Accepted, Buffer, BufferEvent, Callbacks, Config, Error, Event, EventBase, EventId, ListenerOptions,
    LoopEnd, LoopHandle, Ready, Remote, Signal, Timer, ToAddress,
};
