/*
 * Dispatch through libev: one ev_io a pair.
 *
 *   dispatch_libev PAIRS ACTIVE WRITES pass|stay
 */
#define _GNU_SOURCE
#include <ev.h>

#include "bench.h"

static void on_read(struct ev_loop *loop, ev_io *io, int what)
{
	(void)what;
	if (relay_step((long)(intptr_t)io->data) && relay.stay)
		ev_break(loop, EVBREAK_ALL);
}

int main(int argc, char **argv)
{
	relay_init(argc, argv);
	struct ev_loop *loop = ev_loop_new(EVBACKEND_EPOLL);
	ev_io *ios = calloc((size_t)relay.pairs, sizeof *ios);
	if (!loop || !ios)
		fail("ev_loop_new");
	for (long i = 0; i < relay.pairs; i++) {
		ev_io_init(&ios[i], on_read, relay.readers[i], EV_READ);
		ios[i].data = (void *)(intptr_t)i;
		ev_io_start(loop, &ios[i]);
	}
	ev_run(loop, EVRUN_NOWAIT);
	relay_start();
	double start = now_ns();
	if (relay.stay)
		ev_run(loop, 0);
	else
		while (relay.reads < relay_total())
			ev_run(loop, EVRUN_NOWAIT);
	relay_report(now_ns() - start);
	return 0;
}
