#include "base/say.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

bool say_verbose;
static const char *program_name = "scoped-lane";

void say_name(const char *program)
{
    program_name = program;
}

// One write per line, so that lines of several processes do not mix within a line.
static void line(const char *format, va_list arguments)
{
    char text[2048];
    int head = snprintf(text, sizeof text, "%s: ", program_name);
    int rest = vsnprintf(text + head, sizeof text - (size_t)head - 1, format, arguments);
    size_t length = (size_t)head + (rest < 0 ? 0 : (size_t)rest);
    if (length > sizeof text - 2)
        length = sizeof text - 2;
    text[length++] = '\n';
    fwrite(text, 1, length, stderr);
    fflush(stderr);
}

void say(const char *format, ...)
{
    int saved = errno;
    va_list arguments;
    va_start(arguments, format);
    line(format, arguments);
    va_end(arguments);
    errno = saved;
}

void say_detail(const char *format, ...)
{
    if (!say_verbose)
        return;
    int saved = errno;
    va_list arguments;
    va_start(arguments, format);
    line(format, arguments);
    va_end(arguments);
    errno = saved;
}
