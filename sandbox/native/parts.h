/* The parts of the program that end it and share nothing but that. */

#pragma once

/* Leave a guard at the leash, in our process group, and execute the program `argv[0]` in our place.  Both get the score,
   unless it is empty: inside bubblewrap scores are read-only. */
_Noreturn void guard(long leash, const char *oom_score, char **argv, char **environment);

/* Carry out the order on standard input in the network namespace of a descriptor, which belongs to the user namespace of
   the other one; -1 where that is our own.  What fails is told on stderr. */
_Noreturn void network(long network_fd, long user_fd);

/* Carry out the order that a descriptor holds, and become what it names; what fails is told on stderr. */
_Noreturn void readonly(long order_fd, char *const *environment);
