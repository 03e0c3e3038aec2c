/* Addresses, routes and the like in the network of a sandbox that waits; see `network/netlink.py`. */

#include "parts.h"

#include "confine.h"
#include "failure.h"
#include "text.h"

enum {
    STDIN = 0,
    CLONE_NEWUSER = 0x10000000,
    CLONE_NEWNET = 0x40000000,
    AF_NETLINK = 16,
    SOCK_RAW = 3,
    SIOCGIFINDEX = 0x8933,
    NLMSG_ERROR = 2, /* an acknowledgement is an error of 0 */
    MAX_PATH_BYTES = 256,
    MAX_ANSWER_BYTES = 8192, /* it quotes what it answers */
};

/* struct nlmsgerr behind its struct nlmsghdr */
struct answer {
    uint32_t size;
    uint16_t type, flags;
    uint32_t sequence, port;
    int32_t error;
};

/* struct ifreq */
struct interface {
    char name[16];
    int32_t index;
    unsigned char unused[20];
};

static void enter(const char *what, long namespace_fd, long kind)
{
    check(what, CALL(SYS_setns, namespace_fd, kind));
    CALL(SYS_close, namespace_fd);
    /* The kernel forgets it when a process gains capabilities, as in a user namespace that it enters. */
    check(what, tell_end_of_parent(SIGKILL));
}

/* Write the value of `path=value`; one that need not be had is tried. */
static void set(const struct record *setting)
{
    char bytes[MAX_PATH_BYTES];
    struct text path = TEXT_IN(bytes);
    const char *words = (const char *)setting->payload + 1, *end = words;
    while (*end && *end != '=')
        end++;
    add_bytes(&path, words, (size_t)(end - words));
    if (!*end || path.overflowed)
        fail(words, -EINVAL);
    if (setting->payload[0]) {
        write_to(bytes, end + 1);
        return;
    }
    const long fd = CALL(SYS_openat, AT_FDCWD, bytes, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    CALL(SYS_write, fd, end + 1, strlen(end + 1));
    CALL(SYS_close, fd);
}

static int32_t index_of(const char *name, long socket)
{
    struct interface found = {.index = 0};
    const size_t length = strlen(name);
    if (length >= sizeof found.name)
        fail(name, -EINVAL);
    memcpy(found.name, name, length);
    check(name, CALL(SYS_ioctl, socket, SIOCGIFINDEX, &found));
    return found.index;
}

/* Send a message to the kernel, which has carried it out when this returns. */
static void ask(const struct record *message, const char *device)
{
    static int32_t sockets[MAX_PROTOCOLS]; /* one above the descriptor; 0 where there is none yet */
    static union {
        struct answer answer;
        unsigned char bytes[MAX_ANSWER_BYTES];
    } found;
    static int32_t index;
    const struct netlink_message parts = message_of(message);
    int32_t *socket = &sockets[parts.protocol];
    if (!*socket)
        *socket = (int32_t)check(parts.words, CALL(SYS_socket, AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, parts.protocol)) + 1;
    if (parts.index_at) {
        if (!index)
            index = index_of(device, *socket - 1);
        memcpy(parts.bytes + parts.index_at, &index, sizeof index);
    }
    check(parts.words, CALL(SYS_sendto, *socket - 1, parts.bytes, parts.size));
    do {
        const long size = check(parts.words, CALL(SYS_recvfrom, *socket - 1, &found, sizeof found));
        if (size < (long)sizeof found.answer)
            fail(parts.words, -EINVAL);
    } while (found.answer.type != NLMSG_ERROR);
    check(parts.words, found.answer.error);
}

_Noreturn void network(long network_fd, long user_fd)
{
    const struct order order = read_order(STDIN);
    struct record found;
    if (user_fd >= 0)
        enter("the sandbox's user namespace", user_fd, CLONE_NEWUSER);
    enter("the sandbox's network namespace", network_fd, CLONE_NEWNET);
    for (size_t at = 0; next(&order, &at, TAG_SETTING, &found);)
        set(&found);
    const char *device = find(&order, TAG_INTERFACE, &found) ? text_of(&found) : "";
    for (size_t at = 0; next(&order, &at, TAG_MESSAGE, &found);)
        ask(&found, device);
    leave(0);
}
