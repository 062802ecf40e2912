#include "base/utf8.h"

#include <stdint.h>
#include <string.h>

static const char replacement[] = "\xef\xbf\xbd";

// What the first byte says: how many follow, and what the second may be (this is where overlong forms, surrogates and
// values beyond U+10FFFF are ruled out). 0 bytes: it cannot begin a character.
static size_t lead(unsigned char byte, unsigned char *low, unsigned char *high)
{
    *low = 0x80, *high = 0xbf;
    if (byte < 0x80)
        return 1;
    if (byte < 0xc2 || byte > 0xf4)
        return 0;
    if (byte == 0xe0)
        *low = 0xa0;
    if (byte == 0xed)
        *high = 0x9f;
    if (byte == 0xf0)
        *low = 0x90;
    if (byte == 0xf4)
        *high = 0x8f;
    return byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

// Bytes of the character at the beginning, or, when `*valid` comes out false, of what has to be replaced as one.
static size_t step(const char *bytes, size_t length, bool *valid)
{
    unsigned char low, high;
    size_t size = lead((unsigned char)bytes[0], &low, &high), at = 1;
    *valid = false;
    if (size == 0)
        return 1;
    while (at < size && at < length && (unsigned char)bytes[at] >= low && (unsigned char)bytes[at] <= high) {
        low = 0x80, high = 0xbf;
        at++;
    }
    *valid = at == size;
    return at;
}

bool utf8_is_valid(const char *bytes, size_t length)
{
    bool valid = true;
    for (size_t at = 0; valid && at < length;)
        at += step(bytes + at, length - at, &valid);
    return valid;
}

void utf8_append(struct buffer *into, const char *bytes, size_t length)
{
    for (size_t at = 0; at < length;) {
        bool valid;
        size_t size = step(bytes + at, length - at, &valid);
        if (valid)
            buffer_append(into, bytes + at, size);
        else
            buffer_append(into, replacement, 3);
        at += size;
    }
}
