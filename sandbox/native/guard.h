/* What ends a bubblewrap together with its owner until bubblewrap itself can. */

#ifndef QUARTERDECK_GUARD_H
#define QUARTERDECK_GUARD_H

#include "kernel.h"

/* Leave a guard at the leash, in our process group, and execute the program `argv[0]` in our place: see
   `inside/guard.py`.  Both get the score, unless it is empty. */
_Noreturn void guard(long leash, const char *oom_score, char **argv, char **environment);

#endif
