#include "broker.h"

#include "confine.h"
#include "gate.h"
#include "passed.h"
#include "prepare.h"
#include "reaper.h"
#include "text.h"

/* include/uapi/linux/seccomp.h */
enum {
    NOTIFICATION_RECEIVE = 0xC0502100 - (1L << 32),
    NOTIFICATION_ANSWER = 0xC0182101 - (1L << 32),
    NOTIFICATION_IS_VALID = 0x40082102,
};

enum {
    MAX_PATH_BYTES = 4096,
    MAX_LINK_BYTES = 64,
    MAX_STEP_BYTES = 64,
    PIECE_BYTES = 4096, /* a piece of memory stays within one page: the next page may be missing */
    NS_PER_US = 1000,
    US_PER_S = 1000 * 1000,
    NOT_POLLED = -1,
};

struct notification {
    uint64_t id;
    uint32_t pid, flags; /* `pid` is a thread's */
    int32_t number;
    uint32_t architecture;
    uint64_t instruction, arguments[6];
};

struct answer {
    uint64_t id;
    int64_t value;
    int32_t error;
    uint32_t flags;
};

struct time {
    int64_t seconds, fraction;
};

enum change { CHANGE_NOTHING, CHANGE_MODE, CHANGE_OWNER, CHANGE_TIMES };

/* How the caller's memory holds times: seconds, or seconds and a fraction. */
enum unit { SECONDS, MICROSECONDS, NANOSECONDS };

/* The change that a call requests; `path` and `times` are addresses in the caller's memory.  Without a path, the call
   changes the file of the descriptor. */
struct wish {
    enum change change;
    bool has_path;
    int32_t folder;
    uint64_t path, flags, times;
    uint32_t mode, uid, gid;
    enum unit unit;
};

struct memory {
    uint64_t start, size;
};

static struct wish at_path(uint64_t folder, uint64_t path, uint64_t flags)
{
    return (struct wish){.has_path = true, .folder = (int32_t)folder, .path = path, .flags = flags & UINT32_MAX};
}

static struct wish at_descriptor(uint64_t descriptor)
{
    return (struct wish){.folder = (int32_t)descriptor};
}

static struct wish with_mode(struct wish wish, uint64_t mode)
{
    wish.change = CHANGE_MODE;
    wish.mode = (uint32_t)mode;
    return wish;
}

static struct wish with_owner(struct wish wish, uint64_t uid, uint64_t gid)
{
    wish.change = CHANGE_OWNER;
    wish.uid = (uint32_t)uid;
    wish.gid = (uint32_t)gid;
    return wish;
}

static struct wish with_times(struct wish wish, uint64_t times, enum unit unit)
{
    wish.change = CHANGE_TIMES;
    wish.times = times;
    wish.unit = unit;
    return wish;
}

static struct wish wish_of(const struct notification *asked)
{
    const uint64_t *const a = asked->arguments;
#if defined(__x86_64__)
    const uint64_t here = (uint64_t)AT_FDCWD;
#endif
    switch (asked->number) {
#if defined(__x86_64__)
    case SYS_chmod:
        return with_mode(at_path(here, a[0], 0), a[1]);
    case SYS_chown:
        return with_owner(at_path(here, a[0], 0), a[1], a[2]);
    case SYS_lchown:
        return with_owner(at_path(here, a[0], AT_SYMLINK_NOFOLLOW), a[1], a[2]);
    case SYS_utime:
        return with_times(at_path(here, a[0], 0), a[1], SECONDS);
    case SYS_utimes:
        return with_times(at_path(here, a[0], 0), a[1], MICROSECONDS);
    case SYS_futimesat:
        return with_times(a[1] ? at_path(a[0], a[1], 0) : at_descriptor(a[0]), a[2], MICROSECONDS);
#endif
    case SYS_fchmod:
        return with_mode(at_descriptor(a[0]), a[1]);
    case SYS_fchmodat:
        return with_mode(at_path(a[0], a[1], 0), a[2]);
    case SYS_fchmodat2:
        return with_mode(at_path(a[0], a[1], a[3]), a[2]);
    case SYS_fchown:
        return with_owner(at_descriptor(a[0]), a[1], a[2]);
    case SYS_fchownat:
        return with_owner(at_path(a[0], a[1], a[4]), a[2], a[3]);
    case SYS_utimensat:
        return with_times(a[1] ? at_path(a[0], a[1], a[3]) : at_descriptor(a[0]), a[2], NANOSECONDS);
    default:
        return (struct wish){.change = CHANGE_NOTHING};
    }
}

static long read_memory(uint32_t pid, uint64_t address, void *place, size_t size)
{
    const struct memory ours = {(uintptr_t)place, size}, theirs = {address, size};
    return CALL(SYS_process_vm_readv, pid, &ours, 1, &theirs, 1, 0);
}

/* Copy a text from the caller's memory with its closing zero. */
static long read_text(uint32_t pid, uint64_t address, char *place, size_t size)
{
    for (size_t used = 0; used < size;) {
        const size_t in_piece = PIECE_BYTES - (address + used) % PIECE_BYTES;
        const long got = read_memory(pid, address + used, place + used, in_piece < size - used ? in_piece : size - used);
        if (got <= 0)
            return got < 0 ? got : -EFAULT;
        for (const size_t end = used + (size_t)got; used < end; used++)
            if (!place[used])
                return 0;
    }
    return -ENAMETOOLONG;
}

/* Copy a call's times of access and of change, in the kernel's own unit. */
static long read_times(uint32_t pid, const struct wish *wish, struct time times[2])
{
    int64_t seconds[2];
    const bool is_short = wish->unit == SECONDS;
    const size_t size = is_short ? sizeof seconds : 2 * sizeof *times;
    const long got = read_memory(pid, wish->times, is_short ? (void *)seconds : (void *)times, size);
    if (got != (long)size)
        return got < 0 ? got : -EFAULT;
    for (int at = 0; at < 2; at++) {
        if (is_short)
            times[at] = (struct time){seconds[at], 0};
        if (wish->unit != MICROSECONDS)
            continue;
        if (times[at].fraction < 0 || times[at].fraction >= US_PER_S)
            return -EINVAL;
        times[at].fraction *= NS_PER_US;
    }
    return 0;
}

static long open_path(long folder, const char *path, long flags)
{
    return CALL(SYS_openat, folder, path, O_PATH | O_CLOEXEC | flags);
}

/* Begin a path below the caller's own entry in /proc. */
static void name_process(struct text *path, uint32_t pid)
{
    add(path, "/proc/");
    add_number(path, pid);
}

/* Open an absolute path as the caller would: in /proc, `self` is the caller. */
static long open_absolute(uint32_t pid, const char *path, long flags)
{
    static const struct {
        const char *start, *below;
    } OWN[] = {{"/proc/self/", "/"}, {"/proc/thread-self/", "/"}, {"/dev/fd/", "/fd/"}};
    char bytes[MAX_PATH_BYTES + MAX_LINK_BYTES];
    struct text mapped = TEXT_IN(bytes);
    for (size_t at = 0; at < sizeof OWN / sizeof *OWN; at++) {
        if (!begins_with(path, OWN[at].start))
            continue;
        name_process(&mapped, pid);
        add(&mapped, OWN[at].below);
        add(&mapped, path + strlen(OWN[at].start));
        return mapped.overflowed ? -ENAMETOOLONG : open_path(AT_FDCWD, bytes, flags);
    }
    return open_path(AT_FDCWD, path, flags);
}

/* Open the folder in which the caller's relative path begins, or the file of a descriptor. */
static long open_start(uint32_t pid, int32_t folder)
{
    char bytes[MAX_LINK_BYTES];
    struct text link = TEXT_IN(bytes);
    name_process(&link, pid);
    if (folder == AT_FDCWD) {
        add(&link, "/cwd");
        return open_path(AT_FDCWD, bytes, 0);
    }
    if (folder < 0)
        return -EBADF;
    add(&link, "/fd/");
    add_number(&link, folder);
    const long fd = open_path(AT_FDCWD, bytes, 0);
    return fd == -ENOENT ? -EBADF : fd;
}

/* Open the file of a request in a way that needs no right on it. */
static long open_file(uint32_t pid, const struct wish *wish)
{
    char path[MAX_PATH_BYTES];
    const long flags = wish->flags & AT_SYMLINK_NOFOLLOW ? O_NOFOLLOW : 0;
    if (!wish->has_path)
        return wish->folder < 0 ? -EBADF : open_start(pid, wish->folder);
    if (wish->flags & ~(uint64_t)(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH))
        return -EINVAL;
    const long result = read_text(pid, wish->path, path, sizeof path);
    if (result < 0)
        return result;
    if (path[0] == '/')
        return open_absolute(pid, path, flags);
    if (!path[0] && !(wish->flags & AT_EMPTY_PATH))
        return -ENOENT;
    const long start = open_start(pid, wish->folder);
    if (start < 0 || !path[0])
        return start;
    const long file = open_path(start, path, flags);
    CALL(SYS_close, start);
    return file;
}

static bool is_within(const char *path, const char *folder)
{
    const size_t size = strlen(folder);
    return begins_with(path, folder) && (!path[size] || path[size] == '/');
}

/* Return whether a file lies where the program may write.  A file that has lost its name is judged by its last one. */
static bool is_own(const struct order *order, const char *link)
{
    char path[MAX_PATH_BYTES];
    struct record folder;
    const long size = CALL(SYS_readlinkat, AT_FDCWD, link, path, sizeof path);
    if (size <= 0 || size == sizeof path)
        return false;
    path[size] = 0;
    for (size_t at = 0; next(order, &at, TAG_OWN, &folder);)
        if (is_within(path, text_of(&folder)))
            return true;
    return false;
}

/* Change the file behind `link`.  The descriptor's entry in /proc names it on every kernel, links included. */
static long change(const struct wish *wish, const struct time times[2], const char *link)
{
    switch (wish->change) {
    case CHANGE_MODE:
        return CALL(SYS_fchmodat, AT_FDCWD, link, wish->mode);
    case CHANGE_OWNER:
        return CALL(SYS_fchownat, AT_FDCWD, link, wish->uid, wish->gid, 0);
    case CHANGE_TIMES:
        return CALL(SYS_utimensat, AT_FDCWD, link, wish->times ? times : 0, 0);
    default:
        return -EPERM;
    }
}

static long fulfil(const struct order *order, long listener, const struct notification *asked)
{
    const struct wish wish = wish_of(asked);
    struct time times[2];
    char bytes[MAX_LINK_BYTES];
    struct text link = TEXT_IN(bytes);
    if (wish.change == CHANGE_NOTHING)
        return -EPERM;
    if (wish.times) {
        const long result = read_times(asked->pid, &wish, times);
        if (result < 0)
            return result;
    }
    const long file = open_file(asked->pid, &wish);
    if (file < 0)
        return file;
    add(&link, "/proc/self/fd/");
    add_number(&link, file);
    long result = -EPERM;
    /* The call is still pending, so the data read by the caller's number was the caller's own. */
    if (CALL(SYS_ioctl, listener, NOTIFICATION_IS_VALID, &asked->id) >= 0 && is_own(order, bytes))
        result = change(&wish, times, bytes);
    CALL(SYS_close, file);
    return result;
}

static void answer_one(const struct order *order, long listener)
{
    struct notification asked;
    memset(&asked, 0, sizeof asked);
    if (CALL(SYS_ioctl, listener, NOTIFICATION_RECEIVE, &asked) < 0)
        return; /* the caller was killed */
    const struct answer answer = {.id = asked.id, .error = (int32_t)fulfil(order, listener, &asked)};
    CALL(SYS_ioctl, listener, NOTIFICATION_ANSWER, &answer);
}

/* Take the listener, or report that none will come. */
static int32_t receive_listener(long channel)
{
    char byte;
    int32_t listener;
    size_t number = 1;
    const long got = receive_passed(channel, &byte, sizeof byte, &listener, &number);
    CALL(SYS_close, channel);
    return got > 0 && number ? listener : NOT_POLLED;
}

/* Answer until the program has ended, then end as it did. */
_Noreturn static void serve(const struct order *order, long program, long channel)
{
    int status = STATUS_UNKNOWN;
    struct polled both[2] = {{open_child_signals(), POLLIN, 0}, {(int)channel, POLLIN, 0}};
    bool has_listener = false;
    if (both[0].fd < 0)
        leave(EXIT_REFUSED);
    while (reap(program, &status), status == STATUS_UNKNOWN) {
        if (CALL(SYS_ppoll, both, 2, 0, 0) < 0)
            continue;
        if (both[0].returned)
            take_child_signal(both[0].fd);
        if (!both[1].returned)
            continue;
        if (!has_listener)
            both[1].fd = receive_listener(channel);
        else if (both[1].returned & POLLIN)
            answer_one(order, both[1].fd);
        else
            both[1].fd = NOT_POLLED; /* no process has the filter now */
        has_listener = true;
    }
    leave(exit_status(status));
}

_Noreturn static void become_broker(const struct order *order, long program, long channel)
{
    char bytes[MAX_STEP_BYTES];
    struct text step = TEXT_IN(bytes);
    const long parent = CALL(SYS_getppid);
    for (long fd = 0; fd <= 2; fd++)
        CALL(SYS_close, fd);
    close_others(channel);
    ignore_signal(SIGTERM);
    /* Become the parent of all processes that the program leaves behind: under Yama, only ancestors read memory. */
    if (change_user(order, &step) < 0 || control_process(PR_SET_CHILD_SUBREAPER, 1) < 0)
        leave(EXIT_REFUSED);
    if (tell_end_of_parent(SIGKILL) < 0 || CALL(SYS_getppid) != parent)
        leave(EXIT_REFUSED);
    serve(order, program, channel);
}

long start_broker(const struct order *order)
{
    int32_t ends[2];
    const long broker = CALL(SYS_getpid);
    /* Begin a domain of both: here the broker can read the program's memory, and no other process's. */
    if (forbid_new_privileges() < 0 || set_apart(true) < 0)
        leave(EXIT_REFUSED);
    if (CALL(SYS_socketpair, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        leave(EXIT_REFUSED);
    const long program = CALL(SYS_clone, SIGCHLD);
    if (program < 0)
        leave(EXIT_REFUSED);
    if (program)
        become_broker(order, program, ends[0]);
    CALL(SYS_close, ends[0]);
    /* Give the program its own group: a signal to that group stays in it. */
    if (CALL(SYS_setsid) < 0 || tell_end_of_parent(SIGKILL) < 0 || CALL(SYS_getppid) != broker)
        leave(EXIT_REFUSED);
    return ends[1];
}

long hand_over_listener(long channel, long listener)
{
    const int32_t fd = (int32_t)listener;
    const long result = pass(channel, &fd, 1);
    CALL(SYS_close, listener);
    CALL(SYS_close, channel);
    return result;
}
