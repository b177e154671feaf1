/*
 * Timers of libev: an ev_timer each.
 *
 *   timers_libev COUNT random|one
 */
#define _GNU_SOURCE
#include <ev.h>

#include "timers.h"

static struct ev_loop *loop;
static ev_timer *watchers;

static void on_timer(struct ev_loop *in, ev_timer *timer, int what)
{
	(void)in;
	(void)timer;
	(void)what;
	timers_fired();
}

static void timer_add(long at, uint64_t after_us)
{
	ev_timer_set(&watchers[at], (double)after_us / 1e6, 0.);
	ev_timer_start(loop, &watchers[at]);
}

static void timer_change(long at, uint64_t after_us)
{
	/* The way that its manual gives to move an active timer. */
	watchers[at].repeat = (double)after_us / 1e6;
	ev_timer_again(loop, &watchers[at]);
}

static void timer_cancel(long at)
{
	ev_timer_stop(loop, &watchers[at]);
}

static void on_start(int what, void *arg)
{
	(void)what;
	(void)arg;
	timers_phases();
}

int main(int argc, char **argv)
{
	timers_init(argc, argv);
	loop = ev_loop_new(EVBACKEND_EPOLL);
	watchers = calloc((size_t)timers.count, sizeof *watchers);
	if (!loop || !watchers)
		fail("ev_loop_new");
	for (long i = 0; i < timers.count; i++)
		ev_timer_init(&watchers[i], on_timer, 0., 0.);
	ev_once(loop, -1, 0, 0., on_start, NULL);
	ev_run(loop, 0);
	return timers_report();
}
