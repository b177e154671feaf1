/*
 * Posts through libevent: event_active from other threads, with its locks on.
 *
 *   posts_libevent MESSAGES
 */
#define _GNU_SOURCE
#include <event2/event.h>
#include <event2/thread.h>

#include "posts.h"

static struct event_base *base;
static struct event *event;

static void posts_wake(void)
{
	event_active(event, EV_READ, 0);
}

static void on_wake(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	(void)arg;
	if (posts_drain())
		event_base_loopbreak(base);
}

int main(int argc, char **argv)
{
	if (evthread_use_pthreads() < 0)
		fail("evthread_use_pthreads");
	base = event_base_new();
	event = base ? event_new(base, -1, EV_PERSIST | EV_READ, on_wake, NULL) : NULL;
	if (!event)
		fail("event_new");
	posts_start(argc, argv);
	event_base_loop(base, EVLOOP_NO_EXIT_ON_EMPTY);
	return posts_report();
}
