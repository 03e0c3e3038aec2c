#include "order.h"

#include "text.h"

enum { HEAD_BYTES = 5, INTEGER_BYTES = 8, MESSAGE_HEAD_BYTES = 16, INDEX_BYTES = 4 };

enum { PROT_READ_WRITE = 3, MAP_PRIVATE_ANONYMOUS = 0x22, LAST_ERRNO = 4095 };

enum shape { SHAPE_UNKNOWN, SHAPE_TEXT, SHAPE_STEP, SHAPE_NOTHING, SHAPE_INTEGER, SHAPE_PAIR, SHAPE_FILTER, SHAPE_LISTENER, SHAPE_MESSAGE };

static enum shape shape_of(int tag)
{
    switch (tag) {
    case TAG_PROGRAM:
    case TAG_ARGUMENT:
    case TAG_VARIABLE:
    case TAG_DIRECTORY:
    case TAG_READ:
    case TAG_WRITE:
    case TAG_DEVICE:
    case TAG_OWN:
    case TAG_SECRET:
    case TAG_FIXED:
    case TAG_KEPT_OPEN:
    case TAG_INTERFACE:
        return SHAPE_TEXT;
    case TAG_STEP:
    case TAG_SETTING:
        return SHAPE_STEP;
    case TAG_CONFINE:
    case TAG_SET_APART:
    case TAG_ALL_CLOSED:
        return SHAPE_NOTHING;
    case TAG_OPEN_FILES:
    case TAG_LANDLOCK:
    case TAG_OOM_SCORE:
    case TAG_OWNER:
        return SHAPE_INTEGER;
    case TAG_RLIMIT:
    case TAG_IDENTITY:
        return SHAPE_PAIR;
    case TAG_SECCOMP:
        return SHAPE_FILTER;
    case TAG_LISTENER:
        return SHAPE_LISTENER;
    case TAG_MESSAGE:
        return SHAPE_MESSAGE;
    default:
        return SHAPE_UNKNOWN;
    }
}

static bool is_text(const unsigned char *bytes, size_t size)
{
    if (!size || bytes[size - 1])
        return false;
    return strlen((const char *)bytes) == size - 1;
}

/* Protocol, place of the interface's index, bytes of the message, the message, words for it. */
static bool is_message(const unsigned char *payload, size_t size)
{
    const struct record record = {payload, size};
    const size_t head = 3 * INTEGER_BYTES;
    if (size < head)
        return false;
    const uint64_t index_at = (uint64_t)integer_of(&record, 1), length = (uint64_t)integer_of(&record, 2);
    if ((uint64_t)integer_of(&record, 0) >= MAX_PROTOCOLS || length < MESSAGE_HEAD_BYTES || length > size - head)
        return false;
    if (index_at && (index_at < MESSAGE_HEAD_BYTES || index_at > length - INDEX_BYTES))
        return false;
    return is_text(payload + head + length, size - head - length);
}

static bool fits(enum shape shape, const unsigned char *payload, size_t size)
{
    switch (shape) {
    case SHAPE_TEXT:
        return is_text(payload, size);
    case SHAPE_STEP: /* whether it is closed, its path; whether it is needed, what is set */
        return size && is_text(payload + 1, size - 1);
    case SHAPE_NOTHING:
        return size == 0;
    case SHAPE_INTEGER:
        return size == INTEGER_BYTES;
    case SHAPE_PAIR:
        return size == 2 * INTEGER_BYTES;
    case SHAPE_FILTER: /* whole instructions, and as many as the kernel can be told of */
        return size && size % 8 == 0 && size / 8 <= UINT16_MAX;
    case SHAPE_LISTENER: /* port, bytes of the address, the address, itself as text */
        if (size < 2 * INTEGER_BYTES + 4)
            return false;
        const struct record record = {payload, size};
        const int64_t length = integer_of(&record, 1);
        if ((length != 4 && length != 16) || (int64_t)size < 2 * INTEGER_BYTES + length)
            return false;
        return is_text(payload + 2 * INTEGER_BYTES + length, size - 2 * INTEGER_BYTES - (size_t)length);
    case SHAPE_MESSAGE:
        return is_message(payload, size);
    default:
        return false;
    }
}

static size_t size_at(const struct order *order, size_t at)
{
    const unsigned char *bytes = order->bytes + at + 1;
    return (size_t)bytes[0] | (size_t)bytes[1] << 8 | (size_t)bytes[2] << 16 | (size_t)bytes[3] << 24;
}

bool is_sound(const struct order *order)
{
    size_t at = 0;
    while (at < order->size) {
        if (order->size - at < HEAD_BYTES)
            return false;
        const size_t size = size_at(order, at);
        if (size > order->size - at - HEAD_BYTES)
            return false;
        if (!fits(shape_of(order->bytes[at]), order->bytes + at + HEAD_BYTES, size))
            return false;
        at += HEAD_BYTES + size;
    }
    return true;
}

bool next(const struct order *order, size_t *at, int tag, struct record *found)
{
    while (*at < order->size) {
        const size_t here = *at;
        const size_t size = size_at(order, here);
        *at = here + HEAD_BYTES + size;
        if (order->bytes[here] == tag) {
            found->payload = order->bytes + here + HEAD_BYTES;
            found->size = size;
            return true;
        }
    }
    return false;
}

bool find(const struct order *order, int tag, struct record *found)
{
    size_t at = 0;
    return next(order, &at, tag, found);
}

bool has(const struct order *order, int tag)
{
    struct record found;
    return find(order, tag, &found);
}

size_t count(const struct order *order, int tag)
{
    struct record found;
    size_t number = 0;
    for (size_t at = 0; next(order, &at, tag, &found);)
        number++;
    return number;
}

const char *text_of(const struct record *record)
{
    return (const char *)record->payload;
}

int64_t integer_of(const struct record *record, size_t index)
{
    uint64_t value = 0;
    for (size_t byte = INTEGER_BYTES; byte--;)
        value = value << 8 | record->payload[index * INTEGER_BYTES + byte];
    return (int64_t)value;
}

struct netlink_message message_of(const struct record *record)
{
    unsigned char *bytes = (unsigned char *)(uintptr_t)record->payload + 3 * INTEGER_BYTES;
    const size_t size = (size_t)integer_of(record, 2);
    return (struct netlink_message){
        .protocol = (uint64_t)integer_of(record, 0),
        .index_at = (size_t)integer_of(record, 1),
        .size = size,
        .bytes = bytes,
        .words = (const char *)bytes + size,
    };
}

void *allocate(size_t size, int status)
{
    const long place = CALL(SYS_mmap, 0, size, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS, -1, 0);
    if (place < 0 && place >= -LAST_ERRNO)
        leave(status);
    return (void *)place;
}

const char **words(const struct order *order, int tag, int status)
{
    struct record word;
    const char **found = allocate((count(order, tag) + 1) * sizeof *found, status);
    size_t number = 0;
    for (size_t at = 0; next(order, &at, tag, &word);)
        found[number++] = text_of(&word);
    found[number] = 0;
    return found;
}
