/* What runs inside a sandbox before the program does, and above it where no PID namespace holds its tree together.

       quarterdeck-gate gate CONTROL [STREAM…]
       quarterdeck-gate reaper CONTROL LEASH WANTS_APART [OOM_SCORE]
       quarterdeck-gate guard LEASH OOM_SCORE PROGRAM [ARGUMENT…]
       quarterdeck-gate readonly ORDER
       quarterdeck-gate network NAMESPACE OWNER
       quarterdeck-gate kernel SIGNAL PROGRAM [ARGUMENT…]
       quarterdeck-gate version
 */

#include "confine.h"
#include "gate.h"
#include "parts.h"
#include "reaper.h"
#include "text.h"

enum { EXIT_USAGE = 2, EXIT_SMASHED = 127, AT_RANDOM = 25, STDOUT = 1 };

/* What our owner compares with its own sources: a program that an older checkout built is not used. */
static const char VERSION[] = "quarterdeck-gate " ARCHITECTURE " " SOURCES "\n";

uintptr_t __stack_chk_guard;

_Noreturn void __stack_chk_fail(void);
_Noreturn void __stack_chk_fail(void)
{
    leave(EXIT_SMASHED);
}

/* Execute a program as a process that gets a signal when the thread that started us ends. */
_Noreturn static void execute(long number, char **argv, char **environment)
{
    if (tell_end_of_parent(number) >= 0)
        CALL(SYS_execve, argv[0], argv, environment);
    leave(EXIT_NO_EXEC);
}

_Noreturn static void run(int argc, char **argv)
{
    char **environment = argv + argc + 1;
    if (argc >= 3 && is_same(argv[1], "gate"))
        gate(number_of(argv[2]), argv + 3, argc - 3);
    if ((argc == 5 || argc == 6) && is_same(argv[1], "reaper"))
        reaper(number_of(argv[2]), number_of(argv[3]), is_same(argv[4], "1"), argc == 6 ? argv[5] : 0);
    if (argc >= 5 && is_same(argv[1], "guard"))
        guard(number_of(argv[2]), argv[3], argv + 4, environment);
    if (argc == 3 && is_same(argv[1], "readonly"))
        readonly(number_of(argv[2]), environment);
    if (argc == 4 && is_same(argv[1], "network"))
        network(number_of(argv[2]), number_of(argv[3]));
    if (argc >= 4 && is_same(argv[1], "kernel"))
        execute(number_of(argv[2]), argv + 3, environment);
    if (argc == 2 && is_same(argv[1], "version"))
        leave(CALL(SYS_write, STDOUT, VERSION, sizeof VERSION - 1) < 0);
    leave(EXIT_USAGE);
}

/* `stack`: the number of arguments, their pointers, zero, the environment's, zero, then pairs that the kernel tells. */
_Noreturn void start(long *stack);
_Noreturn void start(long *stack)
{
    char **argv = (char **)(stack + 1);
    long *told = stack + 1 + stack[0] + 1;
    while (*told++)
        ;
    for (; told[0]; told += 2)
        if (told[0] == AT_RANDOM)
            __stack_chk_guard = *(const uintptr_t *)told[1] & ~(uintptr_t)0xFF; /* a zero byte stops what copies texts */
    run((int)stack[0], argv);
}

#if defined(__x86_64__)
__asm__(".text\n.global _start\n.type _start, @function\n_start:\n"
        "xor %ebp, %ebp\nmov %rsp, %rdi\nand $-16, %rsp\ncall start\nhlt\n");
#else
__asm__(".text\n.global _start\n.type _start, %function\n_start:\n"
        "mov x29, #0\nmov x30, #0\nmov x0, sp\nand sp, x0, #-16\nbl start\nbrk #0\n");
#endif
