/*
 * The yard-stick: the least work a single-threaded HTTP-looking server can do.
 *
 * One thread, one level-triggered epoll set, no parsing: every "\r\n\r\n" in what was received is answered
 * with the same prebuilt reply, and all answers to one read leave in one send. What a real server costs above
 * this is the price of parsing, headers and callbacks.
 *
 *   bare ADDR:PORT [close]     with "close", each connection is closed by us after its first answer
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define REPLY(extra)                                      \
	"HTTP/1.1 200 Client\r\n"                         \
	"Date: Thu, 01 Jan 2026 00:00:00 GMT\r\n"         \
	"Content-Length: 23\r\n"                          \
	"Content-Type: text/html; charset=ISO-8859-1\r\n" \
	extra                                             \
	"\r\n"                                            \
	"Thanks for the request!"

enum { CARRY = 3, READ_SIZE = 64 * 1024, COPIES = 1024, EVENTS = 512 };

/* What is kept of a connection between two reads. */
struct conn {
	unsigned char tail[CARRY]; /* the last bytes received since the last head ended; 0 where there are fewer */
	unsigned char writing;     /* EPOLLOUT is armed instead of EPOLLIN */
	unsigned owed;             /* bytes of answers not sent yet */
};

static struct conn *conns; /* indexed by descriptor */
static size_t conns_len;
static int ep;
static char *copies; /* COPIES replies, one after the other */
static size_t reply_len;
static int closing;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void drop(int fd)
{
	close(fd); /* also leaves the epoll set: no descriptor is ever duplicated here */
}

static void want(int fd, unsigned events)
{
	struct epoll_event ev = { .events = events, .data.fd = fd };
	if (epoll_ctl(ep, EPOLL_CTL_MOD, fd, &ev) < 0)
		die("epoll_ctl");
}

static void flush(int fd)
{
	struct conn *c = &conns[fd];
	while (c->owed) {
		/* All answers are alike, so what is owed also says where in one of them we stopped. */
		size_t at = (reply_len - c->owed % reply_len) % reply_len;
		size_t len = COPIES * reply_len - at;
		if (len > c->owed)
			len = c->owed;
		ssize_t n = send(fd, copies + at, len, MSG_NOSIGNAL);
		if (n < 0) {
			if (errno != EAGAIN && errno != EINTR) {
				drop(fd);
			} else if (!c->writing) {
				c->writing = 1;
				want(fd, EPOLLOUT);
			}
			return;
		}
		c->owed -= (unsigned)n;
	}
	if (closing) {
		drop(fd);
	} else if (c->writing) {
		c->writing = 0;
		want(fd, EPOLLIN);
	}
}

static void serve(int fd)
{
	static char buf[CARRY + READ_SIZE];
	struct conn *c = &conns[fd];
	ssize_t n = recv(fd, buf + CARRY, READ_SIZE, 0);
	if (n <= 0) {
		if (n == 0 || (errno != EAGAIN && errno != EINTR))
			drop(fd);
		return;
	}
	memcpy(buf, c->tail, CARRY);
	const char *end = buf + CARRY + n, *rest = buf, *p = buf + CARRY;
	unsigned heads = 0;
	/* The last byte of an end of head is always among the new ones; the three before it may be carried. */
	while ((p = memchr(p, '\n', (size_t)(end - p))) != NULL) {
		if (p[-1] == '\r' && p[-2] == '\n' && p[-3] == '\r' && p - 3 >= rest) {
			heads++;
			rest = p + 1;
		}
		p++;
	}
	for (int i = 0; i < CARRY; i++) {
		const char *from = end - CARRY + i;
		c->tail[i] = from >= rest ? (unsigned char)*from : 0;
	}
	if (heads) {
		c->owed += (unsigned)((closing ? 1 : heads) * reply_len);
		flush(fd);
	}
}

/* Takes all that wait: a connection that is left would cost a wait of its own. */
static void take_connections(int listener)
{
	for (;;) {
		int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd < 0) {
			if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
				die("accept4");
			return;
		}
		if ((size_t)fd >= conns_len) {
			close(fd);
			continue;
		}
		memset(&conns[fd], 0, sizeof conns[fd]);
		struct epoll_event ev = { .events = EPOLLIN, .data.fd = fd };
		if (epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) < 0)
			die("epoll_ctl");
	}
}

int main(int argc, char **argv)
{
	char host[64];
	unsigned port;
	if (argc < 2 || sscanf(argv[1], "%63[0-9.]:%u", host, &port) != 2 || port > 65535) {
		fprintf(stderr, "usage: %s ADDR:PORT [close]\n", argv[0]);
		return 2;
	}
	closing = argc > 2 && strcmp(argv[2], "close") == 0;
	const char *reply = closing ? REPLY("Connection: close\r\n") : REPLY("");
	reply_len = strlen(reply);
	copies = malloc(COPIES * reply_len);
	struct rlimit files;
	if (getrlimit(RLIMIT_NOFILE, &files) < 0)
		die("getrlimit");
	conns_len = files.rlim_cur > 1 << 20 ? 1 << 20 : files.rlim_cur;
	conns = calloc(conns_len, sizeof *conns);
	if (!copies || !conns)
		die("malloc");
	for (int i = 0; i < COPIES; i++)
		memcpy(copies + i * reply_len, reply, reply_len);

	int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_port = htons((unsigned short)port) };
	if (listener < 0 || inet_pton(AF_INET, host, &addr.sin_addr) != 1)
		die("socket");
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	setsockopt(listener, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* accepted sockets inherit it */
	if (bind(listener, (struct sockaddr *)&addr, sizeof addr) < 0 || listen(listener, 4096) < 0)
		die(argv[1]);
	struct epoll_event events[EVENTS], ev = { .events = EPOLLIN, .data.fd = listener };
	ep = epoll_create1(EPOLL_CLOEXEC);
	if (ep < 0 || epoll_ctl(ep, EPOLL_CTL_ADD, listener, &ev) < 0)
		die("epoll");
	fprintf(stderr, "Server started on port %u\n", port);

	for (;;) {
		int n = epoll_wait(ep, events, EVENTS, -1);
		if (n < 0 && errno != EINTR)
			die("epoll_wait");
		for (int i = 0; i < n; i++) {
			int fd = events[i].data.fd;
			if (fd == listener)
				take_connections(listener);
			else if (conns[fd].writing)
				flush(fd);
			else
				serve(fd);
		}
	}
}
