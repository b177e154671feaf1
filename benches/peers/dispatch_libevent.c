/*
 * Dispatch through libevent: one persistent EV_READ event a pair.
 *
 *   dispatch_libevent PAIRS ACTIVE WRITES pass|stay
 */
#define _GNU_SOURCE
#include <event2/event.h>

#include "bench.h"

static struct event_base *base;

static void on_read(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	if (relay_step((long)(intptr_t)arg) && relay.stay)
		event_base_loopbreak(base);
}

int main(int argc, char **argv)
{
	relay_init(argc, argv);
	base = event_base_new();
	if (!base)
		fail("event_base_new");
	for (long i = 0; i < relay.pairs; i++) {
		struct event *ev = event_new(base, relay.readers[i], EV_READ | EV_PERSIST, on_read, (void *)(intptr_t)i);
		if (!ev || event_add(ev, NULL) < 0)
			fail("event_add");
	}
	event_base_loop(base, EVLOOP_ONCE | EVLOOP_NONBLOCK);
	relay_start();
	double start = now_ns();
	if (relay.stay)
		event_base_dispatch(base);
	else
		while (relay.reads < relay_total())
			event_base_loop(base, EVLOOP_ONCE | EVLOOP_NONBLOCK);
	relay_report(now_ns() - start);
	return 0;
}
