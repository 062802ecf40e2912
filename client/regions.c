// Names. The table of regions lies in ordinary private memory: ids are kept in the program's static variables, so they
// outlive every segment. A look-up takes no lock; an insertion does, and is copied into the segment when there is one.
// Each later segment (attach, fork follow) gets the whole table, ids unchanged.
#include <string.h>

#include "client/state.h"

struct region {
    uint64_t hash;
    struct region *next_by_id;
    uint32_t id;
    int32_t line;
    uint32_t name_length, file_length;
    // name, zero, file, zero follow
};

struct table {
    uint32_t mask;
    struct region *places[];
};

static struct table *table;  // replaced by a larger one, the old one left to readers
static uint32_t count;
static struct region *first_region, *last_region;

static struct word {
    uint32_t length;
    char text[60];
} words[64];
static uint32_t word_count;

static const char *region_name(const struct region *region)
{
    return (const char *)(region + 1);
}

static const char *region_file(const struct region *region)
{
    return region_name(region) + region->name_length + 1;
}

// FNV-1a over the name, the file and the line.
static uint64_t hash_of(const char *name, size_t name_length, const char *file, size_t file_length, int line)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < name_length; i++)
        hash = (hash ^ (unsigned char)name[i]) * UINT64_C(0x100000001b3);
    hash = (hash ^ 0x1ff) * UINT64_C(0x100000001b3);
    for (size_t i = 0; i < file_length; i++)
        hash = (hash ^ (unsigned char)file[i]) * UINT64_C(0x100000001b3);
    return (hash ^ (uint32_t)line) * UINT64_C(0x100000001b3);
}

static struct region **place_of(struct table *in, uint64_t hash, const char *name, size_t name_length, const char *file,
                                size_t file_length, int line)
{
    for (uint32_t i = (uint32_t)(hash ^ hash >> 32) & in->mask;; i = (i + 1) & in->mask) {
        struct region *region = sl_load_acquire(&in->places[i]);
        if (!region || (region->hash == hash && region->line == line && region->name_length == name_length &&
                        region->file_length == file_length && memcmp(region_name(region), name, name_length) == 0 &&
                        memcmp(region_file(region), file, file_length) == 0))
            return &in->places[i];
    }
}

static bool room_for_one(void)
{
    uint32_t places = table ? table->mask + 1 : 0;
    if (count * 2 < places)
        return true;
    uint32_t larger = places ? places * 2 : 128;
    struct table *made = memory_private(sizeof *made + larger * sizeof *made->places);
    if (!made)
        return false;
    made->mask = larger - 1;
    for (struct region *region = first_region; region; region = region->next_by_id)
        *place_of(made, region->hash, region_name(region), region->name_length, region_file(region), region->file_length,
                  region->line) = region;
    sl_store_release(&table, made);
    return true;
}

static uint32_t insert(const char *name, size_t name_length, const char *file, size_t file_length, int line, uint64_t hash)
{
    if (count >= SL_REGION_LAST || !room_for_one())
        return SL_REGION_OTHER;
    struct region **place = place_of(table, hash, name, name_length, file, file_length, line);
    if (*place)
        return (*place)->id;
    struct region *region = memory_private(sizeof *region + name_length + file_length + 2);
    if (!region)
        return SL_REGION_OTHER;
    *region = (struct region){.hash = hash, .line = line, .name_length = (uint32_t)name_length, .file_length = (uint32_t)file_length};
    char *text = (char *)(region + 1);
    memcpy(text, name, name_length);
    memcpy(text + name_length + 1, file, file_length);
    region->id = count + 1;
    if (client->phase == CLIENT_RECORDING) {
        strings_add(SL_STRING_REGION, region->id, name, file, line);
        sl_store_relaxed(&client->segment->regions, region->id);
    }
    if (last_region)
        last_region->next_by_id = region;
    else
        first_region = region;
    last_region = region;
    count++;
    sl_store_release(place, region);
    SL_TESTPOINT_(region_inserted);
    return region->id;
}

uint32_t region_intern(const char *name, const char *file, int line)
{
    size_t name_length = strnlen(name, SL_STRING_NAME_LIMIT - 1), file_length = strnlen(file, SL_STRING_NAME_LIMIT - 1);
    uint64_t hash = hash_of(name, name_length, file, file_length, line);
    struct table *present = sl_load_acquire(&table);
    if (present) {
        struct region *region = sl_load_acquire(place_of(present, hash, name, name_length, file, file_length, line));
        if (region)
            return region->id;
    }
    struct guard guard;
    if (!client_begin())
        return SL_REGION_OTHER;
    client_lock(&guard);
    uint32_t id = insert(name, name_length, file, file_length, line, hash);
    if (client->phase == CLIENT_RECORDING)
        attach_poll();
    client_unlock(&guard);
    return id;
}

static uint32_t find_word(const char *word, size_t length)
{
    for (uint32_t i = 0, known = sl_load_acquire(&word_count); i < known; i++)
        if (words[i].length == length && memcmp(words[i].text, word, length) == 0)
            return i + 1;
    return 0;
}

uint32_t word_intern(const char *word)
{
    size_t length = strnlen(word, sizeof words->text - 1);
    uint32_t id = find_word(word, length);
    if (id)
        return id;
    struct guard guard;
    client_lock(&guard);
    id = find_word(word, length);
    if (!id && word_count < sizeof words / sizeof *words) {
        struct word *made = &words[word_count];
        memcpy(made->text, word, length);
        made->length = (uint32_t)length;
        id = word_count + 1;
        if (client->phase == CLIENT_RECORDING)
            strings_add(SL_STRING_WORD, id, made->text, "", -1);
        sl_store_release(&word_count, id);
    }
    client_unlock(&guard);
    return id;
}

const char *word_text(uint32_t id)
{
    return id && id <= sl_load_acquire(&word_count) ? words[id - 1].text : "task";
}

void regions_publish_all(void)
{
    for (struct region *region = first_region; region; region = region->next_by_id)
        strings_add(SL_STRING_REGION, region->id, region_name(region), region_file(region), region->line);
    for (uint32_t i = 0; i < word_count; i++)
        strings_add(SL_STRING_WORD, i + 1, words[i].text, "", -1);
    client->segment->regions = count;
}

// Appends a record to the string area; see proto/strings.h for what a kill in between leaves.
bool strings_add(enum sl_string_type type, uint32_t id, const char *name, const char *file, int line)
{
    size_t name_length = strnlen(name, SL_STRING_NAME_LIMIT - 1), file_length = strnlen(file, SL_STRING_NAME_LIMIT - 1);
    uint64_t length = (sizeof(struct sl_string) + name_length + file_length + 7) & ~(uint64_t)7;
    if (client->strings_next + length + 8 > client->strings_end) {  // a zero header always ends the extent
        uint64_t size = client->strings_end ? 64 << 10 : 8 << 10;
        while (size < length + 8)
            size *= 2;
        uint64_t offset = segment_extend(SL_EXTENT_STRINGS, 0, 0, size);
        if (!offset)
            return false;
        client->strings_next = offset;
        client->strings_end = offset + size;
    }
    struct sl_string *string = AT(client->strings_next);
    uint32_t expected = 0;
    if (!__atomic_compare_exchange_n(&string->header, &expected, SL_STRING_RESERVED | (uint32_t)length, 0, __ATOMIC_RELEASE,
                                     __ATOMIC_RELAXED))
        return false;
    SL_TESTPOINT_(string_reserved);
    client->strings_next += length;
    string->id = id;
    string->type = type;
    string->line = line;
    string->name_length = (uint32_t)name_length;
    string->file_length = (uint32_t)file_length;
    char *text = (char *)(string + 1);
    memcpy(text, name, name_length);
    memcpy(text + name_length, file, file_length);
    SL_TESTPOINT_(string_written);
    sl_store_release(&string->header, SL_STRING_READY | (uint32_t)length);
    SL_TESTPOINT_(string_ready);
    return true;
}

SL_PUBLIC sl_region_t sl_region_at(const char *name, const char *file, int line)
{
    return name ? region_intern(name, file ? file : "", line > 0 ? line : -1) : 0;
}

SL_PUBLIC sl_region_t sl_region(const char *name)
{
    return sl_region_at(name, NULL, -1);
}
