/*
 * Dispatch through libuv: one uv_poll_t a pair.
 *
 *   dispatch_libuv PAIRS ACTIVE WRITES pass|stay
 */
#define _GNU_SOURCE
#include <uv.h>

#include "bench.h"

static void on_read(uv_poll_t *poll, int status, int what)
{
	(void)what;
	if (status < 0)
		fail(uv_strerror(status));
	if (relay_step((long)(intptr_t)poll->data) && relay.stay)
		uv_stop(poll->loop);
}

int main(int argc, char **argv)
{
	uv_loop_t loop;
	relay_init(argc, argv);
	uv_poll_t *polls = calloc((size_t)relay.pairs, sizeof *polls);
	if (!polls || uv_loop_init(&loop) < 0)
		fail("uv_loop_init");
	for (long i = 0; i < relay.pairs; i++) {
		if (uv_poll_init(&loop, &polls[i], relay.readers[i]) < 0 || uv_poll_start(&polls[i], UV_READABLE, on_read) < 0)
			fail("uv_poll_start");
		polls[i].data = (void *)(intptr_t)i;
	}
	uv_run(&loop, UV_RUN_NOWAIT);
	relay_start();
	double start = now_ns();
	if (relay.stay)
		uv_run(&loop, UV_RUN_DEFAULT);
	else
		while (relay.reads < relay_total())
			uv_run(&loop, UV_RUN_NOWAIT);
	relay_report(now_ns() - start);
	return 0;
}
