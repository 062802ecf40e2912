// The one parser and dispatcher of scoped-lane: getopt_long tables are built from the subcommand's own struct, so that
// no option is written down twice.
#include "cli/command.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/files.h"
#include "base/say.h"

enum {
    OPTIONS_MAX = 48,
    FILL_COLUMNS = 96,
    LONG_BASE = 256,  // getopt's values for long options start above every letter
};

static const struct command_option help_option = {.name = "help", .letter = 'h', .help = "print this help"};

static int option_count(const struct command *command)
{
    int count = 0;
    while (command->options && command->options[count].name)
        count++;
    return count;
}

// The command's options and then --help; NULL beyond.
static const struct command_option *option_at(const struct command *command, int index)
{
    int count = option_count(command);
    return index < count ? &command->options[index] : index == count ? &help_option : NULL;
}

static const struct command_option *option_by_value(const struct command *command, int value)
{
    if (value >= LONG_BASE)
        return option_at(command, value - LONG_BASE);
    const struct command_option *option;
    for (int i = 0; value && (option = option_at(command, i)); i++)
        if (option->letter == value)
            return option;
    return NULL;
}

static int getopt_argument(const struct command_option *option)
{
    return !option->argument ? no_argument : option->argument_optional ? optional_argument : required_argument;
}

struct getopt_tables {
    struct option longs[OPTIONS_MAX + 2];
    char shorts[3 * OPTIONS_MAX + 8];
};

static void tables_fill(struct getopt_tables *tables, const struct command *command)
{
    assert(option_count(command) < OPTIONS_MAX);
    memset(tables, 0, sizeof *tables);
    char *letter = tables->shorts;
    if (command->stops_at_operand)
        *letter++ = '+';
    *letter++ = ':';  // a missing argument is told from an unknown option
    const struct command_option *option;
    for (int i = 0; (option = option_at(command, i)); i++) {
        int has_argument = getopt_argument(option);
        tables->longs[i] = (struct option){option->name, has_argument, NULL, LONG_BASE + i};
        if (!option->letter)
            continue;
        *letter++ = option->letter;
        for (int colons = 0; colons < has_argument; colons++)  // none, required ":", optional "::"
            *letter++ = ':';
    }
}

static void list_options(const struct command *command, struct buffer *text)
{
    const struct command_option *option;
    for (int i = 0; (option = option_at(command, i)); i++) {
        buffer_text(text, i ? ", " : "");
        if (option->letter)
            buffer_printf(text, "-%c/", option->letter);
        buffer_printf(text, "--%s", option->name);
    }
    buffer_append(text, "", 1);
}

// getopt says '?' for an unknown option, an ambiguous one, and for --flag=argument.
static void say_bad_option(const struct command *command, char **argv)
{
    const struct command_option *known = option_by_value(command, optopt);
    if (known) {
        say("%s: option --%s takes no argument", command->name, known->name);
        return;
    }
    struct buffer possible = {0};
    list_options(command, &possible);
    if (optopt > 0 && optopt < LONG_BASE)
        say("%s: unknown option -%c; possible: %s", command->name, optopt, possible.data);
    else
        say("%s: unknown or ambiguous option %s; possible: %s", command->name, argv[optind - 1], possible.data);
    buffer_finish(&possible);
}

static void say_missing_argument(const struct command *command)
{
    const struct command_option *option = option_by_value(command, optopt);
    if (option)
        say("%s: option --%s needs an argument: %s", command->name, option->name, option->argument);
}

static bool parse_integer(const char *text, int64_t *number)
{
    char *end;
    errno = 0;
    *number = strtoll(text, &end, 10);
    return !errno && end != text && !*end;
}

static bool parse_seconds(const char *text, double *seconds)
{
    char *end;
    errno = 0;
    *seconds = strtod(text, &end);
    return !errno && end != text && !*end && isfinite(*seconds) && *seconds > 0 && *seconds <= 1e9;
}

// What is wrong with the argument, or NULL.
static const char *argument_fault(const struct command_option *option, const char *argument)
{
    int64_t integer;
    double seconds;
    uint64_t size_bytes;
    switch (option->kind) {
    case COMMAND_TEXT: return *argument ? NULL : "it is empty";
    case COMMAND_INTEGER: return parse_integer(argument, &integer) ? NULL : "it is not a whole number";
    case COMMAND_SECONDS: return parse_seconds(argument, &seconds) ? NULL : "it is not a positive number of seconds";
    case COMMAND_SIZE:
        return files_parse_size(argument, &size_bytes) == 0 ? NULL : "it is not a size such as 64K, 1M or 16G";
    }
    return NULL;
}

static int take_option(struct command_line *line, const struct command_option *option, const char *argument)
{
    const char *fault = argument ? argument_fault(option, argument) : NULL;
    if (fault) {
        say("%s: cannot take '%s' as %s of option --%s: %s", line->command->name, argument, option->argument, option->name,
            fault);
        return COMMAND_MISUSED;
    }
    if (line->given_count == COMMAND_GIVEN_MAX) {
        say("%s: more than %d options given", line->command->name, COMMAND_GIVEN_MAX);
        return COMMAND_MISUSED;
    }
    line->given[line->given_count].option = option;
    line->given[line->given_count++].argument = argument;
    return COMMAND_DONE;
}

static int check_operands(const struct command_line *line)
{
    const struct command *command = line->command;
    if (line->operand_count < command->operands_min) {
        say("%s: %s is missing; usage: scoped-lane %s [OPTION...] %s", command->name, command->operands, command->name,
            command->operands);
        return COMMAND_MISUSED;
    }
    if (command->operands_max != COMMAND_ANY && line->operand_count > command->operands_max) {
        say("%s: unexpected argument '%s'; usage: scoped-lane %s [OPTION...]%s%s", command->name,
            line->operands[command->operands_max], command->name, command->operands ? " " : "",
            command->operands ? command->operands : "");
        return COMMAND_MISUSED;
    }
    return COMMAND_DONE;
}

int command_parse(const struct command *command, int argc, char **argv, struct command_line *line)
{
    struct getopt_tables tables;
    tables_fill(&tables, command);
    *line = (struct command_line){.command = command};
    opterr = 0;
    optind = 0;  // glibc: start afresh
    for (;;) {
        int value = getopt_long(argc, argv, tables.shorts, tables.longs, NULL);
        if (value == -1)
            break;
        if (value == '?')
            say_bad_option(command, argv);
        if (value == ':')
            say_missing_argument(command);
        if (value == '?' || value == ':')
            return COMMAND_MISUSED;
        int status = take_option(line, option_by_value(command, value), optarg);
        if (status != COMMAND_DONE)
            return status;
    }
    line->operands = argv + optind;
    line->operand_count = argc - optind;
    return command_given(line, "help") ? COMMAND_DONE : check_operands(line);
}

// A name that is not in the list is a slip of ours.
static const struct command_option *option_named(const struct command_line *line, const char *name)
{
    const struct command_option *option = NULL;
    for (int i = 0; (option = option_at(line->command, i)); i++)
        if (strcmp(option->name, name) == 0)
            break;
    assert(option);
    return option;
}

bool command_given(const struct command_line *line, const char *name)
{
    const struct command_option *option = option_named(line, name);
    for (int i = 0; i < line->given_count; i++)
        if (line->given[i].option == option)
            return true;
    return false;
}

const char *command_text(const struct command_line *line, const char *name)
{
    const struct command_option *option = option_named(line, name);
    for (int i = line->given_count - 1; i >= 0; i--)
        if (line->given[i].option == option)
            return line->given[i].argument;
    return NULL;
}

const char *command_text_nth(const struct command_line *line, const char *name, int nth)
{
    const struct command_option *option = option_named(line, name);
    for (int i = 0; i < line->given_count; i++)
        if (line->given[i].option == option && nth-- == 0)
            return line->given[i].argument;
    return NULL;
}

int64_t command_integer(const struct command_line *line, const char *name, int64_t otherwise)
{
    const char *text = command_text(line, name);
    int64_t number;
    return text && parse_integer(text, &number) ? number : otherwise;
}

double command_seconds(const struct command_line *line, const char *name, double otherwise)
{
    const char *text = command_text(line, name);
    double seconds;
    return text && parse_seconds(text, &seconds) ? seconds : otherwise;
}

uint64_t command_size(const struct command_line *line, const char *name, uint64_t otherwise)
{
    const char *text = command_text(line, name);
    uint64_t size_bytes;
    return text && files_parse_size(text, &size_bytes) == 0 ? size_bytes : otherwise;
}

static void print_option(const struct command_option *option)
{
    char left[64];
    const char *open = !option->argument ? "" : option->argument_optional ? "[=" : " ";
    const char *close = option->argument && option->argument_optional ? "]" : "";
    char letter[8] = "    ";
    if (option->letter)
        snprintf(letter, sizeof letter, "-%c, ", option->letter);
    snprintf(left, sizeof left, "%s--%s%s%s%s", letter, option->name, open, option->argument ? option->argument : "",
             close);
    printf("  %-24s  %s%s\n", left, option->help, option->repeatable ? "; may be repeated" : "");
}

// Text filled into lines; an empty line opens a paragraph, a single line end is a blank.
static void print_filled(const char *text)
{
    int column = 0;
    while (*text) {
        int length = (int)strcspn(text, " \n");
        bool wrap = column && column + 1 + length > FILL_COLUMNS;
        printf("%s%.*s", !column ? "" : wrap ? "\n" : " ", length, text);
        column = (wrap || !column ? 0 : column + 1) + length;
        text += length;
        if (strncmp(text, "\n\n", 2) == 0) {
            printf("\n\n");
            column = 0;
        }
        text += strspn(text, " \n");
    }
    printf("\n");
}

static void print_help(const struct command *command)
{
    printf("Usage: scoped-lane %s [OPTION...]%s%s\n\n%c%s.\n", command->name, command->operands ? " " : "",
           command->operands ? command->operands : "", toupper((unsigned char)*command->summary), command->summary + 1);
    if (command->details) {
        printf("\n");
        print_filled(command->details);
    }
    printf("\nOptions:\n");
    const struct command_option *option;
    for (int i = 0; (option = option_at(command, i)); i++)
        print_option(option);
}

static void print_all(const struct command *const *commands, FILE *to)
{
    fprintf(to, "Usage: scoped-lane SUBCOMMAND [OPTION...] [ARGUMENT...]\n\n"
                "Knows what every lane of every rank is doing, now and afterwards.\n\nSubcommands:\n");
    for (; *commands; commands++)
        fprintf(to, "  %-10s  %s\n", (*commands)->name, (*commands)->summary);
    fprintf(to,
            "\n`scoped-lane SUBCOMMAND --help` lists the options of one; `scoped-lane --version` prints the version.\n");
}

static const struct command *find(const struct command *const *commands, const char *name)
{
    for (; *commands; commands++)
        if (strcmp((*commands)->name, name) == 0)
            return *commands;
    return NULL;
}

static int unknown(const struct command *const *commands, const char *name)
{
    struct buffer possible = {0};
    for (int i = 0; commands[i]; i++)
        buffer_printf(&possible, "%s%s", i ? ", " : "", commands[i]->name);
    buffer_append(&possible, "", 1);
    if (name[0] == '-')
        say("unknown option %s; possible: --help, --version, or one of the subcommands %s", name, possible.data);
    else
        say("unknown subcommand '%s'; possible: %s", name, possible.data);
    buffer_finish(&possible);
    return COMMAND_MISUSED;
}

// Output that did not arrive (a full disk, a closed pipe) is a failure, whatever the subcommand thought.
static int close_output(int status)
{
    bool failed = ferror(stdout) != 0;
    errno = 0;
    if (fflush(stdout) == 0 && !failed)
        return status;
    if (errno != EPIPE)
        say("cannot write to standard output: %s", errno ? strerror(errno) : "an earlier write failed");
    return status == COMMAND_DONE ? COMMAND_FAILED : status;
}

static int help(const struct command *const *commands, const char *name)
{
    const struct command *command = name ? find(commands, name) : NULL;
    if (name && !command)
        return unknown(commands, name);
    if (command)
        print_help(command);
    else
        print_all(commands, stdout);
    return close_output(COMMAND_DONE);
}

int command_main(const struct command *const *commands, int argc, char **argv)
{
    if (argc < 2) {
        print_all(commands, stderr);
        return COMMAND_MISUSED;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0)
        return help(commands, argv[2]);
    if (strcmp(name, "--version") == 0) {
        printf("scoped-lane %s\n", SL_VERSION);
        return close_output(COMMAND_DONE);
    }
    const struct command *command = find(commands, name);
    if (!command)
        return unknown(commands, name);
    struct command_line line;
    int status = command_parse(command, argc - 1, argv + 1, &line);
    if (status != COMMAND_DONE)
        return status;
    if (command_given(&line, "help"))
        return help(commands, command->name);
    return close_output(command->function(&line));
}
