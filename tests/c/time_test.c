/*
 * Says every two seconds how long the last pause was; -p for a persistent timer.
 * The counterpart in C of examples/examples/time_test.rs.
 *
 * To build it, with the headers of libevent 2.1 or newer (libevent-dev):
 *
 *   gcc -O2 -o time_test tests/c/time_test.c -levent
 */
#include <stdio.h>
#include <string.h>

#include <event2/event.h>
#include <event2/util.h>

static const struct timeval pause_time = {2, 0};
static struct timeval last;
static int persistent;

static void tick(evutil_socket_t fd, short what, void *arg)
{
	struct event *self = arg;
	struct timeval now, passed;
	evutil_gettimeofday(&now, NULL);
	evutil_timersub(&now, &last, &passed);
	last = now;
	printf("%.3f seconds have passed\n", (double)passed.tv_sec + (double)passed.tv_usec / 1e6);
	if (!persistent)
		event_add(self, &pause_time);
}

int main(int argc, char **argv)
{
	struct event_base *base;
	struct event *timer;

	setvbuf(stdout, NULL, _IOLBF, 0);
	persistent = argc == 2 && strcmp(argv[1], "-p") == 0;
	if (argc > 1 && !persistent) {
		fprintf(stderr, "usage: time_test [-p]\n");
		return 1;
	}
	base = event_base_new();
	timer = event_new(base, -1, persistent ? EV_PERSIST : 0, tick, event_self_cbarg());
	evutil_gettimeofday(&last, NULL);
	event_add(timer, &pause_time);
	event_base_dispatch(base);
	event_free(timer);
	event_base_free(base);
	return 0;
}
