/* What the programs beside a gate have in common: an order in a file, and an end with what failed on stderr. */

#pragma once

#include "order.h"

enum { EXIT_FAILED = 1 };

/* End with `what` and why it failed. */
_Noreturn void fail_with(const char *what, const char *why);
_Noreturn void fail(const char *what, long error);

/* `result`, unless it is an errno below zero. */
long check(const char *what, long result);

/* The order that a descriptor holds, every record checked; the descriptor is closed. */
struct order read_order(long fd);

/* Write all of a text to a file that is there. */
void write_to(const char *path, const char *text);
