/*
 * Timers of libevent: a pure timer event each. With "common" all of one duration are put into its common-timeout
 * queue.
 *
 *   timers_libevent COUNT random|one [common]
 */
#define _GNU_SOURCE
#include <event2/event.h>

#include "timers.h"

static struct event_base *base;
static struct event **events;
static int common;

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	(void)arg;
	timers_fired();
}

static void timer_add(long at, uint64_t after_us)
{
	struct timeval tv = { .tv_sec = (time_t)(after_us / 1000000), .tv_usec = (suseconds_t)(after_us % 1000000) };
	static const struct timeval *kept;
	static uint64_t kept_us;
	if (common && after_us != kept_us) {
		kept = event_base_init_common_timeout(base, &tv);
		kept_us = after_us;
	}
	if (event_add(events[at], common ? kept : &tv) < 0)
		fail("event_add");
}

static void timer_change(long at, uint64_t after_us)
{
	timer_add(at, after_us);
}

static void timer_cancel(long at)
{
	if (event_del(events[at]) < 0)
		fail("event_del");
}

static void on_start(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	(void)arg;
	timers_phases();
}

int main(int argc, char **argv)
{
	struct timeval at_once = { 0, 0 };
	common = argc == 4 && strcmp(argv[3], "common") == 0;
	timers_init(argc - common, argv);
	base = event_base_new();
	events = calloc((size_t)timers.count, sizeof *events);
	if (!base || !events)
		fail("event_base_new");
	for (long i = 0; i < timers.count; i++)
		if (!(events[i] = evtimer_new(base, on_timer, NULL)))
			fail("evtimer_new");
	if (event_base_once(base, -1, EV_TIMEOUT, on_start, NULL, &at_once) < 0)
		fail("event_base_once");
	event_base_dispatch(base);
	return timers_report();
}
