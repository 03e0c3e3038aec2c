/* Read-only mounts in a mount namespace of its own, before a sandbox exists; see `inside/readonly.py`. */

#ifndef QUARTERDECK_READONLY_H
#define QUARTERDECK_READONLY_H

#include "kernel.h"

/* Carry out the order that a descriptor holds, and become what it names; what fails is told on stderr. */
_Noreturn void readonly(long order_fd, char *const *environment);

#endif
