/* Changes of a file's mode, owner and times, made for a program that Landlock confines: only of what is its own.

   Landlock does not judge these calls, and a filter cannot follow a path.  So the filter asks here
   (SECCOMP_RET_USER_NOTIF), and the program waits.  The broker opens the file itself, looks where that very file lies,
   and changes it through the same descriptor: nothing can be swapped between.  It is a process between the reaper and
   the program, of the program's user and without capabilities, so the kernel judges each change as it would for the
   program; Landlock keeps it out of the program's reach.  A broker that ends takes the program along, and the kernel
   answers ENOSYS to whoever asks after that.

   A caller whose memory is closed to its own user (PR_SET_DUMPABLE) is refused.  One that takes a signal before the broker
   has taken its call makes the call again, or is told EINTR, as its handler has it (SA_RESTART). */

#ifndef QUARTERDECK_BROKER_H
#define QUARTERDECK_BROKER_H

#include "kernel.h"
#include "order.h"

/* Fork: this process becomes the broker and never returns; its child is to be the program.

   Return, in the child, the socket for `hand_over_listener`.  Of all other descriptors the broker keeps none. */
long start_broker(const struct order *order);

/* Send the broker the descriptor at which the filter asks, and close both. */
long hand_over_listener(long channel, long listener);

#endif
