#include "gate.h"

#include "broker.h"
#include "confine.h"
#include "listing.h"
#include "observe.h"
#include "order.h"
#include "passed.h"
#include "prepare.h"
#include "text.h"

enum {
    MAX_REPORT_BYTES = 64 * 1024,
    MAX_STEP_BYTES = 4096 + 256,
    FIRST_FD = 3,
    MAX_ENTRANCES = 8,
    NO_CHANNEL = -1,
    LAST_FD_TRIED = 4096, /* where no listing says which are open: few processes have had more */
};

static char report_bytes[MAX_REPORT_BYTES];

/* Entrances of control groups, which came with the order, and with which errno we have joined by each. */
static struct {
    int32_t fds[MAX_ENTRANCES], errors[MAX_ENTRANCES];
    size_t count;
} entrances;

/* Read exactly so much; nothing is started for an owner who is gone. */
static void receive(long control, void *place, size_t size)
{
    unsigned char *at = place;
    while (size) {
        const long got = CALL(SYS_read, control, at, size);
        if (got == -EINTR)
            continue;
        if (got <= 0)
            leave(EXIT_REFUSED);
        at += got;
        size -= (size_t)got;
    }
}

static void send(long control, const char *bytes, size_t size)
{
    while (size) {
        const long sent = CALL(SYS_sendto, control, bytes, size, MSG_NOSIGNAL);
        if (sent == -EINTR)
            continue;
        if (sent <= 0)
            leave(EXIT_REFUSED);
        bytes += sent;
        size -= (size_t)sent;
    }
}

static bool is_complete(const struct order *order)
{
    return has(order, TAG_PROGRAM) && has(order, TAG_ARGUMENT) && has(order, TAG_DIRECTORY) && has(order, TAG_OWNER) &&
           count(order, TAG_LISTENER) <= MAX_LISTENERS;
}

static struct order receive_order(long control)
{
    unsigned char length[8];
    uint64_t size = 0;
    long got;
    do {
        entrances.count = MAX_ENTRANCES;
        got = receive_passed(control, length, sizeof length, entrances.fds, &entrances.count);
    } while (got == -EINTR);
    if (got <= 0)
        leave(EXIT_REFUSED);
    receive(control, length + got, sizeof length - (size_t)got);
    for (size_t at = 0; at < sizeof length; at++)
        size = size << 8 | length[at];
    if (!size || size > MAX_ORDER_BYTES)
        leave(EXIT_REFUSED);
    unsigned char *bytes = allocate(size, EXIT_REFUSED);
    receive(control, bytes, size);
    const struct order order = {bytes, size};
    if (!is_sound(&order) || !is_complete(&order))
        leave(EXIT_REFUSED);
    return order;
}

/* A process that moves itself waits for nothing, where its owner would wait for all processors to have seen it. */
static void join_groups(void)
{
    for (size_t at = 0; at < entrances.count; at++) {
        const long result = CALL(SYS_write, entrances.fds[at], "0", 1);
        entrances.errors[at] = result < 0 ? (int32_t)-result : 0;
    }
}

static void close_listed(long kept)
{
    struct listing open;
    if (!open_listing(&open, "/proc/self/fd"))
        return;
    for (long fd; (fd = next_listed(&open)) >= 0;)
        if (fd >= FIRST_FD && fd != kept && fd != open.folder)
            CALL(SYS_close, fd);
}

void close_others(long kept)
{
    long result = CALL(SYS_close_range, kept + 1, UINT32_MAX, 0);
    if (result >= 0 && kept > FIRST_FD)
        result = CALL(SYS_close_range, FIRST_FD, kept - 1, 0);
    if (result >= 0)
        return;
    /* Before Linux 5.9, or in a container that forbids it. */
    for (long fd = FIRST_FD; fd < LAST_FD_TRIED; fd++)
        if (fd != kept)
            CALL(SYS_close, fd);
    close_listed(kept);
}

static void report_to(long control, long channel, const struct order *order)
{
    char step_bytes[MAX_STEP_BYTES];
    struct text step = TEXT_IN(step_bytes), report = TEXT_IN(report_bytes);
    report.size--; /* for the empty line */
    long error = prepare(order, control, channel, &step);
    if (error >= 0) {
        for (size_t at = 0; at < entrances.count; at++)
            add_number_fact(&report, "joined", entrances.errors[at]);
        observe(order, &report);
        if (report.overflowed) {
            step.used = 0;
            add(&step, "report all of it");
            error = -EINVAL;
        }
    }
    if (error < 0) {
        char what_bytes[MAX_STEP_BYTES + 24];
        struct text what = TEXT_IN(what_bytes);
        report.used = 0;
        add_number(&what, -error);
        add(&what, " ");
        add(&what, step_bytes);
        add_fact(&report, "failed", what_bytes);
    }
    report.size++;
    add(&report, "\n");
    send(control, report.bytes, report.used);
}

_Noreturn void gate(long control, char *const *streams, int stream_count)
{
    static const int RESET[] = {SIGPIPE, SIGXFSZ, SIGINT};
    char go, digits[24];
    for (int number = 0; number < stream_count; number++)
        CALL(SYS_dup3, number_of(streams[number]), number, 0);
    CALL(SYS_fcntl, control, F_SETFD, FD_CLOEXEC);
    /* So that a signal to the group of the program reaches its children too, and nobody else. */
    if (CALL(SYS_setsid) < 0)
        leave(EXIT_REFUSED);
    const struct order order = receive_order(control);
    join_groups();
    close_others(control);
    report_to(control, has(&order, TAG_OWN) ? start_broker(&order) : NO_CHANNEL, &order);
    receive(control, &go, 1);
    if (go != 'g')
        leave(EXIT_REFUSED);
    /* Our owner may ignore them; no program expects to be born deaf to them. */
    for (size_t at = 0; at < sizeof RESET / sizeof *RESET; at++)
        reset_signal(RESET[at]);
    struct record program;
    find(&order, TAG_PROGRAM, &program);
    const char **argv = words(&order, TAG_ARGUMENT, EXIT_NO_EXEC), **env = words(&order, TAG_VARIABLE, EXIT_NO_EXEC);
    const long error = CALL(SYS_execve, text_of(&program), argv, env);
    struct text number = TEXT_IN(digits);
    add_number(&number, -error);
    send(control, number.bytes, number.used);
    leave(EXIT_NO_EXEC);
}
