/*
 * The counterpart in C of examples/examples/le_proxy.rs. It is a peer of the benches, too, and stands there.
 *
 * To build it, with the headers of libevent 2.1 or newer (libevent-dev):
 *
 *   gcc -O2 -o le_proxy tests/c/le_proxy.c -levent
 */
#include "../../benches/peers/le_proxy_libevent.c"
