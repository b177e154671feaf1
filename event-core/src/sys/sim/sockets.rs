//! What crosses between the open files of a world: connections, bytes, ends and resets, each after its latency.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr};
use std::ops::RangeInclusive;
use std::os::fd::RawFd;
use std::time::Duration;

use crate::sys::seam::{Address, ListenOptions};

use super::errno;
use super::names::{Bound, collide, mapped, reaches};
use super::stream::{Kind, Phase, Stream};
use super::world::{Body, ObjId, State};

/// The ports that are handed out, as IANA has them (RFC 6335, section 6).
const EPHEMERAL: RangeInclusive<u16> = 49_152..=65_535;

#[derive(Debug)]
pub(super) struct Listener {
    pub(super) bound: Bound,
    /// How many connections may wait in `queue`; at least 1.
    backlog: usize,
    /// Established and not yet accepted: the server's ends. The queue holds their reference.
    pub(super) queue: VecDeque<ObjId>,
    /// Clients that connect to a full queue. They may have been closed meanwhile.
    waiting: VecDeque<ObjId>,
}

/// Something under way.
#[derive(Debug)]
pub(super) enum Delivery {
    /// The first packet of the connecting TCP client.
    Handshake {
        client: ObjId,
    },
    /// A connect fails, as the test has said.
    Failure {
        client: ObjId,
        errno: i32,
    },
    Parcel {
        from: ObjId,
        to: ObjId,
        parcel: Parcel,
    },
}

#[derive(Debug)]
pub(super) enum Parcel {
    Bytes(Vec<u8>),
    Fin,
    /// The other end of a unix socket was closed, with `unread` input in it or not.
    HungUp {
        unread: bool,
    },
    /// The other end of a unix socket does not read any more.
    ReadShut,
    Rst,
}

/// The call is the program's own, which the script and chance may disturb, or the test's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Program,
    Test,
}

impl State {
    // Making streams.

    /// A connected pair of sockets that neither end has a number for.
    pub(crate) fn pair(&mut self, unix: bool) -> (ObjId, ObjId) {
        let mut address = || match unix {
            true => Address::Unix(None),
            false => self.free_address(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        };
        let (one, other) = (address(), address());
        let kind = if unix { Kind::Unix } else { Kind::Tcp };
        self.linked((kind, one.clone(), other.clone()), (kind, other, one))
    }

    /// A pipe: the reading end, then the writing one.
    pub(crate) fn pipe(&mut self) -> (ObjId, ObjId) {
        let end = |kind| (kind, Address::Unix(None), Address::Unix(None));
        self.linked(end(Kind::PipeReader), end(Kind::PipeWriter))
    }

    fn linked(&mut self, one: (Kind, Address, Address), other: (Kind, Address, Address)) -> (ObjId, ObjId) {
        let one = self.new_stream(one.0, one.1, one.2);
        let other = self.new_stream(other.0, other.1, other.2);
        self.link(one, other);
        (one, other)
    }

    pub(super) fn new_stream(&mut self, kind: Kind, local: Address, remote: Address) -> ObjId {
        let latency = if kind == Kind::Tcp { self.default_latency } else { Duration::ZERO };
        let stream = Stream::new(kind, local, remote, self.default_capacity, latency);
        self.insert(Body::Stream(stream))
    }

    fn link(&mut self, one: ObjId, other: ObjId) {
        for (end, peer) in [(one, other), (other, one)] {
            if let Some(stream) = self.live(end) {
                stream.peer = peer;
                stream.phase = Phase::Open;
            }
            self.touch(end);
        }
    }

    /// The stream `id`, or the errno that a socket call on anything else gets.
    pub(super) fn stream(&mut self, id: ObjId) -> io::Result<&mut Stream> {
        match &mut self.object(id)?.body {
            Body::Stream(stream) => Ok(stream),
            Body::Listener(_) => Err(errno(libc::ENOTCONN)),
            Body::Plain(_) => Err(errno(libc::ENOTSOCK)),
        }
    }

    /// The stream `id` if it is one and still open.
    pub(super) fn live(&mut self, id: ObjId) -> Option<&mut Stream> {
        self.stream(id).ok()
    }

    fn peer_lives(&self, id: ObjId) -> bool {
        match self.objects.get(&id).map(|object| &object.body) {
            Some(Body::Stream(stream)) => self.objects.contains_key(&stream.peer),
            _ => false,
        }
    }

    // Listening and connecting.

    /// Makes a listener that has no number yet.
    pub(crate) fn listen(&mut self, address: &Address, options: &ListenOptions) -> io::Result<ObjId> {
        let address = match address {
            Address::Ip(ip) if ip.port() == 0 => self.free_address(ip.ip()),
            Address::Unix(_) if address.path().is_none() => return Err(errno(libc::EINVAL)),
            other => other.clone(),
        };
        let dual = !options.only_v6 && address.socket_addr().is_some_and(|ip| ip.is_ipv6());
        let bound = Bound { address, dual, shared: options.reuse_port };
        if self.listeners.iter().any(|&id| self.listening(id).is_some_and(|taken| collide(taken, &bound))) {
            return Err(errno(libc::EADDRINUSE));
        }
        if let Address::Unix(Some(path)) = &bound.address
            && !self.unix_names.insert(path.clone())
            && !options.replace_stale
        {
            return Err(errno(libc::EADDRINUSE));
        }
        let backlog = usize::try_from(options.backlog).unwrap_or(usize::MAX).max(1);
        let listener = Listener { bound, backlog, queue: VecDeque::new(), waiting: VecDeque::new() };
        let id = self.insert(Body::Listener(listener));
        self.listeners.push(id);
        Ok(id)
    }

    /// Fails unless `id` listens: there is nothing here that is bound only.
    pub(super) fn adopt(&mut self, id: ObjId) -> io::Result<()> {
        match &self.object(id)?.body {
            Body::Listener(_) => Ok(()),
            Body::Stream(stream) if stream.is_socket() => Err(errno(libc::EINVAL)),
            _ => Err(errno(libc::ENOTSOCK)),
        }
    }

    /// Removes the name of a unix socket.
    pub(crate) fn unlink(&mut self, path: &std::path::Path) {
        self.unix_names.remove(path);
    }

    fn handshake(&mut self, client: ObjId) {
        let Some(stream) = self.live(client) else { return };
        let remote = stream.remote.clone();
        match self.find_listener(&remote) {
            None => self.fail_connect(client, libc::ECONNREFUSED),
            Some(listener) if self.queue_has_room(listener) => self.establish(listener, client),
            Some(listener) => {
                if let Some(listener) = self.listener(listener) {
                    listener.waiting.push_back(client);
                }
            }
        }
    }

    fn fail_connect(&mut self, client: ObjId, errno: i32) {
        if let Some(stream) = self.live(client) {
            stream.fail(errno);
            self.touch(client);
        }
    }

    /// Connects `client` to a new server end, which is put into the queue of `listener`.
    pub(super) fn establish(&mut self, listener: ObjId, client: ObjId) {
        let Some(stream) = self.live(client) else { return };
        let (kind, latency) = (stream.kind, stream.latency);
        let (mut server_local, mut server_remote) = (stream.remote.clone(), stream.local.clone());
        if self.listening(listener).is_some_and(|bound| bound.dual) {
            (server_local, server_remote) = (mapped(server_local), mapped(server_remote));
        }
        let server = self.new_stream(kind, server_local, server_remote);
        if let Some(stream) = self.live(server) {
            stream.latency = latency;
        }
        self.link(client, server);
        if let Some(listener) = self.listener(listener) {
            listener.queue.push_back(server);
        }
        self.touch(listener);
    }

    /// Takes the server end of the oldest connection off the queue, with its reference.
    pub(crate) fn accept(&mut self, id: ObjId, by: By) -> io::Result<ObjId> {
        let object = self.object(id)?;
        match &object.body {
            Body::Listener(_) => {}
            Body::Plain(_) => return Err(errno(libc::ENOTSOCK)),
            Body::Stream(stream) if !stream.is_socket() => return Err(errno(libc::ENOTSOCK)),
            Body::Stream(_) => return Err(errno(libc::EINVAL)),
        }
        if by == By::Program {
            // accept4 takes a number before it looks at the queue.
            self.fds.check_limit()?;
            self.stumble(id, true)?;
        }
        if self.listener(id).is_none_or(|listener| listener.queue.is_empty()) {
            return Err(errno(libc::EAGAIN));
        }
        if by == By::Program {
            self.limit(id, true, 1, true)?;
        }
        let server = self.listener(id).and_then(|listener| listener.queue.pop_front());
        let server = server.ok_or_else(|| errno(libc::EAGAIN))?;
        // A client that waits for room takes the place.
        while self.queue_has_room(id) {
            let Some(client) = self.listener(id).and_then(|listener| listener.waiting.pop_front()) else {
                break;
            };
            self.establish(id, client);
        }
        Ok(server)
    }

    fn listener(&mut self, id: ObjId) -> Option<&mut Listener> {
        match self.objects.get_mut(&id).map(|object| &mut object.body) {
            Some(Body::Listener(listener)) => Some(listener),
            _ => None,
        }
    }

    pub(super) fn queue_has_room(&mut self, id: ObjId) -> bool {
        self.listener(id).is_some_and(|listener| listener.queue.len() < listener.backlog)
    }

    fn listening(&self, id: ObjId) -> Option<&Bound> {
        match self.objects.get(&id).map(|object| &object.body) {
            Some(Body::Listener(listener)) => Some(&listener.bound),
            _ => None,
        }
    }

    /// Of several that share the port, one by chance.
    pub(super) fn find_listener(&mut self, target: &Address) -> Option<ObjId> {
        let reaches = |&id: &ObjId| self.listening(id).is_some_and(|bound| reaches(target, bound));
        let found: Vec<ObjId> = self.listeners.iter().copied().filter(reaches).collect();
        match found[..] {
            [] => None,
            [only] => Some(only),
            _ => Some(found[self.random.below(found.len())]),
        }
    }

    /// A port that nobody listens on and that was not handed out for long.
    pub(super) fn free_address(&mut self, ip: IpAddr) -> Address {
        loop {
            let port = self.next_port.max(*EPHEMERAL.start());
            self.next_port = if port == *EPHEMERAL.end() { *EPHEMERAL.start() } else { port + 1 };
            let taken =
                |&id: &ObjId| self.listening(id).is_some_and(|bound| bound.address.port() == Some(port));
            // Were every port listened on, the oldest is given again; `listen` then finds it taken.
            if self.listeners.len() > EPHEMERAL.len() || !self.listeners.iter().any(taken) {
                return Address::Ip(SocketAddr::new(ip, port));
            }
        }
    }

    // Bytes.

    /// Appends at most `max` bytes to `out`; 0 is the end of the stream.
    pub(crate) fn recv(&mut self, id: ObjId, out: &mut Vec<u8>, max: usize, by: By) -> io::Result<usize> {
        if by == By::Program {
            self.stumble(id, true)?;
        }
        if let Body::Plain(_) = self.object(id)?.body {
            return Err(errno(libc::EAGAIN));
        }
        let peer_lives = self.peer_lives(id);
        if max == 0 {
            return self.stream(id).map(|_| 0);
        }
        let mut count = self.stream(id)?.readable(peer_lives)?.min(max);
        if by == By::Program {
            count = self.limit(id, true, count, true)?;
        }
        let stream = self.stream(id)?;
        stream.take_input(count, out);
        let peer = stream.peer;
        self.credit(peer, count);
        Ok(count)
    }

    /// Sends what there is room for; says how much that was.
    pub(crate) fn send(&mut self, id: ObjId, bufs: &[IoSlice<'_>], by: By) -> io::Result<usize> {
        if by == By::Program {
            self.stumble(id, false)?;
        }
        match self.object(id)?.body {
            Body::Plain(_) => return Err(errno(libc::EAGAIN)),
            Body::Listener(_) => return Err(errno(libc::EPIPE)),
            Body::Stream(_) => {}
        }
        let total = bufs.iter().map(|buf| buf.len()).sum();
        if total == 0 {
            return Ok(0);
        }
        let peer_lives = self.peer_lives(id);
        let stream = self.stream(id)?;
        let atomic = stream.is_atomic(total);
        let mut count = stream.writable(total, peer_lives)?;
        if by == By::Program {
            // A pipe never splits a small write, so chance may not either.
            count = self.limit(id, false, count, !atomic)?;
        }
        let mut bytes = Vec::with_capacity(count);
        for buf in bufs {
            bytes.extend_from_slice(&buf[..buf.len().min(count - bytes.len())]);
        }
        self.stream(id)?.sent += count;
        self.post(id, Parcel::Bytes(bytes));
        Ok(count)
    }

    /// How many bytes a send could place now.
    pub(crate) fn room(&mut self, id: ObjId) -> io::Result<usize> {
        let peer_lives = self.peer_lives(id);
        let stream = self.stream(id)?;
        stream.writable(usize::MAX, peer_lives)
    }

    /// `Err` if the script has the next call fail.
    fn stumble(&mut self, id: ObjId, taking: bool) -> io::Result<()> {
        let object = self.object(id)?;
        let obstacles = if taking { &mut object.taking } else { &mut object.giving };
        let Some(code) = obstacles.failure() else { return Ok(()) };
        self.touch(id);
        Err(errno(code))
    }

    /// How much of `possible` the script and, if `random` and cuts are on, chance let the call do. Whoever is held up
    /// that way is told of the readiness again: no edge is lost.
    fn limit(&mut self, id: ObjId, taking: bool, possible: usize, random: bool) -> io::Result<usize> {
        let State { objects, random: source, cuts, .. } = self;
        let object = objects.get_mut(&id).ok_or_else(|| errno(libc::EBADF))?;
        let obstacles = if taking { &mut object.taking } else { &mut object.giving };
        let result = obstacles.limit(possible, (*cuts && random).then_some(source));
        if !matches!(result, Ok(count) if count == possible) {
            self.touch(id);
        }
        result
    }

    /// `count` bytes that `sender` had sent were read.
    fn credit(&mut self, sender: ObjId, count: usize) {
        let Some(stream) = self.live(sender) else { return };
        let had_room = stream.has_room();
        stream.sent = stream.sent.saturating_sub(count);
        if !had_room && stream.has_room() {
            self.touch(sender);
        }
    }

    /// Sends a parcel from `from` to its peer, behind all that it sent before.
    fn post(&mut self, from: ObjId, parcel: Parcel) {
        let now = self.now;
        let Some(stream) = self.live(from) else { return };
        let due = now.after(stream.latency).max(stream.last_arrival);
        stream.last_arrival = due;
        let to = stream.peer;
        self.schedule(due, Delivery::Parcel { from, to, parcel });
    }

    /// Something arrives.
    pub(super) fn deliver(&mut self, delivery: Delivery) {
        let (from, to, parcel) = match delivery {
            Delivery::Handshake { client } => return self.handshake(client),
            Delivery::Failure { client, errno } => return self.fail_connect(client, errno),
            Delivery::Parcel { from, to, parcel } => (from, to, parcel),
        };
        let Some(stream) = self.live(to) else { return self.bounce(from, parcel) };
        match parcel {
            // After a reset the socket is no longer found; a second reset in particular is not told again.
            _ if stream.phase == Phase::Closed => {}
            Parcel::Bytes(bytes) => stream.input.extend(bytes),
            Parcel::Fin => {
                stream.read_shut = true;
                stream.fin = stream.kind == Kind::Tcp;
            }
            Parcel::HungUp { unread } => {
                // unix_release_sock on the other end.
                stream.read_shut = true;
                stream.write_shut = true;
                stream.sent = 0;
                stream.was_reset = unread;
                if unread {
                    stream.error = Some(libc::ECONNRESET);
                }
            }
            Parcel::ReadShut => stream.write_shut = true,
            Parcel::Rst => stream.reset(),
        }
        self.touch(to);
    }

    /// A parcel reaches an end that was closed: data is answered by a reset (RFC 9293, section 3.10.7.1).
    fn bounce(&mut self, from: ObjId, parcel: Parcel) {
        let Parcel::Bytes(_) = parcel else { return };
        let now = self.now;
        let Some(stream) = self.live(from) else { return };
        if stream.kind == Kind::Tcp {
            let due = now.after(stream.latency);
            self.schedule(due, Delivery::Parcel { from: 0, to: from, parcel: Parcel::Rst });
        }
    }

    // Ending.

    /// Closes what nothing refers to any more; `abort` has a TCP stream reset, as SO_LINGER with 0 does.
    pub(super) fn dispose(&mut self, id: ObjId, abort: bool) {
        if let Some(stream) = self.live(id) {
            let abort = abort || (stream.resets && stream.kind == Kind::Tcp);
            let unread = !stream.input.is_empty() || abort;
            let (kind, phase, write_shut, peer) = (stream.kind, stream.phase, stream.write_shut, stream.peer);
            match (kind, phase) {
                (Kind::Tcp, Phase::Open) if unread => self.post(id, Parcel::Rst),
                (Kind::Tcp, Phase::Open) if !write_shut => self.post(id, Parcel::Fin),
                (Kind::Unix, _) => self.post(id, Parcel::HungUp { unread }),
                _ => {}
            }
            self.objects.remove(&id);
            if matches!(kind, Kind::PipeReader | Kind::PipeWriter) {
                self.touch(peer);
            }
        } else if let Some(listener) = self.listener(id) {
            let queue = mem::take(&mut listener.queue);
            let waiting = mem::take(&mut listener.waiting);
            if let Address::Unix(Some(name)) = &listener.bound.address
                && name.as_os_str().as_encoded_bytes().first() == Some(&0)
            {
                // A name in the abstract namespace has no file that could stay.
                let name = name.clone();
                self.unix_names.remove(&name);
            }
            self.objects.remove(&id);
            self.listeners.retain(|&other| other != id);
            for server in queue {
                self.dispose(server, true);
            }
            for client in waiting {
                self.fail_connect(client, libc::ECONNREFUSED);
            }
        } else {
            self.objects.remove(&id);
        }
        for set in self.sets.values_mut() {
            set.forget(id);
        }
    }

    pub(crate) fn shutdown(&mut self, id: ObjId, how: Shutdown) -> io::Result<()> {
        let stream = self.stream(id)?;
        let kind = stream.kind;
        let (read, write) = stream.shut(how)?;
        if write {
            self.post(id, Parcel::Fin);
        }
        if read && kind == Kind::Unix {
            self.post(id, Parcel::ReadShut);
        }
        self.touch(id);
        Ok(())
    }

    // Questions and settings.

    pub(crate) fn take_error(&mut self, id: ObjId) -> io::Result<Option<io::Error>> {
        match &mut self.object(id)?.body {
            Body::Listener(_) => Ok(None),
            Body::Stream(stream) if stream.is_socket() => Ok(stream.error.take().map(errno)),
            _ => Err(errno(libc::ENOTSOCK)),
        }
    }

    pub(crate) fn local_address(&mut self, id: ObjId) -> io::Result<Address> {
        match &self.object(id)?.body {
            Body::Listener(listener) => Ok(listener.bound.address.clone()),
            Body::Stream(stream) if stream.is_socket() => Ok(stream.local.clone()),
            _ => Err(errno(libc::ENOTSOCK)),
        }
    }

    pub(crate) fn peer_address(&mut self, id: ObjId) -> io::Result<Address> {
        match &self.object(id)?.body {
            Body::Stream(stream) if stream.is_socket() && stream.phase == Phase::Open => {
                Ok(stream.remote.clone())
            }
            Body::Stream(stream) if stream.is_socket() => Err(errno(libc::ENOTCONN)),
            Body::Listener(_) => Err(errno(libc::ENOTCONN)),
            _ => Err(errno(libc::ENOTSOCK)),
        }
    }

    /// Whether `recv` and `send` on a real kernel would answer ENOTSOCK.
    pub(super) fn is_file(&self, fd: RawFd) -> bool {
        let body = self.fds.get(fd).and_then(|id| self.objects.get(&id)).map(|object| &object.body);
        match body {
            Some(Body::Stream(stream)) => !stream.is_socket(),
            Some(Body::Plain(_)) => true,
            _ => false,
        }
    }

    /// Sets the send buffer of one end.
    pub(crate) fn set_capacity(&mut self, id: ObjId, bytes: usize) -> io::Result<()> {
        let stream = self.stream(id)?;
        let had_room = stream.has_room();
        stream.capacity = bytes.max(1);
        if !had_room && stream.has_room() {
            self.touch(id);
        }
        Ok(())
    }

    /// Sets how long anything sent by either end of a socket is under way.
    pub(crate) fn set_latency(&mut self, id: ObjId, latency: Duration) -> io::Result<()> {
        let stream = self.stream(id)?;
        if !stream.is_socket() {
            return Err(errno(libc::ENOTSOCK));
        }
        stream.latency = latency;
        let peer = stream.peer;
        if let Some(stream) = self.live(peer) {
            stream.latency = latency;
        }
        Ok(())
    }

    /// Whether the other end sends no more and all that it sent was read.
    pub(crate) fn is_ended(&mut self, id: ObjId) -> bool {
        let peer_lives = self.peer_lives(id);
        self.live(id).is_some_and(|stream| {
            let ended = match stream.kind {
                Kind::PipeReader => !peer_lives,
                Kind::PipeWriter => false,
                // A refused or reset connection has no end of its own, unless that came first.
                Kind::Tcp | Kind::Unix => {
                    stream.fin || (stream.read_shut && stream.phase == Phase::Open && !stream.was_reset)
                }
            };
            ended && stream.input.is_empty()
        })
    }

    pub(crate) fn is_reset(&mut self, id: ObjId) -> bool {
        let peer_lives = self.peer_lives(id);
        self.live(id)
            .is_some_and(|stream| stream.was_reset || (stream.kind == Kind::PipeWriter && !peer_lives))
    }

    pub(crate) fn is_connected(&mut self, id: ObjId) -> bool {
        self.live(id).is_some_and(|stream| stream.phase == Phase::Open)
    }

    /// Has the end `id` reset its connection when it is closed.
    pub(crate) fn reset_on_close(&mut self, id: ObjId) -> io::Result<()> {
        let stream = self.stream(id)?;
        if !stream.is_socket() {
            return Err(errno(libc::ENOTSOCK));
        }
        stream.resets = true;
        Ok(())
    }

    /// Closes the test's end `id` with a reset.
    pub(crate) fn abort(&mut self, id: ObjId) {
        if self.objects.contains_key(&id) {
            self.dispose(id, true);
        }
    }
}
