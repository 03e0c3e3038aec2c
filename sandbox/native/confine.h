/* What a process asks of the kernel for itself, for good: no privileges, Landlock, filters, a death signal.

   The same as `inside/kernel.py`, which says the reasons.  Every function returns an errno below zero when the kernel
   refuses. */

#ifndef QUARTERDECK_CONFINE_H
#define QUARTERDECK_CONFINE_H

#include "kernel.h"
#include "order.h"

enum {
    LANDLOCK_APART_SINCE = 2,
    LANDLOCK_TCP_SINCE = 4,
    LANDLOCK_SCOPES_SINCE = 6,
};

long control_process(long option, long argument);
long forbid_new_privileges(void);
long tell_end_of_parent(long number);
long lock_securebits(void);
long clear_capabilities(void);
long load_seccomp(const struct record *program);

/* Load a filter that asks before some calls; return the descriptor that receives its questions. */
long load_asking_seccomp(const struct record *program);

/* The kernel's version of Landlock, below zero where there is none. */
long landlock_version(void);

/* Give up all files but those that the order names, and what else this version of Landlock can rule. */
long restrict_to(const struct order *order, bool denies_tcp);

/* Give up the memory and the signals of processes outside, and no file; `with_files`: see `inside/kernel.py`. */
long set_apart(bool with_files);

/* Have this process killed before its owner when memory runs out, as far as that is allowed. */
void raise_oom_score(const char *score);
void raise_own_oom_score(int64_t score);

/* Reset how a signal is taken: ignored, or as a process has it at first. */
void ignore_signal(int number);
void reset_signal(int number);

#endif
