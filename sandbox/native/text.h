/* Text and memory: what of <string.h> is needed, and a buffer that texts are put together in. */

#pragma once

#include "kernel.h"

/* The compiler calls these three by itself, too. */
void *memcpy(void *restrict to, const void *restrict from, size_t size);
void *memset(void *to, int byte, size_t size);
size_t strlen(const char *text);

bool is_same(const char *one, const char *other);
bool begins_with(const char *text, const char *start);

/* The number that a text begins with, all digits; -1 for none, or one too large for a process id. */
long number_of(const char *text);

/* A text of bounded length, always closed by a zero byte.  What does not fit is left out, and noted. */
struct text {
    char *bytes;
    size_t size, used;
    bool overflowed;
};

/* A text in the given array. */
#define TEXT_IN(array) {.bytes = (array), .size = sizeof(array), .used = 0, .overflowed = false}

void add(struct text *text, const char *more);
void add_bytes(struct text *text, const char *bytes, size_t size);
void add_number(struct text *text, int64_t number);
