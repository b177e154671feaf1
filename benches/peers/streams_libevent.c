/*
 * Idle bufferevents: what one more costs in resident memory, from LOW to HIGH of them. Each has sent back a byte before
 * it is counted.
 *
 *   streams_libevent LOW HIGH
 */
#define _GNU_SOURCE
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>

#include "bench.h"

static struct event_base *base;
static long echoed;

static void on_read(struct bufferevent *bev, void *arg)
{
	(void)arg;
	echoed++;
	bufferevent_write_buffer(bev, bufferevent_get_input(bev));
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
	(void)what;
	(void)arg;
	bufferevent_free(bev);
}

static long resident(void)
{
	/* Counted by the kernel page by page; statm is behind by some. */
	long kib = -1;
	char line[256];
	FILE *file = fopen("/proc/self/smaps_rollup", "r");
	if (!file)
		die("/proc/self/smaps_rollup");
	while (fgets(line, sizeof line, file) && sscanf(line, "Rss: %ld kB", &kib) != 1)
		;
	fclose(file);
	if (kib < 0)
		fail("no Rss in smaps_rollup");
	return kib * 1024;
}

static void open_up_to(const int *ours, const int *theirs, long from, long to)
{
	for (long i = from; i < to; i++) {
		struct bufferevent *bev = bufferevent_socket_new(base, ours[i], BEV_OPT_CLOSE_ON_FREE);
		if (!bev)
			fail("bufferevent_socket_new");
		bufferevent_setcb(bev, on_read, NULL, on_event, NULL);
		bufferevent_enable(bev, EV_READ);
		if (send(theirs[i], "e", 1, MSG_NOSIGNAL) != 1)
			die("send");
		while (echoed <= i)
			event_base_loop(base, EVLOOP_NONBLOCK);
	}
	/* What was written leaves when the socket is reported as writable. */
	for (long i = 0; i < 3; i++)
		event_base_loop(base, EVLOOP_NONBLOCK);
}

int main(int argc, char **argv)
{
	if (argc != 3)
		fail("usage: LOW HIGH");
	long low = number(argv[1]), high = number(argv[2]);
	int *ours = calloc((size_t)high, sizeof *ours), *theirs = calloc((size_t)high, sizeof *theirs);
	if (!ours || !theirs || low >= high)
		fail("LOW must be below HIGH");
	for (long i = 0; i < high; i++) {
		int two[2];
		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, two) < 0)
			die("socketpair");
		ours[i] = two[0];
		/* Out of the way: the fds of one side are as dense as those of a server are. */
		theirs[i] = fcntl(two[1], F_DUPFD_CLOEXEC, (int)high + 64);
		if (theirs[i] < 0)
			die("fcntl");
		close(two[1]);
	}
	base = event_base_new();
	if (!base)
		fail("event_base_new");
	open_up_to(ours, theirs, 0, low);
	long before = resident();
	open_up_to(ours, theirs, low, high);
	printf("bytes %.3f\n", (double)(resident() - before) / (double)(high - low));
	return 0;
}
