/*
 * A netcat on libevent's bufferevents with the options of examples/examples/becat.rs: its peer in tests/tests/becat.rs.
 *
 * To build it, with the headers of libevent 2.1 or newer (libevent-dev):
 *
 *   gcc -O2 -o becat tests/c/becat.c -levent
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <event2/util.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#define ROOM (1 << 20)

static struct event_base *base;
static struct bufferevent *in, *out, *peer;
static struct evconnlistener *listener;
static int listens, keeps, verbose, in_ended, failed, keep_alive;
static struct timeval rd, wr;
static size_t max_read;

static void say(const char *what, const char *with)
{
	if (verbose)
		fprintf(stderr, "becat: %s%s\n", what, with);
}

static void fail(const char *why)
{
	fprintf(stderr, "becat: %s\n", why);
	failed = 1;
}

static size_t unsent(struct bufferevent *bev)
{
	return evbuffer_get_length(bufferevent_get_output(bev));
}

static const char *name_of(const struct sockaddr *sa, socklen_t len)
{
	static char text[96];
	char host[64], port[8];
	if (getnameinfo(sa, len, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV))
		return "?";
	snprintf(text, sizeof text, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
	return text;
}

/* Free once everything is sent. */
static void drained_cb(struct bufferevent *bev, void *arg)
{
	(void)arg;
	if (!unsent(bev)) {
		bufferevent_free(bev);
		if (bev == out)
			event_base_loopbreak(base);
	}
}

static void gone_cb(struct bufferevent *bev, short what, void *arg)
{
	(void)what, (void)arg;
	bufferevent_free(bev);
	if (bev == out)
		event_base_loopbreak(base);
}

static void close_after_flush(struct bufferevent *bev)
{
	bufferevent_disable(bev, EV_READ);
	bufferevent_setcb(bev, NULL, drained_cb, gone_cb, NULL);
	drained_cb(bev, NULL);
}

static void finish(void)
{
	if (listener)
		evconnlistener_free(listener);
	if (in)
		bufferevent_free(in);
	listener = NULL, in = NULL;
	close_after_flush(out);
}

static void shut(void)
{
	if (peer && in_ended && !unsent(peer))
		shutdown(bufferevent_getfd(peer), SHUT_WR);
}

static void end(int well)
{
	struct bufferevent *bev = peer;
	peer = NULL;
	if (in)
		bufferevent_disable(in, EV_READ);
	if (well)
		close_after_flush(bev);
	else
		bufferevent_free(bev);
	if (listener)
		evconnlistener_enable(listener);
	else
		finish();
}

static void begin(void)
{
	bufferevent_enable(peer, EV_READ | EV_WRITE);
	if (in_ended)
		shut();
	else
		bufferevent_enable(in, EV_READ);
}

static void peer_read(struct bufferevent *bev, void *arg)
{
	(void)arg;
	bufferevent_write_buffer(out, bufferevent_get_input(bev));
	if (unsent(out) > ROOM)
		bufferevent_disable(bev, EV_READ);
}

static void peer_write(struct bufferevent *bev, void *arg)
{
	(void)arg;
	if (in && unsent(bev) <= ROOM / 2)
		bufferevent_enable(in, EV_READ);
	shut();
}

static void peer_event(struct bufferevent *bev, short what, void *arg)
{
	(void)arg;
	if (what & BEV_EVENT_CONNECTED) {
		struct sockaddr_storage sa;
		socklen_t len = sizeof sa;
		getpeername(bufferevent_getfd(bev), (struct sockaddr *)&sa, &len);
		say("connected to ", name_of((struct sockaddr *)&sa, len));
		begin();
		return;
	}
	if (what & BEV_EVENT_ERROR)
		fail(evutil_socket_error_to_string(EVUTIL_SOCKET_ERROR()));
	else if (what & BEV_EVENT_TIMEOUT)
		fail("timed out");
	else
		say("the peer has ended", "");
	end(what & BEV_EVENT_EOF);
}

static void adopt(evutil_socket_t fd)
{
	peer = bufferevent_socket_new(base, fd, BEV_OPT_CLOSE_ON_FREE);
	bufferevent_set_timeouts(peer, rd.tv_sec ? &rd : NULL, wr.tv_sec ? &wr : NULL);
	if (max_read)
		bufferevent_set_max_single_read(peer, max_read);
	bufferevent_setwatermark(peer, EV_WRITE, ROOM / 2, 0);
	bufferevent_setcb(peer, peer_read, peer_write, peer_event, NULL);
}

static void in_read(struct bufferevent *bev, void *arg)
{
	(void)arg;
	if (!peer)
		return;
	bufferevent_write_buffer(peer, bufferevent_get_input(bev));
	if (unsent(peer) > ROOM)
		bufferevent_disable(bev, EV_READ);
}

static void in_event(struct bufferevent *bev, short what, void *arg)
{
	(void)what, (void)arg;
	in_ended = 1;
	in = NULL;
	bufferevent_free(bev);
	if (peer)
		bufferevent_setwatermark(peer, EV_WRITE, 0, 0);
	shut();
}

static void out_write(struct bufferevent *bev, void *arg)
{
	(void)bev, (void)arg;
	if (peer)
		bufferevent_enable(peer, EV_READ);
}

static void accepted(struct evconnlistener *lev, evutil_socket_t fd, struct sockaddr *sa, int len, void *arg)
{
	(void)arg;
	say("connection from ", name_of(sa, len));
	if (keeps) {
		evconnlistener_disable(lev);
	} else {
		evconnlistener_free(lev);
		listener = NULL;
	}
	adopt(fd);
	begin();
}

static struct evutil_addrinfo *resolve(const char *host, const char *port)
{
	struct evutil_addrinfo hints, *found = NULL;
	int error;
	memset(&hints, 0, sizeof hints);
	hints.ai_socktype = SOCK_STREAM;
	error = evutil_getaddrinfo(host, port, &hints, &found);
	if (error || !found) {
		fail(evutil_gai_strerror(error));
		exit(1);
	}
	return found;
}

int main(int argc, char **argv)
{
	const char *source = NULL, *local_port = NULL, *host, *port = "10024";
	struct event_config *config = event_config_new();
	struct evutil_addrinfo *to;
	int letter, count;
	while ((letter = getopt(argc, argv, "lkvs:p:K:t:T:b:")) != -1) {
		switch (letter) {
		case 'l': listens = 1; break;
		case 'k': keeps = 1; break;
		case 'v': verbose = 1; break;
		case 's': source = optarg; break;
		case 'p': local_port = optarg; break;
		case 'K': keep_alive = atoi(optarg); break;
		case 't': rd.tv_sec = atoi(optarg); break;
		case 'T': wr.tv_sec = atoi(optarg); break;
		case 'b': max_read = atoi(optarg); break;
		default: return 1;
		}
	}
	count = argc - optind;
	host = listens ? (source ? source : "0.0.0.0") : "127.0.0.1";
	if (listens && local_port)
		port = local_port;
	if (count == 2 || (count == 1 && !listens))
		host = argv[optind];
	if (count == 2 || (count == 1 && listens))
		port = argv[argc - 1];
	signal(SIGPIPE, SIG_IGN);
	setvbuf(stderr, NULL, _IOLBF, 0);
	/* Standard input may be a file. */
	event_config_require_features(config, EV_FEATURE_FDS);
	base = event_base_new_with_config(config);
	evutil_make_socket_nonblocking(0);
	evutil_make_socket_nonblocking(1);
	in = bufferevent_socket_new(base, 0, 0);
	out = bufferevent_socket_new(base, 1, 0);
	if (max_read)
		bufferevent_set_max_single_read(in, max_read);
	bufferevent_setcb(in, in_read, NULL, in_event, NULL);
	bufferevent_setwatermark(out, EV_WRITE, ROOM / 2, 0);
	bufferevent_setcb(out, NULL, out_write, gone_cb, NULL);
	to = resolve(host, port);
	if (listens) {
		struct sockaddr_storage sa;
		socklen_t len = sizeof sa;
		listener = evconnlistener_new_bind(base, accepted, NULL,
			LEV_OPT_CLOSE_ON_FREE | LEV_OPT_REUSEABLE, -1, to->ai_addr, to->ai_addrlen);
		if (!listener) {
			fail(strerror(errno));
			return 1;
		}
		getsockname(evconnlistener_get_fd(listener), (struct sockaddr *)&sa, &len);
		say("listening on ", name_of((struct sockaddr *)&sa, len));
	} else {
		evutil_socket_t fd = socket(to->ai_family, SOCK_STREAM, 0);
		evutil_make_socket_nonblocking(fd);
		if (keep_alive) {
			int on = 1;
			setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
		}
		if (source || local_port) {
			struct evutil_addrinfo *from =
				resolve(source ? source : "0.0.0.0", local_port ? local_port : "0");
			if (bind(fd, from->ai_addr, from->ai_addrlen)) {
				fail(strerror(errno));
				return 1;
			}
		}
		adopt(fd);
		if (bufferevent_socket_connect(peer, to->ai_addr, to->ai_addrlen)) {
			fail(strerror(errno));
			return 1;
		}
	}
	event_base_dispatch(base);
	return failed;
}
