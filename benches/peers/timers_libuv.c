/*
 * Timers of libuv: a uv_timer_t each. Its clock has milliseconds; delays are rounded up.
 *
 *   timers_libuv COUNT random|one
 */
#define _GNU_SOURCE
#include <uv.h>

#include "timers.h"

static uv_timer_t *handles;

static void on_timer(uv_timer_t *timer)
{
	(void)timer;
	timers_fired();
}

static void start(long at, uint64_t after_us)
{
	if (uv_timer_start(&handles[at], on_timer, (after_us + 999) / 1000, 0) < 0)
		fail("uv_timer_start");
}

static void timer_add(long at, uint64_t after_us)
{
	start(at, after_us);
}

static void timer_change(long at, uint64_t after_us)
{
	/* Moves a timer that is active already. */
	start(at, after_us);
}

static void timer_cancel(long at)
{
	uv_timer_stop(&handles[at]);
}

static void on_start(uv_timer_t *timer)
{
	(void)timer;
	timers_phases();
}

int main(int argc, char **argv)
{
	uv_loop_t loop;
	uv_timer_t first;
	timers_init(argc, argv);
	handles = calloc((size_t)timers.count, sizeof *handles);
	if (!handles || uv_loop_init(&loop) < 0)
		fail("uv_loop_init");
	for (long i = 0; i < timers.count; i++)
		uv_timer_init(&loop, &handles[i]);
	uv_timer_init(&loop, &first);
	uv_timer_start(&first, on_start, 0, 0);
	uv_run(&loop, UV_RUN_DEFAULT);
	return timers_report();
}
