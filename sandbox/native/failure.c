#include "failure.h"

#include "text.h"

enum { STDERR = 2, SEEK_SET = 0, SEEK_END = 2 };

static const struct {
    long number;
    const char *words;
} ERRORS[] = {
    {1, "Operation not permitted"},
    {2, "No such file or directory"},
    {3, "No such process"},
    {12, "Cannot allocate memory"},
    {13, "Permission denied"},
    {16, "Device or resource busy"},
    {17, "File exists"},
    {19, "No such device"},
    {20, "Not a directory"},
    {22, "Invalid argument"},
    {28, "No space left on device"},
    {30, "Read-only file system"},
    {38, "Function not implemented"},
    {40, "Too many levels of symbolic links"},
    {93, "Protocol not supported"},
    {95, "Operation not supported"},
    {97, "Address family not supported by protocol"},
    {99, "Cannot assign requested address"},
    {101, "Network is unreachable"},
};

_Noreturn void fail_with(const char *what, const char *why)
{
    CALL(SYS_write, STDERR, what, strlen(what));
    CALL(SYS_write, STDERR, ": ", 2);
    CALL(SYS_write, STDERR, why, strlen(why));
    CALL(SYS_write, STDERR, "\n", 1);
    leave(EXIT_FAILED);
}

_Noreturn void fail(const char *what, long error)
{
    char bytes[32];
    struct text unknown = TEXT_IN(bytes);
    for (size_t at = 0; at < sizeof ERRORS / sizeof *ERRORS; at++)
        if (ERRORS[at].number == -error)
            fail_with(what, ERRORS[at].words);
    add(&unknown, "error ");
    add_number(&unknown, -error);
    fail_with(what, bytes);
}

long check(const char *what, long result)
{
    if (result < 0)
        fail(what, result);
    return result;
}

struct order read_order(long fd)
{
    const long size = CALL(SYS_lseek, fd, 0, SEEK_END);
    if (size <= 0 || size > MAX_ORDER_BYTES || CALL(SYS_lseek, fd, 0, SEEK_SET) < 0)
        fail("the order", -EINVAL);
    unsigned char *bytes = allocate((size_t)size, EXIT_FAILED);
    for (long got, at = 0; at < size; at += got)
        if ((got = check("the order", CALL(SYS_read, fd, bytes + at, size - at))) == 0)
            fail("the order", -EINVAL);
    CALL(SYS_close, fd);
    const struct order order = {bytes, (size_t)size};
    if (!is_sound(&order))
        fail("the order", -EINVAL);
    return order;
}

void write_to(const char *path, const char *text)
{
    const long fd = check(path, CALL(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CLOEXEC));
    check(path, CALL(SYS_write, fd, text, strlen(text)));
    CALL(SYS_close, fd);
}
