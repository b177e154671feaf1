/*
 * The phases of timers, the same for every peer. A peer includes this, gives add() and cancel(), and has its loop
 * call timers_phases() from within a callback, where programs add most of their timers, then run until nothing is
 * left; each timer that fires calls timers_fired().
 *
 *   timers_NAME COUNT random|one
 */
#ifndef TIMERS_H
#define TIMERS_H

#include "bench.h"

#define FAR_US 3600000000u /* delays of timers that are never to fire here */
#define SLACK_US 50000u    /* for clocks with coarse ticks */

enum { OPERATIONS = 100000 }; /* fewer timers do the same several times over */

static struct {
	long count;
	int one;
	uint32_t *order;
	uint64_t near_us; /* the longest delay of timers that are to fire */
	long left;
	double due, last;
	double add, change, cancel;
} timers;

static void timer_add(long at, uint64_t after_us);
static void timer_change(long at, uint64_t after_us);
static void timer_cancel(long at);

static inline void timers_init(int argc, char **argv)
{
	if (argc != 3)
		fail("usage: COUNT random|one");
	timers.count = timers.left = number(argv[1]);
	if (timers.count == 0)
		fail("a timer at least");
	timers.one = strcmp(argv[2], "one") == 0;
	timers.near_us = timers.count > OPERATIONS ? 1000000 : 100000;
	timers.order = random_order(timers.count);
}

static inline uint64_t timers_far(void)
{
	return timers.one ? FAR_US : FAR_US + random_next() % FAR_US;
}

static inline uint64_t timers_near(void)
{
	return timers.one ? timers.near_us : random_next() % timers.near_us;
}

static inline void timers_phases(void)
{
	long times = timers.count < OPERATIONS ? OPERATIONS / timers.count : 1;
	for (long t = 0; t < times; t++) {
		double start = now_ns();
		for (long i = 0; i < timers.count; i++)
			timer_add(i, timers_far());
		double added = now_ns();
		for (long i = 0; i < timers.count; i++)
			timer_change(timers.order[i], timers_far());
		double changed = now_ns();
		for (long i = 0; i < timers.count; i++)
			timer_cancel(timers.order[i]);
		timers.add += (added - start) / (double)times;
		timers.change += (changed - added) / (double)times;
		timers.cancel += (now_ns() - changed) / (double)times;
	}
	for (long i = 0; i < timers.count; i++)
		timer_add(i, timers_near());
	uint64_t nap = timers.near_us + SLACK_US;
	struct timespec ts = { .tv_sec = (time_t)(nap / 1000000), .tv_nsec = (long)(nap % 1000000 * 1000) };
	nanosleep(&ts, NULL);
	timers.due = now_ns();
}

static inline void timers_fired(void)
{
	if (--timers.left == 0)
		timers.last = now_ns();
}

static inline int timers_report(void)
{
	double count = (double)timers.count;
	if (timers.left != 0)
		fail("timers were lost, or fired twice");
	printf("add %.3f\nchange %.3f\ncancel %.3f\nfire %.3f\n", timers.add / count, timers.change / count,
		timers.cancel / count, (timers.last - timers.due) / count);
	return 0;
}

#endif
