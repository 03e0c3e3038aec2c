/* The last steps between a spawn and the first instruction of the program. */

#ifndef QUARTERDECK_GATE_H
#define QUARTERDECK_GATE_H

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

#endif
