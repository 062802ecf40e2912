// One struct says all about a subcommand: the parser, --help, the dispatcher, the completion and the manual's test read
// the same thing. A subcommand is a file cmd-NAME.c that defines `const struct command command_NAME`, and one word in
// commands.h.
//
//     static const struct command_option options[] = {
//         {.name = "output", .letter = 'o', .argument = "FILE", .help = "the run file to write"},
//         {0},
//     };
//
//     static int run(const struct command_line *line)
//     {
//         const char *path = command_text(line, "output");   // NULL: not given
//         execvp(line->operands[0], line->operands);
//         …
//     }
//
//     const struct command command_run = {
//         .name = "run", .operands = "[--] CMD...", .operands_min = 1, .operands_max = COMMAND_ANY,
//         .stops_at_operand = true, .summary = "run a program and record it", .options = options, .function = run,
//     };
#ifndef SL_CLI_COMMAND_H
#define SL_CLI_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// What a subcommand's function returns, and with it the program; `run` passes other numbers on from its child.
enum command_status { COMMAND_DONE = 0, COMMAND_FAILED = 1, COMMAND_MISUSED = 2 };

enum { COMMAND_ANY = -1, COMMAND_GIVEN_MAX = 64 };

// What the parser accepts as an option's argument; anything else is an error that names option and argument.
enum command_kind {
    COMMAND_TEXT,     // any text that is not empty
    COMMAND_INTEGER,  // a whole number, negative ones too
    COMMAND_SECONDS,  // a positive decimal number of seconds, "0.5"
    COMMAND_SIZE,     // "64", "256K", "1M" (files_parse_size)
};

struct command_option {
    const char *name;        // long name without dashes; NULL ends a list
    char letter;             // short name, 0: none
    bool argument_optional;  // --watch or --watch=2
    bool repeatable;         // otherwise the last one given wins
    enum command_kind kind;
    const char *argument;    // "FILE"; NULL: the option takes none
    const char *help;        // one line
};

struct command_line;

struct command {
    const char *name;
    const char *summary;       // one line, for `scoped-lane --help`
    const char *operands;      // as usage shows them: "FILE"; NULL: none
    const char *details;       // further paragraphs of --help, filled when printed; or NULL
    int operands_min;
    int operands_max;          // COMMAND_ANY: no limit
    bool stops_at_operand;     // what follows the first operand belongs to another program
    const struct command_option *options;  // ended by {0}; --help is added to all; NULL: none
    int (*function)(const struct command_line *line);
};

// A command line after parsing; texts point into argv.
struct command_line {
    const struct command *command;
    int given_count;
    struct {
        const struct command_option *option;
        const char *argument;  // NULL: none
    } given[COMMAND_GIVEN_MAX];
    int operand_count;
    char **operands;           // ends with NULL: fit for execvp
};

// Options many subcommands share, for their lists.
#define COMMAND_OPTION_RUNDIR \
    {.name = "rundir", .argument = "DIR", .help = "ask the daemon of this runtime directory only"}
#define COMMAND_OPTION_OUTPUT(what) {.name = "output", .letter = 'o', .argument = "FILE", .help = what}
#define COMMAND_OPTIONS_FORM \
    {.name = "json", .help = "print JSON"}, \
    {.name = "tsv", .help = "print tab-separated values, times in nanoseconds"}
#define COMMAND_OPTION_WATCH \
    {.name = "watch", .argument = "SECONDS", .argument_optional = true, .kind = COMMAND_SECONDS, \
     .help = "show it again every SECONDS (default 1) until interrupted"}
#define COMMAND_OPTIONS_LISTING COMMAND_OPTIONS_FORM, COMMAND_OPTION_WATCH, COMMAND_OPTION_RUNDIR

// Was the option given? `name` must be in the command's list (asserted), here and below.
bool command_given(const struct command_line *line, const char *name);

// The argument of the last one given, NULL when it was not given or had none.
const char *command_text(const struct command_line *line, const char *name);

// The argument of the nth one given (from 0) of a repeatable option, NULL beyond the last.
const char *command_text_nth(const struct command_line *line, const char *name, int nth);

// The same as numbers (the parser has checked them); `otherwise` when not given.
int64_t command_integer(const struct command_line *line, const char *name, int64_t otherwise);
double command_seconds(const struct command_line *line, const char *name, double otherwise);
uint64_t command_size(const struct command_line *line, const char *name, uint64_t otherwise);

// Reads argv[1..] (argv[0] is the subcommand's name) into `line`. COMMAND_DONE, or COMMAND_MISUSED after saying what was
// given and what is possible. --help is printed to stdout by command_run, not here.
int command_parse(const struct command *command, int argc, char **argv, struct command_line *line);

// The whole program: finds argv[1] among `commands` (ended by NULL), parses, and calls its function. Returns the exit
// status. Handles --help, --version, `help [NAME]` and unknown names itself.
int command_main(const struct command *const *commands, int argc, char **argv);

#endif
