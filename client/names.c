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

// Names of the segment's rows have blocks of the segment, named by offset; those of rows in private memory have private blocks,
// named by address. Only asked under the lock: of names that have blocks, or will.
static bool is_shared(const struct sl_name *name)
{
    return (uint64_t)((const char *)name - (const char *)client->segment) < client->size;
}

static struct sl_name_block *block_at(bool shared, uint64_t block)
{
    return shared ? AT(block) : (void *)(uintptr_t)block;
}

static uint64_t take_private_block(void)
{
    if (!client->private_names) {
        char *blocks = memory_private(16 * SL_NAME_BLOCK);
        for (int i = 0; blocks && i < 16; i++) {
            struct sl_name_block *block = (struct sl_name_block *)(void *)(blocks + i * SL_NAME_BLOCK);
            block->next = client->private_names;
            client->private_names = (uint64_t)(uintptr_t)block;
        }
    }
    uint64_t block = client->private_names;
    if (block)
        client->private_names = block_at(false, block)->next;
    return block;
}

static uint64_t take_block(bool shared)
{
    return shared ? blocks_take(&client->names, SL_EXTENT_NAMES, SL_NAME_BLOCK) : take_private_block();
}

static void give_block(bool shared, uint64_t block)
{
    if (shared) {
        blocks_give(&client->names, block);
    } else {
        block_at(false, block)->next = client->private_names;
        client->private_names = block;
    }
}

void name_drop(struct sl_name *name)
{
    bool shared = name->blocks && is_shared(name);
    for (uint64_t block = name->blocks; block;) {
        uint64_t next = block_at(shared, block)->next;
        give_block(shared, block);
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
    bool shared, full;
};

static struct sink sink_open(struct sl_name *name, bool is_short)
{
    name_drop(name);
    struct sink sink = {.name = name, .shared = !is_short && is_shared(name)};
    uint64_t first = is_short ? 0 : take_block(sink.shared);
    if (first) {
        sink.block = block_at(sink.shared, first);
        sl_store_relaxed(&sink.block->next, 0);
        sl_store_relaxed(&name->blocks, first);
    }
    return sink;
}

static void put(struct sink *sink, const char *bytes, unsigned length)
{
    for (unsigned i = 0; i < length && !sink->full; i++) {
        if (sink->block && sink->used == SL_NAME_BLOCK_TEXT) {
            uint64_t next = take_block(sink->shared);
            if (!next) {
                sink->full = true;
                return;
            }
            sl_store_relaxed(&sink->block->next, next);
            SL_TESTPOINT_(name_chained);
            sink->block = block_at(sink->shared, next);
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

// Most names are ASCII and short: they are stored as they stand, eight bytes at a time.
bool name_store_plain(struct sl_name *name, const char *text)
{
    uint64_t words[SL_NAME_INLINE / 8] = {0}, all = 0;
    size_t length = strnlen(text, SL_NAME_INLINE + 1);
    if (name->blocks || length > SL_NAME_INLINE)
        return false;
    memcpy(words, text, length);
    for (size_t i = 0; i < length; i += 8)
        all |= words[i / 8];
    if (all & UINT64_C(0x8080808080808080))
        return false;
    sl_store_relaxed(&name->length, 0);
    SL_TESTPOINT_(name_dropped);
    for (size_t i = 0; i < length; i += 8)
        sl_store_relaxed((uint64_t *)(void *)(name->text + i), words[i / 8]);
    sl_store_relaxed(&name->length, (uint32_t)length);
    return true;
}

bool name_is_short(const char *text)
{
    return repaired_length(text, SL_NAME_INLINE) <= SL_NAME_INLINE;
}

void name_store(struct sl_name *name, const char *text)
{
    if (name_store_plain(name, text))
        return;
    struct sink sink = sink_open(name, name_is_short(text));
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

// The next piece of a name's text; `block` starts as name->blocks. NULL at the end.
static const char *next_piece(const struct sl_name *name, uint64_t *block, uint32_t done, uint32_t *length)
{
    uint32_t left = name->length - done;
    *length = left < SL_NAME_BLOCK_TEXT ? left : SL_NAME_BLOCK_TEXT;
    if (!left)
        return NULL;
    if (!name->blocks)
        return name->text;
    if (!*block)
        return NULL;
    const struct sl_name_block *at = block_at(is_shared(name), *block);
    *block = at->next;
    return at->text;
}

void name_copy(struct sl_name *to, const struct sl_name *from)
{
    struct sink sink = sink_open(to, !from->blocks);
    uint64_t block = from->blocks;
    uint32_t length, done = 0;
    for (const char *piece; (piece = next_piece(from, &block, done, &length)); done += length)
        put(&sink, piece, sink.block || done + length <= SL_NAME_INLINE ? length : 0);
}

void name_read(const struct sl_name *name, char *into)
{
    uint64_t block = name->blocks;
    uint32_t length, done = 0;
    for (const char *piece; (piece = next_piece(name, &block, done, &length)); done += length)
        memcpy(into + done, piece, length);
}
