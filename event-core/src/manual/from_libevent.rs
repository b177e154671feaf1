//! Porting from libevent: the C line on the left, what to write in its place on the right.
//!
//! The docs can be searched by C name: most items carry theirs, so a search for `event_base_loopexit` finds
//! [`LoopHandle::loopexit`]. This page has those names too, and the ones whose place is taken by the language, by std or
//! by another crate. It follows libevent's headers; names of 2.1 and of 2.2-alpha are here.
//!
//! Four things differ everywhere:
//!
//! - **Errors are results.** `-1` and `NULL` are an `Err` with a reason; a system call's errno is kept in
//!   [`Error::Io`].
//! - **There is no `void *arg`.** A callback is a closure, or an object that implements [`Callbacks`]; it captures what
//!   `arg` would point to, and owns it.
//! - **Dropping frees.** `Event`, `Timer` and `Signal` belong to whoever holds the value. A stream or listener belongs
//!   to the loop until it is freed; dropping a handle on it does nothing.
//! - **A loop stays on its thread.** What crosses threads are messages ([`LoopHandle::mailbox`]), closures and stops
//!   ([`Remote`]).
//!
//! # Ten idioms
//!
//! ## Make a loop, run it, free it
//!
//! `event_base_new`, `event_base_dispatch`, `event_base_got_exit`, `event_base_free`:
//!
//! ```
//! use event_core::{EventBase, LoopEnd};
//! use std::time::Duration;
//!
//! let mut base = EventBase::new()?;
//! base.loopexit(Some(Duration::from_millis(1)))?;
//! match base.dispatch()? {
//!     LoopEnd::Exit => println!("told to stop"),
//!     LoopEnd::Empty => println!("nothing left to wait for"),
//!     other => println!("{other:?}"),
//! }
//! drop(base);
//! # Ok::<(), event_core::Error>(())
//! ```
//!
//! ## Watch an fd, with a timeout
//!
//! `event_new(base, fd, EV_READ|EV_PERSIST, cb, arg)`, `event_add(ev, &tv)`, `event_del`:
//!
//! ```
//! use event_core::{Event, EventBase, Ready, What};
//! use std::{io::{Read, Write}, os::{fd::AsRawFd, unix::net::UnixStream}, time::Duration};
//!
//! let mut base = EventBase::new()?;
//! let (mut ours, mut theirs) = UnixStream::pair()?; // evutil_socketpair
//! ours.set_nonblocking(true)?; // evutil_make_socket_nonblocking
//! let event = Event::new(&base, ours.as_raw_fd(), What::READ | What::PERSIST, move |event, ready| {
//!     let mut block = [0; 512];
//!     if ready.contains(Ready::READ) {
//!         println!("{:?}", ours.read(&mut block));
//!     } else {
//!         let _ = event.del(); // Ready::TIMEOUT: nothing came for so long
//!     }
//! })?;
//! event.add(Some(Duration::from_millis(2)))?;
//! theirs.write_all(b"hello")?;
//! base.dispatch()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ## A timer that comes back
//!
//! `evtimer_new` with `evtimer_add` in the callback; `event_new(base, -1, EV_PERSIST, cb, arg)`:
//!
//! ```
//! use event_core::{EventBase, Timer};
//! use std::time::Duration;
//!
//! let mut base = EventBase::new()?;
//! let mut left = 3;
//! let tick = Timer::persistent(&base, move |timer| {
//!     left -= 1;
//!     if left == 0 {
//!         let _ = timer.del(); // evtimer_del
//!     }
//! })?;
//! tick.add(Duration::from_millis(1))?;
//! let slower = Timer::new(&base, |_| println!("once"))?;
//! slower.add(Duration::from_millis(2))?;
//! base.dispatch()?;
//! # Ok::<(), event_core::Error>(())
//! ```
//!
//! ## Stop on a signal
//!
//! `evsignal_new(base, SIGINT, cb, base)` and `event_base_loopexit(base, NULL)`. The closure captures a handle; the
//! signal alone does not keep the loop running once it is marked as background:
//!
//! ```
//! use event_core::{EventBase, Signal};
//!
//! let mut base = EventBase::new()?;
//! let handle = base.handle();
//! let interrupt = Signal::new(&base, Signal::INT, move |_| {
//!     let _ = handle.loopexit(None);
//! })?;
//! interrupt.add()?;
//! interrupt.set_background(true)?;
//! base.dispatch()?;
//! # Ok::<(), event_core::Error>(())
//! ```
//!
//! ## Wake the loop from another thread
//!
//! `evthread_use_pthreads` and an `event_active` from the other thread. The message comes with the wake-up:
//!
//! ```
//! use event_core::EventBase;
//!
//! let mut base = EventBase::new()?;
//! let handle = base.handle();
//! let mut sum = 0;
//! let (_mailbox, sender) = base.mailbox(move |number: u32| {
//!     sum += number;
//!     if number == 3 {
//!         println!("{sum} in all");
//!         let _ = handle.loopbreak();
//!     }
//! })?;
//! std::thread::spawn(move || (1..=3).try_for_each(|number| sender.send(number)));
//! base.run(event_core::LoopFlags::NO_EXIT_ON_EMPTY)?;
//! # Ok::<(), event_core::Error>(())
//! ```
//!
//! ## Call something once
//!
//! `event_base_once(base, -1, EV_TIMEOUT, cb, arg, &tv)`; there is no object to keep:
//!
//! ```
//! use event_core::{EventBase, What};
//! use std::time::Duration;
//!
//! let mut base = EventBase::new()?;
//! base.once(-1, What::empty(), Some(Duration::from_millis(1)), |ready| println!("{ready:?}"))?;
//! base.dispatch()?;
//! # Ok::<(), event_core::Error>(())
//! ```
//!
//! ## Connect, with the session as one object
//!
//! `bufferevent_socket_new`, `bufferevent_setcb(bev, readcb, writecb, eventcb, session)`, `bufferevent_enable`,
//! `bufferevent_socket_connect`. The three functions and their `arg` are one value, which the stream owns. For a name in the
//! place of the address, `bufferevent_socket_connect_hostname`, there is [`BufferEvent::connect_hostname`]:
//!
//! ```
//! use event_core::{Address, BufferEvent, Callbacks, Direction, Eol, EventBase, StreamEvent};
//!
//! struct Session { lines: usize }
//!
//! impl Callbacks for Session {
//!     fn on_read(&mut self, bev: &BufferEvent) {
//!         while let Some(line) = bev.input().readln(Eol::CrlfStrict) {
//!             self.lines += 1;
//!             println!("{}", String::from_utf8_lossy(&line));
//!         }
//!     }
//!     fn on_event(&mut self, bev: &BufferEvent, event: StreamEvent) {
//!         if event.contains(StreamEvent::CONNECTED) {
//!             let _ = bev.write("HELLO\r\n");
//!         } else {
//!             println!("{event:?} after {} lines: {:?}", self.lines, bev.error());
//!             bev.free();
//!         }
//!     }
//! }
//!
//! let mut base = EventBase::new()?;
//! let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
//! let bev = BufferEvent::connect(&base, &Address::Ip(listener.local_addr()?))?;
//! bev.set_callbacks(Session { lines: 0 });
//! bev.enable(Direction::READ)?;
//! # drop(listener);
//! base.dispatch()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ## Accept connections
//!
//! `evconnlistener_new_bind`, then in its callback `bufferevent_socket_new`, `bufferevent_setcb`,
//! `bufferevent_enable`:
//!
//! ```
//! use event_core::{Direction, EventBase, Listener, StreamEvent};
//!
//! let mut base = EventBase::new()?;
//! let listener = Listener::bind(&base, "127.0.0.1:0", |_, accepted| {
//!     let bev = accepted.into_stream();
//!     bev.set_read_cb(|bev| {
//!         let echo = bev.read_buffer();
//!         let _ = bev.write(echo);
//!     });
//!     bev.set_event_cb(|bev, event| {
//!         if event.contains(StreamEvent::EOF) { bev.close_after_flush() } else { bev.free() }
//!     });
//!     let _ = bev.enable(Direction::READ);
//! })?;
//! # listener.free();
//! base.dispatch()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ## Put a message together and take it apart
//!
//! `evbuffer_add_printf`, `evbuffer_add_buffer`, `evbuffer_search`, `evbuffer_remove_buffer`, `evbuffer_readln`:
//!
//! ```
//! use event_core::{Buffer, Eol};
//!
//! let mut body = Buffer::from("four");
//! let mut message = Buffer::new();
//! write!(message, "length: {}\r\n\r\n", body.len());
//! message.add_buffer(&mut body); // moved: `body` is empty now
//!
//! assert_eq!(message.search(b"\r\n\r\n", 0), Some(9));
//! assert_eq!(message.readln(Eol::CrlfStrict).as_deref(), Some(&b"length: 4"[..]));
//! message.drain(2);
//! assert_eq!(message, "four");
//! ```
//!
//! ## Set up the process
//!
//! `event_set_mem_functions`, `event_set_fatal_callback`, `event_config_avoid_method`, `event_base_priority_init`:
//!
//! ```
//! use event_core::{Config, Event, EventBase, Features, What};
//!
//! #[global_allocator]
//! static ALLOCATOR: std::alloc::System = std::alloc::System;
//!
//! std::panic::set_hook(Box::new(|panic| eprintln!("fatal: {panic}")));
//! let config = Config::new().avoid_method("select").require_features(Features::empty());
//! let mut base = EventBase::with_config(config)?;
//! base.priority_init(3)?;
//! let urgent = Event::new(&base, -1, What::empty(), |_, _| println!("first"))?;
//! urgent.set_priority(0)?;
//! base.dispatch()?;
//! # Ok::<(), event_core::Error>(())
//! ```
//!
//! # event.h
//!
//! ## The loop
//!
//! | C | Rust |
//! |---|---|
//! | `struct event_base *` | [`EventBase`] for its owner, [`LoopHandle`] for everybody else |
//! | `event_base_new()` | [`EventBase::new`] |
//! | `event_base_new_with_config(cfg)` | [`EventBase::with_config`] |
//! | `event_base_free(base)`, `event_base_free_nofinalize(base)` | `drop(base)`: every callback is dropped, every stream and listener closed |
//! | `event_base_dispatch(base)` | [`EventBase::dispatch`] |
//! | `event_base_loop(base, EVLOOP_ONCE)` | [`EventBase::run`] with [`LoopFlags::ONCE`] |
//! | `EVLOOP_NONBLOCK`, `EVLOOP_NO_EXIT_ON_EMPTY` | [`LoopFlags::NONBLOCK`], [`LoopFlags::NO_EXIT_ON_EMPTY`] |
//! | `event_base_loopexit(base, &tv)` | [`LoopHandle::loopexit`]; from another thread [`Remote::loopexit`] |
//! | `event_base_loopbreak(base)` | [`LoopHandle::loopbreak`]; from another thread [`Remote::loopbreak`] |
//! | `event_base_loopcontinue(base)` | [`LoopHandle::loopcontinue`] |
//! | `event_base_got_exit(base)`, `event_base_got_break(base)` | [`LoopHandle::got_exit`], [`LoopHandle::got_break`]; [`LoopEnd`] says the same |
//! | `event_reinit(base)` | [`EventBase::after_fork`] |
//! | `event_base_once(base, fd, what, cb, arg, &tv)` | [`LoopHandle::once`] |
//! | `event_base_get_method(base)`, `event_base_get_features(base)` | [`LoopHandle::method`], [`LoopHandle::features`] |
//! | `event_base_get_signal_method(base)` | `base.method()`: on every backend a handler counts the signals and the loop's waker tells of them |
//! | `event_get_supported_methods()` | [`EventBase::supported_methods`] |
//! | `event_base_priority_init(base, n)`, `event_base_get_npriorities(base)` | [`LoopHandle::priority_init`], [`LoopHandle::priorities`] |
//! | `EVENT_MAX_PRIORITIES` | `u8::MAX`: the count is a `u8` |
//! | `event_base_gettimeofday_cached(base, &tv)` | [`LoopHandle::now`] for durations, [`LoopHandle::wall_clock`] for the time of day |
//! | `event_base_update_cache_time(base)` | [`LoopHandle::update_cache_time`] |
//! | `event_gettime_monotonic(base, &tv)` | `Instant::now()` |
//! | `event_base_get_running_event(base)` | [`LoopHandle::running_event`], [`Event::is_running`]; the callback's first argument is the event itself |
//! | `event_base_init_common_timeout(base, &tv)` | [`LoopHandle::common_timeout`], then [`Event::add_common`] or [`Timer::add_common`] |
//! | `event_base_active_by_fd(base, fd, what)`, `event_base_active_by_signal(base, sig)` | [`LoopHandle::active_by_fd`], [`LoopHandle::active_by_signal`] |
//! | `event_base_foreach_event(base, cb, arg)`, `event_base_foreach_event_cb` | [`LoopHandle::for_each_event`] with an [`EventInfo`] each; the callback may change what it likes |
//! | `event_base_dump_events(base, file)` | [`LoopHandle::dump_events`], a `String` |
//! | `event_base_get_num_events(base, flags)`, `event_base_get_max_events(base, flags, clear)` | [`LoopHandle::num_events`], [`LoopHandle::max_events`]: an event with a timeout counts once; the marks are kept from the first `max_events` on, and one that is cleared starts from what there is |
//! | `EVENT_BASE_COUNT_ACTIVE`, `EVENT_BASE_COUNT_ADDED`, `EVENT_BASE_COUNT_VIRTUAL` | [`EventCount`] |
//!
//! ## Configuration
//!
//! | C | Rust |
//! |---|---|
//! | `struct event_config *`, `event_config_new()` | [`Config`] |
//! | `event_config_free(cfg)` | `EventBase::with_config(config)` takes it by value |
//! | `event_config_avoid_method(cfg, "epoll")` | [`Config::avoid_method`] |
//! | `event_config_require_features(cfg, EV_FEATURE_ET)` | [`Config::require_features`] with [`Features::EDGE`] |
//! | `enum event_method_feature`, `EV_FEATURE_O1`, `EV_FEATURE_FDS`, `EV_FEATURE_EARLY_CLOSE` | [`Features`]: [`O1`](Features::O1), [`ANY_FD`](Features::ANY_FD), [`EARLY_CLOSE`](Features::EARLY_CLOSE) |
//! | `enum event_base_config_flag`, `event_config_set_flag(cfg, flag)` | `Config` has a method for each that changes something: [`Config::ignore_env`], [`Config::no_cache_time`] |
//! | `event_config_set_max_dispatch_interval(cfg, &tv, max_callbacks, min_priority)` | [`Config::max_dispatch_interval`] |
//! | `EVENT_BASE_FLAG_NO_CACHE_TIME` | [`Config::no_cache_time`] |
//! | `EVENT_BASE_FLAG_PRECISE_TIMER` | `EventBase::new()`: the clock is always the precise one |
//! | `EVENT_BASE_FLAG_IGNORE_ENV` | [`Config::ignore_env`] |
//! | `EVENT_BASE_FLAG_NOLOCK` | `EventBase::new()`: only its own thread can touch a loop; other threads send, by `base.remote()` |
//! | `EVENT_BASE_FLAG_EPOLL_USE_CHANGELIST` | `EventBase::new()`: adding and deleting reach the kernel at once, so an fd may be duplicated and closed afterwards |
//! | `EVENT_BASE_FLAG_EPOLL_DISALLOW_TIMERFD` | `EventBase::new()`: a loop makes no timerfd |
//! | `EVENT_BASE_FLAG_USE_SIGNALFD` | `EventBase::new()`: every loop that watches a signal gets it |
//! | `EVENT_BASE_FLAG_STARTUP_IOCP`, `event_config_set_num_cpus_hint(cfg, n)` | `std::thread::available_parallelism()` and a loop a thread |
//!
//! ## Events
//!
//! | C | Rust |
//! |---|---|
//! | `struct event *` | [`Event`], or [`Timer`] or [`Signal`]; [`EventId`] to name one without owning it |
//! | `event_new(base, fd, what, cb, arg)`, `event_assign(ev, base, fd, what, cb, arg)` | [`Event::new`] |
//! | `event_callback_fn` | `impl FnMut(&Event, Ready) + 'static`; it captures the fd and what `arg` pointed to |
//! | `EV_READ`, `EV_WRITE`, `EV_CLOSED`, `EV_ET`, `EV_PERSIST` | [`What`] when asking, [`Ready`] in the callback |
//! | `EV_TIMEOUT`, `EV_SIGNAL` | [`Ready::TIMEOUT`], [`Ready::SIGNAL`]; asked for by `add(Some(after))` and [`Signal::new`] |
//! | `event_add(ev, &tv)`, `event_del(ev)`, `event_free(ev)` | [`Event::add`], [`Event::del`], `drop(event)`; by id [`LoopHandle::add`], [`LoopHandle::del`], [`LoopHandle::free`] |
//! | `event_del_block(ev)`, `event_del_noblock(ev)` | `event.del()`; from another thread `remote.post(move \|base\| { base.del(id).ok(); })` |
//! | `event_remove_timer(ev)` | [`Event::remove_timer`] |
//! | `event_active(ev, res, ncalls)` | [`Event::activate_now`] for the same pass, [`Event::activate`] for the next turn; from another thread [`Remote::activate`] |
//! | `event_pending(ev, what, &tv)` | [`Event::pending`] and [`Event::deadline`] |
//! | `event_priority_set(ev, p)` | [`Event::set_priority`] |
//! | `event_get_base(ev)` | [`Event::handle`] |
//! | `event_get_fd(ev)`, `event_get_signal(ev)`, `event_get_events(ev)` | [`Event::fd`], [`Signal::signal`], [`Event::what`] |
//! | `event_get_priority(ev)` | [`Event::priority`] |
//! | `event_get_assignment(ev, &base, &fd, &events, &cb, &arg)` | [`Event::info`]; by id [`LoopHandle::event_info`] |
//! | `event_initialized(ev)`, `evtimer_initialized(ev)`, `evsignal_initialized(ev)`, `evuser_initialized(ev)` | `Option<Event>`: `is_some()`; an `Event` that exists is whole |
//! | `event_base_set(base, ev)` | `Event::new(&other_base, ..)`: an event is made on its loop |
//! | `event_self_cbarg()` | the callback's first argument: `move \|event, ready\| { event.del().ok(); }` |
//! | `event_get_callback(ev)`, `event_get_callback_arg(ev)` | `Rc<Cell<T>>` shared with the closure: a closure is replaced with [`Event::set_callback`], not read back |
//! | `event_get_struct_event_size()` | `size_of::<Event>()`; an event is a value and may stand in a struct of yours |
//! | `EV_FINALIZE`, `event_finalize(0, ev, cb)`, `event_free_finalize(0, ev, cb)`, `event_finalize_callback_fn` | `drop(event)`: what its callback captures is dropped when it does not run any more, so the finalizer is the `Drop` of a captured value |
//!
//! ## Timers, signals, user events
//!
//! | C | Rust |
//! |---|---|
//! | `evtimer_new(base, cb, arg)`, `evtimer_assign(ev, base, cb, arg)` | [`Timer::new`], and [`Timer::persistent`] for `EV_PERSIST` |
//! | `evtimer_add(ev, &tv)`, `evtimer_del(ev)`, `evtimer_pending(ev, &tv)` | [`Timer::add`], [`Timer::del`], [`Timer::deadline`] |
//! | `evsignal_new(base, SIGTERM, cb, arg)`, `evsignal_assign(ev, base, SIGTERM, cb, arg)` | [`Signal::new`] |
//! | `evsignal_add(ev, NULL)`, `evsignal_del(ev)`, `evsignal_pending(ev, &tv)` | [`Signal::add`], [`Signal::del`], [`Signal::pending`] |
//! | `evuser_new(base, cb, arg)` | [`Event::new`] with the fd -1; [`LoopHandle::mailbox`] if it is for another thread |
//! | `evuser_trigger(ev)`, `evuser_del(ev)`, `evuser_pending(ev, &tv)` | [`Event::activate_now`], [`Event::del`], [`Event::pending`] |
//!
//! ## Memory, log, debugging, version
//!
//! | C | Rust |
//! |---|---|
//! | `event_set_mem_functions(m, r, f)`, `EVENT_SET_MEM_FUNCTIONS_IMPLEMENTED` | `#[global_allocator]` |
//! | `event_set_log_callback(cb)`, `event_log_cb` | `log::set_logger(&LOGGER)`, or a crate that does it |
//! | `EVENT_LOG_DEBUG`, `EVENT_LOG_MSG`, `EVENT_LOG_WARN`, `EVENT_LOG_ERR` | `log::Level::Debug`, `log::Level::Info`, `log::Level::Warn`, `log::Level::Error` |
//! | `event_enable_debug_logging(EVENT_DBG_ALL)`, `EVENT_DBG_NONE` | `log::set_max_level(LevelFilter::Debug)` |
//! | `event_set_fatal_callback(cb)`, `event_fatal_cb` | `std::panic::set_hook(hook)`; what can be reported is an `Err` |
//! | `event_enable_debug_mode()` | `Error::Stale`: use after free is an error by id and does not compile by value |
//! | `event_debug_unassign(ev)` | `drop(event)` before the memory is used again, which the compiler sees to |
//! | `libevent_global_shutdown()` | `drop(base)`: the last loop that watches a signal puts the earlier handler back |
//! | `event_get_version()`, `event_get_version_number()`, `LIBEVENT_VERSION`, `LIBEVENT_VERSION_NUMBER` | `event-core = "0.1"` in `Cargo.toml`: header and library cannot differ |
//!
//! # event_struct.h
//!
//! | C | Rust |
//! |---|---|
//! | `EVLIST_TIMEOUT`, `EVLIST_INSERTED`, `EVLIST_SIGNAL` | `event.pending()` |
//! | `EVLIST_ACTIVE`, `EVLIST_ACTIVE_LATER`, `EVLIST_FINALIZING`, `EVLIST_INTERNAL`, `EVLIST_ALL` | `event.pending()` has the reasons an event is queued with |
//! | `EVLIST_INIT` | `Option<Event>` |
//! | `struct event_callback` | `base.remote().post(f)?`, or a [`Timer`] of no length |
//!
//! # watch.h
//!
//! | C | Rust |
//! |---|---|
//! | `evwatch_prepare_new(base, cb, arg)`, `evwatch_check_new(base, cb, arg)` | [`Watcher::prepare`], [`Watcher::check`] |
//! | `evwatch_prepare_get_timeout(info, &tv)` | [`PrepareInfo::timeout`] |
//! | `evwatch_base(watcher)` | [`Watcher::handle`] |
//! | `evwatch_free(watcher)` | `drop(watcher)`, also in a watcher's callback |
//!
//! # event_compat.h
//!
//! There is no current base: each call names its loop.
//!
//! | C | Rust |
//! |---|---|
//! | `event_init()` | `EventBase::new()?` |
//! | `event_dispatch()`, `event_loop(flags)` | `base.dispatch()?`, `base.run(flags)?` |
//! | `event_loopexit(&tv)`, `event_loopbreak()` | `base.loopexit(Some(after))?`, `base.loopbreak()?` |
//! | `event_once(fd, what, cb, arg, &tv)` | `base.once(fd, what, timeout, cb)?` |
//! | `event_get_method()` | `base.method()` |
//! | `event_priority_init(n)` | `base.priority_init(count)?` |
//! | `event_set(ev, fd, what, cb, arg)` | `Event::new(&base, fd, what, cb)?` |
//! | `evtimer_set(ev, cb, arg)`, `timeout_set(ev, cb, arg)` | `Timer::new(&base, cb)?` |
//! | `timeout_add(ev, &tv)` | `timer.add(after)?` |
//! | `timeout_del(ev)`, `timeout_pending(ev, &tv)`, `timeout_initialized(ev)` | `timer.del()?`, `timer.deadline()`, `Option<Timer>` |
//! | `evsignal_set(ev, x, cb, arg)`, `signal_set(ev, x, cb, arg)` | `Signal::new(&base, Signal::TERM, cb)?` |
//! | `signal_add(ev, NULL)` | `signal.add()?` |
//! | `signal_del(ev)`, `signal_pending(ev, &tv)`, `signal_initialized(ev)` | `signal.del()?`, `signal.pending()`, `Option<Signal>` |
//! | `EVENT_FD(ev)`, `EVENT_SIGNAL(ev)` | `move \|_, ready\| read(fd)`: the closure captures the number |
//!
//! # thread.h
//!
//! A loop is not `Send`; [`Remote`], [`Waker`] and [`Sender`] are.
//!
//! | C | Rust |
//! |---|---|
//! | `evthread_use_pthreads()`, `evthread_use_windows_threads()` | `base.remote()` or [`LoopHandle::mailbox`], whenever another thread is to reach the loop |
//! | `EVTHREAD_USE_PTHREADS_IMPLEMENTED`, `EVTHREAD_USE_WINDOWS_THREADS_IMPLEMENTED` | `base.remote()`: it is always there |
//! | `evthread_use_pthreads_with_flags(flags)`, `EVTHREAD_PTHREAD_PRIO_INHERIT` | `sender.send(message)` does not wait while a callback runs, so no priority is inherited |
//! | `evthread_make_base_notifiable(base)` | `base.waker()` |
//! | `evthread_set_lock_callbacks(&cbs)`, `struct evthread_lock_callbacks`, `EVTHREAD_LOCK_API_VERSION` | `base.set_wait_hook(before, after)` if a lock of yours guards the whole loop |
//! | `EVTHREAD_WRITE`, `EVTHREAD_READ`, `EVTHREAD_TRY`, `EVTHREAD_LOCKTYPE_RECURSIVE`, `EVTHREAD_LOCKTYPE_READWRITE` | `std::sync::Mutex`, `RwLock` and `try_lock()` for data of your own |
//! | `evthread_set_condition_callbacks(&cbs)`, `struct evthread_condition_callbacks`, `EVTHREAD_CONDITION_API_VERSION` | `std::sync::Condvar` between threads of your own |
//! | `evthread_set_id_callback(fn)` | `std::thread::current().id()` |
//! | `evthread_enable_lock_debugging()`, `evthread_enable_lock_debuging()` | `T: Send`: what may not cross threads does not compile |
//!
//! # util.h
//!
//! ## Sockets
//!
//! | C | Rust |
//! |---|---|
//! | `evutil_socket_t` | `RawFd` where it is borrowed, `OwnedFd` where it is given away |
//! | `evutil_socketpair(AF_UNIX, SOCK_STREAM, 0, sv)` | `UnixStream::pair()?`; [`BufferEvent::pair`] needs no sockets |
//! | `evutil_make_socket_nonblocking(fd)` | `stream.set_nonblocking(true)?`; streams and listeners of this crate do it themselves |
//! | `evutil_make_socket_closeonexec(fd)`, `EVUTIL_SOCK_CLOEXEC` | `OwnedFd`: std and this crate open every fd close-on-exec |
//! | `EVUTIL_SOCK_NONBLOCK` | `socket2::Type::STREAM.nonblocking()` |
//! | `evutil_closesocket(fd)`, `EVUTIL_CLOSESOCKET(fd)` | `drop(socket)` |
//! | `evutil_make_listen_socket_reuseable(fd)` | `socket2::Socket::set_reuse_address(true)?`; [`ListenerOptions::reuse_address`] |
//! | `evutil_make_listen_socket_reuseable_port(fd)` | `socket2::Socket::set_reuse_port(true)?`; [`ListenerOptions::reuse_port`] |
//! | `evutil_make_listen_socket_ipv6only(fd)`, `evutil_make_listen_socket_not_ipv6only(fd)` | `socket2::Socket::set_only_v6(only)?`; [`ListenerOptions::only_v6`] |
//! | `evutil_make_tcp_listen_socket_deferred(fd)` | `libc::setsockopt` with `TCP_DEFER_ACCEPT`; [`ListenerOptions::deferred_accept`] |
//! | `evutil_set_tcp_keepalive(fd, on, secs)` | `socket2::SockRef::from(&stream).set_tcp_keepalive(&params)?` |
//! | `EVUTIL_SOCKET_ERROR()` | [`BufferEvent::error`] in a stream's event callback; [`Error::raw_os_error`] |
//! | `evutil_socket_geterror(fd)` | `stream.take_error()?` |
//! | `EVUTIL_SET_SOCKET_ERROR(errcode)` | `io::Error::from_raw_os_error(errcode)` as a value |
//! | `evutil_socket_error_to_string(errcode)` | `error.to_string()` of an `io::Error` |
//! | `EVUTIL_INVALID_SOCKET` | `Option<OwnedFd>`; as the fd of an [`Event`], `-1` |
//!
//! ## Addresses and names
//!
//! | C | Rust |
//! |---|---|
//! | `evutil_inet_ntop(af, src, dst, len)` | `address.to_string()` of an `IpAddr` |
//! | `evutil_inet_pton(af, src, dst)` | `text.parse::<IpAddr>()?` |
//! | `evutil_inet_pton_scope(af, src, dst, &index)` | `text.parse::<SocketAddrV6>()?` takes `[fe80::1%2]:80`, with the interface's number; it is then its `scope_id()` |
//! | `evutil_parse_sockaddr_port(text, &out, &len)` | `text.parse::<SocketAddr>()?`; without a port, `text.parse::<IpAddr>()?` |
//! | `evutil_sockaddr_cmp(a, b, 1)` | `a.cmp(&b)` of two `SocketAddr`; without the port, of their `ip()` |
//! | `struct evutil_addrinfo`, `evutil_getaddrinfo(node, service, &hints, &out)`, `evutil_freeaddrinfo(ai)` | `(host, port).to_socket_addrs()?`, which blocks; streams look names up by themselves, [`BufferEvent::connect_hostname`] |
//! | `evutil_gai_strerror(code)` | `error.to_string()` |
//! | `EVUTIL_EAI_ADDRFAMILY`, `EVUTIL_EAI_AGAIN`, `EVUTIL_EAI_BADFLAGS`, `EVUTIL_EAI_FAIL`, `EVUTIL_EAI_FAMILY`, `EVUTIL_EAI_MEMORY`, `EVUTIL_EAI_NODATA`, `EVUTIL_EAI_NONAME`, `EVUTIL_EAI_SERVICE`, `EVUTIL_EAI_SOCKTYPE`, `EVUTIL_EAI_SYSTEM`, `EVUTIL_EAI_CANCEL` | `io::Error` of `to_socket_addrs()` |
//! | `EVUTIL_AI_PASSIVE` | `Ipv6Addr::UNSPECIFIED` or `Ipv4Addr::UNSPECIFIED` |
//! | `EVUTIL_AI_NUMERICHOST`, `EVUTIL_AI_NUMERICSERV` | `text.parse::<SocketAddr>()?` looks nothing up |
//! | `EVUTIL_AI_CANONNAME`, `EVUTIL_AI_V4MAPPED`, `EVUTIL_AI_ALL`, `EVUTIL_AI_ADDRCONFIG` | `libc::getaddrinfo`; a v4 address is mapped by `to_ipv6_mapped()` |
//!
//! ## Time
//!
//! | C | Rust |
//! |---|---|
//! | `evutil_gettimeofday(&tv, NULL)` | `SystemTime::now()` for the time of day, `Instant::now()` for durations |
//! | `struct evutil_monotonic_timer`, `evutil_monotonic_timer_new()`, `evutil_monotonic_timer_free(timer)` | `Instant` |
//! | `evutil_configure_monotonic_time(timer, flags)`, `EV_MONOT_PRECISE`, `EV_MONOT_FALLBACK` | `Instant::now()` is precise and monotonic |
//! | `evutil_gettime_monotonic(timer, &tv)` | `Instant::now()` |
//! | `evutil_timeradd(&a, &b, &out)`, `evutil_timersub(&a, &b, &out)` | `a + b`, `a - b` of `Duration`; `saturating_sub` and `checked_sub` do not panic |
//! | `evutil_timercmp(&a, &b, <)` | `a < b` |
//! | `evutil_timerclear(&tv)`, `evutil_timerisset(&tv)` | `Duration::ZERO` and `is_zero()`; "no timeout" is `None` |
//! | `evutil_date_rfc1123(text, len, NULL)` | `httpdate::fmt_http_date(SystemTime::now())` of the `httpdate` crate |
//!
//! ## Text, random numbers, types
//!
//! | C | Rust |
//! |---|---|
//! | `evutil_snprintf(text, len, format, ...)`, `evutil_vsnprintf(text, len, format, ap)` | `format!`, or `write!` into a [`Buffer`] |
//! | `evutil_strtoll(s, &end, 10)` | `text.parse::<i64>()?`, `i64::from_str_radix` |
//! | `evutil_ascii_strcasecmp(a, b)`, `evutil_ascii_strncasecmp(a, b, n)` | `a.eq_ignore_ascii_case(b)` |
//! | `evutil_secure_rng_init()`, `evutil_secure_rng_get_bytes(p, n)` | `getrandom::fill(&mut bytes)?` of the `getrandom` crate |
//! | `evutil_secure_rng_add_bytes(p, n)`, `evutil_secure_rng_set_urandom_device_file(path)` | `getrandom::fill(&mut bytes)?` asks the kernel, which seeds itself |
//! | `evutil_offsetof(type, field)` | `std::mem::offset_of!(Type, field)` |
//! | `ev_int8_t`, `ev_int16_t`, `ev_int32_t`, `ev_int64_t`, `ev_intptr_t`, `ev_ssize_t`, `ev_off_t` | `i8`, `i16`, `i32`, `i64`, `isize`; offsets in files are `u64` |
//! | `ev_uint8_t`, `ev_uint16_t`, `ev_uint32_t`, `ev_uint64_t`, `ev_uintptr_t` | `u8`, `u16`, `u32`, `u64`, `usize` |
//! | `ev_socklen_t` | `SocketAddr` knows its length |
//! | `EV_INT8_MAX`, `EV_INT16_MAX`, `EV_INT32_MAX`, `EV_INT64_MAX`, `EV_SSIZE_MAX` | `i8::MAX`, `i16::MAX`, `i32::MAX`, `i64::MAX`, `isize::MAX` |
//! | `EV_INT8_MIN`, `EV_INT16_MIN`, `EV_INT32_MIN`, `EV_INT64_MIN`, `EV_SSIZE_MIN` | `i8::MIN`, `i16::MIN`, `i32::MIN`, `i64::MIN`, `isize::MIN` |
//! | `EV_UINT8_MAX`, `EV_UINT16_MAX`, `EV_UINT32_MAX`, `EV_UINT64_MAX`, `EV_SIZE_MAX` | `u8::MAX`, `u16::MAX`, `u32::MAX`, `u64::MAX`, `usize::MAX` |
//!
//! # buffer.h, buffer_compat.h
//!
//! | C | Rust |
//! |---|---|
//! | `struct evbuffer *`, `evbuffer_new()`, `evbuffer_free(buf)` | [`Buffer`], [`Buffer::new`], `drop(buffer)` |
//! | `evbuffer_get_length(buf)`, `EVBUFFER_LENGTH(buf)` | [`Buffer::len`] |
//! | `evbuffer_add(buf, p, n)`, `evbuffer_prepend(buf, p, n)` | [`Buffer::add`], [`Buffer::prepend`] |
//! | `evbuffer_add_printf(buf, format, ...)`, `evbuffer_add_vprintf(buf, format, ap)` | `write!(buffer, "..")` |
//! | `evbuffer_add_buffer(dst, src)`, `evbuffer_prepend_buffer(dst, src)`, `evbuffer_remove_buffer(src, dst, n)` | [`Buffer::add_buffer`], [`Buffer::prepend_buffer`], [`Buffer::remove_buffer`] |
//! | `evbuffer_add_buffer_reference(dst, src)` | [`Buffer::add_buffer_reference`] |
//! | `evbuffer_add_reference(buf, p, n, cleanup, arg)` | [`Buffer::add_reference`] |
//! | `evbuffer_ref_cleanup_cb` | `Bytes::from_owner(owner)`: the owner's `Drop` is the cleanup |
//! | `evbuffer_add_reference_with_offset(buf, p, offset, n, cleanup, arg)` | `buffer.add_reference(bytes.slice(offset..))` |
//! | `evbuffer_add_iovec(buf, vec, n)` | `for piece in pieces { buffer.add(piece) }` |
//! | `evbuffer_add_file(buf, fd, offset, length)` | [`Buffer::add_file`]; -1 is `None` |
//! | `struct evbuffer_file_segment *`, `evbuffer_file_segment_new(fd, offset, length, flags)`, `evbuffer_file_segment_free(seg)` | [`FileSegment`], [`FileSegment::new`], `drop(segment)` |
//! | `evbuffer_file_segment_add_cleanup_cb(seg, cb, arg)`, `evbuffer_file_segment_cleanup_cb` | [`FileSegment::on_release`] |
//! | `evbuffer_add_file_segment(buf, seg, offset, length)` | [`Buffer::add_file_segment`] |
//! | `EVBUF_FS_CLOSE_ON_FREE` | a segment closes its file; `file.try_clone()?` keeps one |
//! | `EVBUF_FS_DISABLE_SENDFILE`, `EVBUF_FS_DISABLE_MMAP` | `buffer.load(usize::MAX)?` reads it at once; nothing is mapped |
//! | `EVBUF_FS_DISABLE_LOCKING` | [`FileSegment`] is `Send` and `Sync`, with a count of references for a lock |
//! | `evbuffer_set_flags(buf, flags)`, `evbuffer_clear_flags(buf, flags)`, `EVBUFFER_FLAG_DRAINS_TO_FD` | nothing to promise: a stream over a socket sends a [`FileSegment`] from where it lies, others read it |
//! | `evbuffer_expand(buf, n)` | [`Buffer::reserve`] |
//! | `evbuffer_reserve_space(buf, n, vec, nvec)`, `evbuffer_commit_space(buf, vec, n)` | [`Buffer::add_with`]; [`BufferEvent::write_with`] for a stream |
//! | `evbuffer_remove(buf, p, n)`, `evbuffer_drain(buf, n)` | [`Buffer::remove`], [`Buffer::drain`] |
//! | `evbuffer_copyout(buf, p, n)`, `evbuffer_copyout_from(buf, pos, p, n)` | [`Buffer::copyout`], [`Buffer::copyout_from`] |
//! | `evbuffer_pullup(buf, n)`, `EVBUFFER_DATA(buf)` | [`Buffer::pullup`] |
//! | `evbuffer_get_contiguous_space(buf)` | [`Buffer::contiguous`] |
//! | `evbuffer_peek(buf, n, NULL, vec, nvec)` | [`Buffer::peek`], [`Buffer::io_slices`] |
//! | `struct evbuffer_iovec` | `std::io::IoSlice` |
//! | `evbuffer_readln(buf, &n, EVBUFFER_EOL_CRLF)`, `evbuffer_readline(buf)` | [`Buffer::readln`] with an [`Eol`] |
//! | `enum evbuffer_eol_style`, `EVBUFFER_EOL_ANY`, `EVBUFFER_EOL_CRLF_STRICT`, `EVBUFFER_EOL_LF`, `EVBUFFER_EOL_NUL` | [`Eol`] |
//! | `evbuffer_search(buf, what, n, NULL)`, `evbuffer_search_range(buf, what, n, from, to)`, `evbuffer_search_eol(buf, NULL, &n, style)` | [`Buffer::search`], [`Buffer::search_range`], [`Buffer::search_eol`] |
//! | `evbuffer_find(buf, what, n)` | `buffer.search(what, 0)`, a position |
//! | `struct evbuffer_ptr`, `evbuffer_ptr_set(buf, &ptr, n, how)`, `enum evbuffer_ptr_how`, `EVBUFFER_PTR_SET`, `EVBUFFER_PTR_ADD` | `usize` counted from the front |
//! | `evbuffer_enable_locking(buf, NULL)`, `evbuffer_lock(buf)`, `evbuffer_unlock(buf)` | `&mut buffer`; a [`Buffer`] may be sent to another thread |
//! | `evbuffer_freeze(buf, 1)`, `evbuffer_unfreeze(buf, 1)` | `&buffer`: what is lent so cannot change |
//! | `evbuffer_add_cb(bufferevent_get_input(bev), cb, arg)`, `evbuffer_remove_cb(buf, cb, arg)`, `struct evbuffer_cb_info` | [`BufferEvent::set_buffer_cb`], [`BufferEvent::clear_buffer_cb`], [`BufferChange`]; a [`Buffer`] of the program's own calls nobody |
//! | `evbuffer_cb_func`, `evbuffer_cb` | `impl FnMut(&BufferEvent, BufferChange)` |
//! | `evbuffer_setcb(buf, cb, arg)`, `struct evbuffer_cb_entry`, `evbuffer_defer_callbacks(buf, base)` | `bev.set_buffer_cb(cb)`: one for both buffers, always called by the loop |
//! | `evbuffer_remove_cb_entry(buf, entry)`, `evbuffer_cb_set_flags(buf, entry, flags)`, `evbuffer_cb_clear_flags(buf, entry, flags)`, `EVBUFFER_CB_ENABLED`, `evbuffer_cb_suspend(buf, entry)`, `evbuffer_cb_unsuspend(buf, entry)` | `bev.clear_buffer_cb()`, and set it again |
//! | `evbuffer_read(buf, fd, n)` | [`Buffer::read_from`] a `File` or `TcpStream` |
//! | `evbuffer_set_max_read(buf, n)`, `evbuffer_get_max_read(buf)` | the `max` of `buffer.read_from(&mut file, max)`, at most 64 KiB |
//! | `evbuffer_write(buf, fd)`, `evbuffer_write_atmost(buf, fd, n)` | [`Buffer::write_to`] a `File` or `TcpStream` |
//!
//! # bufferevent.h, bufferevent_compat.h
//!
//! | C | Rust |
//! |---|---|
//! | `struct bufferevent *` | [`BufferEvent`], a handle that is cloned freely |
//! | `bufferevent_socket_new(base, fd, BEV_OPT_CLOSE_ON_FREE)` | [`BufferEvent::new`]; with an fd of -1 [`BufferEvent::without_fd`]; [`BufferEvent::from_borrowed_fd`] without the flag; [`Accepted::into_stream`] |
//! | `enum bufferevent_options` | `BufferEvent::new` and the rows for each option |
//! | `BEV_OPT_CLOSE_ON_FREE` | `BufferEvent::new(&base, fd)?` takes the fd over |
//! | `BEV_OPT_THREADSAFE` | `base.mailbox(cb)?`: other threads send what is to be written |
//! | `BEV_OPT_DEFER_CALLBACKS`, `BEV_OPT_UNLOCK_CALLBACKS` | `BufferEvent::new(&base, fd)?`: no callback runs inside a call, and nothing is locked while one runs |
//! | `bufferevent_socket_connect(bev, &sa, len)` | [`BufferEvent::connect`]; on a stream that is there, or for a second time, [`BufferEvent::reconnect`] |
//! | `bufferevent_socket_connect_hostname(bev, dns_base, AF_UNSPEC, host, port)` | [`BufferEvent::connect_hostname`]; [`Connect`] says more: a resolver, deadlines, [`Connect::on_socket`]; on a stream that is there, [`Connect::start_on`] |
//! | `bufferevent_socket_connect_hostname_hints(bev, dns_base, &hints, host, service)` | [`Connect::family`] |
//! | `bufferevent_socket_get_dns_error(bev)` | [`BufferEvent::error`]: an [`Error::Connect`] with a [`ConnectError`], which says whether it was the look-up |
//! | `bufferevent_pair_new(base, 0, pair)`, `bufferevent_pair_get_partner(bev)` | [`BufferEvent::pair`], [`BufferEvent::partner`] |
//! | `bufferevent_free(bev)` | [`BufferEvent::free`]; [`BufferEvent::close_after_flush`] loses nothing |
//! | `bufferevent_setcb(bev, r, w, e, arg)` | [`BufferEvent::set_callbacks`]; a closure each: [`BufferEvent::set_read_cb`] |
//! | `bufferevent_data_cb`, `bufferevent_event_cb` | [`Callbacks::on_read`], [`Callbacks::on_write`], [`Callbacks::on_event`] |
//! | `bufferevent_getcb(bev, &r, &w, &e, &arg)` | `Rc<RefCell<Session>>` shared with the callbacks: they are replaced, not read back |
//! | `BEV_EVENT_CONNECTED`, `BEV_EVENT_EOF`, `BEV_EVENT_ERROR`, `BEV_EVENT_TIMEOUT`, `BEV_EVENT_READING`, `BEV_EVENT_WRITING` | [`StreamEvent`] |
//! | `bufferevent_enable(bev, EV_READ)`, `bufferevent_disable(bev, EV_READ)`, `bufferevent_get_enabled(bev)` | [`BufferEvent::enable`] with a [`Direction`], [`BufferEvent::disable`], [`BufferEvent::enabled`] |
//! | `bufferevent_write(bev, p, n)`, `bufferevent_write_buffer(bev, buf)` | [`BufferEvent::write`] |
//! | `bufferevent_read(bev, p, n)`, `bufferevent_read_buffer(bev, buf)` | [`BufferEvent::read`], [`BufferEvent::read_buffer`] |
//! | `bufferevent_get_input(bev)`, `bufferevent_get_output(bev)` | [`BufferEvent::input`], [`BufferEvent::output`] |
//! | `bufferevent_setwatermark(bev, EV_READ, low, high)`, `bufferevent_getwatermark(bev, EV_READ, &low, &high)` | [`BufferEvent::set_watermark`], [`BufferEvent::watermark`] |
//! | `struct event_watermark` | `let (low, high) = bev.watermark(Direction::READ)?` |
//! | `bufferevent_set_max_single_read(bev, n)`, `bufferevent_set_max_single_write(bev, n)` | [`BufferEvent::set_max_single_read`], [`BufferEvent::set_max_single_write`]: what one visit moves, 256 KiB and 1 MiB at first |
//! | `bufferevent_get_max_single_read(bev)`, `bufferevent_get_max_single_write(bev)` | [`BufferEvent::max_single_read`], [`BufferEvent::max_single_write`] |
//! | `bufferevent_get_max_to_read(bev)`, `bufferevent_get_max_to_write(bev)` | [`BufferEvent::max_to_read`], [`BufferEvent::max_to_write`] |
//! | `bufferevent_set_timeouts(bev, &r, &w)` | [`BufferEvent::set_timeouts`] |
//! | `bufferevent_trigger(bev, EV_READ, 0)`, `bufferevent_trigger_event(bev, what, 0)` | [`BufferEvent::trigger_at_marks`], [`BufferEvent::trigger_event`] |
//! | `enum bufferevent_trigger_options`, `BEV_TRIG_IGNORE_WATERMARKS`, `BEV_TRIG_DEFER_CALLBACKS` | `bev.trigger(direction)?` looks at no mark; every trigger is deferred |
//! | `bufferevent_flush(bev, EV_WRITE, BEV_FLUSH)` | [`BufferEvent::flush`] for filters; output leaves by itself when the callback returns, or now with [`BufferEvent::try_flush`] |
//! | `enum bufferevent_flush_mode`, `BEV_NORMAL`, `BEV_FLUSH`, `BEV_FINISHED` | [`FlushMode`], [`FlushMode::Normal`], [`FlushMode::Flush`], [`FlushMode::Finished`], which [`BufferEvent::shutdown_write`] and [`BufferEvent::close_after_flush`] see to |
//! | `bufferevent_filter_new(bev, in, out, BEV_OPT_CLOSE_ON_FREE, free_ctx, ctx)`, `bufferevent_filter_cb` | [`BufferEvent::filter`] with a [`Filter`], whose [`Filter::input`] and [`Filter::output`] are the two functions, and `self` the `ctx`; [`BufferEvent::filter_with`] two closures |
//! | `enum bufferevent_filter_result`, `BEV_OK`, `BEV_NEED_MORE`, `BEV_ERROR` | [`Filtered`]: `Ok(Filtered::Done)`, `Ok(Filtered::NeedMore)`, `Err(error)` |
//! | `bufferevent_get_underlying(bev)` | [`BufferEvent::underlying`] |
//! | `ev_token_bucket_cfg_new(rrate, rburst, wrate, wburst, &tick)`, `struct ev_token_bucket_cfg`, `EV_RATE_LIMIT_MAX` | [`RateLimit::new`], then `.read(rrate, rburst).write(wrate, wburst).tick(tick)`; [`RateLimit::MAX`] |
//! | `ev_token_bucket_cfg_free(cfg)` | `drop(limit)`, at any time: it is copied |
//! | `bufferevent_set_rate_limit(bev, cfg)`, `bufferevent_get_token_bucket_cfg(bev)` | [`BufferEvent::set_rate_limit`], [`BufferEvent::rate_limit`] |
//! | `bufferevent_get_read_limit(bev)`, `bufferevent_get_write_limit(bev)` | [`BufferEvent::read_limit`], [`BufferEvent::write_limit`]: `None` where C gives the maximum |
//! | `bufferevent_decrement_read_limit(bev, n)`, `bufferevent_decrement_write_limit(bev, n)` | [`BufferEvent::decrement_read_limit`], [`BufferEvent::decrement_write_limit`] |
//! | `struct bufferevent_rate_limit_group`, `bufferevent_rate_limit_group_new(base, cfg)`, `bufferevent_rate_limit_group_set_cfg(g, cfg)` | [`RateLimitGroup`], [`RateLimitGroup::new`], [`RateLimitGroup::set_limit`] |
//! | `bufferevent_rate_limit_group_set_min_share(g, n)` | [`RateLimitGroup::set_min_share`] |
//! | `bufferevent_rate_limit_group_free(g)` | [`RateLimitGroup::free`], also with members; dropping the handles leaves it to them |
//! | `bufferevent_add_to_rate_limit_group(bev, g)`, `bufferevent_remove_from_rate_limit_group(bev)` | [`BufferEvent::add_to_rate_limit_group`], [`BufferEvent::remove_from_rate_limit_group`] |
//! | `bufferevent_rate_limit_group_get_read_limit(g)`, `bufferevent_rate_limit_group_get_write_limit(g)` | [`RateLimitGroup::read_limit`], [`RateLimitGroup::write_limit`] |
//! | `bufferevent_rate_limit_group_decrement_read(g, n)`, `bufferevent_rate_limit_group_decrement_write(g, n)` | [`RateLimitGroup::decrement_read_limit`], [`RateLimitGroup::decrement_write_limit`] |
//! | `bufferevent_rate_limit_group_get_totals(g, &r, &w)`, `bufferevent_rate_limit_group_reset_totals(g)` | [`RateLimitGroup::totals`], [`RateLimitGroup::reset_totals`] |
//! | `bufferevent_priority_set(bev, p)`, `bufferevent_get_priority(bev)` | [`BufferEvent::set_priority`], [`BufferEvent::priority`] |
//! | `bufferevent_setfd(bev, fd)`, `bufferevent_replacefd(bev, fd)` | [`BufferEvent::replace_fd`]; with -1 [`BufferEvent::detach_fd`] |
//! | `bufferevent_getfd(bev)`, `bufferevent_get_base(bev)` | [`BufferEvent::fd`], [`BufferEvent::handle`] |
//! | `bufferevent_base_set(base, bev)` | `BufferEvent::new(&other_base, fd)?`: a stream is made on its loop |
//! | `bufferevent_incref(bev)`, `bufferevent_decref(bev)` | `bev.clone()`, `drop(bev)` |
//! | `bufferevent_lock(bev)`, `bufferevent_unlock(bev)` | `base.mailbox(cb)?`: only the loop's thread touches a stream |
//! | `bufferevent_new(fd, r, w, e, arg)` | `BufferEvent::new(&base, fd)?` |
//! | `bufferevent_settimeout(bev, r, w)` | `bev.set_timeouts(read, write)` |
//! | `evbuffercb`, `everrorcb` | `impl FnMut(&BufferEvent)`, `impl FnMut(&BufferEvent, StreamEvent)` |
//! | `EVBUFFER_READ`, `EVBUFFER_WRITE`, `EVBUFFER_EOF`, `EVBUFFER_ERROR`, `EVBUFFER_TIMEOUT` | `StreamEvent::READING`, `StreamEvent::WRITING`, `StreamEvent::EOF`, `StreamEvent::ERROR`, `StreamEvent::TIMEOUT` |
//! | `EVBUFFER_INPUT(bev)`, `EVBUFFER_OUTPUT(bev)` | `bev.input()`, `bev.output()` |
//!
//! # listener.h
//!
//! | C | Rust |
//! |---|---|
//! | `struct evconnlistener *` | [`Listener`] |
//! | `evconnlistener_new_bind(base, cb, arg, flags, -1, &sa, len)` | [`Listener::bind`]; with flags or a backlog `ListenerOptions::new().reuse_port(true).bind(&base, address, cb)?` |
//! | `evconnlistener_new(base, cb, arg, flags, 0, fd)` | [`Listener::from_fd`], [`Listener::from_borrowed_fd`] |
//! | `evconnlistener_free(l)`, `evconnlistener_enable(l)`, `evconnlistener_disable(l)` | [`Listener::free`], [`Listener::enable`], [`Listener::disable`] |
//! | `evconnlistener_set_cb(l, cb, arg)`, `evconnlistener_set_error_cb(l, cb)` | [`Listener::set_cb`], for a NULL [`Listener::clear_cb`]; [`Listener::set_error_cb`] |
//! | `evconnlistener_cb`, `evconnlistener_errorcb` | `impl FnMut(&Listener, Accepted)`, `impl FnMut(&Listener, &io::Error)` |
//! | `evconnlistener_get_fd(l)`, `evconnlistener_get_base(l)` | [`Listener::fd`], [`Listener::handle`] |
//! | `LEV_OPT_CLOSE_ON_FREE` | [`Listener::from_fd`] owns the socket; without the flag: [`Listener::from_borrowed_fd`] |
//! | `LEV_OPT_CLOSE_ON_EXEC` | [`Listener::bind`], and everything else here, does it always |
//! | `LEV_OPT_REUSEABLE` | [`ListenerOptions::reuse_address`], which is on unless said otherwise |
//! | `LEV_OPT_REUSEABLE_PORT` | [`ListenerOptions::reuse_port`] |
//! | `LEV_OPT_BIND_IPV6ONLY`, `LEV_OPT_BIND_IPV4_AND_IPV6` | [`ListenerOptions::only_v6`], true unless said otherwise, on every system |
//! | `LEV_OPT_DEFERRED_ACCEPT` | [`ListenerOptions::deferred_accept`] |
//! | `LEV_OPT_DISABLED` | [`ListenerOptions::disabled`] |
//! | `LEV_OPT_LEAVE_SOCKETS_BLOCKING` | [`Accepted::into_fd`], then `set_nonblocking(false)` on the std socket made of it |
//! | `LEV_OPT_THREADSAFE` | `base.mailbox(cb)?`: other threads ask the loop's thread |
//!
//! # http.h, http_compat.h
//!
//! In the crate `event-http`.
//!
//! | C | Rust |
//! |---|---|
//! | `struct evhttp *`, `evhttp_new(base)`, `evhttp_free(http)` | `Server`, `Server::new`, `Server::free` |
//! | `evhttp_start(address, port)` | `Server::start` |
//! | `evhttp_bind_socket(http, address, port)`, `evhttp_bind_socket_with_handle(http, address, port)` | `Server::bind` |
//! | `evhttp_accept_socket(http, fd)`, `evhttp_accept_socket_with_handle(http, fd)` | `Server::accept_socket` |
//! | `evhttp_bind_listener(http, l)` | `Server::bind_listener`; `Server::bind_with` makes one with options; `Server::serve` takes a stream |
//! | `evhttp_del_accept_socket(http, bound)` | `Server::del_accept_socket` |
//! | `struct evhttp_bound_socket *`, `evhttp_bound_socket_get_fd(bound)`, `evhttp_bound_socket_get_listener(bound)` | `BoundSocket`, which derefs to its `Listener`: `bound.fd()` |
//! | `evhttp_foreach_bound_socket(http, fn, arg)` | `Server::bound_sockets` |
//! | `evhttp_bound_socket_foreach_fn` | `for bound in server.bound_sockets()` |
//! | `evhttp_set_bevcb(http, cb, arg)`, `evhttp_bound_set_bevcb(bound, cb, arg)` | `Server::set_bevcb`, `BoundSocket::set_bevcb`: they get the plain stream; `None` closes the connection |
//! | `evhttp_set_newreqcb(http, cb, arg)` | `Server::set_newreqcb`: asked before a byte of the request is read |
//! | `evhttp_set_errorcb(http, cb, arg)` | `Server::set_errorcb` |
//! | `evhttp_set_gencb(http, cb, arg)`, `evhttp_set_cb(http, path, cb, arg)`, `evhttp_del_cb(http, path)` | `Server::set_gencb`, `Server::set_cb`, `Server::del_cb`; `Server::route` for patterns and methods |
//! | `evhttp_add_virtual_host(http, pattern, vhost)`, `evhttp_remove_virtual_host(http, vhost)` | `Server::add_virtual_host`, which makes it, `Server::remove_virtual_host` |
//! | `evhttp_add_server_alias(http, alias)`, `evhttp_remove_server_alias(http, alias)` | `Server::add_server_alias`, `Server::remove_server_alias`, and those of `VirtualHost` |
//! | `evhttp_set_max_headers_size(http, n)`, `evhttp_set_max_body_size(http, n)`, `evhttp_set_timeout(http, secs)`, `evhttp_set_timeout_tv(http, &tv)` | `Server::set_limits` with a `Limits` |
//! | `evhttp_set_read_timeout_tv(http, &tv)`, `evhttp_set_write_timeout_tv(http, &tv)` | `Limits::body_timeout`, `Limits::answer_timeout` |
//! | `evhttp_set_flags(http, EVHTTP_SERVER_LINGERING_CLOSE)` | `Limits::linger_timeout` |
//! | `evhttp_set_allowed_methods(http, mask)`, `evhttp_set_ext_method_cmp(http, cmp)` | `Server::set_allowed_methods` with a `MethodSet`, `MethodSet::insert` |
//! | `EVHTTP_METHOD_HAS_BODY` | `MethodSet::insert` is enough: a request of any method may have a body |
//! | `evhttp_set_default_content_type(http, type)` | `Server::set_default_content_type` |
//! | `evhttp_set_max_connections(http, n)`, `evhttp_get_connection_count(http)` | `Server::set_max_connections`, `Server::connection_count` |
//! | `struct evhttp_request *` | `Request`, which the handler owns |
//! | `evhttp_request_own(req)`, `evhttp_request_is_owned(req)` | `req.defer()`, or keep the `Request`: it is yours |
//! | `evhttp_request_free(req)` | `drop(req)`; unanswered, it answers 500 |
//! | `evhttp_request_get_command(req)`, `enum evhttp_cmd_type` | `Request::method`, `Method` |
//! | `EVHTTP_REQ_GET`, `EVHTTP_REQ_POST`, `EVHTTP_REQ_HEAD`, `EVHTTP_REQ_PUT`, `EVHTTP_REQ_DELETE`, `EVHTTP_REQ_OPTIONS`, `EVHTTP_REQ_TRACE`, `EVHTTP_REQ_CONNECT`, `EVHTTP_REQ_PATCH` | `Method::GET` and so on |
//! | `EVHTTP_REQ_PROPFIND`, `EVHTTP_REQ_PROPPATCH`, `EVHTTP_REQ_MKCOL`, `EVHTTP_REQ_LOCK`, `EVHTTP_REQ_UNLOCK`, `EVHTTP_REQ_COPY`, `EVHTTP_REQ_MOVE` | `Method::PROPFIND` and so on |
//! | `evhttp_request_get_uri(req)`, `evhttp_request_uri(req)` | `Request::target` |
//! | `evhttp_request_get_evhttp_uri(req)` | `Request::uri`; `Request::path` and `Request::query` make no copy |
//! | `evhttp_request_get_host(req)`, `evhttp_connection_get_peer(con, &address, &port)`, `evhttp_connection_get_addr(con)` | `Request::host`, `Request::peer` |
//! | `evhttp_request_get_input_headers(req)`, `evhttp_request_get_output_headers(req)`, `struct evkeyvalq` | `Request::headers`, `Request::reply_headers`, `Headers` |
//! | `evhttp_find_header(headers, name)`, `evhttp_add_header(headers, name, value)` | `Headers::get`, `Headers::add` |
//! | `evhttp_remove_header(headers, name)`, `evhttp_clear_headers(headers)` | `Headers::remove`, `Headers::clear` |
//! | `struct evkeyval` | `for (name, value) in req.headers().iter()` |
//! | `evhttp_request_get_input_buffer(req)` | `Request::body` |
//! | `evhttp_request_get_output_buffer(req)` | `Reply::chunk`, or the body of `Request::send_reply` |
//! | `evhttp_request_set_header_cb(req, cb)` | `Server::set_header_cb`, or `Server::route_early` for one route |
//! | `evhttp_request_set_chunked_cb(req, cb)`, `evhttp_request_set_error_cb(req, cb)` | `Request::stream_body`, `BodyEvent::Failed` |
//! | `enum evhttp_request_error`, `EVREQ_HTTP_TIMEOUT`, `EVREQ_HTTP_EOF` | the `Error` of `BodyEvent::Failed`: `error.is_timeout()`, `error.is_client_gone()` |
//! | `EVREQ_HTTP_INVALID_HEADER`, `EVREQ_HTTP_BUFFER_ERROR`, `EVREQ_HTTP_DATA_TOO_LONG` | `error.is_peer()`, `error.is_ours()`, `error.is_too_large()` |
//! | `enum evhttp_request_kind`, `EVHTTP_REQUEST` | `Request`: what a server gets is one, always |
//! | `EVHTTP_USER_OWNED`, `EVHTTP_REQ_OWN_CONNECTION`, `EVHTTP_REQ_DEFER_FREE`, `EVHTTP_REQ_NEEDS_FREE`, `EVHTTP_PROXY_REQUEST` | `drop(req)`: who has a `Request` owns it, and no flag says more |
//! | `EVHTTP_CON_LINGERING_CLOSE` | `Limits::linger_timeout` |
//! | `evhttp_request_get_connection(req)` | `Request::peer`, `Request::server`, `Request::upgrade`, `Request::on_client_gone`: the request has it all |
//! | `evhttp_connection_get_server(con)`, `evhttp_connection_get_base(con)` | `Request::server`, `req.server().handle()` |
//! | `evhttp_connection_get_bufferevent(con)` | `Request::upgrade` hands it over |
//! | `evhttp_send_reply(req, code, reason, buf)`, `evhttp_send_error(req, code, reason)` | `Request::send_reply`, `Request::send_error` |
//! | `evhttp_send_reply_start(req, code, reason)`, `evhttp_send_reply_chunk(req, buf)`, `evhttp_send_reply_end(req)` | `Request::send_reply_start`, `Reply::chunk`, `Reply::end` |
//! | `evhttp_send_reply_chunk_with_cb(req, buf, cb, arg)` | `Reply::on_room` |
//! | `evhttp_request_set_on_complete_cb(req, cb, arg)`, `evhttp_connection_set_closecb(con, cb, arg)` | `Request::on_complete`, `Request::on_client_gone` |
//! | `struct evhttp_uri *`, `evhttp_uri_new()` | `Uri`, `Uri::new` |
//! | `evhttp_uri_free(uri)` | `drop(uri)` |
//! | `evhttp_uri_parse(text)`, `evhttp_uri_parse_with_flags(text, flags)`, `evhttp_uri_set_flags(uri, flags)` | `Uri::parse`, `Uri::parse_with_flags`, `Uri::set_flags` |
//! | `EVHTTP_URI_NONCONFORMANT`, `EVHTTP_URI_HOST_STRIP_BRACKETS`, `EVHTTP_URI_UNIX_SOCKET` | `UriFlags::NONCONFORMANT` (control characters are refused all the same), `UriFlags::HOST_STRIP_BRACKETS`, `UriFlags::UNIX_SOCKET` |
//! | `evhttp_uri_join(uri, text, size)` | `uri.to_string()`, which always succeeds |
//! | `evhttp_uri_get_scheme(uri)`, `evhttp_uri_get_userinfo(uri)`, `evhttp_uri_get_host(uri)`, `evhttp_uri_get_port(uri)` | `Uri::scheme`, `Uri::userinfo`, `Uri::host`, `Uri::port` |
//! | `evhttp_uri_get_path(uri)`, `evhttp_uri_get_query(uri)`, `evhttp_uri_get_fragment(uri)`, `evhttp_uri_get_unixsocket(uri)` | `Uri::path`, `Uri::query`, `Uri::fragment`, `Uri::unix_socket` |
//! | `evhttp_uri_set_scheme(uri, text)`, `evhttp_uri_set_userinfo(uri, text)`, `evhttp_uri_set_host(uri, text)`, `evhttp_uri_set_port(uri, port)` | `Uri::set_scheme`, `Uri::set_userinfo`, `Uri::set_host`, `Uri::set_port`; `None` for NULL and -1 |
//! | `evhttp_uri_set_path(uri, text)`, `evhttp_uri_set_query(uri, text)`, `evhttp_uri_set_fragment(uri, text)`, `evhttp_uri_set_unixsocket(uri, text)` | `Uri::set_path`, `Uri::set_query`, `Uri::set_fragment`, `Uri::set_unix_socket` |
//! | `evhttp_encode_uri(text)`, `evhttp_uriencode(text, size, plus)` | `encode_uri`, `uriencode` with a `Plus` |
//! | `evhttp_decode_uri(text)`, `evhttp_uridecode(text, plus, &size)` | `decode_uri`, `uridecode`; `uridecode_str` for text |
//! | `evhttp_parse_query(uri, headers)` | `query_pairs(uri.query().unwrap_or(""))`; `Request::query_pairs` |
//! | `evhttp_parse_query_str(query, headers)`, `evhttp_parse_query_str_flags(query, headers, flags)` | `parse_query_str`; keys are decoded, too |
//! | `EVHTTP_URI_QUERY_NONCONFORMANT`, `EVHTTP_URI_QUERY_LAST_VAL` | `QueryFlags::NONCONFORMANT`, `QueryFlags::LAST_VAL` |
//! | `evhttp_htmlescape(text)` | `htmlescape` |
//! | `HTTP_OK`, `HTTP_NOCONTENT`, `HTTP_MOVEPERM`, `HTTP_MOVETEMP`, `HTTP_NOTMODIFIED` | `200`, `204`, `301`, `302`, `304` |
//! | `HTTP_BADREQUEST`, `HTTP_NOTFOUND`, `HTTP_BADMETHOD`, `HTTP_ENTITYTOOLARGE`, `HTTP_EXPECTATIONFAILED` | `400`, `404`, `405`, `413`, `417` |
//! | `HTTP_INTERNAL`, `HTTP_NOTIMPLEMENTED`, `HTTP_SERVUNAVAIL` | `500`, `501`, `503` |
//!
//! # Not there yet
//!
//! Of the headers buffer.h, buffer_compat.h, bufferevent.h, bufferevent_compat.h, bufferevent_struct.h, event.h,
//! event_compat.h, event_struct.h, listener.h, thread.h, util.h and watch.h nothing is missing.
//!
//! Of the other headers, a name that is not in a table above has no counterpart yet.

// The names without an item of their own: a search for one leads to this page, as a test makes sure.
#![doc(alias("EVBUF_FS_CLOSE_ON_FREE", "EVBUF_FS_DISABLE_LOCKING", "EVBUF_FS_DISABLE_MMAP"))]
#![doc(alias("EVBUF_FS_DISABLE_SENDFILE", "evbuffer_add_iovec", "evbuffer_add_reference_with_offset"))]
#![doc(alias("evbuffer_cb_clear_flags", "EVBUFFER_CB_ENABLED", "evbuffer_cb_entry", "evbuffer_cb_func"))]
#![doc(alias("evbuffer_cb_set_flags", "evbuffer_cb_suspend", "evbuffer_cb_unsuspend"))]
#![doc(alias("evbuffer_clear_flags", "evbuffer_defer_callbacks", "evbuffer_enable_locking"))]
#![doc(alias("EVBUFFER_FLAG_DRAINS_TO_FD", "evbuffer_freeze", "evbuffer_get_max_read"))]
#![doc(alias("evbuffer_iovec", "evbuffer_lock", "evbuffer_ptr", "EVBUFFER_PTR_ADD", "evbuffer_ptr_how"))]
#![doc(alias("EVBUFFER_PTR_SET", "evbuffer_ptr_set", "evbuffer_ref_cleanup_cb"))]
#![doc(alias("evbuffer_remove_cb_entry", "evbuffer_set_flags", "evbuffer_set_max_read"))]
#![doc(alias("evbuffer_unfreeze", "evbuffer_unlock", "evbuffer_cb", "EVBUFFER_DATA", "evbuffer_find"))]
#![doc(alias("EVBUFFER_LENGTH", "evbuffer_setcb", "BEV_ERROR", "BEV_OPT_CLOSE_ON_FREE"))]
#![doc(alias("BEV_OPT_DEFER_CALLBACKS", "BEV_OPT_THREADSAFE", "BEV_OPT_UNLOCK_CALLBACKS"))]
#![doc(alias("BEV_TRIG_DEFER_CALLBACKS", "BEV_TRIG_IGNORE_WATERMARKS", "bufferevent_base_set"))]
#![doc(alias("bufferevent_decref", "bufferevent_getcb", "bufferevent_incref", "bufferevent_lock"))]
#![doc(alias("bufferevent_options", "bufferevent_trigger_options", "bufferevent_unlock"))]
#![doc(alias("ev_token_bucket_cfg_free", "bufferevent_new", "bufferevent_settimeout", "EVBUFFER_EOF"))]
#![doc(alias("EVBUFFER_ERROR", "EVBUFFER_INPUT", "EVBUFFER_OUTPUT", "EVBUFFER_TIMEOUT", "evbuffercb"))]
#![doc(alias("everrorcb", "event_watermark", "EV_FINALIZE", "event_base_config_flag"))]
#![doc(alias("EVENT_BASE_FLAG_EPOLL_DISALLOW_TIMERFD", "EVENT_BASE_FLAG_EPOLL_USE_CHANGELIST"))]
#![doc(alias("EVENT_BASE_FLAG_NOLOCK", "EVENT_BASE_FLAG_PRECISE_TIMER", "EVENT_BASE_FLAG_STARTUP_IOCP"))]
#![doc(alias("EVENT_BASE_FLAG_USE_SIGNALFD", "event_base_free", "event_base_free_nofinalize"))]
#![doc(alias("event_base_get_signal_method", "event_base_set", "event_callback_fn"))]
#![doc(alias("event_config_free", "event_config_set_flag", "event_config_set_num_cpus_hint"))]
#![doc(alias("EVENT_DBG_ALL", "EVENT_DBG_NONE", "event_debug_unassign", "event_del_block"))]
#![doc(alias("event_del_noblock", "event_enable_debug_logging", "event_enable_debug_mode"))]
#![doc(alias("event_fatal_cb", "event_finalize", "event_finalize_callback_fn", "event_free_finalize"))]
#![doc(alias("event_get_callback", "event_get_callback_arg", "event_get_struct_event_size"))]
#![doc(alias("event_get_version", "event_get_version_number", "event_gettime_monotonic"))]
#![doc(alias("event_initialized", "event_log_cb", "EVENT_LOG_DEBUG", "EVENT_LOG_ERR", "EVENT_LOG_MSG"))]
#![doc(alias("EVENT_LOG_WARN", "EVENT_MAX_PRIORITIES", "event_self_cbarg", "event_set_fatal_callback"))]
#![doc(alias("event_set_log_callback", "event_set_mem_functions"))]
#![doc(alias("EVENT_SET_MEM_FUNCTIONS_IMPLEMENTED", "evsignal_initialized", "evtimer_initialized"))]
#![doc(alias("evuser_initialized", "libevent_global_shutdown", "LIBEVENT_VERSION"))]
#![doc(alias("LIBEVENT_VERSION_NUMBER", "event_dispatch", "EVENT_FD", "event_get_method", "event_init"))]
#![doc(alias("event_loop", "event_loopbreak", "event_loopexit", "event_once", "event_priority_init"))]
#![doc(alias("event_set", "EVENT_SIGNAL", "evsignal_set", "evtimer_set", "signal_add", "signal_del"))]
#![doc(alias("signal_initialized", "signal_pending", "signal_set", "timeout_add", "timeout_del"))]
#![doc(alias("timeout_initialized", "timeout_pending", "timeout_set", "event_callback"))]
#![doc(alias("EVLIST_ACTIVE", "EVLIST_ACTIVE_LATER", "EVLIST_ALL", "EVLIST_FINALIZING", "EVLIST_INIT"))]
#![doc(alias("EVLIST_INSERTED", "EVLIST_INTERNAL", "EVLIST_SIGNAL", "EVLIST_TIMEOUT"))]
#![doc(alias("evhttp_bound_socket_foreach_fn", "evhttp_bound_socket_get_fd"))]
#![doc(alias("evhttp_bound_socket_get_listener", "EVHTTP_CON_LINGERING_CLOSE"))]
#![doc(alias("evhttp_connection_get_base", "EVHTTP_METHOD_HAS_BODY", "evhttp_parse_query"))]
#![doc(alias("evhttp_request_error", "evhttp_request_free", "evhttp_request_get_connection"))]
#![doc(alias("evhttp_request_get_output_buffer", "evhttp_request_is_owned", "evhttp_request_kind"))]
#![doc(alias("evhttp_request_own", "evhttp_set_flags", "evhttp_uri_free", "evhttp_uri_join"))]
#![doc(alias("EVREQ_HTTP_BUFFER_ERROR", "EVREQ_HTTP_DATA_TOO_LONG", "EVREQ_HTTP_EOF"))]
#![doc(alias("EVREQ_HTTP_INVALID_HEADER", "EVREQ_HTTP_TIMEOUT", "HTTP_BADMETHOD", "HTTP_BADREQUEST"))]
#![doc(alias("HTTP_ENTITYTOOLARGE", "HTTP_EXPECTATIONFAILED", "HTTP_INTERNAL", "HTTP_MOVEPERM"))]
#![doc(alias("HTTP_MOVETEMP", "HTTP_NOCONTENT", "HTTP_NOTFOUND", "HTTP_NOTIMPLEMENTED"))]
#![doc(alias("HTTP_NOTMODIFIED", "HTTP_OK", "HTTP_SERVUNAVAIL", "EVHTTP_PROXY_REQUEST"))]
#![doc(alias("EVHTTP_REQ_DEFER_FREE", "EVHTTP_REQ_NEEDS_FREE", "EVHTTP_REQ_OWN_CONNECTION"))]
#![doc(alias("EVHTTP_USER_OWNED", "evkeyval", "evconnlistener_cb", "evconnlistener_errorcb"))]
#![doc(alias("LEV_OPT_THREADSAFE", "EVTHREAD_CONDITION_API_VERSION", "evthread_condition_callbacks"))]
#![doc(alias("evthread_enable_lock_debugging", "evthread_enable_lock_debuging"))]
#![doc(alias("EVTHREAD_LOCK_API_VERSION", "evthread_lock_callbacks", "EVTHREAD_LOCKTYPE_READWRITE"))]
#![doc(alias("EVTHREAD_LOCKTYPE_RECURSIVE", "evthread_make_base_notifiable"))]
#![doc(alias("EVTHREAD_PTHREAD_PRIO_INHERIT", "EVTHREAD_READ", "evthread_set_condition_callbacks"))]
#![doc(alias("evthread_set_id_callback", "evthread_set_lock_callbacks", "EVTHREAD_TRY"))]
#![doc(alias("evthread_use_pthreads", "EVTHREAD_USE_PTHREADS_IMPLEMENTED"))]
#![doc(alias("evthread_use_pthreads_with_flags", "evthread_use_windows_threads"))]
#![doc(alias("EVTHREAD_USE_WINDOWS_THREADS_IMPLEMENTED", "EVTHREAD_WRITE", "EV_INT16_MAX"))]
#![doc(alias("EV_INT16_MIN", "ev_int16_t", "EV_INT32_MAX", "EV_INT32_MIN", "ev_int32_t"))]
#![doc(alias("EV_INT64_MAX", "EV_INT64_MIN", "ev_int64_t", "EV_INT8_MAX", "EV_INT8_MIN", "ev_int8_t"))]
#![doc(alias("ev_intptr_t", "EV_MONOT_FALLBACK", "EV_MONOT_PRECISE", "ev_off_t", "EV_SIZE_MAX"))]
#![doc(alias("ev_socklen_t", "EV_SSIZE_MAX", "EV_SSIZE_MIN", "ev_ssize_t", "EV_UINT16_MAX"))]
#![doc(alias("ev_uint16_t", "EV_UINT32_MAX", "ev_uint32_t", "EV_UINT64_MAX", "ev_uint64_t"))]
#![doc(alias("EV_UINT8_MAX", "ev_uint8_t", "ev_uintptr_t", "evutil_addrinfo", "EVUTIL_AI_ADDRCONFIG"))]
#![doc(alias("EVUTIL_AI_ALL", "EVUTIL_AI_CANONNAME", "EVUTIL_AI_NUMERICHOST", "EVUTIL_AI_NUMERICSERV"))]
#![doc(alias("EVUTIL_AI_PASSIVE", "EVUTIL_AI_V4MAPPED", "evutil_ascii_strcasecmp"))]
#![doc(alias("evutil_ascii_strncasecmp", "EVUTIL_CLOSESOCKET", "evutil_closesocket"))]
#![doc(alias("evutil_configure_monotonic_time", "evutil_date_rfc1123", "EVUTIL_EAI_ADDRFAMILY"))]
#![doc(alias("EVUTIL_EAI_AGAIN", "EVUTIL_EAI_BADFLAGS", "EVUTIL_EAI_CANCEL", "EVUTIL_EAI_FAIL"))]
#![doc(alias("EVUTIL_EAI_FAMILY", "EVUTIL_EAI_MEMORY", "EVUTIL_EAI_NODATA", "EVUTIL_EAI_NONAME"))]
#![doc(alias("EVUTIL_EAI_SERVICE", "EVUTIL_EAI_SOCKTYPE", "EVUTIL_EAI_SYSTEM", "evutil_freeaddrinfo"))]
#![doc(alias("evutil_gai_strerror", "evutil_getaddrinfo", "evutil_gettime_monotonic"))]
#![doc(alias("evutil_gettimeofday", "evutil_inet_ntop", "evutil_inet_pton", "evutil_inet_pton_scope"))]
#![doc(alias("EVUTIL_INVALID_SOCKET", "evutil_make_listen_socket_ipv6only"))]
#![doc(alias("evutil_make_listen_socket_not_ipv6only", "evutil_make_listen_socket_reuseable"))]
#![doc(alias("evutil_make_listen_socket_reuseable_port", "evutil_make_socket_closeonexec"))]
#![doc(alias("evutil_make_socket_nonblocking", "evutil_make_tcp_listen_socket_deferred"))]
#![doc(alias("evutil_monotonic_timer", "evutil_monotonic_timer_free", "evutil_monotonic_timer_new"))]
#![doc(alias("evutil_offsetof", "evutil_parse_sockaddr_port", "evutil_secure_rng_add_bytes"))]
#![doc(alias("evutil_secure_rng_get_bytes", "evutil_secure_rng_init"))]
#![doc(alias("evutil_secure_rng_set_urandom_device_file", "EVUTIL_SET_SOCKET_ERROR"))]
#![doc(alias("evutil_set_tcp_keepalive", "evutil_snprintf", "EVUTIL_SOCK_CLOEXEC"))]
#![doc(alias("EVUTIL_SOCK_NONBLOCK", "evutil_sockaddr_cmp", "evutil_socket_error_to_string"))]
#![doc(alias("evutil_socket_geterror", "evutil_socket_t", "evutil_socketpair", "evutil_strtoll"))]
#![doc(alias("evutil_timeradd", "evutil_timerclear", "evutil_timercmp", "evutil_timerisset"))]
#![doc(alias("evutil_timersub", "evutil_vsnprintf", "evwatch_free"))]

#[cfg(doc)]
use crate::{
    Accepted, Buffer, BufferChange, BufferEvent, Callbacks, Config, Connect, ConnectError, Direction, Eol,
    Error, Event, EventBase, EventCount, EventId, EventInfo, Features, FileSegment, Filter, Filtered,
    FlushMode, Listener, ListenerOptions, LoopEnd, LoopFlags, LoopHandle, PrepareInfo, RateLimit,
    RateLimitGroup, Ready, Remote, Sender, Signal, StreamEvent, Timer, Waker, Watcher, What,
};
