// scoped-laned: options, then the service; or, as a child of the service, one conversion.
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/say.h"
#include "services/daemon.h"
#include "storage/convert.h"

enum option_key {
    KEY_SETTING = 256,  // and its place in the table
    KEY_CONFIG = KEY_SETTING + SETTINGS_ROOM,
    KEY_VERSION,
    KEY_HELP,
    KEY_PRIVATE,
    KEY_SALVAGE,
    KEY_READY_FD,
    KEY_CONVERT,
    KEY_TO,
    KEY_PARENT,
    KEY_UP_TO,
    KEY_SCHEMA,
    KEY_COMPRESS
};

// Those that are no settings.
static const struct option other_options[] = {
    {"config", required_argument, NULL, KEY_CONFIG},
    {"version", no_argument, NULL, KEY_VERSION},
    {"help", no_argument, NULL, KEY_HELP},
    // between our own programs
    {"private", no_argument, NULL, KEY_PRIVATE},
    {"salvage", no_argument, NULL, KEY_SALVAGE},
    {"ready-fd", required_argument, NULL, KEY_READY_FD},
    {"convert", required_argument, NULL, KEY_CONVERT},
    {"to", required_argument, NULL, KEY_TO},
    {"parent", required_argument, NULL, KEY_PARENT},
    {"up-to", required_argument, NULL, KEY_UP_TO},
    {"schema", required_argument, NULL, KEY_SCHEMA},
    {"compress", no_argument, NULL, KEY_COMPRESS},
    {0},
};

enum { OTHER_OPTIONS = sizeof other_options / sizeof *other_options };

static struct option long_options[SETTINGS_ROOM + OTHER_OPTIONS];

static void list_options(void)
{
    size_t count = 0;
    for (; settings_table[count].name; count++)
        long_options[count] = (struct option){settings_table[count].name, settings_table[count].argument ? required_argument : no_argument,
                                              NULL, KEY_SETTING + (int)count};
    memcpy(long_options + count, other_options, sizeof other_options);
}

static void print_help(void)
{
    puts("usage: scoped-laned [OPTIONS]\n"
         "\n"
         "Collects what programs linked with libscoped_lane record, answers queries, and writes run files.\n"
         "Stays in the foreground; says \"ready\" on stderr when it is.\n");
    for (const struct setting *setting = settings_table; setting->name; setting++) {
        char option[64];
        snprintf(option, sizeof option, "%s--%s %s", setting->argument ? "" : "-v, ", setting->name, setting->argument ? setting->argument : "");
        printf("  %-26s %s\n", option, setting->help);
    }
    puts("  --config FILE              an ini file with a key for each of the above\n"
         "  --version, --help");
}

struct start {
    struct daemon_options daemon;
    struct settings settings;
    struct convert_options convert;
    pid_t parent;  // of a conversion: the daemon that waits for it
};

static void print_progress(void *context, double part)
{
    (void)context;
    printf("progress %.3f\n", part);
    fflush(stdout);
}

static int run_conversion(struct start *start)
{
    struct convert_result result;
    if (start->parent)  // the next daemon begins it anew: two must not write one file
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (start->parent && getppid() != start->parent)
        return 1;
    start->convert.on_progress = print_progress;
    if (convert(&start->convert, &result) < 0) {
        printf("%s\n", result.problem);
        return 1;
    }
    printf("calls %llu lost %llu\n", (unsigned long long)result.calls, (unsigned long long)result.lost);
    return 0;
}

static int misuse(const char *format, const char *what)
{
    say(format, what);
    fprintf(stderr, "Try 'scoped-laned --help'.\n");
    return 2;
}

// One option; whether it was understood.
static bool take_option(struct start *start, int key)
{
    switch (key) {
    case KEY_CONFIG: start->daemon.config = optarg; break;
    case KEY_PRIVATE: start->daemon.private_mode = true; break;
    case KEY_SALVAGE: start->daemon.salvage = true; break;
    case KEY_READY_FD: start->daemon.ready_fd = atoi(optarg); break;
    case KEY_CONVERT: start->convert.spool = optarg; break;
    case KEY_TO: start->convert.output = optarg; break;
    case KEY_PARENT: start->parent = atoi(optarg); break;
    case KEY_UP_TO: start->convert.spool_bytes = strtoull(optarg, NULL, 10); break;
    case KEY_SCHEMA: start->convert.schema = atoi(optarg); break;
    case KEY_COMPRESS: start->convert.compress = true; break;
    default: return key == 'v' || (key >= KEY_SETTING && key < KEY_CONFIG);  // settings come after the file, which they overrule
    }
    return true;
}

// The file first, then the command line once more. 0, or the exit status.
static int read_settings(struct start *start, int argc, char **argv)
{
    char problem[SETTINGS_PROBLEM];
    int key;
    settings_init(&start->settings);
    if (start->daemon.config && settings_read(&start->settings, start->daemon.config, problem) < 0)
        return misuse("%s", problem);
    optind = 1;
    while ((key = getopt_long(argc, argv, ":v", long_options, NULL)) != -1) {
        bool is_setting = key >= KEY_SETTING && key < KEY_CONFIG;
        const char *name = key == 'v' ? "verbose" : is_setting ? settings_table[key - KEY_SETTING].name : NULL;
        if (name && settings_set(&start->settings, name, optarg ? optarg : "yes", SETTING_BY_COMMAND_LINE, problem) < 0)
            return misuse("%s", problem);
    }
    if (settings_check(&start->settings, problem) < 0) {
        say("%s", problem);
        return 1;
    }
    say_verbose = start->settings.verbose;
    return 0;
}

int main(int argc, char **argv)
{
    struct start start = {.daemon = {.ready_fd = -1}, .convert = {.schema = 2}};
    int key;
    say_name("scoped-laned");
    list_options();
    opterr = 0;
    while ((key = getopt_long(argc, argv, ":v", long_options, NULL)) != -1) {
        if (key == KEY_VERSION) {
            puts("scoped-laned " SL_VERSION);
            return 0;
        }
        if (key == KEY_HELP) {
            print_help();
            return 0;
        }
        if (!take_option(&start, key))
            return misuse(key == ':' ? "option %s needs an argument" : "there is no option %s", argv[optind - 1]);
    }
    if (optind < argc)
        return misuse("scoped-laned takes no operand, but got \"%s\"", argv[optind]);
    if (start.convert.spool && start.convert.output)
        return run_conversion(&start);
    if (start.convert.spool || start.convert.output)
        return misuse("%s go together", "--convert and --to");
    int status = read_settings(&start, argc, argv);
    if (status == 0)
        return service_run(&start.daemon, &start.settings);
    settings_finish(&start.settings);
    return status;
}
