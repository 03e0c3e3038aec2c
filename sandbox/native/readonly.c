/* Close parts of what a sandbox may write: read-only mounts in a mount namespace of its own, before the sandbox exists.

   Afterwards it becomes what builds the sandbox, which takes these mounts along, and cannot undo them: who is in a
   namespace of less privilege may not unmount what came with it, and no confined process may mount.

   - A file that is a mount point cannot be replaced, but a folder above it could be renamed, and another put in its
     place.  So every folder between is a mount point too: itself, mounted upon itself, as writable as before.
   - No link is followed (openat2), and what is mounted, and upon what, is the one thing that was opened: whoever swaps a
     folder meanwhile makes this fail, which starts nothing.
   - Older bubblewrap (before 0.12, CVE-2026-87766) follows links where it makes mount points below writable ones.  Here
     nothing is made, and it has to make none.

   Source: mount_setattr(2), open_tree(2), move_mount(2), openat2(2), user_namespaces(7). */

#include "parts.h"

#include "confine.h"
#include "failure.h"
#include "text.h"

enum {
    ATTEMPTS = 5, /* at a path that is replaced while it is being closed, as editors and git do with their files */
    NOT_CLOSED = 0,
};

enum {
    CLONE_NEWNS = 0x00020000,
    CLONE_NEWUSER = 0x10000000,
    AT_RECURSIVE = 0x8000,
    OPEN_TREE_CLONE = 1,
    MOVE_HERE_ONTO_HERE = 0x44, /* MOVE_MOUNT_F_EMPTY_PATH and MOVE_MOUNT_T_EMPTY_PATH: the descriptors themselves */
    MOUNT_ATTR_RDONLY = 1,
    MS_PRIVATE = 1 << 18,
    RESOLVE_NO_LINKS = 0x06, /* RESOLVE_NO_MAGICLINKS and RESOLVE_NO_SYMLINKS */
    ST_RDONLY = 1,
};

struct mount_wish {
    uint64_t set, clear, propagation, user_namespace;
};

struct open_wish {
    uint64_t flags, mode, resolve;
};

struct filesystem {
    uint64_t before_flags[10], flags, after_flags[5];
};

struct kept {
    int32_t place, tree;
};

static void map_to_itself(const char *path, long id)
{
    char bytes[64];
    struct text text = TEXT_IN(bytes);
    add_number(&text, id);
    add(&text, " ");
    add_number(&text, id);
    add(&text, " 1");
    write_to(path, bytes);
}

static long set_mounts(long place, const char *path, long flags, uint64_t attributes, uint64_t propagation)
{
    const struct mount_wish wish = {attributes, 0, propagation, 0};
    return CALL(SYS_mount_setattr, place, path, flags, &wish, sizeof wish);
}

/* A mount namespace of our own; an ordinary user needs a user namespace for it, and stays who they are in it. */
static void leave_namespace(void)
{
    const long uid = CALL(SYS_geteuid), gid = CALL(SYS_getegid);
    if (uid == 0) {
        check("/", CALL(SYS_unshare, CLONE_NEWNS));
    } else {
        check("/proc/self/ns/user", CALL(SYS_unshare, CLONE_NEWUSER | CLONE_NEWNS));
        write_to("/proc/self/setgroups", "deny");
        map_to_itself("/proc/self/uid_map", uid);
        map_to_itself("/proc/self/gid_map", gid);
    }
    check("a mount namespace", set_mounts(AT_FDCWD, "/", AT_RECURSIVE, 0, MS_PRIVATE));
}

/* The one thing at a path, through no link. */
static long open_place(const char *path)
{
    const struct open_wish wish = {O_PATH | O_CLOEXEC, 0, RESOLVE_NO_LINKS};
    return CALL(SYS_openat2, AT_FDCWD, path, &wish, sizeof wish);
}

/* The mounts at a place, as a tree of their own. */
static long clone_tree(long place)
{
    return CALL(SYS_open_tree, place, "", OPEN_TREE_CLONE | AT_RECURSIVE | AT_EMPTY_PATH | O_CLOEXEC);
}

static long move_onto(long tree, long place)
{
    return CALL(SYS_move_mount, tree, "", place, "", MOVE_HERE_ONTO_HERE);
}

/* Make every mount read-only, and mount what is to stay as it is upon itself. */
static void close_all_but_kept(const struct order *order)
{
    struct record path;
    size_t number = 0;
    struct kept *kept = allocate((count(order, TAG_KEPT_OPEN) + 1) * sizeof *kept, EXIT_FAILED);
    for (size_t at = 0; next(order, &at, TAG_KEPT_OPEN, &path); number++) {
        kept[number].place = (int32_t)check(text_of(&path), open_place(text_of(&path)));
        kept[number].tree = (int32_t)check(text_of(&path), clone_tree(kept[number].place));
    }
    check("/", set_mounts(AT_FDCWD, "/", AT_RECURSIVE, MOUNT_ATTR_RDONLY, 0));
    while (number--) {
        check("a mount namespace", move_onto(kept[number].tree, kept[number].place));
        CALL(SYS_close, kept[number].tree);
        CALL(SYS_close, kept[number].place);
    }
}

static long mount_upon_itself(const char *path, bool closed)
{
    const long place = open_place(path);
    if (place < 0)
        return place;
    const long tree = clone_tree(place);
    long result = tree;
    if (tree >= 0) {
        if (closed)
            result = set_mounts(tree, "", AT_RECURSIVE | AT_EMPTY_PATH, MOUNT_ATTR_RDONLY, 0);
        if (result >= 0)
            result = move_onto(tree, place);
        CALL(SYS_close, tree);
    }
    CALL(SYS_close, place);
    return result;
}

static bool is_read_only(const char *path)
{
    struct filesystem found;
    const long place = check(path, open_place(path));
    check(path, CALL(SYS_fstatfs, place, &found));
    CALL(SYS_close, place);
    return found.flags & ST_RDONLY;
}

static bool is_closed(const struct record *step)
{
    return step->payload[0] != NOT_CLOSED;
}

static const char *path_of(const struct record *step)
{
    return (const char *)step->payload + 1;
}

static void take_step(const struct record *step)
{
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        const long result = mount_upon_itself(path_of(step), is_closed(step));
        if (result != -ENOENT) {
            check(path_of(step), result);
            return;
        }
    }
    fail_with(path_of(step), "it vanished while it was being closed: try again");
}

_Noreturn void readonly(long order_fd, char *const *environment)
{
    const struct order order = read_order(order_fd);
    struct record found;
    if (!has(&order, TAG_ARGUMENT))
        fail("the order", -EINVAL);
    if (find(&order, TAG_OOM_SCORE, &found))
        raise_own_oom_score(integer_of(&found, 0));
    leave_namespace();
    if (has(&order, TAG_ALL_CLOSED))
        close_all_but_kept(&order);
    for (size_t at = 0; next(&order, &at, TAG_STEP, &found);)
        take_step(&found);
    for (size_t at = 0; next(&order, &at, TAG_STEP, &found);)
        if (is_closed(&found) && !is_read_only(path_of(&found)))
            fail_with(path_of(&found), "it was replaced while it was being closed: try again");
    const char **argv = words(&order, TAG_ARGUMENT, EXIT_FAILED);
    fail(argv[0], CALL(SYS_execve, argv[0], argv, environment));
}
