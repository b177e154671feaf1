/*
 * Serves the files of a directory; lists directories, prints what is not GET and /dump, refuses "..".
 * The counterpart in C of examples/examples/http_server.rs.
 *
 * To build it, with the headers of libevent 2.1 or newer (libevent-dev):
 *
 *   gcc -O2 -o http_server tests/c/http_server.c -levent
 */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <netinet/in.h>

#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/keyvalq_struct.h>
#include <event2/listener.h>

static const char *const types[][2] = {{"html", "text/html"}, {"txt", "text/plain"}, {"png", "image/png"}};
static int verbose;

static void dump(struct evhttp_request *req, void *arg)
{
	struct evbuffer *in = evhttp_request_get_input_buffer(req);
	struct evkeyval *field;
	const char *method = "?";
	size_t n = evbuffer_get_length(in);
	switch (evhttp_request_get_command(req)) {
	case EVHTTP_REQ_GET: method = "GET"; break;
	case EVHTTP_REQ_POST: method = "POST"; break;
	case EVHTTP_REQ_PUT: method = "PUT"; break;
	case EVHTTP_REQ_HEAD: method = "HEAD"; break;
	default: break;
	}
	printf("%s %s\n", method, evhttp_request_get_uri(req));
	for (field = evhttp_request_get_input_headers(req)->tqh_first; field; field = field->next.tqe_next)
		printf("%s: %s\n", field->key, field->value);
	printf("\n%.*s\n", (int)n, n ? (char *)evbuffer_pullup(in, -1) : "");
	evhttp_send_reply(req, 200, "OK", NULL);
}

static void list(struct evbuffer *page, const char *directory, const char *path)
{
	struct dirent **names;
	int i, count = scandir(directory, &names, NULL, alphasort);
	size_t n = strlen(path);
	char *title = evhttp_htmlescape(path);
	evbuffer_add_printf(page, "<html><head><title>%s</title><base href=\"%s%s\"></head><body><ul>\n", title, title,
	    n && path[n - 1] == '/' ? "" : "/");
	free(title);
	for (i = 0; i < count; i++) {
		char *link = evhttp_uriencode(names[i]->d_name, -1, 0), *text = evhttp_htmlescape(names[i]->d_name);
		if (strcmp(names[i]->d_name, ".") && strcmp(names[i]->d_name, ".."))
			evbuffer_add_printf(page, "<li><a href=\"%s\">%s</a>\n", link, text);
		free(link);
		free(text);
		free(names[i]);
	}
	if (count >= 0)
		free(names);
	evbuffer_add_printf(page, "</ul></body></html>\n");
}

static void document(struct evhttp_request *req, void *root)
{
	const struct evhttp_uri *uri = evhttp_request_get_evhttp_uri(req);
	char *path = evhttp_uridecode(evhttp_uri_get_path(uri), 0, NULL), *file;
	const char *type = "application/misc", *end;
	struct evbuffer *body = evbuffer_new();
	struct stat what;
	size_t i, size;
	int fd = -1;

	if (verbose)
		printf("asked for %s\n", evhttp_request_get_uri(req));
	if (evhttp_request_get_command(req) != EVHTTP_REQ_GET) {
		dump(req, NULL);
		goto out;
	}
	size = strlen(root) + strlen(path) + 2;
	file = malloc(size);
	snprintf(file, size, "%s/%s", (char *)root, path);
	if (strstr(path, "..") || stat(file, &what) < 0) {
		evhttp_send_error(req, 404, "Document was not found");
	} else if (S_ISDIR(what.st_mode)) {
		list(body, file, path);
		evhttp_add_header(evhttp_request_get_output_headers(req), "Content-Type", "text/html");
		evhttp_send_reply(req, 200, "OK", body);
	} else if (!S_ISREG(what.st_mode) || (fd = open(file, O_RDONLY)) < 0) {
		evhttp_send_error(req, 404, "Document was not found");
	} else {
		end = strrchr(path, '.');
		for (i = 0; end && i < sizeof types / sizeof types[0]; i++)
			if (strcmp(end + 1, types[i][0]) == 0)
				type = types[i][1];
		evhttp_add_header(evhttp_request_get_output_headers(req), "Content-Type", type);
		/* It refuses a file that is empty. */
		if (what.st_size == 0)
			close(fd);
		else
			evbuffer_add_file(body, fd, 0, what.st_size);
		evhttp_send_reply(req, 200, "OK", body);
	}
	free(file);
out:
	free(path);
	evbuffer_free(body);
}

static void interrupted(evutil_socket_t signo, short what, void *arg)
{
	event_base_loopexit(arg, NULL);
}

static struct evconnlistener *bind_unix(struct event_base *base, const char *path, int replace)
{
	struct sockaddr_un sun = {0};
	sun.sun_family = AF_UNIX;
	snprintf(sun.sun_path, sizeof sun.sun_path, "%s", path);
	if (replace)
		unlink(path);
	return evconnlistener_new_bind(base, NULL, NULL, LEV_OPT_CLOSE_ON_FREE, -1, (struct sockaddr *)&sun, sizeof sun);
}

int main(int argc, char **argv)
{
	const char *host = "0.0.0.0", *unix_path = NULL;
	int option, port = 0, replace = 0;
	struct event_base *base = event_base_new();
	struct evhttp *http = evhttp_new(base);
	struct evhttp_bound_socket *bound;
	struct event *interrupt = evsignal_new(base, SIGINT, interrupted, base);

	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGPIPE, SIG_IGN);
	while ((option = getopt(argc, argv, "p:U:uH:m:v")) != -1) {
		switch (option) {
		case 'p': port = atoi(optarg); break;
		case 'U': unix_path = optarg; break;
		case 'u': replace = 1; break;
		case 'H': host = optarg; break;
		case 'm': evhttp_set_max_body_size(http, atoi(optarg)); break;
		case 'v': verbose = 1; break;
		default: argc = 0; break;
		}
	}
	if (optind + 1 != argc) {
		fprintf(stderr, "usage: http_server [-p port] [-U socket [-u]] [-H address] [-m bytes] [-v] docroot\n");
		return 1;
	}
	evhttp_set_cb(http, "/dump", dump, NULL);
	evhttp_set_gencb(http, document, argv[optind]);
	if (unix_path) {
		struct evconnlistener *listener = bind_unix(base, unix_path, replace);
		bound = listener ? evhttp_bind_listener(http, listener) : NULL;
	} else {
		bound = evhttp_bind_socket_with_handle(http, host, (unsigned short)port);
	}
	if (!bound) {
		perror("cannot listen");
		return 1;
	}
	if (unix_path) {
		printf("listening on unix:%s\n", unix_path);
	} else {
		struct sockaddr_in sin;
		socklen_t len = sizeof sin;
		getsockname(evhttp_bound_socket_get_fd(bound), (struct sockaddr *)&sin, &len);
		printf("listening on %s:%d\n", host, ntohs(sin.sin_port));
	}
	event_add(interrupt, NULL);
	event_base_dispatch(base);
	event_free(interrupt);
	evhttp_free(http);
	event_base_free(base);
	if (unix_path)
		unlink(unix_path);
	return 0;
}
