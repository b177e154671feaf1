/*
 * The yard-stick: the least work a single-threaded HTTP-looking server can do.
 *
 * One thread, one level-triggered epoll set, no parsing: every "\r\n\r\n" in what was received is answered
 * with the same prebuilt reply, and all answers to one read leave in one send. What a real server costs above
 * this is the price of parsing, headers and callbacks.
 *
 *   bare ADDR:PORT [close|post LENGTH|big|file PATH]
 *
 *   close         each connection is closed by us after its first answer
 *   post LENGTH   each head is followed by a body of this many bytes, which is read and thrown away
 *   big           the answer is 1 MiB from memory
 *   file PATH     the answer is the first 1 MiB of a file, sent by the kernel
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

#define HEAD                                              \
	"HTTP/1.1 200 Client\r\n"                         \
	"Date: Thu, 01 Jan 2026 00:00:00 GMT\r\n"         \
	"Content-Type: text/html; charset=ISO-8859-1\r\n" \
	"%sContent-Length: %zu\r\n"                       \
	"\r\n"

#define THANKS "Thanks for the request!"

enum { CARRY = 3, READ_SIZE = 64 * 1024, COPIES = 1024, EVENTS = 512, MIB = 1 << 20 };

/* What is kept of a connection between two reads. */
struct conn {
	unsigned char tail[CARRY]; /* the last bytes received since the last head ended; 0 where there are fewer */
	unsigned char writing;     /* EPOLLOUT is armed instead of EPOLLIN */
	size_t owed;               /* bytes of answers not sent yet */
	size_t skip;               /* bytes of a body not received yet */
};

static struct conn *conns; /* indexed by descriptor */
static size_t conns_len;
static int ep;
static char *copies;      /* replies, one after the other; or one head, before a file */
static size_t copies_len;
static size_t reply_len;  /* what one request is owed */
static size_t body_len;   /* what follows each head of a request */
static int closing;
static int file = -1;

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

/* Sends what comes at `at` of a reply, or more. */
static ssize_t send_from(int fd, size_t at, size_t owed)
{
	if (file >= 0 && at >= copies_len) {
		off_t offset = (off_t)(at - copies_len);
		return sendfile(fd, file, &offset, reply_len - at);
	}
	size_t len = copies_len - at;
	return send(fd, copies + at, len < owed ? len : owed, MSG_NOSIGNAL | (file >= 0 ? MSG_MORE : 0));
}

static void flush(int fd)
{
	struct conn *c = &conns[fd];
	while (c->owed) {
		/* All answers are alike, so what is owed also says where in one of them we stopped. */
		size_t at = (reply_len - c->owed % reply_len) % reply_len;
		ssize_t n = send_from(fd, at, c->owed);
		if (n == 0)
			die("the file has become shorter");
		if (n < 0) {
			if (errno != EAGAIN && errno != EINTR) {
				drop(fd);
			} else if (!c->writing) {
				c->writing = 1;
				want(fd, EPOLLOUT);
			}
			return;
		}
		c->owed -= (size_t)n;
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
	if (c->skip) {
		size_t got = (size_t)n < c->skip ? (size_t)n : c->skip;
		c->skip -= got;
		p += got;
		rest = p;
		heads = c->skip == 0;
	}
	/* The last byte of an end of head is always among the new ones; the three before it may be carried. */
	while ((p = memchr(p, '\n', (size_t)(end - p))) != NULL) {
		if (p[-1] == '\r' && p[-2] == '\n' && p[-3] == '\r' && p - 3 >= rest) {
			size_t left = (size_t)(end - (p + 1)), got = left < body_len ? left : body_len;
			c->skip = body_len - got;
			heads += c->skip == 0;
			p += got;
			rest = p + 1;
		}
		p++;
	}
	for (int i = 0; i < CARRY; i++) {
		const char *from = end - CARRY + i;
		c->tail[i] = from >= rest ? (unsigned char)*from : 0;
	}
	if (heads) {
		c->owed += (closing ? 1 : heads) * reply_len;
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
		fprintf(stderr, "usage: %s ADDR:PORT [close|post LENGTH|big|file PATH]\n", argv[0]);
		return 2;
	}
	const char *what = argc > 2 ? argv[2] : "";
	int big = strcmp(what, "big") == 0;
	closing = strcmp(what, "close") == 0;
	if (argc > 3 && strcmp(what, "post") == 0)
		body_len = strtoul(argv[3], NULL, 10);
	if (argc > 3 && strcmp(what, "file") == 0) {
		file = open(argv[3], O_RDONLY | O_CLOEXEC);
		if (file < 0)
			die(argv[3]);
	}
	/* sendfile has no MSG_NOSIGNAL. */
	signal(SIGPIPE, SIG_IGN);

	char head[256];
	size_t answer_len = big || file >= 0 ? MIB : sizeof THANKS - 1;
	int head_len = snprintf(head, sizeof head, HEAD, closing ? "Connection: close\r\n" : "", answer_len);
	reply_len = (size_t)head_len + answer_len;
	size_t in_memory = file >= 0 ? (size_t)head_len : reply_len;
	size_t count = big || file >= 0 ? 1 : COPIES;
	copies_len = count * in_memory;
	copies = malloc(copies_len);
	struct rlimit files;
	if (getrlimit(RLIMIT_NOFILE, &files) < 0)
		die("getrlimit");
	conns_len = files.rlim_cur > 1 << 20 ? 1 << 20 : files.rlim_cur;
	conns = calloc(conns_len, sizeof *conns);
	if (!copies || !conns)
		die("malloc");
	for (size_t i = 0; i < count; i++) {
		char *copy = memcpy(copies + i * in_memory, head, (size_t)head_len);
		if (big)
			memset(copy + head_len, 'x', MIB);
		else if (file < 0)
			memcpy(copy + head_len, THANKS, sizeof THANKS - 1);
	}

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
