/* The sample's counterpart is a peer of the benches, too. */
#include "../../benches/peers/le_proxy_libevent.c"
