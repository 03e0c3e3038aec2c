#include "text.h"

/* Without it a compiler may see what a loop does, and call the very function that the loop is of. */
#define KEEP_LOOP() __asm__ volatile("" ::: "memory")

void *memcpy(void *restrict to, const void *restrict from, size_t size)
{
    unsigned char *target = to;
    const unsigned char *source = from;
    while (size--) {
        *target++ = *source++;
        KEEP_LOOP();
    }
    return to;
}

void *memset(void *to, int byte, size_t size)
{
    unsigned char *target = to;
    while (size--) {
        *target++ = (unsigned char)byte;
        KEEP_LOOP();
    }
    return to;
}

size_t strlen(const char *text)
{
    size_t length = 0;
    while (text[length]) {
        length++;
        KEEP_LOOP();
    }
    return length;
}

bool is_same(const char *one, const char *other)
{
    while (*one && *one == *other)
        one++, other++;
    return *one == *other;
}

bool begins_with(const char *text, const char *start)
{
    while (*start && *text == *start)
        text++, start++;
    return !*start;
}

long number_of(const char *text)
{
    long number = 0;
    if (*text < '0' || *text > '9')
        return -1;
    for (; *text >= '0' && *text <= '9'; text++) {
        number = number * 10 + (*text - '0');
        if (number > INT32_MAX)
            return -1;
    }
    return number;
}

void add_bytes(struct text *text, const char *bytes, size_t size)
{
    if (size >= text->size - text->used) {
        text->overflowed = true;
        return;
    }
    memcpy(text->bytes + text->used, bytes, size);
    text->used += size;
    text->bytes[text->used] = 0;
}

void add(struct text *text, const char *more)
{
    add_bytes(text, more, strlen(more));
}

void add_number(struct text *text, int64_t number)
{
    char digits[24];
    size_t at = sizeof digits;
    uint64_t left = number < 0 ? -(uint64_t)number : (uint64_t)number;
    do
        digits[--at] = (char)('0' + left % 10);
    while (left /= 10);
    if (number < 0)
        digits[--at] = '-';
    add_bytes(text, digits + at, sizeof digits - at);
}
