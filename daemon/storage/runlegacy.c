// Schema 1: a group for each rank, in it one for each region with its own two datasets. Files of
// that kind are small; their calls are found again through the path of the group.
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "base/alloc.h"
#include "base/json.h"
#include "storage/runread.h"

struct legacy_rank {
    uint32_t rank;
    char *group;
};

struct legacy_name {
    char *name;
    uint32_t region;
    UT_hash_handle hh;
};

struct legacy {
    struct sl_run *run;
    int result;  // of the visit in progress
    size_t rank_count;
    struct legacy_rank *ranks;
    struct legacy_name *by_name;
    const struct legacy_rank *present;  // the rank whose regions are being read
    size_t row_capacity;
    struct buffer files, tags;          // source files and lists of tags, one after another
    uint64_t *file_offsets, *tag_offsets;  // of each row
};

// "rank12" → 12; anything else is a group that does not concern us.
static bool note_rank(void *context, const char *name)
{
    struct legacy *legacy = context;
    if (strncmp(name, "rank", 4) || !isdigit((unsigned char)name[4]))
        return true;
    char *end;
    errno = 0;
    unsigned long rank = strtoul(name + 4, &end, 10);
    if (*end)
        return true;
    if (errno || rank > UINT32_MAX) {
        legacy->result = run_fail(legacy->run, -EINVAL, "%.100s: no such rank is possible", name);
        return false;
    }
    legacy->ranks = alloc_resize(legacy->ranks, legacy->rank_count + 1, sizeof *legacy->ranks);
    legacy->ranks[legacy->rank_count++] = (struct legacy_rank){(uint32_t)rank, alloc_text(name)};
    return true;
}

static int compare_ranks(const void *a, const void *b)
{
    const struct legacy_rank *left = a, *right = b;
    return left->rank < right->rank ? -1 : left->rank > right->rank;
}

static uint32_t region_of(struct legacy *legacy, const char *name)
{
    struct sl_run *run = legacy->run;
    struct legacy_name *found;
    HASH_FIND_STR(legacy->by_name, name, found);
    if (found)
        return found->region;
    found = alloc_zeroed(1, sizeof *found);
    found->name = alloc_text(name);
    found->region = (uint32_t)run->region_count++;
    HASH_ADD_KEYPTR(hh, legacy->by_name, found->name, strlen(found->name), found);
    return found->region;
}

static struct sl_run_row *new_row(struct legacy *legacy)
{
    struct sl_run *run = legacy->run;
    if (run->row_count == legacy->row_capacity) {
        legacy->row_capacity = legacy->row_capacity ? legacy->row_capacity * 2 : 64;
        run->rows = alloc_resize(run->rows, legacy->row_capacity, sizeof *run->rows);
        run->groups = alloc_resize(run->groups, legacy->row_capacity, sizeof *run->groups);
        legacy->file_offsets = alloc_resize(legacy->file_offsets, legacy->row_capacity, sizeof *legacy->file_offsets);
        legacy->tag_offsets = alloc_resize(legacy->tag_offsets, legacy->row_capacity, sizeof *legacy->tag_offsets);
    }
    run->groups[run->row_count] = NULL;
    return &run->rows[run->row_count++];
}

static void note_source(struct legacy *legacy, h5_id group, struct sl_run_row *row)
{
    struct h5_attribute file = {0}, line = {0};
    struct h5_error ignored;
    row->source_line = -1;
    legacy->file_offsets[legacy->run->row_count - 1] = legacy->files.length;
    if (h5_attribute_get(group, "source_file", &file, &ignored) == H5_ATTRIBUTE_TEXT)
        buffer_text(&legacy->files, file.text.data);
    buffer_append(&legacy->files, "", 1);
    if (h5_attribute_get(group, "source_lineno", &line, &ignored) == H5_ATTRIBUTE_INTEGER && line.integer >= 0)
        row->source_line = line.integer;
    buffer_finish(&file.text);
    buffer_finish(&line.text);
}

static bool note_tag(void *json, const char *tag)
{
    jsonw_text(json, tag);
    return true;
}

static int note_tags(struct legacy *legacy, h5_id group)
{
    struct sl_run *run = legacy->run;
    struct json_writer json;
    legacy->tag_offsets[run->row_count - 1] = legacy->tags.length;
    jsonw_init(&json, &legacy->tags);
    jsonw_array(&json);
    int result = h5_attribute_texts(group, "tags", note_tag, &json, &run->h5);
    jsonw_array_end(&json);
    buffer_append(&legacy->tags, "", 1);
    return result < 0 ? run_fail(run, result, "tags: %s", run->h5.text) : 0;
}

static bool note_region(void *context, const char *name)
{
    struct legacy *legacy = context;
    struct sl_run *run = legacy->run;
    char *path = alloc_printf("%s/regions/%s", legacy->present->group, name);
    h5_id group = h5_group_open(run->file, path, &run->h5);
    if (group < 0) {
        legacy->result = run_fail(run, -EINVAL, "%.300s: %s", path, run->h5.text);
        free(path);
        return false;
    }
    uint64_t length = RUN_ANY_LENGTH;
    h5_id start = run_open_ints(run, group, path, "start_times", &length);
    h5_id end = start < 0 ? start : run_open_ints(run, group, path, "end_times", &length);
    int result = end < 0 ? (int)end : 0;
    if (end >= 0) {
        struct sl_run_row *row = new_row(legacy);
        *row = (struct sl_run_row){.region = region_of(legacy, name), .rank = legacy->present->rank, .calls = length,
                                   .exclusive_ns = -1};
        run->groups[run->row_count - 1] = path;
        path = NULL;
        note_source(legacy, group, row);
        result = note_tags(legacy, group);
    }
    free(path);
    h5_close(start);
    h5_close(end);
    h5_close(group);
    legacy->result = result;
    return legacy->result == 0;
}

static int visit(struct legacy *legacy, h5_id group, const char *name, bool (*each)(void *context, const char *name))
{
    struct sl_run *run = legacy->run;
    legacy->result = 0;
    int result = h5_children(group, each, legacy, &run->h5);
    return result < 0 ? run_fail(run, result, "%s: %s", name, run->h5.text) : legacy->result;
}

static int read_rank(struct legacy *legacy)
{
    struct sl_run *run = legacy->run;
    char *path = alloc_printf("%s/regions", legacy->present->group);
    h5_id rank_group = h5_group_open(run->file, legacy->present->group, &run->h5);
    int result = rank_group < 0 ? run_fail(run, -EINVAL, "%s: %s", legacy->present->group, run->h5.text) : 0;
    if (result == 0 && h5_exists(rank_group, "regions")) {
        h5_id group = h5_group_open(rank_group, "regions", &run->h5);
        if (group < 0)
            result = run_fail(run, -EINVAL, "%s: %s", path, run->h5.text);
        else
            result = visit(legacy, group, path, note_region);
        h5_close(group);
    }
    h5_close(rank_group);
    free(path);
    return result;
}

// Names and source files move to where they stay; until now rows knew them by number and offset.
static void settle(struct legacy *legacy)
{
    struct sl_run *run = legacy->run;
    struct legacy_name *name, *next;
    run->names.texts = alloc_zeroed(run->region_count + 1, sizeof *run->names.texts);
    uint64_t *offsets = alloc_zeroed(run->region_count + 1, sizeof *offsets);
    HASH_ITER(hh, legacy->by_name, name, next) {
        offsets[name->region] = run->names.bytes.length;
        buffer_append(&run->names.bytes, name->name, strlen(name->name) + 1);
        HASH_DEL(legacy->by_name, name);
        free(name->name);
        free(name);
    }
    for (size_t i = 0; i < run->region_count; i++)
        run->names.texts[i] = run->names.bytes.data + offsets[i];
    run->files.bytes = legacy->files;
    run->tags.bytes = legacy->tags;
    for (size_t i = 0; i < run->row_count; i++) {
        run->rows[i].name = run->names.texts[run->rows[i].region];
        run->rows[i].source_file = run->files.bytes.data + legacy->file_offsets[i];
        run->rows[i].tags = run->tags.bytes.data + legacy->tag_offsets[i];
        run->rows[i].call_metadata = "[]";
    }
    free(offsets);
}

int run_read_legacy(struct sl_run *run)
{
    struct legacy legacy = {.run = run};
    int result = visit(&legacy, run->file, "/", note_rank);
    if (result == 0 && legacy.rank_count)
        qsort(legacy.ranks, legacy.rank_count, sizeof *legacy.ranks, compare_ranks);
    for (size_t i = 0; result == 0 && i < legacy.rank_count; i++) {
        legacy.present = &legacy.ranks[i];
        if (i > 0 && legacy.ranks[i - 1].rank == legacy.ranks[i].rank)
            result =
                run_fail(run, -EINVAL, "%s and %s are the same rank", legacy.ranks[i - 1].group, legacy.ranks[i].group);
        else
            result = read_rank(&legacy);
    }
    settle(&legacy);
    run->rank_count = (uint32_t)legacy.rank_count;
    for (size_t i = 0; i < legacy.rank_count; i++)
        free(legacy.ranks[i].group);
    free(legacy.ranks);
    free(legacy.file_offsets);
    free(legacy.tag_offsets);
    return result ? result : run_summarise(run);
}
