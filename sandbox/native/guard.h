/* What ends a bubblewrap together with its owner until bubblewrap itself can: a child that stays behind in its group.

   bwrap asks for a death signal only after it has made the first process of its sandbox, and that one asks only once it
   is told to go on.  Whoever kills bwrap between the two, as its owner's end does, leaves a process that waits for ever
   for a word that nobody will say.  It is still in the process group that bwrap leads: the guard, which is in there too,
   kills that when the leash is dropped.  A byte at the leash says that it is needed no more. */

#ifndef QUARTERDECK_GUARD_H
#define QUARTERDECK_GUARD_H

#include "kernel.h"

/* Leave a guard at the leash, in our process group, and execute the program `argv[0]` in our place.  Both get the score,
   unless it is empty: inside bubblewrap scores are read-only. */
_Noreturn void guard(long leash, const char *oom_score, char **argv, char **environment);

#endif
