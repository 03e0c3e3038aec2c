/* The resident parent of a program where no PID namespace holds its tree together. */

#ifndef QUARTERDECK_REAPER_H
#define QUARTERDECK_REAPER_H

#include "kernel.h"

/* Run a gate below us, adopt every orphan of its tree, and kill all that is left when the program ends or the leash is
   dropped; see `inside/reaper.py`.  Ends as the program did.

   `wants_apart`: the program will be confined by Landlock, and so may we; `oom_score`: null where there are none. */
_Noreturn void reaper(long control, long leash, bool wants_apart, const char *oom_score);

#endif
