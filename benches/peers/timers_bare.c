/*
 * The yard-stick of timers: a 4-ary heap that holds deadlines, and each timer's place in it. The clock is read once
 * a phase, nothing is allocated, and a timer that fires is a call through a pointer.
 *
 *   timers_bare COUNT random|one
 */
#define _GNU_SOURCE
#include "timers.h"

#define NOWHERE UINT32_MAX

struct node {
	uint64_t deadline; /* nanoseconds */
	uint32_t timer;
};

static struct node *heap;
static uint32_t len;
static uint32_t *places; /* where each timer stands in the heap, or NOWHERE */
static void (**callbacks)(void);
static uint64_t now; /* cached, as a loop does */

static void put(uint32_t at, struct node node)
{
	heap[at] = node;
	places[node.timer] = at;
}

static uint32_t up(uint32_t at, struct node node)
{
	while (at > 0) {
		uint32_t parent = (at - 1) / 4;
		if (heap[parent].deadline <= node.deadline)
			break;
		put(at, heap[parent]);
		at = parent;
	}
	return at;
}

static uint32_t down(uint32_t at, struct node node)
{
	for (;;) {
		uint32_t child = 4 * at + 1, least = child;
		if (child >= len)
			return at;
		uint32_t end = child + 4 < len ? child + 4 : len;
		while (++child < end)
			if (heap[child].deadline < heap[least].deadline)
				least = child;
		if (node.deadline <= heap[least].deadline)
			return at;
		put(at, heap[least]);
		at = least;
	}
}

static void settle(uint32_t at, struct node node)
{
	uint32_t higher = up(at, node);
	put(higher == at ? down(at, node) : higher, node);
}

static void timer_add(long at, uint64_t after_us)
{
	struct node node = { now + after_us * 1000, (uint32_t)at };
	put(up(len++, node), node);
}

static void timer_change(long at, uint64_t after_us)
{
	struct node node = { now + after_us * 1000, (uint32_t)at };
	settle(places[at], node);
}

static void timer_cancel(long at)
{
	uint32_t place = places[at];
	struct node last = heap[--len];
	places[at] = NOWHERE;
	if (place < len)
		settle(place, last);
}

int main(int argc, char **argv)
{
	timers_init(argc, argv);
	size_t count = (size_t)timers.count;
	heap = malloc(count * sizeof *heap);
	places = malloc(count * sizeof *places);
	callbacks = malloc(count * sizeof *callbacks);
	if (!heap || !places || !callbacks)
		die("malloc");
	for (size_t i = 0; i < count; i++) {
		heap[i] = (struct node){ 0, 0 };
		places[i] = NOWHERE;
		callbacks[i] = timers_fired;
	}
	now = (uint64_t)now_ns();
	timers_phases();
	now = (uint64_t)now_ns();
	while (len > 0 && heap[0].deadline <= now) {
		uint32_t timer = heap[0].timer;
		timer_cancel(timer);
		callbacks[timer]();
	}
	return timers_report();
}
