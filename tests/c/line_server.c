/*
 * A line server on libevent: commands, one a line, with an idle timeout, a worker thread for what takes long, signals,
 * and a status page over HTTP. Written to be ported: examples/examples/line_server.rs is the same in Rust, and
 * tests/tests/real_port.rs drives both by one script.
 *
 *   line_server [-l port] [-s port] [-i milliseconds]
 *
 *   echo TEXT       TEXT
 *   set KEY VALUE   ok
 *   get KEY         value VALUE, or none
 *   factor N        factors N: P Q ..., by the worker; other answers may come first
 *   quit            bye, and the connection is closed
 *
 * To build it, with the headers of libevent 2.1 or newer (libevent-dev):
 *
 *   gcc -O2 -o line_server tests/c/line_server.c -pthread -levent -levent_pthreads
 */
#include <ctype.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/listener.h>
#include <event2/thread.h>
#include <event2/util.h>

#define MAX_LINE 1024
#define MAX_KEYS 1000
#define MAX_JOBS 16
#define MAX_NUMBER 1000000000000ULL

/* ---- what is stored ---- */

struct entry {
	struct entry *next;
	char *key, *value;
};

struct store {
	struct entry *first;
	size_t count;
};

static struct entry **find(struct store *store, const char *key)
{
	struct entry **at;
	for (at = &store->first; *at && strcmp((*at)->key, key) != 0; at = &(*at)->next)
		;
	return at;
}

static int store_set(struct store *store, const char *key, const char *value)
{
	struct entry **at = find(store, key);
	if (!*at) {
		if (store->count == MAX_KEYS)
			return -1;
		*at = calloc(1, sizeof **at);
		(*at)->key = strdup(key);
		store->count++;
	}
	free((*at)->value);
	(*at)->value = strdup(value);
	return 0;
}

static void store_free(struct store *store)
{
	while (store->first) {
		struct entry *entry = store->first;
		store->first = entry->next;
		free(entry->key);
		free(entry->value);
		free(entry);
	}
}

/* ---- the server ---- */

struct client;

struct job {
	struct job *next;
	struct client *client; /* holds a reference */
	uint64_t number;
	char answer[256];
};

struct server {
	struct event_base *base;
	struct evconnlistener *listener;
	struct evhttp *http;
	struct event *signals[3], *finished;
	struct timeval idle;
	struct client *clients;
	struct store store;
	unsigned long client_count, lines, jobs_done;

	/* What the worker shares. */
	pthread_t worker;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	struct job *todo, **todo_end, *done, **done_end;
	int stopping;
};

struct client {
	struct client *next, **link;
	struct server *server;
	struct bufferevent *bev; /* NULL once it is gone */
	int references, jobs, closing;
};

static void client_release(struct client *client)
{
	if (--client->references == 0)
		free(client);
}

/* Closes now. The memory stays while a job refers to it. */
static void client_gone(struct client *client)
{
	if (!client->bev)
		return;
	bufferevent_free(client->bev);
	client->bev = NULL;
	*client->link = client->next;
	if (client->next)
		client->next->link = client->link;
	client->server->client_count--;
	client_release(client);
}

static void client_drained(struct bufferevent *bev, void *arg)
{
	client_gone(arg);
}

static void client_event(struct bufferevent *bev, short what, void *arg);

/* Sends what is there and a last line, then closes. */
static void client_close(struct client *client, const char *last)
{
	struct evbuffer *output = bufferevent_get_output(client->bev);
	client->closing = 1;
	bufferevent_disable(client->bev, EV_READ);
	if (last)
		evbuffer_add_printf(output, "%s\n", last);
	if (evbuffer_get_length(output) == 0)
		client_gone(client);
	else
		bufferevent_setcb(client->bev, NULL, client_drained, client_event, client);
}

static void client_event(struct bufferevent *bev, short what, void *arg)
{
	struct client *client = arg;
	if (client->closing || what & BEV_EVENT_ERROR)
		client_gone(client);
	else if (what & BEV_EVENT_TIMEOUT && what & BEV_EVENT_READING)
		client_close(client, "bye: idle");
	else if (what & BEV_EVENT_EOF)
		client_close(client, NULL);
	else
		client_gone(client);
}

/* ---- the worker ---- */

static void factor(struct job *job)
{
	uint64_t rest = job->number, p;
	size_t at = (size_t)snprintf(job->answer, sizeof job->answer, "factors %llu:", (unsigned long long)rest);
	for (p = 2; p * p <= rest; p++)
		for (; rest % p == 0; rest /= p)
			at += (size_t)snprintf(job->answer + at, sizeof job->answer - at, " %llu", (unsigned long long)p);
	if (rest > 1 || job->number == 1)
		snprintf(job->answer + at, sizeof job->answer - at, " %llu", (unsigned long long)rest);
}

static void *work(void *arg)
{
	struct server *server = arg;
	pthread_mutex_lock(&server->lock);
	while (!server->stopping) {
		struct job *job = server->todo;
		if (!job) {
			pthread_cond_wait(&server->wake, &server->lock);
			continue;
		}
		if (!(server->todo = job->next))
			server->todo_end = &server->todo;
		pthread_mutex_unlock(&server->lock);
		factor(job);
		pthread_mutex_lock(&server->lock);
		job->next = NULL;
		*server->done_end = job;
		server->done_end = &job->next;
		event_active(server->finished, 0, 0);
	}
	pthread_mutex_unlock(&server->lock);
	return NULL;
}

/* In the loop: the worker has finished some jobs. */
static void jobs_finished(evutil_socket_t fd, short what, void *arg)
{
	struct server *server = arg;
	struct job *job;
	pthread_mutex_lock(&server->lock);
	job = server->done;
	server->done = NULL;
	server->done_end = &server->done;
	pthread_mutex_unlock(&server->lock);
	while (job) {
		struct job *next = job->next;
		struct client *client = job->client;
		server->jobs_done++;
		client->jobs--;
		if (client->bev && !client->closing)
			evbuffer_add_printf(bufferevent_get_output(client->bev), "%s\n", job->answer);
		client_release(client);
		free(job);
		job = next;
	}
}

static const char *queue_job(struct client *client, const char *text)
{
	struct server *server = client->server;
	struct job *job;
	uint64_t number = 0;
	const char *c;
	for (c = text; isdigit((unsigned char)*c) && number <= MAX_NUMBER; c++)
		number = number * 10 + (uint64_t)(*c - '0');
	if (c == text || *c || number == 0 || number > MAX_NUMBER)
		return "error: not a number from 1 to 1000000000000";
	if (client->jobs == MAX_JOBS)
		return "error: too many jobs";
	job = calloc(1, sizeof *job);
	job->client = client;
	job->number = number;
	client->references++;
	client->jobs++;
	pthread_mutex_lock(&server->lock);
	*server->todo_end = job;
	server->todo_end = &job->next;
	pthread_cond_signal(&server->wake);
	pthread_mutex_unlock(&server->lock);
	return NULL;
}

/* ---- the lines ---- */

static void run_line(struct client *client, char *line)
{
	struct server *server = client->server;
	struct evbuffer *output = bufferevent_get_output(client->bev);
	char *rest = strchr(line, ' ');
	const char *wrong = NULL;

	server->lines++;
	if (rest)
		*rest++ = '\0';
	if (strcmp(line, "echo") == 0) {
		evbuffer_add_printf(output, "%s\n", rest ? rest : "");
	} else if (strcmp(line, "set") == 0 && rest && strchr(rest, ' ')) {
		char *value = strchr(rest, ' ');
		*value++ = '\0';
		if (store_set(&server->store, rest, value) == 0)
			evbuffer_add_printf(output, "ok\n");
		else
			wrong = "error: full";
	} else if (strcmp(line, "get") == 0 && rest) {
		struct entry *entry = *find(&server->store, rest);
		if (entry)
			evbuffer_add_printf(output, "value %s\n", entry->value);
		else
			evbuffer_add_printf(output, "none\n");
	} else if (strcmp(line, "factor") == 0 && rest) {
		wrong = queue_job(client, rest);
	} else if (strcmp(line, "quit") == 0) {
		client_close(client, "bye");
	} else {
		wrong = "error: no such command";
	}
	if (wrong)
		evbuffer_add_printf(output, "%s\n", wrong);
}

static void client_readable(struct bufferevent *bev, void *arg)
{
	struct client *client = arg;
	struct evbuffer *input = bufferevent_get_input(bev);
	size_t length;
	char *line;
	while (!client->closing && (line = evbuffer_readln(input, &length, EVBUFFER_EOL_CRLF))) {
		if (length > MAX_LINE)
			client_close(client, "error: line too long");
		else
			run_line(client, line);
		free(line);
	}
	if (!client->closing && evbuffer_get_length(input) > MAX_LINE)
		client_close(client, "error: line too long");
}

static void accepted(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *sa, int len, void *arg)
{
	struct server *server = arg;
	struct client *client = calloc(1, sizeof *client);
	client->server = server;
	client->references = 1;
	client->bev = bufferevent_socket_new(server->base, fd, BEV_OPT_CLOSE_ON_FREE);
	client->link = &server->clients;
	if ((client->next = server->clients))
		client->next->link = &client->next;
	server->clients = client;
	server->client_count++;
	bufferevent_set_timeouts(client->bev, &server->idle, &server->idle);
	bufferevent_setcb(client->bev, client_readable, NULL, client_event, client);
	bufferevent_enable(client->bev, EV_READ);
}

/* ---- the status page and the signals ---- */

static void status(struct evhttp_request *req, void *arg)
{
	struct server *server = arg;
	struct evbuffer *body = evbuffer_new();
	evbuffer_add_printf(body, "clients %lu\nlines %lu\njobs %lu\nkeys %zu\n", server->client_count, server->lines,
	    server->jobs_done, server->store.count);
	evhttp_add_header(evhttp_request_get_output_headers(req), "Content-Type", "text/plain");
	evhttp_send_reply(req, HTTP_OK, "OK", body);
	evbuffer_free(body);
}

static void report(evutil_socket_t signo, short what, void *arg)
{
	struct server *server = arg;
	printf("%lu clients, %lu lines, %lu jobs\n", server->client_count, server->lines, server->jobs_done);
}

/* Stops accepting, tells everybody, and leaves the loop nothing to wait for but what is still to be sent. */
static void stop(evutil_socket_t signo, short what, void *arg)
{
	struct server *server = arg;
	struct client *client, *next;
	int i;
	printf("stopping\n");
	evconnlistener_free(server->listener);
	evhttp_free(server->http);
	for (i = 0; i < 3; i++)
		event_del(server->signals[i]);
	for (client = server->clients; client; client = next) {
		next = client->next;
		if (!client->closing)
			client_close(client, "bye: stopping");
	}
}

/* ---- the beginning and the end ---- */

static int port_of(evutil_socket_t fd)
{
	struct sockaddr_in sin;
	socklen_t len = sizeof sin;
	getsockname(fd, (struct sockaddr *)&sin, &len);
	return ntohs(sin.sin_port);
}

static void server_free(struct server *server)
{
	struct job *job;
	int i;
	pthread_mutex_lock(&server->lock);
	server->stopping = 1;
	pthread_cond_signal(&server->wake);
	pthread_mutex_unlock(&server->lock);
	pthread_join(server->worker, NULL);
	*server->done_end = server->todo;
	while ((job = server->done)) {
		server->done = job->next;
		client_release(job->client);
		free(job);
	}
	for (i = 0; i < 3; i++)
		event_free(server->signals[i]);
	event_free(server->finished);
	event_base_free(server->base);
	store_free(&server->store);
}

int main(int argc, char **argv)
{
	static const int numbers[3] = {SIGINT, SIGTERM, SIGUSR1};
	struct server server = {0};
	struct sockaddr_in sin = {0};
	struct evhttp_bound_socket *bound;
	int option, line_port = 7780, status_port = 7781, idle = 30000, i;

	while ((option = getopt(argc, argv, "l:s:i:")) != -1) {
		switch (option) {
		case 'l': line_port = atoi(optarg); break;
		case 's': status_port = atoi(optarg); break;
		case 'i': idle = atoi(optarg); break;
		default: fprintf(stderr, "usage: line_server [-l port] [-s port] [-i milliseconds]\n"); return 1;
		}
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGPIPE, SIG_IGN);
	evthread_use_pthreads();
	server.idle.tv_sec = idle / 1000;
	server.idle.tv_usec = idle % 1000 * 1000;
	server.todo_end = &server.todo;
	server.done_end = &server.done;
	pthread_mutex_init(&server.lock, NULL);
	pthread_cond_init(&server.wake, NULL);

	server.base = event_base_new();
	sin.sin_family = AF_INET;
	sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	sin.sin_port = htons((unsigned short)line_port);
	server.listener = evconnlistener_new_bind(server.base, accepted, &server,
	    LEV_OPT_REUSEABLE | LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, -1, (struct sockaddr *)&sin, sizeof sin);
	server.http = evhttp_new(server.base);
	bound = evhttp_bind_socket_with_handle(server.http, "127.0.0.1", (unsigned short)status_port);
	if (!server.listener || !bound) {
		perror("cannot listen");
		return 1;
	}
	evhttp_set_cb(server.http, "/status", status, &server);
	for (i = 0; i < 3; i++) {
		server.signals[i] = evsignal_new(server.base, numbers[i], i < 2 ? stop : report, &server);
		event_add(server.signals[i], NULL);
	}
	server.finished = event_new(server.base, -1, EV_PERSIST, jobs_finished, &server);
	pthread_create(&server.worker, NULL, work, &server);

	printf("lines on 127.0.0.1:%d, status on 127.0.0.1:%d\n", port_of(evconnlistener_get_fd(server.listener)),
	    port_of(evhttp_bound_socket_get_fd(bound)));
	event_base_dispatch(server.base);
	server_free(&server);
	printf("done\n");
	return 0;
}
