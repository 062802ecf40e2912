// solver MS: calls of "solve" that last so many milliseconds each, in "step", until the end of the input.
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include <scoped_lane.h>

static void solve(int64_t length_ns)
{
    struct timespec end;
    SL_SCOPE("solve");
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_nsec += (long)length_ns;
    end.tv_sec += end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) != 0)
        ;
}

int main(int count, char **words)
{
    int64_t length_ns = (int64_t)(atof(count > 1 ? words[1] : "10") * 1e6);
    struct pollfd input = {.fd = 0, .events = POLLIN};
    while (poll(&input, 1, 0) == 0) {
        SL_SCOPE("step");
        solve(length_ns);
    }
    return 0;
}
