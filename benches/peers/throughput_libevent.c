/*
 * One stream of large blocks through bufferevents. The proxy is that of libevent's own sample: what is read moves to the
 * other's output, and reading pauses while that holds too much. With "large" the caps on one round are lifted as far as
 * they can be. "filters" is "pair" with three filters at each end that pass everything on.
 */
#define _GNU_SOURCE
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>

#include "throughput.h"

#define MOST (1 << 20)

static struct event_base *base;
static struct bufferevent *in, *out;
static size_t left;
static int ended;

static void on_read_pair(struct bufferevent *bev, void *arg)
{
	(void)arg;
	struct evbuffer *input = bufferevent_get_input(bev);
	size_t n = evbuffer_get_length(input);
	evbuffer_drain(input, n);
	stream.arrived += n;
	if (stream.arrived >= stream.total)
		event_base_loopbreak(base);
}

static void on_write_pair(struct bufferevent *bev, void *arg)
{
	(void)arg;
	size_t n = stream.block < left ? stream.block : left;
	if (n == 0)
		return;
	left -= n;
	if (bufferevent_write(bev, stream.bytes, n) < 0)
		fail("bufferevent_write");
}

static void on_read_proxy(struct bufferevent *bev, void *arg)
{
	(void)arg;
	struct evbuffer *output = bufferevent_get_output(out);
	evbuffer_add_buffer(output, bufferevent_get_input(bev));
	if (evbuffer_get_length(output) >= MOST)
		bufferevent_disable(bev, EV_READ);
}

static void on_write_proxy(struct bufferevent *bev, void *arg)
{
	(void)arg;
	if (ended && evbuffer_get_length(bufferevent_get_output(bev)) == 0)
		event_base_loopbreak(base);
	else if (!ended)
		bufferevent_enable(in, EV_READ);
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
	(void)bev;
	(void)arg;
	if (!(what & BEV_EVENT_EOF))
		fail("an error event");
	ended = 1;
	if (evbuffer_get_length(bufferevent_get_output(out)) == 0)
		event_base_loopbreak(base);
	else
		bufferevent_setwatermark(out, EV_WRITE, 0, 0);
}

int main(int argc, char **argv)
{
	stream_init(argc, argv);
	base = event_base_new();
	in = bufferevent_socket_new(base, stream.in, 0);
	out = bufferevent_socket_new(base, stream.out, 0);
	if (!base || !in || !out)
		fail("bufferevent_socket_new");
	if (strcmp(argv[1], "filters") == 0)
		for (int i = 0; i < 3; i++) {
			in = bufferevent_filter_new(in, NULL, NULL, BEV_OPT_CLOSE_ON_FREE, NULL, NULL);
			out = bufferevent_filter_new(out, NULL, NULL, BEV_OPT_CLOSE_ON_FREE, NULL, NULL);
			if (!in || !out)
				fail("bufferevent_filter_new");
		}
	if (argc == 5 && strcmp(argv[4], "large") == 0) {
		bufferevent_set_max_single_read(in, 1 << 18);
		bufferevent_set_max_single_write(out, 1 << 20);
	}
	if (stream.proxy) {
		bufferevent_setcb(in, on_read_proxy, NULL, on_event, NULL);
		bufferevent_setcb(out, NULL, on_write_proxy, on_event, NULL);
		bufferevent_setwatermark(out, EV_WRITE, MOST / 2, 0);
	} else {
		bufferevent_setcb(in, on_read_pair, NULL, on_event, NULL);
		bufferevent_setcb(out, NULL, on_write_pair, on_event, NULL);
	}
	bufferevent_enable(in, EV_READ);
	stream_start();
	if (!stream.proxy) {
		left = stream.total;
		on_write_pair(out, NULL);
	}
	event_base_dispatch(base);
	return stream_report();
}
