#include "reaper.h"

#include "confine.h"
#include "gate.h"
#include "listing.h"
#include "text.h"

enum {
    KILL_ROUNDS = 2000, /* of two milliseconds: four seconds, then we leave the rest to our owner's own sweep */
    ROUND_NS = 2 * 1000 * 1000,
    NO_STATUS = 137, /* as if killed: the program was gone before anybody could ask */
    MAX_PIDS = 65536, /* a round; who has more is killed in several */
    WNOHANG = 1,
    SIG_BLOCK = 0,
    SFD_FLAGS = O_NONBLOCK | O_CLOEXEC,
    SIGNALFD_BYTES = 128,
};

static int32_t pids[MAX_PIDS];

/* Whether our signals reach nothing but what is below us, from here on. */
static bool keep_apart(void)
{
    if (landlock_version() < LANDLOCK_SCOPES_SINCE)
        return false;
    if (forbid_new_privileges() < 0 || set_apart(true) < 0)
        leave(EXIT_REFUSED);
    /* What reaches our owner would reach the whole machine. */
    return CALL(SYS_kill, CALL(SYS_getppid), 0) == -EPERM;
}

bool reap(long program, int *status)
{
    for (;;) {
        int found;
        const long pid = CALL(SYS_wait4, -1, &found, WNOHANG, 0);
        if (pid == -EINTR)
            continue;
        if (pid <= 0)
            return pid == 0;
        if (pid == program && *status == STATUS_UNKNOWN)
            *status = found;
    }
}

int open_child_signals(void)
{
    const uint64_t child_ended = 1UL << (SIGCHLD - 1);
    CALL(SYS_rt_sigprocmask, SIG_BLOCK, &child_ended, 0, sizeof child_ended);
    return (int)CALL(SYS_signalfd4, -1, &child_ended, sizeof child_ended, SFD_FLAGS);
}

void take_child_signal(int fd)
{
    unsigned char told[SIGNALFD_BYTES];
    CALL(SYS_read, fd, told, sizeof told);
}

/* Reap until the program has ended or the leash is dropped. */
static int wait_for(long program, long leash)
{
    char told;
    int status = STATUS_UNKNOWN;
    struct polled both[2] = {{(int)leash, POLLIN, 0}, {open_child_signals(), POLLIN, 0}};
    if (both[1].fd < 0)
        return status; /* nothing could be waited for: all of it ends */
    for (;;) {
        reap(program, &status);
        if (status != STATUS_UNKNOWN)
            return status;
        if (CALL(SYS_ppoll, both, 2, 0, 0) < 0)
            continue;
        if (both[1].returned)
            take_child_signal(both[1].fd);
        if (both[0].returned && CALL(SYS_read, leash, &told, 1) <= 0)
            return status;
    }
}

static size_t add_children(const char *path, size_t known)
{
    char text[4096];
    long pid = 0, size;
    const long fd = CALL(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return known;
    while ((size = CALL(SYS_read, fd, text, sizeof text)) > 0) {
        for (long at = 0; at < size; at++) {
            if (text[at] >= '0' && text[at] <= '9') {
                pid = pid * 10 + (text[at] - '0');
            } else if (pid) {
                if (known < MAX_PIDS)
                    pids[known++] = (int32_t)pid;
                pid = 0;
            }
        }
    }
    CALL(SYS_close, fd);
    return known;
}

static size_t add_children_of(long pid, size_t known)
{
    char path_bytes[96];
    struct text path = TEXT_IN(path_bytes);
    struct listing threads;
    add(&path, "/proc/");
    add_number(&path, pid);
    add(&path, "/task/");
    const size_t stem = path.used;
    if (!open_listing(&threads, path_bytes))
        return known;
    for (long thread; (thread = next_listed(&threads)) >= 0;) {
        path.used = stem;
        add_number(&path, thread);
        add(&path, "/children");
        known = add_children(path_bytes, known);
    }
    return known;
}

/* Every process below us, as many as there is room for. */
static size_t find_descendants(void)
{
    size_t known = add_children_of(CALL(SYS_getpid), 0);
    for (size_t at = 0; at < known; at++)
        known = add_children_of(pids[at], known);
    return known;
}

static void send_all(size_t known, int number)
{
    for (size_t at = 0; at < known; at++)
        CALL(SYS_kill, pids[at], number);
}

static int kill_all(long program, int status, bool is_apart)
{
    const int64_t pause[2] = {0, ROUND_NS};
    for (int round = 0; round < KILL_ROUNDS; round++) {
        if (is_apart) {
            /* All that we may signal, but for ourselves; no fork is faster, the kernel holds them all up for it. */
            CALL(SYS_kill, -1, SIGKILL);
        } else {
            const size_t known = find_descendants();
            send_all(known, SIGSTOP);
            send_all(known, SIGKILL);
        }
        if (!reap(program, &status))
            break;
        CALL(SYS_ppoll, 0, 0, pause, 0);
    }
    return status;
}

int exit_status(int status)
{
    if (status == STATUS_UNKNOWN)
        return NO_STATUS;
    return status & 0x7F ? 128 + (status & 0x7F) : status >> 8 & 0xFF;
}

_Noreturn void reaper(long control, long leash, bool wants_apart, const char *oom_score)
{
    if (oom_score)
        raise_oom_score(oom_score);
    if (control_process(PR_SET_CHILD_SUBREAPER, 1) < 0)
        leave(EXIT_REFUSED);
    /* Not killed: it has to end what it adopted.  But one that is stopped does not see that the leash was dropped. */
    tell_end_of_parent(SIGCONT);
    ignore_signal(SIGTERM);
    const bool is_apart = wants_apart && keep_apart();
    const long parent = CALL(SYS_getpid);
    const long program = CALL(SYS_clone, SIGCHLD);
    if (program < 0)
        leave(EXIT_REFUSED);
    if (program == 0) {
        CALL(SYS_close, leash);
        reset_signal(SIGTERM);
        if (tell_end_of_parent(SIGKILL) < 0 || CALL(SYS_getppid) != parent)
            leave(EXIT_REFUSED);
        gate(control, 0, 0);
    }
    CALL(SYS_close, control);
    for (long fd = 0; fd <= 2; fd++)
        CALL(SYS_close, fd);
    int status = wait_for(program, leash);
    status = kill_all(program, status, is_apart);
    leave(exit_status(status));
}
