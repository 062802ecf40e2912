// scoped-lane, the command: hands over to the subcommand that argv[1] names.
#include <locale.h>
#include <stdlib.h>

#include "base/say.h"
#include "cli/commands.h"

int main(int argc, char **argv)
{
#define COMMAND_ADDRESS(name) &command_##name,
    static const struct command *const commands[] = {COMMANDS(COMMAND_ADDRESS) NULL};
#undef COMMAND_ADDRESS
    setlocale(LC_CTYPE, "");  // for the widths of characters; numbers stay as in C
    if (MB_CUR_MAX == 1)      // no locale, as in many containers: names are UTF-8 all the same
        setlocale(LC_CTYPE, "C.UTF-8");
    say_name("scoped-lane");
    return command_main(commands, argc, argv);
}
