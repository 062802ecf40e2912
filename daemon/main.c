// scoped-laned: options, then the service; or, as a child of the service, one conversion.
#include <errno.h>
#include <getopt.h>
#include <ini.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/files.h"
#include "base/say.h"
#include "services/daemon.h"
#include "storage/convert.h"

static const char usage[] =
    "usage: scoped-laned [--rundir DIR] [--output DIR] [--spool DIR] [--spool-limit SIZE] [--quota SIZE] [--config FILE] [-v]\n"
    "\n"
    "Collects what programs linked with libscoped_lane record, answers queries, and writes run files.\n"
    "Stays in the foreground; says \"ready\" on stderr when it is.\n"
    "\n"
    "  --rundir DIR        where its sockets lie\n"
    "  --output DIR        where run files go (default: the first process's working directory)\n"
    "  --spool DIR         where spools lie (default: beside the run file)\n"
    "  --spool-limit SIZE  of one run's spool (default: 16G, or half of what is free)\n"
    "  --quota SIZE        of a user's segments whose process and daemon are gone (default: a quarter of /dev/shm)\n"
    "  --config FILE       an ini file with a key for each long option\n"
    "  -v, --verbose       say more\n"
    "  --version, --help\n";

enum option_key {
    KEY_RUNDIR = 256,
    KEY_OUTPUT,
    KEY_SPOOL,
    KEY_SPOOL_LIMIT,
    KEY_QUOTA,
    KEY_CONFIG,
    KEY_VERSION,
    KEY_HELP,
    KEY_PRIVATE,
    KEY_SALVAGE,
    KEY_READY_FD,
    KEY_CONVERT,
    KEY_TO,
    KEY_PARENT,
    KEY_SCHEMA,
    KEY_COMPRESS
};

static const struct option long_options[] = {
    {"rundir", required_argument, NULL, KEY_RUNDIR},
    {"output", required_argument, NULL, KEY_OUTPUT},
    {"spool", required_argument, NULL, KEY_SPOOL},
    {"spool-limit", required_argument, NULL, KEY_SPOOL_LIMIT},
    {"quota", required_argument, NULL, KEY_QUOTA},
    {"config", required_argument, NULL, KEY_CONFIG},
    {"verbose", no_argument, NULL, 'v'},
    {"version", no_argument, NULL, KEY_VERSION},
    {"help", no_argument, NULL, KEY_HELP},
    // between our own programs
    {"private", no_argument, NULL, KEY_PRIVATE},
    {"salvage", no_argument, NULL, KEY_SALVAGE},
    {"ready-fd", required_argument, NULL, KEY_READY_FD},
    {"convert", required_argument, NULL, KEY_CONVERT},
    {"to", required_argument, NULL, KEY_TO},
    {"parent", required_argument, NULL, KEY_PARENT},
    {"schema", required_argument, NULL, KEY_SCHEMA},
    {"compress", no_argument, NULL, KEY_COMPRESS},
    {0},
};

struct settings {
    struct daemon_options daemon;
    struct convert_options convert;
    pid_t parent;  // of a conversion: the daemon that waits for it
    char problem[512];
};

// A setting from the command line or the file. False with the reason in settings->problem.
static bool set(struct settings *settings, const char *name, const char *value)
{
    if (strcmp(name, "rundir") == 0) {
        settings->daemon.rundir = value;
    } else if (strcmp(name, "output") == 0) {
        settings->daemon.output = value;
    } else if (strcmp(name, "spool") == 0) {
        settings->daemon.spool = value;
    } else if (strcmp(name, "verbose") == 0) {
        say_verbose = strcmp(value, "no") != 0 && strcmp(value, "0") != 0;
    } else if (strcmp(name, "spool-limit") == 0 || strcmp(name, "quota") == 0) {
        if (files_parse_size(value, *name == 'q' ? &settings->daemon.quota : &settings->daemon.spool_limit) < 0) {
            snprintf(settings->problem, sizeof settings->problem, "%s \"%s\" is no size; 512M and 16G are", name, value);
            return false;
        }
    } else {
        snprintf(settings->problem, sizeof settings->problem, "there is no setting \"%s\"", name);
        return false;
    }
    return true;
}

static int on_ini(void *context, const char *section, const char *name, const char *value)
{
    (void)section;
    return set(context, name, alloc_text(value));
}

static int read_config(struct settings *settings, const char *path)
{
    int line = ini_parse(path, on_ini, settings);
    if (line == 0)
        return 0;
    if (line < 0)
        say("cannot read the configuration %s: %s", path, strerror(errno ? errno : ENOENT));
    else
        say("cannot use the configuration %s, line %d: %s", path, line,
            *settings->problem ? settings->problem : "it is no line \"key = value\"");
    return -EINVAL;
}

static void print_progress(void *context, double part)
{
    (void)context;
    printf("progress %.3f\n", part);
    fflush(stdout);
}

static int run_conversion(struct settings *settings)
{
    struct convert_result result;
    if (settings->parent)  // the next daemon begins it anew: two must not write one file
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (settings->parent && getppid() != settings->parent)
        return 1;
    settings->convert.on_progress = print_progress;
    if (convert(&settings->convert, &result) < 0) {
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

// The absolute form of a directory that is given relative to where we were started.
static int check_directory(const char *what, const char **path)
{
    if (!*path)
        return 0;
    char *full = realpath(*path, NULL);
    if (!full || access(full, W_OK | X_OK) < 0) {
        say("cannot use the %s directory %s: %s", what, *path, strerror(errno));
        free(full);
        return -1;
    }
    *path = full;
    return 0;
}

int main(int argc, char **argv)
{
    struct settings settings = {.daemon = {.ready_fd = -1}, .convert = {.schema = 2}};
    const char *config = NULL;
    int key;
    say_name("scoped-laned");
    opterr = 0;
    for (int index = 0; (key = getopt_long(argc, argv, ":v", long_options, &index)) != -1; index = 0) {
        switch (key) {
        case 'v':
            say_verbose = true;
            break;
        case KEY_RUNDIR:
        case KEY_OUTPUT:
        case KEY_SPOOL:
        case KEY_SPOOL_LIMIT:
        case KEY_QUOTA:
            break;  // after the file, which they overrule
        case KEY_CONFIG:
            config = optarg;
            break;
        case KEY_VERSION:
            puts("scoped-laned " SL_VERSION);
            return 0;
        case KEY_HELP:
            fputs(usage, stdout);
            return 0;
        case KEY_PRIVATE:
            settings.daemon.private_mode = true;
            break;
        case KEY_SALVAGE:
            settings.daemon.salvage = true;
            break;
        case KEY_READY_FD:
            settings.daemon.ready_fd = atoi(optarg);
            break;
        case KEY_CONVERT:
            settings.convert.spool = optarg;
            break;
        case KEY_TO:
            settings.convert.output = optarg;
            break;
        case KEY_PARENT:
            settings.parent = atoi(optarg);
            break;
        case KEY_SCHEMA:
            settings.convert.schema = atoi(optarg);
            break;
        case KEY_COMPRESS:
            settings.convert.compress = true;
            break;
        case ':':
            return misuse("option %s needs an argument", argv[optind - 1]);
        default:
            return misuse("there is no option %s", argv[optind - 1]);
        }
    }
    if (optind < argc)
        return misuse("scoped-laned takes no operand, but got \"%s\"", argv[optind]);
    if (settings.convert.spool && settings.convert.output)
        return run_conversion(&settings);
    if (settings.convert.spool || settings.convert.output)
        return misuse("%s go together", "--convert and --to");
    if (config && read_config(&settings, config) < 0)
        return 2;
    optind = 1;
    for (int index = 0; (key = getopt_long(argc, argv, ":v", long_options, &index)) != -1; index = 0)
        if (key >= KEY_RUNDIR && key <= KEY_QUOTA && !set(&settings, long_options[key - KEY_RUNDIR].name, optarg))
            return misuse("%s", settings.problem);
    if (check_directory("output", &settings.daemon.output) < 0 || check_directory("spool", &settings.daemon.spool) < 0)
        return 1;
    return service_run(&settings.daemon);
}
