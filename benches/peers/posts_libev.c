/*
 * Posts through libev: ev_async_send.
 *
 *   posts_libev MESSAGES
 */
#define _GNU_SOURCE
#include <ev.h>

#include "posts.h"

static struct ev_loop *loop;
static ev_async async;

static void posts_wake(void)
{
	ev_async_send(loop, &async);
}

static void on_wake(struct ev_loop *in, ev_async *watcher, int what)
{
	(void)watcher;
	(void)what;
	if (posts_drain())
		ev_break(in, EVBREAK_ALL);
}

int main(int argc, char **argv)
{
	loop = ev_loop_new(EVBACKEND_EPOLL);
	if (!loop)
		fail("ev_loop_new");
	ev_async_init(&async, on_wake);
	ev_async_start(loop, &async);
	posts_start(argc, argv);
	ev_run(loop, 0);
	return posts_report();
}
