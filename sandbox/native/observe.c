#include "observe.h"

enum {
    MAX_STATUS_BYTES = 64 * 1024, /* most of it the groups of a user who is in very many */
    MAX_LINK_BYTES = 256,
};

static const char *const STATUS_FIELDS[] = {"NoNewPrivs", "Seccomp", "CapPrm", "CapEff"};
static const char *const NAMESPACES[] = {"mnt", "pid", "net"};

#define LENGTH(array) (sizeof(array) / sizeof *(array))

static char status[MAX_STATUS_BYTES];

void add_fact(struct text *report, const char *key, const char *value)
{
    const size_t begins = report->used + strlen(key) + 1;
    add(report, key);
    add(report, " ");
    add(report, value);
    for (size_t at = begins; at < report->used; at++)
        if (report->bytes[at] == '\n')
            report->bytes[at] = ' ';
    add(report, "\n");
}

void add_number_fact(struct text *report, const char *key, int64_t value)
{
    char digits[24];
    struct text text = TEXT_IN(digits);
    add_number(&text, value);
    add_fact(report, key, digits);
}

static bool opens(const char *path, long flags)
{
    const long fd = CALL(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC);
    if (fd >= 0)
        CALL(SYS_close, fd);
    return fd >= 0;
}

static void read_status(void)
{
    size_t used = 0;
    const long fd = CALL(SYS_openat, AT_FDCWD, "/proc/self/status", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        while (used < sizeof status - 1) {
            const long size = CALL(SYS_read, fd, status + used, sizeof status - 1 - used);
            if (size <= 0)
                break;
            used += (size_t)size;
        }
        CALL(SYS_close, fd);
    }
    status[used] = 0;
}

/* One line of it, `Key:<tab>value<tab>…`, which ends with a zero byte. */
static void observe_status_line(struct text *report, char *line)
{
    char key_bytes[32];
    for (size_t field = 0; field < LENGTH(STATUS_FIELDS); field++) {
        const size_t length = strlen(STATUS_FIELDS[field]);
        if (!begins_with(line, STATUS_FIELDS[field]) || !begins_with(line + length, ":\t"))
            continue;
        struct text key = TEXT_IN(key_bytes);
        add(&key, "status.");
        add(&key, STATUS_FIELDS[field]);
        char *value = line + length + 2;
        for (char *at = value; *at; at++)
            if (*at == '\t')
                *at = 0;
        add_fact(report, key_bytes, value);
        return;
    }
}

static void observe_status(struct text *report)
{
    read_status();
    for (char *line = status; *line;) {
        char *end = line;
        while (*end && *end != '\n')
            end++;
        char *following = *end ? end + 1 : end;
        *end = 0;
        observe_status_line(report, line);
        line = following;
    }
}

static void observe_namespaces(struct text *report)
{
    char path_bytes[64], link[MAX_LINK_BYTES + 1];
    for (size_t at = 0; at < LENGTH(NAMESPACES); at++) {
        struct text path = TEXT_IN(path_bytes);
        add(&path, "/proc/self/ns/");
        add(&path, NAMESPACES[at]);
        const long size = CALL(SYS_readlinkat, AT_FDCWD, path_bytes, link, MAX_LINK_BYTES);
        link[size < 0 ? 0 : size] = 0;
        char key_bytes[16];
        struct text key = TEXT_IN(key_bytes);
        add(&key, "ns.");
        add(&key, NAMESPACES[at]);
        add_fact(report, key_bytes, link);
    }
}

static void observe_files(const struct order *order, struct text *report)
{
    struct record path;
    for (size_t at = 0; next(order, &at, TAG_SECRET, &path);)
        if (opens(text_of(&path), O_RDONLY | O_NONBLOCK))
            add_fact(report, "opened", text_of(&path));
    for (size_t at = 0; next(order, &at, TAG_FIXED, &path);)
        if (CALL(SYS_faccessat, AT_FDCWD, text_of(&path), W_OK) >= 0)
            add_fact(report, "writable", text_of(&path));
}

static void observe_processes(int64_t owner, struct text *report)
{
    char path_bytes[64];
    add_number_fact(report, "signals_owner", CALL(SYS_kill, owner, 0) >= 0);
    struct text memory = TEXT_IN(path_bytes);
    add(&memory, "/proc/");
    add_number(&memory, CALL(SYS_getppid));
    add(&memory, "/mem");
    add_number_fact(report, "holds_first", opens(path_bytes, O_WRONLY));
}

/* Set no times of a file outside, without a change: the kernel permits this to every user, unless a filter refuses. */
static void observe_metadata(struct text *report)
{
    const int64_t unchanged[4] = {0, UTIME_OMIT, 0, UTIME_OMIT};
    const long result = CALL(SYS_utimensat, AT_FDCWD, "/", unchanged, 0);
    add_number_fact(report, "changes_metadata", result >= 0);
}

static void observe_sockets(struct text *report)
{
    const long fd = CALL(SYS_socket, AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0)
        CALL(SYS_close, fd);
    add_number_fact(report, "socket.inet", fd >= 0);
}

static void observe_limits(const struct order *order, struct text *report)
{
    struct record limit;
    char key_bytes[48];
    for (size_t at = 0; next(order, &at, TAG_RLIMIT, &limit);) {
        struct rlimit found;
        if (CALL(SYS_prlimit64, 0, integer_of(&limit, 0), 0, &found) < 0)
            continue; /* a limit that is not told counts as unknown */
        struct text key = TEXT_IN(key_bytes);
        add(&key, "rlimit.");
        add_number(&key, integer_of(&limit, 0));
        add_number_fact(report, key_bytes, (int64_t)found.soft); /* none at all is -1 */
    }
}

void observe(const struct order *order, struct text *report)
{
    struct record owner;
    find(order, TAG_OWNER, &owner);
    observe_status(report);
    observe_namespaces(report);
    observe_files(order, report);
    observe_processes(integer_of(&owner, 0), report);
    observe_metadata(report);
    observe_sockets(report);
    observe_limits(order, report);
}
