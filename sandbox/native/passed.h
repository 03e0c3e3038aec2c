/* Descriptors that travel over a Unix socket. */

#pragma once

#include "kernel.h"

enum { MAX_PASSED = 200 }; /* a message; the kernel takes 253 (SCM_MAX_FD) */

/* Hand over so many, at most `MAX_PASSED`, with one byte; below zero when that fails. */
long pass(long socket, const int32_t *fds, size_t number);

/* Read at most `size` bytes, and what came with them: `*number` descriptors, for `fds` has room for that many before. */
long receive_passed(long socket, void *bytes, size_t size, int32_t *fds, size_t *number);
