/*
 * Messages from four threads to one loop, through an array behind a lock that the loop swaps for an empty one. A
 * peer gives posts_wake(), which is called by the sender that finds the array empty: the fewest wake-ups that keep
 * every message from waiting. The loop calls posts_drain(), and stops when that says that all have come.
 *
 *   posts_NAME MESSAGES
 */
#ifndef POSTS_H
#define POSTS_H

#include <pthread.h>

#include "bench.h"

enum { THREADS = 4 };

struct messages {
	uint64_t *all;
	size_t len, room;
};

static struct {
	pthread_mutex_t lock;
	struct messages waiting;
	/* The loop's own. */
	struct messages taken;
	uint64_t next[THREADS]; /* the next message of each thread */
	long left, each, wakes;
	pthread_barrier_t barrier;
	pthread_t threads[THREADS];
	double start, start_cpu;
} posts = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void posts_wake(void);

static inline void posts_send(uint64_t message)
{
	pthread_mutex_lock(&posts.lock);
	struct messages *to = &posts.waiting;
	if (to->len == to->room) {
		to->room = to->room ? 2 * to->room : 1024;
		to->all = realloc(to->all, to->room * sizeof *to->all);
		if (!to->all)
			die("realloc");
	}
	int first = to->len == 0;
	to->all[to->len++] = message;
	pthread_mutex_unlock(&posts.lock);
	if (first)
		posts_wake();
}

/* Takes what waits; true when all have come. */
static inline int posts_drain(void)
{
	posts.wakes++;
	pthread_mutex_lock(&posts.lock);
	struct messages swap = posts.waiting;
	posts.waiting = posts.taken;
	posts.taken = swap;
	pthread_mutex_unlock(&posts.lock);
	for (size_t i = 0; i < posts.taken.len; i++) {
		uint64_t message = posts.taken.all[i], number = message & 0xFFFFFFFF;
		if (posts.next[message >> 32]++ != number)
			fail("a message came out of order");
		posts.left--;
	}
	posts.taken.len = 0;
	return posts.left == 0;
}

static inline void *posts_thread(void *arg)
{
	uint64_t thread = (uint64_t)(uintptr_t)arg;
	pthread_barrier_wait(&posts.barrier);
	for (long i = 0; i < posts.each; i++)
		posts_send(thread << 32 | (uint64_t)i);
	return NULL;
}

/* The threads start to send when this returns. */
static inline void posts_start(int argc, char **argv)
{
	if (argc != 2)
		fail("usage: MESSAGES");
	posts.each = number(argv[1]) / THREADS;
	posts.left = posts.each * THREADS;
	if (posts.left == 0)
		fail("a message for each thread at least");
	pthread_barrier_init(&posts.barrier, NULL, THREADS + 1);
	for (uintptr_t i = 0; i < THREADS; i++)
		if (pthread_create(&posts.threads[i], NULL, posts_thread, (void *)i) != 0)
			fail("pthread_create");
	posts.start = now_ns();
	posts.start_cpu = cpu_ns();
	pthread_barrier_wait(&posts.barrier);
}

static inline int posts_report(void)
{
	double ns = now_ns() - posts.start, cpu = cpu_ns() - posts.start_cpu;
	double total = (double)posts.each * THREADS;
	for (int i = 0; i < THREADS; i++)
		pthread_join(posts.threads[i], NULL);
	if (posts.left != 0 || posts.waiting.len != 0)
		fail("messages were lost");
	printf("ns %.3f\ncpu %.3f\nwakes %ld\n", ns / total, cpu / total, posts.wakes);
	return 0;
}

#endif
