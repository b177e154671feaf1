/*
 * Measures how long the handlers of a turn take and how late the loop wakes, and says both every second.
 * The counterpart in C of examples/examples/watch_timing.rs.
 *
 * libevent 2.1 has no watchers (evwatch_prepare_new came with 2.2), so the loop is run a turn at a time and measured
 * from outside: the first callback of a turn tells when it woke.
 *
 * To build it, with the headers of libevent 2.1 or newer (libevent-dev):
 *
 *   gcc -O2 -o watch_timing tests/c/watch_timing.c -levent
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include <event2/event.h>
#include <event2/util.h>

#define TIMERS 5
#define MOST 4096

struct times {
	double ms[MOST];
	size_t count;
};

static const int periods[TIMERS] = {3, 5, 11, 23, 47};
static struct times handlers, late;
static struct timeval woke;
static int stopped;

static double between(const struct timeval *from, const struct timeval *to)
{
	struct timeval passed;
	evutil_timersub(to, from, &passed);
	return (double)passed.tv_sec * 1e3 + (double)passed.tv_usec / 1e3;
}

static void note(struct times *times, double ms)
{
	if (ms >= 0 && times->count < MOST)
		times->ms[times->count++] = ms;
}

static void is_awake(void)
{
	if (!evutil_timerisset(&woke))
		evutil_gettimeofday(&woke, NULL);
}

static void work(evutil_socket_t fd, short what, void *arg)
{
	volatile unsigned long sum = 0;
	unsigned long n;
	is_awake();
	for (n = 0; n < (unsigned long)*(const int *)arg * 1000; n++)
		sum ^= n;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static void say(struct times *times, const char *name, const char *end)
{
	double p50 = 0, p95 = 0;
	qsort(times->ms, times->count, sizeof times->ms[0], compare);
	if (times->count > 0) {
		p50 = times->ms[times->count * 50 / 100];
		p95 = times->ms[times->count * 95 / 100];
	}
	printf("%s: p50 %.3f ms, p95 %.3f ms%s", name, p50, p95, end);
	times->count = 0;
}

static void report(evutil_socket_t fd, short what, void *arg)
{
	is_awake();
	say(&handlers, "handlers", "; ");
	say(&late, "late", "\n");
}

static void interrupted(evutil_socket_t signo, short what, void *arg)
{
	is_awake();
	stopped = 1;
}

int main(void)
{
	struct event_base *base = event_base_new();
	struct event *events[TIMERS + 1], *interrupt;
	struct timeval now;
	int i;

	setvbuf(stdout, NULL, _IOLBF, 0);
	for (i = 0; i <= TIMERS; i++) {
		struct timeval period = {1, 0};
		if (i < TIMERS) {
			period.tv_sec = 0;
			period.tv_usec = periods[i] * 1000;
		}
		events[i] = event_new(base, -1, EV_PERSIST, i < TIMERS ? work : report, (void *)&periods[i % TIMERS]);
		event_add(events[i], &period);
	}
	interrupt = evsignal_new(base, SIGINT, interrupted, NULL);
	event_add(interrupt, NULL);

	while (!stopped) {
		struct timeval first = {0, 0}, due;
		for (i = 0; i <= TIMERS; i++) {
			event_pending(events[i], EV_TIMEOUT, &due);
			if (i == 0 || evutil_timercmp(&due, &first, <))
				first = due;
		}
		evutil_timerclear(&woke);
		event_base_loop(base, EVLOOP_ONCE);
		evutil_gettimeofday(&now, NULL);
		if (evutil_timerisset(&woke)) {
			note(&late, between(&first, &woke));
			note(&handlers, between(&woke, &now));
		}
	}
	for (i = 0; i <= TIMERS; i++)
		event_free(events[i]);
	event_free(interrupt);
	event_base_free(base);
	printf("done\n");
	return 0;
}
