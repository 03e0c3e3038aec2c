/* Change a file's mode, owner and times for a program that Landlock confines: only files that the program may write.

   Landlock does not judge these calls, and a filter cannot follow a path.  So the filter asks the broker
   (SECCOMP_RET_USER_NOTIF), and the program waits.  The broker opens the file itself, checks where that file lies, and
   changes it through the same descriptor: an attacker cannot swap the file in between.  The broker is a process between
   the reaper and the program.  It has the program's user and no capabilities, so the kernel judges each change as it
   would for the program.  Landlock keeps the broker out of the program's reach.  When a broker ends, it ends the
   program, too; the kernel answers later calls with ENOSYS.

   The broker refuses a caller whose memory is closed to its own user (PR_SET_DUMPABLE).  If a caller receives a signal
   before the broker has taken its call, the call is repeated or fails with EINTR, as its handler sets (SA_RESTART). */

#pragma once

#include "kernel.h"
#include "order.h"

/* Fork: this process becomes the broker and never returns; its child becomes the program.

   Return, in the child, the socket for `hand_over_listener`.  The broker closes all its other descriptors. */
long start_broker(const struct order *order);

/* Send the filter's listener to the broker, and close both descriptors. */
long hand_over_listener(long channel, long listener);
