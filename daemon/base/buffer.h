// A growing run of bytes: frames, JSON, lines of text. All zero is an empty buffer.
#ifndef SL_BASE_BUFFER_H
#define SL_BASE_BUFFER_H

#include <stddef.h>

struct buffer {
    char *data;
    size_t length;    // bytes used
    size_t capacity;  // bytes allocated
};

void buffer_append(struct buffer *buffer, const void *bytes, size_t length);
void buffer_text(struct buffer *buffer, const char *text);
void buffer_printf(struct buffer *buffer, const char *format, ...) __attribute__((format(printf, 2, 3)));
void *buffer_extend(struct buffer *buffer, size_t length);  // room for `length` bytes at the end, counted as used, not cleared
void buffer_clear(struct buffer *buffer);                   // empty, memory kept
void buffer_finish(struct buffer *buffer);                  // empty, memory freed

#endif
