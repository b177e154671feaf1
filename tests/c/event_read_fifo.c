/*
 * Prints what is written to a named pipe; Ctrl-C ends it and removes the pipe.
 * The counterpart in C of examples/examples/event_read_fifo.rs.
 *
 * To build it, with the headers of libevent 2.1 or newer (libevent-dev):
 *
 *   gcc -O2 -o event_read_fifo tests/c/event_read_fifo.c -levent
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <event2/event.h>

#define FIFO "event.fifo"

static void readable(evutil_socket_t fd, short what, void *arg)
{
	struct event *self = arg;
	char block[255];
	ssize_t n = read(fd, block, sizeof block);
	if (n <= 0) {
		if (n < 0)
			perror("cannot read from " FIFO);
		event_del(self);
		return;
	}
	printf("read %zd bytes: %.*s", n, (int)n, block);
	fflush(stdout);
}

static void interrupted(evutil_socket_t signo, short what, void *arg)
{
	event_base_loopbreak(arg);
}

static int make_fifo(void)
{
	struct stat there;
	if (lstat(FIFO, &there) == 0) {
		if (!S_ISFIFO(there.st_mode)) {
			errno = EEXIST;
			return -1;
		}
		unlink(FIFO);
	}
	return mkfifo(FIFO, 0600);
}

int main(void)
{
	struct event_base *base;
	struct event *event, *interrupt;
	int fd;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (make_fifo() != 0 || (fd = open(FIFO, O_RDWR | O_NONBLOCK)) < 0) {
		fprintf(stderr, "cannot make the pipe " FIFO " here: %s\n", strerror(errno));
		return 1;
	}
	base = event_base_new();
	event = event_new(base, fd, EV_READ | EV_PERSIST, readable, event_self_cbarg());
	event_add(event, NULL);
	interrupt = evsignal_new(base, SIGINT, interrupted, base);
	event_add(interrupt, NULL);

	printf("waiting for what is written to " FIFO "\n");
	event_base_dispatch(base);
	event_free(interrupt);
	event_free(event);
	event_base_free(base);
	close(fd);
	unlink(FIFO);
	printf("done\n");
	return 0;
}
