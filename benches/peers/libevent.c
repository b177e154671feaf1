/*
 * The same service written for libevent: one base, one evhttp, one general callback.
 *
 *   libevent ADDR:PORT [big|file PATH]     1 MiB from memory, or the file, in place of the thanks
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/listener.h>

#define MIB (1 << 20)

static const char body[] = "Thanks for the request!";
static char big[MIB];
static struct evbuffer_file_segment *file;

enum service { THANKS, BIG, FILE_OF_1_MIB };

static void answer(struct evhttp_request *req, void *arg)
{
	const enum service *service = arg;
	struct evbuffer *answer = evbuffer_new();
	int failed = !answer;
	if (!failed) {
		switch (*service) {
		case THANKS:
			failed = evbuffer_add(answer, body, sizeof body - 1) < 0;
			break;
		case BIG:
			failed = evbuffer_add_reference(answer, big, MIB, NULL, NULL) < 0;
			break;
		case FILE_OF_1_MIB:
			failed = evbuffer_add_file_segment(answer, file, 0, MIB) < 0;
			break;
		}
	}
	if (failed)
		evhttp_send_error(req, HTTP_INTERNAL, NULL);
	else
		evhttp_send_reply(req, HTTP_OK, "Client", answer);
	if (answer)
		evbuffer_free(answer);
}

int main(int argc, char **argv)
{
	char host[64];
	unsigned port;
	enum service service = THANKS;
	/* libevent writes without MSG_NOSIGNAL: a client that leaves would end the program. */
	signal(SIGPIPE, SIG_IGN);
	if (argc < 2 || sscanf(argv[1], "%63[0-9.]:%u", host, &port) != 2 || port > 65535) {
		fprintf(stderr, "usage: %s ADDR:PORT [big|file PATH]\n", argv[0]);
		return 2;
	}
	if (argc == 3 && strcmp(argv[2], "big") == 0) {
		service = BIG;
		memset(big, 'x', sizeof big);
	}
	if (argc == 4 && strcmp(argv[2], "file") == 0) {
		service = FILE_OF_1_MIB;
		int fd = open(argv[3], O_RDONLY | O_CLOEXEC);
		file = fd < 0 ? NULL : evbuffer_file_segment_new(fd, 0, MIB, EVBUF_FS_CLOSE_ON_FREE);
		if (!file) {
			perror(argv[3]);
			return 1;
		}
	}
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_port = htons((unsigned short)port) };
	if (inet_pton(AF_INET, host, &addr.sin_addr) != 1)
		return 2;
	struct event_base *base = event_base_new();
	struct evhttp *http = base ? evhttp_new(base) : NULL;
	/* Not evhttp_bind_socket: its backlog of 128 drops some of 400 connections that come at once. */
	struct evconnlistener *listener = base
		? evconnlistener_new_bind(base, NULL, NULL,
			LEV_OPT_REUSEABLE | LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, 4096,
			(struct sockaddr *)&addr, sizeof addr)
		: NULL;
	if (!http || !listener || !evhttp_bind_listener(http, listener)) {
		perror(argv[1]);
		return 1;
	}
	evhttp_set_gencb(http, answer, &service);
	fprintf(stderr, "Server started on port %u\n", port);
	event_base_dispatch(base);
	evhttp_free(http);
	event_base_free(base);
	return 0;
}
