/*
 * Counts SIGINT and deletes its event at the third.
 * The counterpart in C of examples/examples/signal_test.rs.
 *
 * To build it, with the headers of libevent 2.1 or newer (libevent-dev):
 *
 *   gcc -O2 -o signal_test tests/c/signal_test.c -levent
 */
#include <signal.h>
#include <stdio.h>

#include <event2/event.h>

static int count;

static void signalled(evutil_socket_t signo, short what, void *arg)
{
	struct event *self = arg;
	printf("signal %d, number %d\n", (int)signo, ++count);
	if (count == 3)
		event_del(self);
}

int main(void)
{
	struct event_base *base = event_base_new();
	struct event *signal = evsignal_new(base, SIGINT, signalled, event_self_cbarg());

	setvbuf(stdout, NULL, _IOLBF, 0);
	event_add(signal, NULL);
	printf("waiting for three SIGINT\n");
	event_base_dispatch(base);
	event_free(signal);
	event_base_free(base);
	printf("done\n");
	return 0;
}
