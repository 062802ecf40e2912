#include "cli/isolated.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/say.h"

static bool is_crash(int number)
{
    return number == SIGSEGV || number == SIGBUS || number == SIGABRT || number == SIGFPE || number == SIGILL ||
           number == SIGALRM;
}

int isolated_run(int (*work)(void *context), void *context, const char *subject, int crashed)
{
    fflush(NULL);
    pid_t child = fork();
    if (child < 0) {
        say("cannot start a process to read %s: %s", subject, strerror(errno));
        return crashed;
    }
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);  // what nobody waits for any more may run in circles
        int status = work(context);
        if (fflush(stdout) || ferror(stdout)) {
            say("cannot write to standard output: %s", errno ? strerror(errno) : "an earlier write failed");
            status = status ? status : crashed;
        }
        _exit(status);
    }
    int status;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    if (!is_crash(WTERMSIG(status))) {
        signal(WTERMSIG(status), SIG_DFL);
        raise(WTERMSIG(status));
    }
    say("cannot read %s: it is damaged, and HDF5 crashed on it (%s)", subject, strsignal(WTERMSIG(status)));
    return crashed;
}
