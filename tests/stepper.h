// A child that is led through a piece of code one instruction at a time. The test looks at shared memory after each of them, as if
// the child had been killed right there, or delivers a signal right there. What a race shows once in a million runs shows every time.
#ifndef TESTS_STEPPER_H
#define TESTS_STEPPER_H

#include <criterion/criterion.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

// In the child: here the test takes over, or lets it run on.
static inline void stepper_mark(void)
{
    raise(SIGSTOP);
}

enum { STEPPER_ENDED = -1, STEPPER_AT_MARK = 0, STEPPER_STEPPED = 1 };

// Waits for the child's next stop: one of the above, or the number of a signal that was kept back until now.
static inline int stepper_wait(pid_t pid)
{
    int status;
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    if (WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP)
        return STEPPER_AT_MARK;
    if (WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP)
        return STEPPER_STEPPED;
    if (WIFSTOPPED(status) && WSTOPSIG(status) == SIGUSR1)
        return SIGUSR1;
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child's status is %#x", (unsigned)status);
    return STEPPER_ENDED;
}

// Starts the child and takes it to its first mark.
static inline pid_t stepper_start(void (*body)(void))
{
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
            _exit(77);
        body();
        _exit(0);
    }
    cr_assert_eq(stepper_wait(pid), STEPPER_AT_MARK);
    return pid;
}

// Lets it run to its next mark, or its end.
static inline int stepper_run(pid_t pid)
{
    int result = 0;
    do {
        cr_assert_eq(ptrace(PTRACE_CONT, pid, NULL, (void *)(long)result), 0);
        result = stepper_wait(pid);
    } while (result == SIGUSR1);
    return result;
}

// One instruction; `signal_number`, when not 0, is delivered first, and the step is then the one into its handler; while the child
// blocks the signal it is kept back.
static inline int stepper_step(pid_t pid, int signal_number)
{
    do {
        cr_assert_eq(ptrace(PTRACE_SINGLESTEP, pid, NULL, (void *)(long)signal_number), 0);
        signal_number = stepper_wait(pid);
    } while (signal_number == SIGUSR1);
    return signal_number;
}

static inline void stepper_kill(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

#endif
