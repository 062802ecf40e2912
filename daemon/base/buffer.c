#include "base/buffer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

void *buffer_extend(struct buffer *buffer, size_t length)
{
    if (buffer->capacity - buffer->length < length) {
        size_t capacity = buffer->capacity ? buffer->capacity * 2 : 256;
        while (capacity - buffer->length < length)
            capacity *= 2;
        buffer->data = alloc_resize(buffer->data, capacity, 1);
        buffer->capacity = capacity;
    }
    void *place = buffer->data + buffer->length;
    buffer->length += length;
    return place;
}

void buffer_append(struct buffer *buffer, const void *bytes, size_t length)
{
    if (length)
        memcpy(buffer_extend(buffer, length), bytes, length);
}

void buffer_text(struct buffer *buffer, const char *text)
{
    buffer_append(buffer, text, strlen(text));
}

void buffer_printf(struct buffer *buffer, const char *format, ...)
{
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (length > 0) {
        char *place = buffer_extend(buffer, (size_t)length + 1);  // vsnprintf ends with a zero, which is given back
        vsnprintf(place, (size_t)length + 1, format, again);
        buffer->length--;
    }
    va_end(again);
}

void buffer_clear(struct buffer *buffer)
{
    buffer->length = 0;
}

void buffer_finish(struct buffer *buffer)
{
    free(buffer->data);
    *buffer = (struct buffer){0};
}
