/* The entries of a folder in /proc that are numbers: descriptors, processes, threads. */

#pragma once

#include "kernel.h"

struct listing {
    long folder, size, at;
    uint64_t entries[256];
};

/* Begin one; false where there is no such folder.  One that was begun is read to its end, which closes it. */
bool open_listing(struct listing *listing, const char *path);

/* The next number, below zero at the end. */
long next_listed(struct listing *listing);
