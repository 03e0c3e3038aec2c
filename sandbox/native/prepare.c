#include "prepare.h"

#include "broker.h"
#include "confine.h"
#include "passed.h"

enum {
    BACKLOG = 128, /* connections that wait for our owner to accept them */
    UMASK = 022,
};

struct address {
    uint16_t family;
    unsigned char port[2];
    union {
        unsigned char inet[12];
        struct {
            unsigned char flow[4], address[16], scope[4];
        } inet6;
    } of;
};

static int32_t listeners[MAX_LISTENERS];

static void take_step(struct text *step, const char *name)
{
    step->used = 0;
    step->overflowed = false;
    add(step, name);
}

static long limit(int64_t number, const struct rlimit *value, struct rlimit *old)
{
    return CALL(SYS_prlimit64, 0, number, value, old);
}

/* The soft limit that our owner was started with: it may have raised its own. */
static long restore_open_files(const struct order *order)
{
    struct record found;
    struct rlimit now;
    if (!find(order, TAG_OPEN_FILES, &found))
        return 0;
    const long result = limit(RLIMIT_NOFILE, 0, &now);
    const struct rlimit wanted = {(uint64_t)integer_of(&found, 0), now.hard};
    if (result < 0 || wanted.soft > now.hard)
        return result;
    return limit(RLIMIT_NOFILE, &wanted, 0);
}

static long set_limit(int64_t number, uint64_t value)
{
    struct rlimit now;
    const long result = limit(number, 0, &now);
    if (result < 0)
        return result;
    /* At the hard limit on processor time the kernel kills; only at the soft one it says why. */
    const uint64_t hard = number == RLIMIT_CPU ? value + 1 : value;
    const struct rlimit wanted = {value < now.hard ? value : now.hard, hard < now.hard ? hard : now.hard};
    return limit(number, &wanted, 0);
}

static long set_limits(const struct order *order, struct text *step)
{
    struct record found;
    take_step(step, "open files");
    long result = restore_open_files(order);
    for (size_t at = 0; result >= 0 && next(order, &at, TAG_RLIMIT, &found);) {
        take_step(step, "limit ");
        add_number(step, integer_of(&found, 0));
        result = set_limit(integer_of(&found, 0), (uint64_t)integer_of(&found, 1));
    }
    return result;
}

static long listen_on(const struct record *wanted, struct text *step)
{
    const uint64_t port = (uint64_t)integer_of(wanted, 0);
    const size_t length = (size_t)integer_of(wanted, 1);
    const unsigned char *bytes = wanted->payload + 16;
    struct address address;
    take_step(step, "listen on ");
    add(step, (const char *)bytes + length);
    add(step, ":");
    add_number(step, (int64_t)port);
    memset(&address, 0, sizeof address);
    address.family = length == 4 ? AF_INET : AF_INET6;
    address.port[0] = (unsigned char)(port >> 8);
    address.port[1] = (unsigned char)port;
    memcpy(length == 4 ? address.of.inet : address.of.inet6.address, bytes, length);
    const long fd = CALL(SYS_socket, address.family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return fd;
    long result = CALL(SYS_bind, fd, &address, length == 4 ? 16 : 28);
    if (result >= 0)
        result = CALL(SYS_listen, fd, BACKLOG);
    if (result < 0)
        CALL(SYS_close, fd);
    return result < 0 ? result : fd;
}

/* Listen where the program will dial, and hand all of it to our owner.  A listening socket belongs to the network
   namespace that it was made in, whoever holds it: our owner accepts outside, and nothing of ours stays inside.  Ports
   below `net.ipv4.ip_unprivileged_port_start` need CAP_NET_BIND_SERVICE in the user namespace that owns the network. */
static long open_listeners(const struct order *order, long control, struct text *step)
{
    struct record wanted;
    size_t opened = 0;
    for (size_t at = 0; next(order, &at, TAG_LISTENER, &wanted);) {
        const long fd = listen_on(&wanted, step);
        if (fd < 0)
            return fd; /* none is handed over; all go with this process */
        listeners[opened++] = (int32_t)fd;
    }
    take_step(step, "hand over what is listened on");
    for (size_t at = 0; at < opened; at += MAX_PASSED) {
        const size_t left = opened - at;
        const long result = pass(control, listeners + at, left < MAX_PASSED ? left : MAX_PASSED);
        if (result < 0)
            return result;
    }
    while (opened)
        CALL(SYS_close, listeners[--opened]);
    return 0;
}

long change_user(const struct order *order, struct text *step)
{
    struct record found;
    if (!find(order, TAG_IDENTITY, &found))
        return 0;
    const int64_t uid = integer_of(&found, 0), gid = integer_of(&found, 1);
    take_step(step, "become uid ");
    add_number(step, uid);
    long result = CALL(SYS_setgroups, 0, 0);
    /* A root that may not even do this is confined to being root, with the groups that it was given. */
    if (result < 0 && !(uid == 0 && (result == -EPERM || result == -EACCES)))
        return result;
    if ((result = CALL(SYS_setresgid, gid, gid, gid)) < 0)
        return result;
    if ((result = CALL(SYS_setresuid, uid, uid, uid)) < 0)
        return result;
    take_step(step, "give up capabilities");
    if (uid == 0) {
        if ((result = forbid_new_privileges()) < 0)
            return result;
        if ((result = lock_securebits()) < 0)
            return result;
    }
    return clear_capabilities();
}

static long filter_calls(const struct record *program, long channel)
{
    if (channel < 0)
        return load_seccomp(program);
    const long listener = load_asking_seccomp(program);
    return listener < 0 ? listener : hand_over_listener(channel, listener);
}

static long confine(const struct order *order, long channel, struct text *step)
{
    struct record found;
    long result;
    if (!has(order, TAG_CONFINE))
        return 0;
    take_step(step, "forbid new privileges");
    /* Again: the kernel forgets it when a process changes its user. */
    if ((result = tell_end_of_parent(SIGKILL)) < 0)
        return result;
    if ((result = forbid_new_privileges()) < 0)
        return result;
    if (find(order, TAG_LANDLOCK, &found)) {
        take_step(step, "Landlock");
        if ((result = restrict_to(order, integer_of(&found, 0))) < 0)
            return result;
    }
    if (find(order, TAG_SECCOMP, &found)) {
        take_step(step, "seccomp");
        return filter_calls(&found, channel);
    }
    return 0;
}

long prepare(const struct order *order, long control, long channel, struct text *step)
{
    struct record found;
    long result;
    if (find(order, TAG_OOM_SCORE, &found))
        raise_own_oom_score(integer_of(&found, 0));
    if ((result = open_listeners(order, control, step)) < 0)
        return result;
    if ((result = set_limits(order, step)) < 0)
        return result;
    if ((result = change_user(order, step)) < 0)
        return result;
    CALL(SYS_umask, UMASK);
    find(order, TAG_DIRECTORY, &found);
    take_step(step, "enter ");
    add(step, text_of(&found));
    if ((result = CALL(SYS_chdir, text_of(&found))) < 0)
        return result;
    if (has(order, TAG_SET_APART)) {
        take_step(step, "Landlock");
        if ((result = set_apart(false)) < 0)
            return result;
    }
    return confine(order, channel, step);
}
