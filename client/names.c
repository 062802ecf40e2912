// Texts of rows: inline up to SL_NAME_INLINE bytes, else a chain of blocks that goes back to the pool with the row. Invalid
// UTF-8 is replaced here, at the source, because readers of run files refuse a table with one bad byte in it.
#include <string.h>

#include "client/state.h"

// Length of the well-formed UTF-8 sequence at `text`, 0 when there is none (RFC 3629).
static unsigned sequence(const unsigned char *text)
{
    unsigned char lead = text[0];
    if (lead < 0x80)
        return 1;
    unsigned length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (lead < 0xc2 || lead > 0xf4)
        return 0;
    for (unsigned i = 1; i < length; i++)
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    if ((lead == 0xe0 && text[1] < 0xa0) || (lead == 0xed && text[1] > 0x9f) || (lead == 0xf0 && text[1] < 0x90) ||
        (lead == 0xf4 && text[1] > 0x8f))
        return 0;
    return length;
}

static uint64_t take_block(void)
{
    return blocks_take(&client->names, SL_EXTENT_NAMES, SL_NAME_BLOCK);
}

void name_drop(struct sl_name *name)
{
    for (uint64_t block = name->blocks; block;) {
        struct sl_name_block *at = AT(block);
        uint64_t next = at->next;
        blocks_give(&client->names, block);
        block = next;
    }
    sl_store_relaxed(&name->blocks, 0);
    sl_store_relaxed(&name->length, 0);
    SL_TESTPOINT_(name_dropped);
}

// Where the next bytes of a text go: first the inline part, then block after block. A text that fits inline stays there; a
// longer one lies in blocks alone, from its first byte.
struct sink {
    struct sl_name *name;
    struct sl_name_block *block;
    uint32_t used;  // bytes in the present place
    bool full;
};

static void put(struct sink *sink, const char *bytes, unsigned length)
{
    for (unsigned i = 0; i < length && !sink->full; i++) {
        if (sink->block && sink->used == SL_NAME_BLOCK_TEXT) {
            uint64_t next = take_block();
            if (!next) {
                sink->full = true;
                return;
            }
            sl_store_relaxed(&sink->block->next, next);
            SL_TESTPOINT_(name_chained);
            sink->block = AT(next);
            sl_store_relaxed(&sink->block->next, 0);
            sink->used = 0;
        }
        sl_store_relaxed(&(sink->block ? sink->block->text : sink->name->text)[sink->used++], bytes[i]);
        sl_store_relaxed(&sink->name->length, sink->name->length + 1);
    }
}

// How many bytes the text takes once repaired, at most one more than `limit` matters.
static size_t repaired_length(const char *text, size_t limit)
{
    size_t length = 0;
    for (const unsigned char *at = (const unsigned char *)text; *at && length <= limit;) {
        unsigned good = sequence(at);
        length += good ? good : 3;
        at += good ? good : 1;
    }
    return length;
}

bool name_is_short(const char *text)
{
    return repaired_length(text, SL_NAME_INLINE) <= SL_NAME_INLINE;
}

void name_store(struct sl_name *name, const char *text)
{
    name_drop(name);
    struct sink sink = {.name = name};
    if (!name_is_short(text)) {
        uint64_t first = take_block();
        if (first) {
            sink.block = AT(first);
            sl_store_relaxed(&sink.block->next, 0);
            sl_store_relaxed(&name->blocks, first);
        }
    }
    size_t room = sink.block ? SL_NAME_LENGTH_LIMIT : SL_NAME_INLINE;
    for (const unsigned char *at = (const unsigned char *)text; *at && !sink.full;) {
        unsigned good = sequence(at);
        unsigned length = good ? good : 3;
        if (name->length + length > room)
            break;
        uint32_t whole = name->length;
        put(&sink, good ? (const char *)at : "\xef\xbf\xbd", length);  // U+FFFD
        if (sink.full)
            name->length = whole;  // cut at a character
        at += good ? good : 1;
    }
}
