/*
 * The yard-stick of posts: an eventfd in an epoll set.
 *
 *   posts_bare MESSAGES
 */
#define _GNU_SOURCE
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "posts.h"

static int wake_fd;

static void posts_wake(void)
{
	if (eventfd_write(wake_fd, 1) < 0)
		die("eventfd_write");
}

int main(int argc, char **argv)
{
	int ep = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event ev = { .events = EPOLLIN };
	wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (ep < 0 || wake_fd < 0 || epoll_ctl(ep, EPOLL_CTL_ADD, wake_fd, &ev) < 0)
		die("epoll");
	posts_start(argc, argv);
	for (int done = 0; !done;) {
		eventfd_t count;
		if (epoll_wait(ep, &ev, 1, -1) < 0 && errno != EINTR)
			die("epoll_wait");
		/* Before the messages: one that comes later wakes again. */
		eventfd_read(wake_fd, &count);
		done = posts_drain();
	}
	return posts_report();
}
