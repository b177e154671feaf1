/*
 * One stream of large blocks: what the peers of throughput share.
 *
 *   throughput_NAME pair|filters|proxy MIB BLOCK_KIB [more]
 *
 * "pair": a loop has both ends of a socket pair, writes blocks into one and throws away what comes out of the other.
 * "proxy": a thread writes blocks into a socket, the loop passes them on to another, and a thread reads them there.
 * Figures are of the loop's thread, for each KiB.
 */
#ifndef THROUGHPUT_H
#define THROUGHPUT_H

#include <pthread.h>

#include "bench.h"

struct stream {
	int proxy;
	size_t total, block;
	int in, out;	      /* the loop's: where bytes come out of, where they go into */
	int source, sink;     /* the threads' */
	char *bytes;
	size_t arrived;
	pthread_t threads[2];
	double start, start_cpu;
};

static struct stream stream;

static inline void make_pair(int *loops, int *others, int blocking)
{
	int two[2];
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, two) < 0)
		die("socketpair");
	if (blocking && fcntl(two[1], F_SETFL, 0) < 0)
		die("fcntl");
	*loops = two[0];
	*others = two[1];
}

static inline void *run_source(void *arg)
{
	(void)arg;
	for (size_t left = stream.total; left > 0;) {
		ssize_t n = write(stream.source, stream.bytes, left < stream.block ? left : stream.block);
		if (n < 0)
			die("write");
		left -= (size_t)n;
	}
	shutdown(stream.source, SHUT_WR);
	return NULL;
}

static inline void *run_sink(void *arg)
{
	(void)arg;
	char *room = malloc(1 << 18);
	ssize_t n;
	while ((n = read(stream.sink, room, 1 << 18)) > 0)
		stream.arrived += (size_t)n;
	if (n < 0)
		die("read");
	free(room);
	return NULL;
}

static inline double thread_ns(void)
{
	return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

static inline void stream_init(int argc, char **argv)
{
	if (argc < 4)
		fail("usage: pair|proxy MIB BLOCK_KIB");
	stream.proxy = strcmp(argv[1], "proxy") == 0;
	stream.total = (size_t)number(argv[2]) << 20;
	stream.block = (size_t)number(argv[3]) << 10;
	stream.bytes = malloc(stream.block);
	if (!stream.bytes)
		die("malloc");
	memset(stream.bytes, 'x', stream.block);
	if (stream.proxy) {
		make_pair(&stream.in, &stream.source, 1);
		make_pair(&stream.out, &stream.sink, 1);
	} else {
		make_pair(&stream.out, &stream.in, 0);
	}
}

static inline void stream_start(void)
{
	stream.start = now_ns();
	stream.start_cpu = thread_ns();
	if (stream.proxy && (pthread_create(&stream.threads[0], NULL, run_source, NULL) ||
			     pthread_create(&stream.threads[1], NULL, run_sink, NULL)))
		fail("pthread_create");
}

/* Called by the loop's thread when all has left, or in "pair" arrived. */
static inline int stream_report(void)
{
	double cpu = thread_ns() - stream.start_cpu;
	if (stream.proxy) {
		shutdown(stream.out, SHUT_WR);
		pthread_join(stream.threads[0], NULL);
		pthread_join(stream.threads[1], NULL);
	}
	double ns = now_ns() - stream.start, kib = (double)stream.total / 1024;
	if (stream.arrived != stream.total)
		fail("bytes were lost");
	printf("ns %.3f\ncpu %.3f\n", ns / kib, cpu / kib);
	return 0;
}

#endif
