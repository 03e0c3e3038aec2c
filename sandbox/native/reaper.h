/* The resident parent of a program where no PID namespace holds its tree together. */

#pragma once

#include "kernel.h"

enum { STATUS_UNKNOWN = -1, POLLIN = 1 };

/* struct pollfd */
struct polled {
    int fd;
    short events, returned;
};

/* Reap every child that has ended, and note the program's status.  Return whether any child is left. */
bool reap(long program, int *status);

/* Return a descriptor that is readable when a child has ended, or a negative number.  The caller reads it empty. */
int open_child_signals(void);
void take_child_signal(int fd);

/* Return the exit status of a shell for a status that `reap` noted. */
int exit_status(int status);

/* Run a gate below us, adopt every orphan of its tree, and kill all that is left when the program ends or the leash is
   dropped, by an owner who is gone or wants it all to end.  At one stroke where Landlock lets our signals reach nothing
   else; elsewhere all is stopped first, so that it hardly can fork ahead of us.  Ends as the program did: with its
   status, or 128 plus the number of its signal.

   `wants_apart`: the program will be confined by Landlock, and so may we; `oom_score`: null where there are none. */
_Noreturn void reaper(long control, long leash, bool wants_apart, const char *oom_score);
