#![doc = include_str!("turn.md")]
#![doc = ""]
#![doc = include_str!("turn.svg")]
#![doc = ""]
#![doc = include_str!("turn_rules.md")]

#[cfg(doc)]
use crate::{BufferEvent, Event, EventBase, LoopEnd, LoopFlags, LoopHandle, Watcher};
