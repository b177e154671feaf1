//! The kinds of load that HTTP servers are put under.

use crate::work::{MIB, Work};

/// What clients do, all of them at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) work: Work,
    pub(crate) connections: usize,
    /// Requests sent in one write, before any answer is read.
    pub(crate) depth: usize,
}

impl Load {
    const fn new(work: Work, connections: usize) -> Self {
        Self { work, connections, depth: 1 }
    }

    /// Whether one request or one answer is megabytes.
    pub(crate) fn is_large(&self) -> bool {
        match self.work {
            Work::Big | Work::File => true,
            Work::Close | Work::Get => false,
            Work::Post(len) => len >= MIB,
        }
    }
}

/// One kind of load.
pub(crate) struct Mode {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) load: Load,
}

impl Mode {
    /// How long a round is if `wanted` seconds are asked for: to make some thousands of connections takes its time.
    pub(crate) fn seconds(&self, wanted: u64) -> u64 {
        if self.load.connections > 1_000 { wanted.max(3) } else { wanted }
    }

    /// The load in words.
    pub(crate) fn words(&self) -> String {
        let count = self.load.connections;
        format!("{}, {count} connection{}", self.what, if count == 1 { "" } else { "s" })
    }
}

pub(crate) const MODES: [Mode; 10] = [
    Mode { name: "k1", what: "keep-alive", load: Load::new(Work::Get, 1) },
    Mode { name: "k64", what: "keep-alive", load: Load::new(Work::Get, 64) },
    Mode { name: "k400", what: "keep-alive", load: Load::new(Work::Get, 400) },
    Mode { name: "k4000", what: "keep-alive", load: Load::new(Work::Get, 4_000) },
    Mode { name: "close64", what: "one connection a request", load: Load::new(Work::Close, 64) },
    Mode {
        name: "pipe16",
        what: "16 requests pipelined",
        load: Load { work: Work::Get, connections: 64, depth: 16 },
    },
    Mode { name: "post1k", what: "POST of 1 KiB", load: Load::new(Work::Post(1024), 64) },
    Mode { name: "post1m", what: "POST of 1 MiB", load: Load::new(Work::Post(MIB), 8) },
    Mode { name: "big1m", what: "an answer of 1 MiB from memory", load: Load::new(Work::Big, 8) },
    Mode { name: "file1m", what: "a file of 1 MiB", load: Load::new(Work::File, 8) },
];
