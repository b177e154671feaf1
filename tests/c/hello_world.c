/*
 * A TCP server that greets every client and hangs up; Ctrl-C ends it two seconds later.
 * The counterpart in C of examples/examples/hello_world.rs.
 *
 * To build it, with the headers of libevent 2.1 or newer (libevent-dev):
 *
 *   gcc -O2 -o hello_world tests/c/hello_world.c -levent
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <event2/util.h>

static void drained(struct bufferevent *bev, void *arg)
{
	if (evbuffer_get_length(bufferevent_get_output(bev)) == 0) {
		printf("the greeting has left\n");
		bufferevent_free(bev);
	}
}

static void ended(struct bufferevent *bev, short what, void *arg)
{
	if (what & BEV_EVENT_ERROR)
		printf("the client is lost: %s\n", evutil_socket_error_to_string(EVUTIL_SOCKET_ERROR()));
	else
		printf("the client has gone\n");
	bufferevent_free(bev);
}

static void accepted(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *sa, int len, void *arg)
{
	static const char greeting[] = "Hello, World!\n";
	struct bufferevent *bev = bufferevent_socket_new(arg, fd, BEV_OPT_CLOSE_ON_FREE);
	bufferevent_setcb(bev, NULL, drained, ended, NULL);
	bufferevent_write(bev, greeting, strlen(greeting));
}

static void interrupted(evutil_socket_t signo, short what, void *arg)
{
	struct timeval two = {2, 0};
	printf("interrupted: the end is in two seconds\n");
	event_base_loopexit(arg, &two);
}

int main(int argc, char **argv)
{
	struct event_base *base = event_base_new();
	struct sockaddr_in sin = {0};
	socklen_t len = sizeof sin;
	struct evconnlistener *listener;
	struct event *interrupt;
	char name[INET_ADDRSTRLEN];

	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGPIPE, SIG_IGN);
	sin.sin_family = AF_INET;
	sin.sin_port = htons(argc > 1 ? (unsigned short)atoi(argv[1]) : 9995);
	listener = evconnlistener_new_bind(base, accepted, base, LEV_OPT_REUSEABLE | LEV_OPT_CLOSE_ON_FREE, -1,
	    (struct sockaddr *)&sin, sizeof sin);
	if (!listener) {
		perror("cannot listen");
		return 1;
	}
	interrupt = evsignal_new(base, SIGINT, interrupted, base);
	event_add(interrupt, NULL);

	getsockname(evconnlistener_get_fd(listener), (struct sockaddr *)&sin, &len);
	evutil_inet_ntop(AF_INET, &sin.sin_addr, name, sizeof name);
	printf("listening on %s:%d with %s\n", name, ntohs(sin.sin_port), event_base_get_method(base));
	event_base_dispatch(base);
	printf("done\n");
	evconnlistener_free(listener);
	event_free(interrupt);
	event_base_free(base);
	return 0;
}
