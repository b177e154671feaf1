/* What the C of the guides takes for granted: tests/tests/manual.rs compiles each piece behind this. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <netinet/in.h>
#include <sys/socket.h>

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/keyvalq_struct.h>
#include <event2/listener.h>
#include <event2/thread.h>
#include <event2/util.h>

#if LIBEVENT_VERSION_NUMBER < 0x02020000
/* It came with 2.2. */
void evhttp_set_errorcb(struct evhttp *http,
    int (*cb)(struct evhttp_request *, struct evbuffer *, int, const char *, void *), void *arg);
#endif

static struct timeval one_ms = {0, 1000}, two_ms = {0, 2000}, five_ms = {0, 5000};

struct reader {
	struct event *event;
	long total;
};

struct clock {
	struct event *timer;
	int ticks;
};

struct server {
	struct event_base *base;
	struct event *finished;
	pthread_mutex_t lock;
	int answer;
};

static void often(evutil_socket_t fd, short what, void *arg)
{
}

static void echo(struct bufferevent *bev, void *arg)
{
}

static void ended(struct bufferevent *bev, short what, void *arg)
{
}

/* Variables that the statements use. */
#define NAMES \
	struct reader *reader = NULL; \
	struct clock *clock = NULL; \
	struct event *t, *sigint, *event = NULL; \
	struct bufferevent *bev; \
	struct evconnlistener *listener; \
	struct evhttp_bound_socket *bound; \
	struct sockaddr_in sin = {0}; \
	struct sockaddr *sa = NULL; \
	pthread_t thread; \
	void *arg = NULL; \
	int fd = -1, len = 0;
