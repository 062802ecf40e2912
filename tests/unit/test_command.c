// The option parser and dispatcher of scoped-lane. Criterion runs each test in a process of its own, so that getopt's
// globals and a redirected stderr stay there.
#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <stdio.h>
#include <string.h>

#include "cli/command.h"
#include "cli/commands.h"

static int calls;
static struct command_line seen;

static int take(const struct command_line *line)
{
    calls++;
    seen = *line;
    printf("data\n");
    return 7;
}

static const struct command_option options[] = {
    COMMAND_OPTIONS_LISTING,
    COMMAND_OPTION_OUTPUT("the file to write"),
    {.name = "pid", .argument = "PID", .kind = COMMAND_INTEGER, .help = "only this process"},
    {.name = "limit", .argument = "SIZE", .kind = COMMAND_SIZE, .help = "at most"},
    {.name = "socket", .argument = "SOCKET", .repeatable = true, .help = "ask here"},
    {0},
};
static const struct command list_command = {.name = "list",
                                            .summary = "list things",
                                            .operands = "[FILE]",
                                            .operands_max = 1,
                                            .options = options,
                                            .function = take};
static const struct command run_command = {.name = "run",
                                           .summary = "run things",
                                           .operands = "[--] CMD...",
                                           .operands_min = 1,
                                           .operands_max = COMMAND_ANY,
                                           .stops_at_operand = true,
                                           .options = options,
                                           .function = take};
static const struct command *const commands[] = {&list_command, &run_command, NULL};

enum { WORDS_MAX = 16 };

static int program(const char *const *words)
{
    static char *argv[WORDS_MAX + 2];
    int argc = 0;
    argv[argc++] = "scoped-lane";
    for (; *words && argc < WORDS_MAX; words++)
        argv[argc++] = (char *)*words;
    argv[argc] = NULL;
    return command_main(commands, argc, argv);
}

#define PROGRAM(...) program((const char *const[]){__VA_ARGS__, NULL})

static void begin(void)
{
    cr_redirect_stdout();
    cr_redirect_stderr();
}

static void expect_text(FILE *from, const char *part)
{
    char text[4096];
    fflush(stderr);
    size_t length = fread(text, 1, sizeof text - 1, from);
    text[length] = 0;
    cr_assert_not_null(strstr(text, part), "'%s' is not in: %s", part, text);
}

TestSuite(command, .init = begin);

Test(command, the_exit_status_is_what_the_subcommand_returns)
{
    cr_assert_eq(PROGRAM("list"), 7);
    cr_assert_eq(calls, 1);
    expect_text(cr_get_redirected_stdout(), "data\n");
}

Test(command, options_come_with_their_arguments_in_every_spelling)
{
    cr_assert_eq(PROGRAM("list", "--json", "-oX", "file", "--pid", "-3", "--limit=64K", "--watch=0.5", "--rundir", "/r"),
                 7);
    cr_assert(command_given(&seen, "json"));
    cr_assert_not(command_given(&seen, "tsv"));
    cr_assert_str_eq(command_text(&seen, "output"), "X");
    cr_assert_str_eq(command_text(&seen, "rundir"), "/r");
    cr_assert_eq(command_integer(&seen, "pid", 0), -3);
    cr_assert_eq(command_size(&seen, "limit", 0), 65536);
    cr_assert_eq(command_seconds(&seen, "watch", 1), 0.5);
    cr_assert_eq(seen.operand_count, 1);
    cr_assert_str_eq(seen.operands[0], "file");
}

Test(command, what_is_not_given_has_the_value_the_caller_names)
{
    cr_assert_eq(PROGRAM("list", "--watch"), 7);
    cr_assert(command_given(&seen, "watch"));
    cr_assert_eq(command_seconds(&seen, "watch", 1), 1);
    cr_assert_eq(command_integer(&seen, "pid", 42), 42);
    cr_assert_eq(command_size(&seen, "limit", 9), 9);
    cr_assert_null(command_text(&seen, "output"));
    cr_assert_eq(seen.operand_count, 0);
    cr_assert_null(seen.operands[0]);
}

Test(command, of_an_option_given_twice_the_last_counts_and_a_repeatable_one_keeps_all)
{
    cr_assert_eq(PROGRAM("list", "-o", "a", "--socket=x", "-o", "b", "--socket", "y"), 7);
    cr_assert_str_eq(command_text(&seen, "output"), "b");
    cr_assert_str_eq(command_text_nth(&seen, "socket", 0), "x");
    cr_assert_str_eq(command_text_nth(&seen, "socket", 1), "y");
    cr_assert_null(command_text_nth(&seen, "socket", 2));
}

Test(command, what_follows_the_command_to_run_is_left_alone)
{
    cr_assert_eq(PROGRAM("run", "-o", "f", "ls", "--json", "-o", "g"), 7);
    cr_assert_str_eq(command_text(&seen, "output"), "f");
    cr_assert_not(command_given(&seen, "json"));
    cr_assert_eq(seen.operand_count, 4);
    cr_assert_str_eq(seen.operands[0], "ls");
    cr_assert_null(seen.operands[4]);
    cr_assert_eq(PROGRAM("run", "--", "--odd-name", "--json"), 7);
    cr_assert_eq(seen.operand_count, 2);
    cr_assert_str_eq(seen.operands[0], "--odd-name");
}

static const struct {
    const char *words[5];
    const char *message;
} misuses[] = {
    {{"lisp"}, "unknown subcommand 'lisp'; possible: list, run"},
    {{"--frob"}, "unknown option --frob; possible: --help, --version"},
    {{"list", "--frob"},
     "list: unknown or ambiguous option --frob; possible: --json, --tsv, --watch, --rundir, -o/--output"},
    {{"list", "file", "--frob"}, "option --frob"},
    {{"list", "-q"}, "list: unknown option -q; possible: --json"},
    {{"list", "--json=yes"}, "list: option --json takes no argument"},
    {{"list", "--pid"}, "list: option --pid needs an argument: PID"},
    {{"list", "-o"}, "list: option --output needs an argument: FILE"},
    {{"list", "--output="}, "cannot take '' as FILE of option --output: it is empty"},
    {{"list", "--pid", "3x"}, "cannot take '3x' as PID of option --pid: it is not a whole number"},
    {{"list", "--pid", "99999999999999999999"}, "it is not a whole number"},
    {{"list", "--watch=0"}, "it is not a positive number of seconds"},
    {{"list", "--watch=nan"}, "it is not a positive number of seconds"},
    {{"list", "--limit", "64Q"}, "it is not a size"},
    {{"list", "a", "b"}, "list: unexpected argument 'b'; usage: scoped-lane list [OPTION...] [FILE]"},
    {{"run"}, "run: [--] CMD... is missing"},
    {{"run", "--"}, "run: [--] CMD... is missing"},
    {{"help", "lisp"}, "unknown subcommand 'lisp'"},
};

// One test, one process per case: a redirected stderr can be read to its end once only.
#define MISUSE(number)                                                                                                     \
    Test(command, misuse_is_told_with_what_is_possible_##number)                                                           \
    {                                                                                                                      \
        cr_assert_eq(program(misuses[number].words), COMMAND_MISUSED);                                                     \
        cr_assert_eq(calls, 0);                                                                                            \
        expect_text(cr_get_redirected_stderr(), misuses[number].message);                                                  \
    }
MISUSE(0)
MISUSE(1)
MISUSE(2)
MISUSE(3)
MISUSE(4)
MISUSE(5)
MISUSE(6)
MISUSE(7)
MISUSE(8)
MISUSE(9)
MISUSE(10)
MISUSE(11)
MISUSE(12)
MISUSE(13)
MISUSE(14)
MISUSE(15)
MISUSE(16)
MISUSE(17)
_Static_assert(sizeof misuses / sizeof *misuses == 18, "a MISUSE line for each");

Test(command, without_a_subcommand_the_list_goes_to_stderr)
{
    cr_assert_eq(program((const char *const[]){NULL}), COMMAND_MISUSED);
    expect_text(cr_get_redirected_stderr(), "list things");
}

Test(command, help_lists_the_subcommands_with_their_summaries)
{
    cr_assert_eq(PROGRAM("--help"), COMMAND_DONE);
    expect_text(cr_get_redirected_stdout(), "run things");
}

Test(command, help_of_a_subcommand_lists_its_options)
{
    cr_assert_eq(PROGRAM("run", "--help"), COMMAND_DONE);
    cr_assert_eq(calls, 0);
    expect_text(cr_get_redirected_stdout(), "-o, --output FILE         the file to write");
}

Test(command, version_names_the_version)
{
    cr_assert_eq(PROGRAM("--version"), COMMAND_DONE);
    expect_text(cr_get_redirected_stdout(), "scoped-lane " SL_VERSION "\n");
}

#define COMMAND_ADDRESS(name) &command_##name,
static const struct command *const real[] = {COMMANDS(COMMAND_ADDRESS) NULL};

Test(command, each_real_subcommand_is_whole)
{
    for (int i = 0; real[i]; i++) {
        const struct command *command = real[i];
        cr_assert_not_null(command->summary, "%s", command->name);
        cr_assert_not_null(command->function, "%s", command->name);
        cr_assert(command->operands || !command->operands_max, "%s", command->name);
        for (const struct command_option *option = command->options; option && option->name; option++) {
            cr_assert_not_null(option->help, "%s --%s", command->name, option->name);
            for (const struct command_option *other = command->options; other < option; other++)
                cr_assert(strcmp(other->name, option->name) && (!option->letter || other->letter != option->letter),
                          "%s --%s", command->name, option->name);
        }
        for (int other = 0; other < i; other++)
            cr_assert_str_neq(real[other]->name, command->name);
    }
}
