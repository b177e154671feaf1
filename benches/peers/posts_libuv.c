/*
 * Posts through libuv: uv_async_send.
 *
 *   posts_libuv MESSAGES
 */
#define _GNU_SOURCE
#include <uv.h>

#include "posts.h"

static uv_async_t async;

static void posts_wake(void)
{
	if (uv_async_send(&async) < 0)
		fail("uv_async_send");
}

static void on_wake(uv_async_t *handle)
{
	if (posts_drain())
		uv_stop(handle->loop);
}

int main(int argc, char **argv)
{
	uv_loop_t loop;
	if (uv_loop_init(&loop) < 0 || uv_async_init(&loop, &async, on_wake) < 0)
		fail("uv_loop_init");
	posts_start(argc, argv);
	uv_run(&loop, UV_RUN_DEFAULT);
	return posts_report();
}
