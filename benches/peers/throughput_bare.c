/* One stream of large blocks with plain calls: what the kernel costs, and one poll where there is nothing to do. */
#define _GNU_SOURCE
#include "throughput.h"

#include <poll.h>

#define ROOM (1 << 16)

static void wait_for(int fd, short what)
{
	struct pollfd one = { .fd = fd, .events = what };
	if (poll(&one, 1, -1) < 0)
		die("poll");
}

static void pair(char *room)
{
	size_t left = stream.total, at = 0;
	while (stream.arrived < stream.total) {
		while (left > 0) {
			size_t n = stream.block - at < left ? stream.block - at : left;
			ssize_t sent = send(stream.out, stream.bytes + at, n, MSG_NOSIGNAL);
			if (sent < 0) {
				if (errno == EAGAIN)
					break;
				die("send");
			}
			left -= (size_t)sent;
			at = (at + (size_t)sent) % stream.block;
		}
		ssize_t n;
		while ((n = recv(stream.in, room, ROOM, 0)) > 0)
			stream.arrived += (size_t)n;
		if (n < 0 && errno != EAGAIN)
			die("recv");
	}
}

static void proxy(char *room)
{
	for (;;) {
		ssize_t n = recv(stream.in, room, ROOM, 0);
		if (n == 0)
			return;
		if (n < 0) {
			if (errno != EAGAIN)
				die("recv");
			wait_for(stream.in, POLLIN);
			continue;
		}
		for (ssize_t at = 0; at < n;) {
			ssize_t sent = send(stream.out, room + at, (size_t)(n - at), MSG_NOSIGNAL);
			if (sent >= 0) {
				at += sent;
				continue;
			}
			if (errno != EAGAIN)
				die("send");
			wait_for(stream.out, POLLOUT);
		}
	}
}

int main(int argc, char **argv)
{
	char *room = malloc(ROOM);
	if (!room)
		die("malloc");
	stream_init(argc, argv);
	stream_start();
	if (stream.proxy)
		proxy(room);
	else
		pair(room);
	return stream_report();
}
