// pairs [-n CALLS] [-r RANK] [-o NAME] [-w] NAME: records CALLS calls of region NAME, claiming RANK; then opens region -o
// and, with -w, waits until its standard input ends. Before that it prints one line: its pid, how many calls it made, and
// whether it records.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <scoped_lane.h>

int main(int argc, char **argv)
{
    long calls = 1;
    int option, wait = 0;
    const char *open = NULL;
    while ((option = getopt(argc, argv, "n:r:o:w")) != -1) {
        switch (option) {
        case 'n': calls = atol(optarg); break;
        case 'r': sl_rank(atoll(optarg)); break;
        case 'o': open = optarg; break;
        case 'w': wait = 1; break;
        default: return 2;
        }
    }
    if (optind + 1 != argc)
        return 2;

    sl_region_t region = sl_region(argv[optind]);
    for (long i = 0; i < calls; i++) {
        sl_enter(region);
        sl_exit(region);
    }
    if (open)
        sl_enter(sl_region(open));
    printf("%d %ld %d\n", (int)getpid(), calls, sl_is_active());
    fflush(stdout);
    if (wait)
        while (getchar() != EOF)
            ;
    return 0;
}
