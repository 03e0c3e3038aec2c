/* The order of a gate's owner, as `gate/order.py` writes it; read here in place, and nothing is copied.

   Records: one byte of tag, four of the payload's length, the payload; numbers are little endian, integers 8 bytes.
   Texts end with a zero byte and hold no other. */

#pragma once

#include "kernel.h"

enum {
    TAG_PROGRAM = 'P',
    TAG_ARGUMENT = 'A',
    TAG_VARIABLE = 'E',
    TAG_DIRECTORY = 'D',
    TAG_OPEN_FILES = 'F',
    TAG_RLIMIT = 'L',
    TAG_IDENTITY = 'I',
    TAG_LISTENER = 'N',
    TAG_CONFINE = 'C',
    TAG_LANDLOCK = 'T',
    TAG_READ = 'R',
    TAG_WRITE = 'W',
    TAG_DEVICE = 'V',
    TAG_OWN = 'M',
    TAG_SECCOMP = 'S',
    TAG_SET_APART = 'X',
    TAG_OOM_SCORE = 'O',
    TAG_OWNER = 'o',
    TAG_SECRET = 's',
    TAG_FIXED = 'f',
    TAG_ALL_CLOSED = 'Z',
    TAG_KEPT_OPEN = 'K',
    TAG_STEP = 'Y',
    TAG_SETTING = 'g',
    TAG_INTERFACE = 'i',
    TAG_MESSAGE = 'm',
};

enum {
    MAX_ORDER_BYTES = 16 * 1024 * 1024,
    MAX_LISTENERS = 1024,
    MAX_PROTOCOLS = 32, /* of netlink: Linux' MAX_LINKS */
};

struct order {
    const unsigned char *bytes;
    size_t size;
};

struct record {
    const unsigned char *payload;
    size_t size;
};

/* What is sent to the kernel over a socket of `protocol`; with the index of an interface at `index_at`, unless that is 0. */
struct netlink_message {
    uint64_t protocol;
    size_t index_at, size;
    unsigned char *bytes;
    const char *words;
};

/* Memory for as long as this program runs; leaves with `status` where there is none. */
void *allocate(size_t size, int status);

/* Whether every record is whole, known and of its tag's shape. */
bool is_sound(const struct order *order);

/* The texts of all records of a tag, closed as `execve` wants it. */
const char **words(const struct order *order, int tag, int status);

/* The next record of a tag behind `*at`, which begins at 0; false behind the last.  Only of an order that is sound. */
bool next(const struct order *order, size_t *at, int tag, struct record *found);

/* The first record of a tag. */
bool find(const struct order *order, int tag, struct record *found);
bool has(const struct order *order, int tag);
size_t count(const struct order *order, int tag);

/* The text of a record, and the integer at an index of one. */
const char *text_of(const struct record *record);
int64_t integer_of(const struct record *record, size_t index);

/* The parts of a record of `TAG_MESSAGE`. */
struct netlink_message message_of(const struct record *record);
