/* The last steps between a spawn and the first instruction of the program: prepare, report, wait, execute.

   The gate is our own code inside a sandbox that is already closed.  Its owner talks to it over one stream socket:

       owner -> gate   the order: 8 bytes of length, then its records; with it, at most eight descriptors in which a
                       process joins a control group by writing 0
       gate -> owner   messages of listening sockets, when the order asks for any
       gate -> owner   a report: lines `key value`, then an empty line; the kernel adds our credentials
       owner -> gate   one byte: go.  End of file means that the owner is gone, or refuses
       gate -> owner   the errno of an exec that failed; nothing when it worked

   The report has a line `joined ERRNO` for each of those descriptors, with 0 for success; `failed ERRNO STEP` says at
   what the gate failed. */

#pragma once

#include "kernel.h"

enum {
    EXIT_REFUSED = 125, /* the owner went away or said no */
    EXIT_NO_EXEC = 126,
};

/* Read the order at `control`, prepare, report, wait for the word, execute the program.

   Of descriptors, those that `streams` name become the first of the program's standard streams. */
_Noreturn void gate(long control, char *const *streams, int stream_count);

/* Close every descriptor but the standard streams and one more. */
void close_others(long kept);
