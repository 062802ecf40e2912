#include "base/alloc.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *there(void *memory, size_t size_bytes)
{
    if (!memory) {
        fprintf(stderr, "scoped-lane: out of memory (%zu bytes wanted)\n", size_bytes);
        abort();
    }
    return memory;
}

void *alloc_zeroed(size_t count, size_t size)
{
    return there(calloc(count ? count : 1, size ? size : 1), count * size);
}

void *alloc_resize(void *memory, size_t count, size_t size)
{
    return there(reallocarray(memory, count ? count : 1, size ? size : 1), count * size);
}

char *alloc_text(const char *text)
{
    return there(strdup(text), strlen(text) + 1);
}

char *alloc_printf(const char *format, ...)
{
    char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    int length = vasprintf(&text, format, arguments);
    va_end(arguments);
    return there(length < 0 ? NULL : text, 0);
}
