#include "passed.h"

#include "text.h"

struct bytes {
    void *start;
    size_t size;
};

/* struct msghdr */
struct message {
    void *name;
    uint32_t name_size;
    struct bytes *parts;
    size_t part_count;
    void *control;
    size_t control_size;
    int flags;
};

/* struct cmsghdr and what it holds */
struct passed_fds {
    size_t size;
    int level, type;
    int32_t fds[MAX_PASSED];
};

enum { PASSED_HEAD_BYTES = 16 };

long pass(long socket, const int32_t *fds, size_t number)
{
    struct passed_fds passed = {
        .size = PASSED_HEAD_BYTES + number * sizeof *fds, .level = SOL_SOCKET, .type = SCM_RIGHTS};
    char byte = 'l';
    struct bytes part = {&byte, 1};
    struct message message = {.parts = &part, .part_count = 1, .control = &passed, .control_size = passed.size};
    memcpy(passed.fds, fds, number * sizeof *fds);
    return CALL(SYS_sendmsg, socket, &message, MSG_NOSIGNAL);
}

long receive_passed(long socket, void *bytes, size_t size, int32_t *fds, size_t *number)
{
    struct passed_fds passed = {.size = 0};
    struct bytes part = {bytes, size};
    struct message message = {.parts = &part, .part_count = 1, .control = &passed};
    message.control_size = PASSED_HEAD_BYTES + *number * sizeof *fds;
    *number = 0;
    const long got = CALL(SYS_recvmsg, socket, &message, MSG_CMSG_CLOEXEC);
    if (got > 0 && message.control_size >= PASSED_HEAD_BYTES && passed.level == SOL_SOCKET && passed.type == SCM_RIGHTS) {
        *number = (passed.size - PASSED_HEAD_BYTES) / sizeof *fds;
        memcpy(fds, passed.fds, *number * sizeof *fds);
    }
    return got;
}
