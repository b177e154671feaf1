/*
 * What the peers of dispatch, timers and posts share: clocks, a repeatable random sequence, and the socket pairs
 * of dispatch. Every peer makes the same numbers in the same order, and so does the same work.
 */
#ifndef BENCH_H
#define BENCH_H

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static inline void die(const char *what)
{
	perror(what);
	exit(1);
}

static inline void fail(const char *what)
{
	fprintf(stderr, "%s\n", what);
	exit(1);
}

static inline double clock_ns(clockid_t clock)
{
	struct timespec ts;
	if (clock_gettime(clock, &ts) < 0)
		die("clock_gettime");
	return ts.tv_sec * 1e9 + ts.tv_nsec;
}

static inline double now_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

/* Processor time of all threads. */
static inline double cpu_ns(void)
{
	return clock_ns(CLOCK_PROCESS_CPUTIME_ID);
}

static inline long number(const char *text)
{
	char *end;
	long n = strtol(text, &end, 10);
	if (*end || n < 0)
		fail("not a number");
	return n;
}

/* xorshift64* */
static uint64_t random_state = 0x9E3779B97F4A7C15u;

static inline uint64_t random_next(void)
{
	random_state ^= random_state >> 12;
	random_state ^= random_state << 25;
	random_state ^= random_state >> 27;
	return random_state * 0x2545F4914F6CDD1Du;
}

/* The numbers below `n`, shuffled. */
static inline uint32_t *random_order(long n)
{
	uint32_t *order = malloc((size_t)n * sizeof *order);
	if (!order)
		die("malloc");
	for (long i = 0; i < n; i++)
		order[i] = (uint32_t)i;
	for (long i = n - 1; i > 0; i--) {
		long j = (long)(random_next() % (uint64_t)(i + 1));
		uint32_t t = order[i];
		order[i] = order[j];
		order[j] = t;
	}
	return order;
}

/*
 * Dispatch: bytes that travel from pair to pair. `pairs`, `active` and `writes` come from the command line:
 *
 *   dispatch_NAME PAIRS ACTIVE WRITES pass|stay
 *
 * With "pass" the loop is entered for one pass that does not wait, again and again, as libevent's bench.c does;
 * with "stay" it is entered once, and the last callback stops it, as in a program.
 */
struct relay {
	long pairs, active, writes;
	int stay;
	int *readers, *writers;
	long reads, left; /* bytes read; bytes that may still be passed on */
};

static struct relay relay;

static inline void relay_init(int argc, char **argv)
{
	if (argc != 5)
		fail("usage: PAIRS ACTIVE WRITES pass|stay");
	relay.pairs = number(argv[1]);
	relay.active = number(argv[2]);
	relay.writes = number(argv[3]);
	relay.stay = strcmp(argv[4], "stay") == 0;
	if (relay.active < 1 || relay.active > relay.pairs)
		fail("ACTIVE must be from 1 to PAIRS");
	relay.readers = calloc((size_t)relay.pairs, sizeof *relay.readers);
	relay.writers = calloc((size_t)relay.pairs, sizeof *relay.writers);
	if (!relay.readers || !relay.writers)
		die("calloc");
	for (long i = 0; i < relay.pairs; i++) {
		int two[2];
		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, two) < 0)
			die("socketpair");
		relay.readers[i] = two[0];
		relay.writers[i] = two[1];
	}
	relay.left = relay.writes;
}

static inline long relay_total(void)
{
	return relay.active + relay.writes;
}

/* Sends the first bytes, far from each other. */
static inline void relay_start(void)
{
	for (long i = 0; i < relay.active; i++)
		if (send(relay.writers[i * (relay.pairs / relay.active)], "e", 1, MSG_NOSIGNAL) != 1)
			die("send");
}

/* What each callback does; true when this was the last byte. */
static inline int relay_step(long at)
{
	char byte;
	ssize_t n = recv(relay.readers[at], &byte, 1, 0);
	if (n != 1) {
		if (n < 0 && errno == EAGAIN)
			return 0;
		die("recv");
	}
	relay.reads++;
	if (relay.left > 0) {
		relay.left--;
		if (send(relay.writers[at + 1 == relay.pairs ? 0 : at + 1], "e", 1, MSG_NOSIGNAL) != 1)
			die("send");
	}
	return relay.reads == relay_total();
}

static inline void relay_report(double ns)
{
	if (relay.reads != relay_total())
		fail("bytes were lost");
	printf("ns %.3f\n", ns / (double)relay.reads);
}

#endif
