/* What ends a bubblewrap together with its owner until bubblewrap itself can: a child that stays behind in its group.

   bwrap asks for a death signal only after it has made the first process of its sandbox, and that one asks only once it
   is told to go on.  Whoever kills bwrap between the two, as its owner's end does, leaves a process that waits for ever
   for a word that nobody will say.  It is still in the process group that bwrap leads: the guard, which is in there too,
   kills that when the leash is dropped.  A byte at the leash says that it is needed no more. */

#include "parts.h"

#include "confine.h"
#include "gate.h"

enum { OWN_GROUP = 0 };

/* Let go of the leash: nothing to end.  Dropped: our whole group goes, and we with it. */
_Noreturn static void watch(long leash)
{
    char told;
    long got;
    for (long fd = 0; fd <= 2; fd++)
        CALL(SYS_close, fd);
    close_others(leash);
    do
        got = CALL(SYS_read, leash, &told, 1);
    while (got == -EINTR);
    if (got == 1)
        leave(0);
    CALL(SYS_kill, OWN_GROUP, SIGKILL);
    leave(EXIT_REFUSED);
}

_Noreturn void guard(long leash, const char *oom_score, char **argv, char **environment)
{
    if (*oom_score)
        raise_oom_score(oom_score);
    /* What is killed must be ours alone. */
    if (CALL(SYS_getpgid, 0) != CALL(SYS_getpid))
        leave(EXIT_REFUSED);
    const long watcher = CALL(SYS_clone, SIGCHLD);
    if (watcher < 0)
        leave(EXIT_REFUSED);
    if (watcher == 0)
        watch(leash);
    CALL(SYS_close, leash);
    CALL(SYS_execve, argv[0], argv, environment);
    leave(EXIT_NO_EXEC);
}
