/* What a process asks of the kernel for itself, for good: no privileges, Landlock, filters, a death signal.

   Every function returns an errno below zero when the kernel refuses.

   Landlock: a process gives up all files, ports and signals but those that it names, for itself and its children.  What
   the running kernel's version of it cannot rule stays allowed: changing the mode, times and attributes of one's own
   files, looking at metadata, UDP, and before version 9 (Linux 7.1) connecting to Unix sockets that have a path.
   Seccomp closes what it can of that, and `broker.h` judges changes of metadata.
   Source: https://docs.kernel.org/userspace-api/landlock.html */

#pragma once

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

/* Give up the memory and the signals of processes outside, and no file.  A process of the same user that is not confined
   like this, as bubblewrap's first one, could else be written to by `/proc/PID/mem` where Yama is off.

   `with_files`: `restrict_to` will follow, here or below.  A domain that says nothing of files then forbids renaming
   from one directory to another, which no later one can give back.  It also forbids mounting. */
long set_apart(bool with_files);

/* Have this process killed before its owner when memory runs out, as far as that is allowed: before a change of user, a
   read-only /proc and Landlock, each of which would close the file. */
void raise_oom_score(const char *score);
void raise_own_oom_score(int64_t score);

/* Reset how a signal is taken: ignored, or as a process has it at first. */
void ignore_signal(int number);
void reset_signal(int number);
