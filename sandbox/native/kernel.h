/* The kernel as this program sees it: system calls without a C library, and the constants that they take.

   The program is freestanding: it runs inside sandboxes that show none of this machine's libraries, and it starts where
   a dynamic linker would be most of the cost.  A call returns what the kernel does: a result, or an errno below zero.
   Numbers: arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h of Linux. */

#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__)
#define ARCHITECTURE "x86_64"
#define BY_ARCHITECTURE(x86_64, aarch64) x86_64
#elif defined(__aarch64__)
#define ARCHITECTURE "aarch64"
#define BY_ARCHITECTURE(x86_64, aarch64) aarch64
#else
#error "only x86-64 and aarch64 are known here"
#endif

enum {
    SYS_bind = BY_ARCHITECTURE(49, 200),
    SYS_capset = BY_ARCHITECTURE(126, 91),
    SYS_chdir = BY_ARCHITECTURE(80, 49),
    SYS_clone = BY_ARCHITECTURE(56, 220),
    SYS_close = BY_ARCHITECTURE(3, 57),
    SYS_close_range = 436,
    SYS_dup3 = BY_ARCHITECTURE(292, 24),
    SYS_execve = BY_ARCHITECTURE(59, 221),
    SYS_exit_group = BY_ARCHITECTURE(231, 94),
    SYS_faccessat = BY_ARCHITECTURE(269, 48),
    SYS_fchmod = BY_ARCHITECTURE(91, 52),
    SYS_fchmodat = BY_ARCHITECTURE(268, 53),
    SYS_fchmodat2 = 452,
    SYS_fchown = BY_ARCHITECTURE(93, 55),
    SYS_fchownat = BY_ARCHITECTURE(260, 54),
    SYS_fcntl = BY_ARCHITECTURE(72, 25),
    SYS_fstatfs = BY_ARCHITECTURE(138, 44),
    SYS_getdents64 = BY_ARCHITECTURE(217, 61),
    SYS_getegid = BY_ARCHITECTURE(108, 177),
    SYS_geteuid = BY_ARCHITECTURE(107, 175),
    SYS_getpgid = BY_ARCHITECTURE(121, 155),
    SYS_getpid = BY_ARCHITECTURE(39, 172),
    SYS_getppid = BY_ARCHITECTURE(110, 173),
    SYS_ioctl = BY_ARCHITECTURE(16, 29),
    SYS_kill = BY_ARCHITECTURE(62, 129),
    SYS_landlock_create_ruleset = 444,
    SYS_landlock_add_rule = 445,
    SYS_landlock_restrict_self = 446,
    SYS_lseek = BY_ARCHITECTURE(8, 62),
    SYS_listen = BY_ARCHITECTURE(50, 201),
    SYS_mmap = BY_ARCHITECTURE(9, 222),
    SYS_mount_setattr = 442,
    SYS_move_mount = 429,
    SYS_newfstatat = BY_ARCHITECTURE(262, 79),
    SYS_open_tree = 428,
    SYS_openat = BY_ARCHITECTURE(257, 56),
    SYS_openat2 = 437,
    SYS_ppoll = BY_ARCHITECTURE(271, 73),
    SYS_prctl = BY_ARCHITECTURE(157, 167),
    SYS_prlimit64 = BY_ARCHITECTURE(302, 261),
    SYS_process_vm_readv = BY_ARCHITECTURE(310, 270),
    SYS_read = BY_ARCHITECTURE(0, 63),
    SYS_readlinkat = BY_ARCHITECTURE(267, 78),
    SYS_recvfrom = BY_ARCHITECTURE(45, 207),
    SYS_recvmsg = BY_ARCHITECTURE(47, 212),
    SYS_rt_sigaction = BY_ARCHITECTURE(13, 134),
    SYS_rt_sigprocmask = BY_ARCHITECTURE(14, 135),
    SYS_seccomp = BY_ARCHITECTURE(317, 277),
    SYS_sendmsg = BY_ARCHITECTURE(46, 211),
    SYS_sendto = BY_ARCHITECTURE(44, 206),
    SYS_setgroups = BY_ARCHITECTURE(116, 159),
    SYS_setns = BY_ARCHITECTURE(308, 268),
    SYS_setresgid = BY_ARCHITECTURE(119, 149),
    SYS_setresuid = BY_ARCHITECTURE(117, 147),
    SYS_setsid = BY_ARCHITECTURE(112, 157),
    SYS_signalfd4 = BY_ARCHITECTURE(289, 74),
    SYS_socket = BY_ARCHITECTURE(41, 198),
    SYS_socketpair = BY_ARCHITECTURE(53, 199),
    SYS_umask = BY_ARCHITECTURE(95, 166),
    SYS_unshare = BY_ARCHITECTURE(272, 97),
    SYS_utimensat = BY_ARCHITECTURE(280, 88),
    SYS_wait4 = BY_ARCHITECTURE(61, 260),
    SYS_write = BY_ARCHITECTURE(1, 64),
};

#if defined(__x86_64__)
/* Older calls, which aarch64 lacks. */
enum { SYS_chmod = 90, SYS_chown = 92, SYS_futimesat = 261, SYS_lchown = 94, SYS_utime = 132, SYS_utimes = 235 };
#endif

enum {
    EPERM = 1,
    ENOENT = 2,
    EINTR = 4,
    EBADF = 9,
    ECHILD = 10,
    EACCES = 13,
    EFAULT = 14,
    ENOTDIR = 20,
    EINVAL = 22,
    ENAMETOOLONG = 36,
    ENOSYS = 38,
};

enum { SIGINT = 2, SIGKILL = 9, SIGPIPE = 13, SIGTERM = 15, SIGCHLD = 17, SIGCONT = 18, SIGSTOP = 19, SIGXFSZ = 25 };

enum {
    AT_FDCWD = -100,
    AT_SYMLINK_NOFOLLOW = 0x100,
    AT_EMPTY_PATH = 0x1000,
    O_RDONLY = 0,
    O_WRONLY = 1,
    O_NONBLOCK = 04000,
    O_DIRECTORY = BY_ARCHITECTURE(0200000, 040000),
    O_NOFOLLOW = BY_ARCHITECTURE(0400000, 0100000),
    O_CLOEXEC = 02000000,
    O_PATH = 010000000,
    UTIME_OMIT = (1 << 30) - 2,
    F_SETFD = 2,
    FD_CLOEXEC = 1,
    W_OK = 2,
};

enum {
    AF_UNIX = 1,
    AF_INET = 2,
    AF_INET6 = 10,
    AF_PACKET = 17,
    AF_VSOCK = 40,
    SOCK_STREAM = 1,
    SOCK_DGRAM = 2,
    SOCK_SEQPACKET = 5,
    SOCK_CLOEXEC = 02000000,
    SOL_SOCKET = 1,
    SCM_RIGHTS = 1,
    MSG_NOSIGNAL = 0x4000,
    MSG_CMSG_CLOEXEC = 0x40000000,
};

enum {
    PR_SET_PDEATHSIG = 1,
    PR_SET_SECCOMP = 22,
    PR_CAPBSET_DROP = 24,
    PR_SET_SECUREBITS = 28,
    PR_SET_CHILD_SUBREAPER = 36,
    PR_SET_NO_NEW_PRIVS = 38,
    PR_CAP_AMBIENT = 47,
    PR_CAP_AMBIENT_CLEAR_ALL = 4,
    SECCOMP_MODE_FILTER = 2,
    SECCOMP_SET_MODE_FILTER = 1,
    SECCOMP_NEW_LISTENER = 1 << 3,
    SECCOMP_WAIT_KILLABLE = 1 << 5,
};

enum { RLIMIT_CPU = 0, RLIMIT_NOFILE = 7 };

#define RLIM_INFINITY UINT64_MAX

struct rlimit {
    uint64_t soft, hard;
};

static inline long call6(long number, long a, long b, long c, long d, long e, long f)
{
#if defined(__x86_64__)
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
#else
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc 0"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                     : "memory");
    return x0;
#endif
}

/* Each argument as a whole register; those that are left out are zero. */
#define REGISTER(value) ((long)(value))
#define CALL_OF(number, a, b, c, d, e, f, ...)                                                                         \
    call6(number, REGISTER(a), REGISTER(b), REGISTER(c), REGISTER(d), REGISTER(e), REGISTER(f))
#define CALL(...) CALL_OF(__VA_ARGS__, 0, 0, 0, 0, 0, 0, 0)

_Noreturn static inline void leave(int status)
{
    for (;;)
        CALL(SYS_exit_group, status);
}
