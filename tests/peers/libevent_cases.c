/*
 * A server on libevent's evhttp that says which requests reach it: the peer of tests/tests/http_peers.rs.
 *
 * Listens on a port of 127.0.0.1 that the system chooses and prints it. Every request is answered with
 * "METHOD target=body"; the path /204 is answered 204, and so on.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/util.h>
#include <netinet/in.h>
#include <sys/socket.h>

static const char *method(struct evhttp_request *req)
{
	switch (evhttp_request_get_command(req)) {
	case EVHTTP_REQ_GET: return "GET";
	case EVHTTP_REQ_POST: return "POST";
	case EVHTTP_REQ_HEAD: return "HEAD";
	case EVHTTP_REQ_PUT: return "PUT";
	case EVHTTP_REQ_DELETE: return "DELETE";
	case EVHTTP_REQ_OPTIONS: return "OPTIONS";
	case EVHTTP_REQ_PATCH: return "PATCH";
	default: return "?";
	}
}

static void answer(struct evhttp_request *req, void *arg)
{
	const char *target = evhttp_request_get_uri(req);
	struct evbuffer *body = evbuffer_new();
	int status = strlen(target) == 4 ? atoi(target + 1) : 0;
	(void)arg;
	if (!body)
		exit(1);
	evbuffer_add_printf(body, "%s %s=", method(req), target);
	evbuffer_add_buffer(body, evhttp_request_get_input_buffer(req));
	evhttp_send_reply(req, status >= 200 && status < 600 ? status : 200, NULL, body);
	evbuffer_free(body);
}

int main(void)
{
	struct event_base *base = event_base_new();
	struct evhttp *http = base ? evhttp_new(base) : NULL;
	struct evhttp_bound_socket *bound =
		http ? evhttp_bind_socket_with_handle(http, "127.0.0.1", 0) : NULL;
	struct sockaddr_in addr;
	socklen_t len = sizeof addr;
	signal(SIGPIPE, SIG_IGN);
	if (!bound || getsockname(evhttp_bound_socket_get_fd(bound), (struct sockaddr *)&addr, &len))
		return 1;
	/* The same methods and bounds as the other servers have. */
	evhttp_set_allowed_methods(http, EVHTTP_REQ_GET | EVHTTP_REQ_POST | EVHTTP_REQ_HEAD | EVHTTP_REQ_PUT |
		EVHTTP_REQ_DELETE | EVHTTP_REQ_OPTIONS | EVHTTP_REQ_PATCH);
	evhttp_set_max_headers_size(http, 32 << 10);
	evhttp_set_max_body_size(http, 8 << 20);
	evhttp_set_gencb(http, answer, NULL);
	printf("%d\n", ntohs(addr.sin_port));
	fflush(stdout);
	event_base_dispatch(base);
	return 0;
}
