// Text that has to be UTF-8, from peers who may send anything.
#ifndef SL_BASE_UTF8_H
#define SL_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"

// Strictly: no surrogates, no overlong forms, nothing beyond U+10FFFF.
bool utf8_is_valid(const char *bytes, size_t length);

// Appends the bytes, with one U+FFFD in place of each maximal part of a broken sequence (as Python's errors="replace"),
// and no final zero.
void utf8_append(struct buffer *into, const char *bytes, size_t length);

#endif
