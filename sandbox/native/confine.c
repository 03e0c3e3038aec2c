#include "confine.h"

#include "text.h"

enum {
    CAPABILITY_VERSION_3 = 0x20080522,
    LAST_CAPABILITY = 63,  /* as many as the kernel's sets have bits; EINVAL says which it does not know */
    SECUREBITS = 0xEF,     /* NOROOT, NO_SETUID_FIXUP, NO_CAP_AMBIENT_RAISE, each with its lock; KEEP_CAPS locked off */
    CREATE_RULESET_VERSION = 1,
    RULE_PATH_BENEATH = 1,
    LAST_KNOWN_VERSION = 9,
};

enum {
    EXECUTE = 1 << 0,
    WRITE_FILE = 1 << 1,
    READ_FILE = 1 << 2,
    READ_DIR = 1 << 3,
    MAKE_CHAR = 1 << 6,
    MAKE_BLOCK = 1 << 11,
    REFER = 1 << 13,
    TRUNCATE = 1 << 14,
    IOCTL_DEV = 1 << 15,
    RESOLVE_UNIX = 1 << 16,
    ALL_RIGHTS = (1 << 17) - 1,
    READ = EXECUTE | READ_FILE | READ_DIR,
    WRITE = ALL_RIGHTS & ~(MAKE_CHAR | MAKE_BLOCK),
    DEVICE = READ_FILE | WRITE_FILE | READ_DIR | TRUNCATE | IOCTL_DEV,
    OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV | RESOLVE_UNIX,
};

enum { TCP = 3, SCOPES = 3, SCOPE_SIGNALS = 2 };

/* How many rights on files each version of Landlock knows, the lowest bits first. */
static const unsigned char RIGHTS_BY_VERSION[LAST_KNOWN_VERSION + 1] = {0, 13, 14, 15, 15, 16, 16, 16, 16, 17};

struct ruleset {
    uint64_t files, network, scopes;
};

struct __attribute__((packed)) path_rule {
    uint64_t rights;
    int32_t fd;
};

struct filter {
    uint16_t length;
    const void *instructions;
};

struct signal_action {
    uintptr_t handler;
    unsigned long flags;
    uintptr_t restorer;
    uint64_t mask;
};

long control_process(long option, long argument)
{
    return CALL(SYS_prctl, option, argument);
}

long forbid_new_privileges(void)
{
    return control_process(PR_SET_NO_NEW_PRIVS, 1);
}

long tell_end_of_parent(long number)
{
    return control_process(PR_SET_PDEATHSIG, number);
}

long lock_securebits(void)
{
    const long result = control_process(PR_SET_SECUREBITS, SECUREBITS);
    return result == -EPERM ? 0 : result; /* without CAP_SETPCAP: new privileges are forbidden, and no exec gets past */
}

long clear_capabilities(void)
{
    struct {
        uint32_t version;
        int32_t pid;
    } header = {CAPABILITY_VERSION_3, 0};
    const uint32_t nothing[6] = {0};
    long result = control_process(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL);
    if (result < 0)
        return result;
    for (long capability = 0; capability <= LAST_CAPABILITY; capability++) {
        result = control_process(PR_CAPBSET_DROP, capability);
        if (result == -EINVAL || result == -EPERM)
            break; /* past the last one; or we may not, and then have nothing to gain from: no new privileges */
        if (result < 0)
            return result;
    }
    return CALL(SYS_capset, &header, nothing);
}

long load_seccomp(const struct record *program)
{
    const struct filter filter = {(uint16_t)(program->size / 8), program->payload};
    return CALL(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
}

long load_asking_seccomp(const struct record *program)
{
    const struct filter filter = {(uint16_t)(program->size / 8), program->payload};
    const long flags = SECCOMP_NEW_LISTENER | SECCOMP_WAIT_KILLABLE;
    const long listener = CALL(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &filter);
    if (listener != -EINVAL)
        return listener;
    /* Before Linux 5.19, a call that a signal interrupts asks again. */
    return CALL(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_NEW_LISTENER, &filter);
}

long landlock_version(void)
{
    return CALL(SYS_landlock_create_ruleset, 0, 0, CREATE_RULESET_VERSION);
}

static long create_ruleset(const struct ruleset *wanted, long version)
{
    const size_t size = version >= LANDLOCK_SCOPES_SINCE ? 24 : version >= LANDLOCK_TCP_SINCE ? 16 : 8;
    return CALL(SYS_landlock_create_ruleset, wanted, size, 0);
}

static long allow(long ruleset, const char *path, uint64_t rights)
{
    long fd = CALL(SYS_openat, AT_FDCWD, path, O_PATH | O_CLOEXEC | O_DIRECTORY);
    if (fd == -ENOTDIR) {
        rights &= OF_FILES;
        fd = CALL(SYS_openat, AT_FDCWD, path, O_PATH | O_CLOEXEC);
    }
    if (fd < 0)
        return 0; /* not there, or out of our reach: then nothing is lost */
    const struct path_rule rule = {rights, (int32_t)fd};
    const long result = CALL(SYS_landlock_add_rule, ruleset, RULE_PATH_BENEATH, &rule, 0);
    CALL(SYS_close, fd);
    return result;
}

static long enforce(long ruleset)
{
    const long result = CALL(SYS_landlock_restrict_self, ruleset, 0);
    CALL(SYS_close, ruleset);
    return result;
}

long restrict_to(const struct order *order, bool denies_tcp)
{
    static const struct {
        int tag;
        uint64_t rights;
    } KINDS[] = {{TAG_READ, READ}, {TAG_WRITE, WRITE}, {TAG_DEVICE, DEVICE}};
    const long version = landlock_version();
    if (version < 0)
        return version;
    const long known = version > LAST_KNOWN_VERSION ? LAST_KNOWN_VERSION : version;
    const uint64_t handled = (1UL << RIGHTS_BY_VERSION[known]) - 1;
    const struct ruleset wanted = {handled, denies_tcp ? TCP : 0, SCOPES};
    const long ruleset = create_ruleset(&wanted, version);
    if (ruleset < 0)
        return ruleset;
    for (size_t kind = 0; kind < sizeof KINDS / sizeof *KINDS; kind++) {
        struct record path;
        for (size_t at = 0; next(order, &at, KINDS[kind].tag, &path);) {
            const long result = allow(ruleset, text_of(&path), KINDS[kind].rights & handled);
            if (result < 0)
                return result; /* the ruleset goes with this process */
        }
    }
    return enforce(ruleset);
}

long set_apart(bool with_files)
{
    const long version = landlock_version();
    if (version < 0)
        return version;
    const bool has_scopes = version >= LANDLOCK_SCOPES_SINCE;
    /* A ruleset must handle something, and one that handles files takes this right unless it is given back. */
    const struct ruleset wanted = {with_files || !has_scopes ? REFER : 0, 0, has_scopes ? SCOPE_SIGNALS : 0};
    const long ruleset = CALL(SYS_landlock_create_ruleset, &wanted, has_scopes ? 24 : 8, 0);
    if (ruleset < 0)
        return ruleset;
    const long result = wanted.files ? allow(ruleset, "/", REFER) : 0;
    return result < 0 ? result : enforce(ruleset);
}

void raise_oom_score(const char *score)
{
    const long fd = CALL(SYS_openat, AT_FDCWD, "/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return; /* no /proc in here, or a container that forbids it */
    CALL(SYS_write, fd, score, strlen(score));
    CALL(SYS_close, fd);
}

void raise_own_oom_score(int64_t score)
{
    char digits[24];
    struct text text = TEXT_IN(digits);
    add_number(&text, score);
    raise_oom_score(digits);
}

static void take_signal(int number, uintptr_t handler)
{
    const struct signal_action action = {handler, 0, 0, 0};
    CALL(SYS_rt_sigaction, number, &action, 0, sizeof action.mask);
}

void ignore_signal(int number)
{
    take_signal(number, 1);
}

void reset_signal(int number)
{
    take_signal(number, 0);
}
