/*
 * The yard-stick of dispatch: epoll_wait, recv, send, and nothing between them.
 *
 *   dispatch_bare PAIRS ACTIVE WRITES pass|stay
 */
#define _GNU_SOURCE
#include <sys/epoll.h>

#include "bench.h"

enum { EVENTS = 512 };

int main(int argc, char **argv)
{
	struct epoll_event events[EVENTS];
	relay_init(argc, argv);
	int ep = epoll_create1(EPOLL_CLOEXEC);
	if (ep < 0)
		die("epoll_create1");
	for (long i = 0; i < relay.pairs; i++) {
		struct epoll_event ev = { .events = EPOLLIN, .data.u64 = (uint64_t)i };
		if (epoll_ctl(ep, EPOLL_CTL_ADD, relay.readers[i], &ev) < 0)
			die("epoll_ctl");
	}
	epoll_wait(ep, events, EVENTS, 0);
	relay_start();
	double start = now_ns();
	for (int done = 0; !done;) {
		int n = epoll_wait(ep, events, EVENTS, relay.stay ? -1 : 0);
		if (n < 0 && errno != EINTR)
			die("epoll_wait");
		for (int i = 0; i < n; i++)
			done |= relay_step((long)events[i].data.u64);
	}
	relay_report(now_ns() - start);
	return 0;
}
