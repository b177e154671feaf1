//! The timers in the order of their deadlines: those that are near in a 4-ary heap, those that are far in tiers that
//! nothing sorts before their time comes.

use crate::clock::Time;

mod order;

const ARITY: usize = 4;

/// So many are left in the heap when it is split: what fits into a processor's nearest cache. Few in the tests of this
/// file, which then meet every boundary.
const NEAR: usize = if cfg!(test) { 8 } else { 64 };

/// A heap that is split adds to the nearest tier until that has so many, then makes a new one: so tiers are few, and
/// each holds several times as many timers as all that are nearer.
const TIER: usize = 16 * NEAR;

/// At most so many tiers, which are searched one by one.
const MAX_TIERS: usize = 16;

/// So many due timers are taken out of the heap one by one, before it is asked whether the rest is better taken at once.
const SINGLY: usize = 16;

/// The memory of a crowd goes back: it is kept for so many entries at most.
pub(crate) const MOST_SPARE: usize = 4 * TIER;

/// One timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) deadline: Time,
    /// Order of arming: equal deadlines fire first in, first out. Compared by wrapping difference.
    seq: u32,
    pub(crate) slot: u32,
}

impl Entry {
    pub(crate) fn new(deadline: Time, seq: u32, slot: u32) -> Entry {
        Entry { deadline, seq, slot }
    }

    /// Its place in the order of arming.
    pub(crate) fn seq(&self) -> u32 {
        self.seq
    }

    #[inline]
    fn before(&self, other: &Entry) -> bool {
        if self.deadline != other.deadline {
            return self.deadline < other.deadline;
        }
        (self.seq.wrapping_sub(other.seq) as i32) < 0
    }

    /// The same order as a number, among entries that were armed after `oldest`.
    #[inline]
    fn rank(&self, oldest: u32) -> u128 {
        u128::from(self.deadline.as_nanos()) << 32 | u128::from(self.seq.wrapping_sub(oldest))
    }
}

/// Where a timer stands: a tier's number, or one of these.
type Room = u8;
/// In the queue of a common duration, which is `home`; see `common_timeout`.
const QUEUED: Room = u8::MAX - 4;
const IN_HEAP: Room = u8::MAX - 3;
/// Taken out by `take_due`, and its callback has not run.
const DUE: Room = u8::MAX - 2;
/// Armed, but without a deadline yet; see `promise_alone`.
const PROMISED: Room = u8::MAX - 1;
const NOWHERE: Room = u8::MAX;

/// What is known of a slot's timer. All that moving one needs lies here, in one place: neither the slot is looked at, nor
/// the tier that it stays in.
#[derive(Clone, Copy, Debug)]
struct Cell {
    deadline: Time,
    /// See `Entry`.
    seq: u32,
    generation: u32,
    /// The place in its room.
    index: u32,
    room: Room,
    /// See `set_alone`.
    alone: bool,
    /// The queue that it stands in, or stood in when it was armed last; `NO_HOME` if it was armed by itself.
    home: u16,
}

pub(crate) const NO_HOME: u16 = u16::MAX;

/// What `remove` has disarmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Removed {
    pub(crate) was_armed: bool,
    /// Whose affair the rest is.
    pub(crate) queue: Option<u16>,
}

impl Removed {
    const NOTHING: Removed = Removed { was_armed: false, queue: None };
}

impl Cell {
    #[inline]
    fn entry(self, slot: u32) -> Entry {
        Entry { deadline: self.deadline, seq: self.seq, slot }
    }

    #[inline]
    fn removed(self) -> Removed {
        Removed { was_armed: self.room != NOWHERE, queue: (self.room == QUEUED).then_some(self.home) }
    }

    #[inline]
    fn is_in_a_room(self) -> bool {
        self.room <= IN_HEAP
    }
}

const FREE: Cell = Cell {
    deadline: Time::NEVER,
    seq: 0,
    generation: 0,
    index: 0,
    room: NOWHERE,
    alone: false,
    home: NO_HOME,
};

/// Timers that are due no earlier than `bound`, in no order. A tier that is nearer ends where this one begins.
#[derive(Debug)]
struct Tier {
    bound: Time,
    slots: Vec<u32>,
}

/// At most one timer a slot. Most timers are moved or cancelled long before they are due, so sorting them is put off:
/// what is far off lies unsorted, where adding, moving and cancelling is O(1), and comes into the heap when the heap
/// has run empty. Over its life a timer costs O(log n); the nearest deadline is O(1) but for that work.
#[derive(Debug, Default)]
pub(crate) struct Heap {
    /// Those before the nearest tier's bound.
    near: Vec<Entry>,
    /// The heap is split when it has more.
    near_limit: usize,
    /// Farthest first.
    tiers: Vec<Tier>,
    /// By slot.
    cells: Vec<Cell>,
    next_seq: u32,
    /// The memory of a tier that is no more, for the next one.
    spare: Vec<u32>,
    /// Memory for sorting.
    spare_entries: Vec<Entry>,
}

impl Heap {
    pub(crate) fn new() -> Heap {
        Heap { near_limit: 2 * NEAR, ..Heap::default() }
    }

    /// Arms the slot's timer, or moves it if it is armed; either way it is now the last of its deadline. Tells whether
    /// it was armed.
    #[inline]
    pub(crate) fn set(&mut self, slot: u32, deadline: Time) -> bool {
        let seq = self.take_seq();
        self.set_in_order(slot, deadline, seq)
    }

    /// The next place in the order of arming.
    #[inline]
    pub(crate) fn take_seq(&mut self) -> u32 {
        let seq = self.next_seq;
        self.next_seq = seq.wrapping_add(1);
        seq
    }

    /// Like `set`, in a place that `take_seq` gave earlier.
    #[inline]
    pub(crate) fn set_in_order(&mut self, slot: u32, deadline: Time, seq: u32) -> bool {
        if self.cells.len() <= slot as usize {
            self.grow(slot);
        }
        self.put(slot, deadline, seq)
    }

    /// Arms the timer of a slot that is `alone`, if it does not stand anywhere, with a deadline that is yet to be set. Until then
    /// neither `first` nor `take_due` nor `deadline` may be asked. Tells whether it was armed; `None` if the slot is not
    /// alone or the generation is another.
    #[inline]
    pub(crate) fn promise_alone(&mut self, slot: u32, generation: u32) -> Option<bool> {
        let cell = self.cells.get_mut(slot as usize)?;
        if !cell.alone || cell.generation != generation {
            return None;
        }
        let armed = cell.room != NOWHERE;
        if !cell.is_in_a_room() {
            cell.room = PROMISED;
        }
        Some(armed)
    }

    /// Disarms the timer of a slot that is `alone`; tells whether it was armed, and the queue that it stood in. `None` if
    /// it is not alone or the generation is another.
    #[inline]
    pub(crate) fn remove_alone(&mut self, slot: u32, generation: u32) -> Option<Removed> {
        let cell = self.cells.get_mut(slot as usize)?;
        if !cell.alone || cell.generation != generation {
            return None;
        }
        let was = *cell;
        cell.room = NOWHERE;
        self.take_out(was);
        Some(was.removed())
    }

    /// Disarms the slot's timer; tells whether it was armed, and the queue that it stood in.
    #[inline]
    pub(crate) fn remove(&mut self, slot: u32) -> Removed {
        let Some(cell) = self.cells.get_mut(slot as usize) else { return Removed::NOTHING };
        let was = *cell;
        cell.room = NOWHERE;
        self.take_out(was);
        was.removed()
    }

    /// The queue that the slot's timer stands in.
    #[inline]
    pub(crate) fn queue(&self, slot: u32) -> Option<u16> {
        self.cells.get(slot as usize).filter(|cell| cell.room == QUEUED).map(|cell| cell.home)
    }

    /// The queue that the slot's timer was armed in last, or `NO_HOME`.
    #[inline]
    pub(crate) fn home(&self, slot: u32) -> u16 {
        self.cells.get(slot as usize).map_or(NO_HOME, |cell| cell.home)
    }

    /// Arms the slot's timer, or moves it, in a queue.
    pub(crate) fn enter(&mut self, entry: Entry, queue: u16) {
        if self.cells.len() <= entry.slot as usize {
            self.grow(entry.slot);
        }
        let cell = &mut self.cells[entry.slot as usize];
        let was = *cell;
        cell.deadline = entry.deadline;
        cell.seq = entry.seq;
        cell.room = QUEUED;
        cell.home = queue;
        self.take_out(was);
    }

    /// Whether an entry of a queue is its slot's timer still.
    #[inline]
    pub(crate) fn stands(&self, entry: &Entry, queue: u16) -> bool {
        let cell = &self.cells[entry.slot as usize];
        cell.room == QUEUED && cell.home == queue && cell.seq == entry.seq
    }

    #[inline]
    pub(crate) fn is_armed(&self, slot: u32) -> bool {
        self.cells.get(slot as usize).is_some_and(|cell| cell.room != NOWHERE)
    }

    pub(crate) fn deadline(&self, slot: u32) -> Option<Time> {
        self.cells.get(slot as usize).filter(|cell| cell.is_in_a_room()).map(|cell| cell.deadline)
    }

    /// The nearest deadline and its slot.
    #[inline]
    pub(crate) fn first(&mut self) -> Option<(Time, u32)> {
        if self.near.is_empty() && !self.tiers.is_empty() {
            self.refill();
        }
        self.near.first().map(|entry| (entry.deadline, entry.slot))
    }

    /// How many timers are armed and have a deadline.
    pub(crate) fn len(&self) -> usize {
        self.tiers.iter().fold(self.near.len(), |len, tier| len + tier.slots.len())
    }

    /// Whether `set_alone` was called with this generation, and nothing has taken it back.
    pub(crate) fn is_alone(&self, slot: u32, generation: u32) -> bool {
        self.cells.get(slot as usize).is_some_and(|cell| cell.alone && cell.generation == generation)
    }

    /// Notes that the slot's timer alone says what becomes of the slot, and the slot's generation; or takes that back.
    pub(crate) fn set_alone(&mut self, slot: u32, generation: Option<u32>) {
        if self.cells.len() <= slot as usize {
            self.grow(slot);
        }
        let cell = &mut self.cells[slot as usize];
        cell.alone = generation.is_some();
        cell.generation = generation.unwrap_or_default();
    }

    /// Takes out the timers whose deadline has passed and appends them, in no order. They are due from here on, which is
    /// armed without a deadline, until `fire` is asked about them, or they are removed or armed again. Tells whether all
    /// of them are `alone`.
    pub(crate) fn take_due(&mut self, now: Time, due: &mut Vec<Entry>) -> bool {
        let from = due.len();
        for _ in 0..SINGLY {
            match self.near.first() {
                Some(&first) if first.deadline <= now => {
                    self.take_out_of_heap(0);
                    due.push(first);
                }
                _ => break,
            }
        }
        if self.near.first().is_some_and(|first| first.deadline <= now) {
            due.extend(self.near.extract_if(.., |entry| entry.deadline <= now));
            self.rebuild();
        }
        if self.near.is_empty() {
            while let Some(tier) = self.tiers.last_mut().filter(|tier| tier.bound <= now) {
                let cells = &mut self.cells;
                if tier.slots.iter().all(|&slot| cells[slot as usize].deadline <= now) {
                    due.extend(tier.slots.drain(..).map(|slot| cells[slot as usize].entry(slot)));
                    self.drop_tier();
                } else {
                    tier.extract(cells, now, due);
                    break;
                }
            }
        }
        let mut are_alone = true;
        for entry in &due[from..] {
            are_alone &= self.set_due(entry.slot);
        }
        are_alone
    }

    /// Sorts what is due.
    pub(crate) fn sort(&mut self, due: &mut [Entry]) {
        let oldest = self.next_seq.wrapping_sub(1 << 31);
        if due.is_sorted_by_key(|entry| entry.rank(oldest)) {
            return;
        }
        order::sort(due, oldest, &mut self.spare_entries);
        if self.spare_entries.capacity() > MOST_SPARE {
            self.spare_entries = Vec::new();
        }
    }

    /// The slot's timer has been taken out and is due. Tells whether it is `alone`.
    #[inline]
    pub(crate) fn set_due(&mut self, slot: u32) -> bool {
        let cell = &mut self.cells[slot as usize];
        cell.room = DUE;
        cell.alone
    }

    /// Whether the slot's timer is still due; if so it is no more, and not armed.
    #[inline]
    pub(crate) fn fire(&mut self, slot: u32) -> bool {
        let Some(cell) = self.cells.get_mut(slot as usize).filter(|cell| cell.room == DUE) else {
            return false;
        };
        cell.room = NOWHERE;
        true
    }

    /// Where what is known of a slot lies, or a place that means nothing: to be fetched, not to be read.
    #[inline]
    pub(crate) fn address(&self, slot: u32) -> *const u8 {
        self.cells.as_ptr().wrapping_add(slot as usize).cast()
    }

    #[inline]
    pub(crate) fn is_due(&self, slot: u32) -> bool {
        self.cells.get(slot as usize).is_some_and(|cell| cell.room == DUE)
    }

    #[inline]
    fn room_for(&self, deadline: Time) -> Room {
        match self.tiers.iter().position(|tier| tier.bound <= deadline) {
            Some(tier) => tier as Room,
            None => IN_HEAP,
        }
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, slot: u32) {
        self.cells.resize(slot as usize + 1, FREE);
    }

    /// Arms or moves a timer whose cell there is; tells whether it was armed. Far timers go the short way.
    #[inline(always)]
    fn put(&mut self, slot: u32, deadline: Time, seq: u32) -> bool {
        let room = self.room_for(deadline);
        let cell = &mut self.cells[slot as usize];
        cell.deadline = deadline;
        cell.seq = seq;
        cell.home = NO_HOME;
        let was = cell.room;
        if let Some(tier) = self.tiers.get_mut(room as usize) {
            if was == room {
                return true;
            }
            if was > IN_HEAP {
                cell.index = tier.slots.len() as u32;
                cell.room = room;
                tier.slots.push(slot);
                return was != NOWHERE;
            }
        }
        self.put_otherwise(room, slot);
        was != NOWHERE
    }

    #[inline(never)]
    fn put_otherwise(&mut self, room: Room, slot: u32) {
        let was = self.cells[slot as usize];
        if was.room == IN_HEAP && room == IN_HEAP {
            self.near[was.index as usize] = was.entry(slot);
            self.restore(was.index as usize);
            return;
        }
        if was.is_in_a_room() {
            self.take_out(was);
        }
        if let Some(tier) = self.tiers.get_mut(room as usize) {
            tier.push(room, &mut self.cells, slot);
            return;
        }
        self.cells[slot as usize].room = IN_HEAP;
        self.near.push(was.entry(slot));
        self.up(self.near.len() - 1);
        if self.near.len() > self.near_limit {
            self.split();
        }
    }

    /// Takes what stood at a cell's place out of its room; the cell is the caller's affair.
    #[inline]
    fn take_out(&mut self, cell: Cell) {
        if let Some(tier) = self.tiers.get_mut(cell.room as usize) {
            tier.slots.swap_remove(cell.index as usize);
            if let Some(&moved) = tier.slots.get(cell.index as usize) {
                self.cells[moved as usize].index = cell.index;
            }
        } else if cell.room == IN_HEAP {
            self.take_out_of_heap(cell.index as usize);
        }
    }

    #[inline(never)]
    fn take_out_of_heap(&mut self, index: usize) {
        self.near.swap_remove(index);
        if index < self.near.len() {
            self.restore(index);
        }
    }

    /// The heap has grown too large: its farther half goes to the nearest tier, or becomes one.
    #[cold]
    fn split(&mut self) {
        let half = self.near.len() / 2;
        let (_, middle, _) = self.near.select_nth_unstable_by_key(half, |entry| entry.deadline);
        let bound = middle.deadline;
        let may_add = self.tiers.len() < MAX_TIERS;
        match self.tiers.last_mut() {
            Some(tier) if tier.slots.len() < TIER || !may_add => tier.bound = bound,
            _ => self.tiers.push(Tier { bound, slots: std::mem::take(&mut self.spare) }),
        }
        let room = self.tiers.len() - 1;
        let tier = &mut self.tiers[room];
        for entry in self.near.extract_if(.., |entry| entry.deadline >= bound) {
            tier.push(room as Room, &mut self.cells, entry.slot);
        }
        self.rebuild();
    }

    /// The heap is empty: fills it from the nearest tier, of a large one with the nearest part.
    #[cold]
    fn refill(&mut self) {
        while let Some(tier) = self.tiers.last_mut() {
            if tier.slots.len() > 2 * NEAR {
                let bound = tier.bound;
                let pivot = tier.pivot(&self.cells);
                tier.extract(&mut self.cells, pivot, &mut self.near);
                if tier.slots.is_empty() {
                    // All of one deadline.
                    self.drop_tier();
                } else if self.near.len() > 2 * NEAR && self.tiers.len() < MAX_TIERS {
                    let room = self.tiers.len() as Room;
                    let mut nearer = Tier { bound, slots: std::mem::take(&mut self.spare) };
                    for entry in self.near.drain(..) {
                        nearer.push(room, &mut self.cells, entry.slot);
                    }
                    self.tiers.push(nearer);
                    continue;
                }
            } else {
                self.near.extend(tier.slots.drain(..).map(|slot| self.cells[slot as usize].entry(slot)));
                self.drop_tier();
            }
            if !self.near.is_empty() {
                break;
            }
        }
        self.rebuild();
    }

    /// The nearest tier has been emptied.
    fn drop_tier(&mut self) {
        if let Some(tier) = self.tiers.pop()
            && tier.slots.capacity() > self.spare.capacity()
            && tier.slots.capacity() <= 2 * TIER
        {
            self.spare = tier.slots;
        }
    }

    /// Makes a heap of entries in any order.
    fn rebuild(&mut self) {
        for (index, entry) in self.near.iter().enumerate() {
            let cell = &mut self.cells[entry.slot as usize];
            cell.index = index as u32;
            cell.room = IN_HEAP;
        }
        if self.near.len() > 1 {
            for at in (0..=(self.near.len() - 2) / ARITY).rev() {
                self.down(at);
            }
        }
        self.near_limit = 2 * self.near.len().max(NEAR);
    }

    fn restore(&mut self, at: usize) {
        let at = self.up(at);
        self.down(at);
    }

    fn up(&mut self, mut at: usize) -> usize {
        let entry = self.near[at];
        while at > 0 {
            let parent = (at - 1) / ARITY;
            if !entry.before(&self.near[parent]) {
                break;
            }
            self.place(at, self.near[parent]);
            at = parent;
        }
        self.place(at, entry);
        at
    }

    fn down(&mut self, mut at: usize) {
        let entry = self.near[at];
        loop {
            let first = at * ARITY + 1;
            let end = (first + ARITY).min(self.near.len());
            let Some(least) =
                (first..end).reduce(|a, b| if self.near[b].before(&self.near[a]) { b } else { a })
            else {
                break;
            };
            if !self.near[least].before(&entry) {
                break;
            }
            self.place(at, self.near[least]);
            at = least;
        }
        self.place(at, entry);
    }

    #[inline]
    fn place(&mut self, at: usize, entry: Entry) {
        self.near[at] = entry;
        self.cells[entry.slot as usize].index = at as u32;
    }
}

impl Tier {
    #[inline]
    fn push(&mut self, room: Room, cells: &mut [Cell], slot: u32) {
        let cell = &mut cells[slot as usize];
        cell.index = self.slots.len() as u32;
        cell.room = room;
        self.slots.push(slot);
    }

    /// Moves what is due by `last` out, in no order, and begins after it from now on. The cells of what is moved are
    /// the caller's affair.
    fn extract(&mut self, cells: &mut [Cell], last: Time, into: &mut Vec<Entry>) {
        let mut at = 0;
        while let Some(&slot) = self.slots.get(at) {
            let cell = cells[slot as usize];
            if cell.deadline > last {
                at += 1;
                continue;
            }
            into.push(cell.entry(slot));
            self.slots.swap_remove(at);
            if let Some(&moved) = self.slots.get(at) {
                cells[moved as usize].index = at as u32;
            }
        }
        self.bound = Time::from_nanos(last.as_nanos().saturating_add(1));
    }

    /// A deadline with about a tenth of the tier before it, going by a sample. The tier is not empty.
    fn pivot(&self, cells: &[Cell]) -> Time {
        let mut sample = [Time::NEVER; 64];
        let step = (self.slots.len() / sample.len()).max(1);
        for (deadline, &slot) in sample.iter_mut().zip(self.slots.iter().step_by(step)) {
            *deadline = cells[slot as usize].deadline;
        }
        *sample.select_nth_unstable(6).1
    }
}

#[cfg(test)]
mod tests;
