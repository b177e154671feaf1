/*
 * A TCP proxy through bufferevents, that does what libevent's le-proxy does without TLS: every client gets a connection
 * of its own to the other address; a side that is slow costs 512 KiB, and the other one is read on when half of it has
 * left; when one side ends the other is closed behind what is on its way.
 *
 *   le_proxy_libevent LISTEN CONNECT
 *
 * LISTEN without a port takes one that is free.
 *
 * Prints where it listens.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <event2/util.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST (512 * 1024)

static struct sockaddr_storage target;
static int target_len = sizeof(target);

static void on_event(struct bufferevent *bev, short what, void *arg);

static void on_drained(struct bufferevent *bev, void *arg);

static void on_read(struct bufferevent *bev, void *arg)
{
	struct bufferevent *partner = arg;
	struct evbuffer *input = bufferevent_get_input(bev);
	if (!partner) {
		evbuffer_drain(input, evbuffer_get_length(input));
		return;
	}
	struct evbuffer *output = bufferevent_get_output(partner);
	evbuffer_add_buffer(output, input);
	if (evbuffer_get_length(output) >= MOST) {
		/* The partner tells when half of it has left. */
		bufferevent_setcb(partner, on_read, on_drained, on_event, bev);
		bufferevent_setwatermark(partner, EV_WRITE, MOST / 2, MOST);
		bufferevent_disable(bev, EV_READ);
	}
}

static void on_drained(struct bufferevent *bev, void *arg)
{
	struct bufferevent *partner = arg;
	bufferevent_setcb(bev, on_read, NULL, on_event, partner);
	bufferevent_setwatermark(bev, EV_WRITE, 0, 0);
	if (partner)
		bufferevent_enable(partner, EV_READ);
}

static void on_all_sent(struct bufferevent *bev, void *arg)
{
	(void)arg;
	if (evbuffer_get_length(bufferevent_get_output(bev)) == 0)
		bufferevent_free(bev);
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
	struct bufferevent *partner = arg;
	if (!(what & (BEV_EVENT_EOF | BEV_EVENT_ERROR)))
		return;
	if (what & BEV_EVENT_ERROR)
		perror("connection error");
	if (partner) {
		on_read(bev, arg);
		if (evbuffer_get_length(bufferevent_get_output(partner)) > 0) {
			bufferevent_setcb(partner, on_read, on_all_sent, on_event, NULL);
			bufferevent_setwatermark(partner, EV_WRITE, 0, 0);
			bufferevent_disable(partner, EV_READ);
		} else {
			bufferevent_free(partner);
		}
	}
	bufferevent_free(bev);
}

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *address, int len, void *arg)
{
	(void)address;
	(void)len;
	(void)arg;
	struct event_base *base = evconnlistener_get_base(listener);
	int options = BEV_OPT_CLOSE_ON_FREE | BEV_OPT_DEFER_CALLBACKS;
	struct bufferevent *in = bufferevent_socket_new(base, fd, options);
	struct bufferevent *out = bufferevent_socket_new(base, -1, options);
	if (!in || !out)
		exit(1);
	if (bufferevent_socket_connect(out, (struct sockaddr *)&target, target_len) < 0) {
		perror("connect");
		bufferevent_free(out);
		bufferevent_free(in);
		return;
	}
	bufferevent_setcb(in, on_read, NULL, on_event, out);
	bufferevent_setcb(out, on_read, NULL, on_event, in);
	bufferevent_enable(in, EV_READ | EV_WRITE);
	bufferevent_enable(out, EV_READ | EV_WRITE);
}

int main(int argc, char **argv)
{
	struct sockaddr_storage from;
	int from_len = sizeof(from);
	/* No port at all is none in particular: libevent does not take port 0. */
	size_t len = argc > 1 ? strlen(argv[1]) : 0;
	if (len > 2 && !strcmp(argv[1] + len - 2, ":0"))
		argv[1][len - 2] = 0;
	if (argc != 3 || evutil_parse_sockaddr_port(argv[1], (struct sockaddr *)&from, &from_len) < 0 ||
	    evutil_parse_sockaddr_port(argv[2], (struct sockaddr *)&target, &target_len) < 0) {
		fprintf(stderr, "usage: le_proxy_libevent LISTEN CONNECT\n");
		return 1;
	}
	signal(SIGPIPE, SIG_IGN);
	struct event_base *base = event_base_new();
	struct evconnlistener *listener =
		evconnlistener_new_bind(base, on_accept, NULL, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_REUSEABLE, -1,
					(struct sockaddr *)&from, from_len);
	if (!listener) {
		perror("listen");
		return 1;
	}
	struct sockaddr_in own;
	socklen_t own_len = sizeof(own);
	getsockname(evconnlistener_get_fd(listener), (struct sockaddr *)&own, &own_len);
	printf("listening on 127.0.0.1:%d with %s\n", ntohs(own.sin_port), event_base_get_method(base));
	fflush(stdout);
	event_base_dispatch(base);
	return 0;
}
