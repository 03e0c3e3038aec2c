/* Addresses, routes and the like in the network of a sandbox that waits; see `network/netlink.py`. */

#ifndef QUARTERDECK_NETWORK_H
#define QUARTERDECK_NETWORK_H

/* Carry out the order on standard input in the network namespace of a descriptor, which belongs to the user namespace of
   the other one; -1 where that is our own.  What fails is told on stderr. */
_Noreturn void network(long network_fd, long user_fd);

#endif
