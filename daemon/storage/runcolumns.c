// Whole columns into memory, for the reading library. Every size here comes from a file: it has been compared with the
// file's own size (h5_shape.stored) before memory is asked for, and the memory is asked for politely.
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "storage/runread.h"

int run_fail(struct sl_run *run, int code, const char *format, ...)
{
    if (!run->error)
        return code;
    int head = snprintf(run->error, SL_RUN_ERROR_MAX, "cannot %s %s: ", run->doing, run->path);
    if (head < 0 || head >= SL_RUN_ERROR_MAX)
        return code;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(run->error + head, (size_t)(SL_RUN_ERROR_MAX - head), format, arguments);
    va_end(arguments);
    return code;
}

static const char *check_shape(const struct h5_shape *shape, enum h5_kind kind)
{
    static const char *const wanted[] = {
        [H5_KIND_INTEGER] = "it does not hold integers",
        [H5_KIND_REAL] = "it does not hold real numbers",
        [H5_KIND_TEXT] = "it does not hold text",
        [H5_KIND_COMPOUND] = "it does not hold a compound",
        [H5_KIND_OTHER] = "",
    };
    if (shape->kind != kind)
        return wanted[kind];
    if (shape->dimensions != 1)
        return "it is not one-dimensional";
    return shape->stored ? NULL : "it claims more values than the file holds";
}

static h5_id open_column(struct sl_run *run, h5_id group, const char *group_name, const char *name, enum h5_kind kind,
                         uint64_t *length)
{
    struct h5_shape shape;
    h5_id dataset = h5_dataset_open(group, name, &shape, &run->h5);
    if (dataset < 0)
        return run_fail(run, dataset == -ENOENT ? -EINVAL : (int)dataset, "%s/%s: %s", group_name, name,
                        dataset == -ENOENT ? "it is missing" : run->h5.text);
    const char *wrong = check_shape(&shape, kind);
    int result = 0;
    if (wrong)
        result = run_fail(run, -EINVAL, "%s/%s: %s", group_name, name, wrong);
    else if (*length != RUN_ANY_LENGTH && *length != shape.length)
        result = run_fail(run, -EINVAL, "%s/%s has %" PRIu64 " values, not %" PRIu64 " as the columns beside it",
                          group_name, name, shape.length, *length);
    if (result) {
        h5_close(dataset);
        return result;
    }
    *length = shape.length;
    return dataset;
}

h5_id run_open_ints(struct sl_run *run, h5_id group, const char *group_name, const char *name, uint64_t *length)
{
    return open_column(run, group, group_name, name, H5_KIND_INTEGER, length);
}

// An empty column is a malloc'd array too, of one element.
static void *room(uint64_t count, size_t size)
{
    return count >= SIZE_MAX / size ? NULL : malloc((count + 1) * size);
}

static int load(struct sl_run *run, h5_id group, const char *group_name, const char *name, enum h5_kind kind,
                enum h5_type type, uint64_t *length, void **into)
{
    h5_id dataset = open_column(run, group, group_name, name, kind, length);
    if (dataset < 0)
        return (int)dataset;
    int result = 0;
    void *values = room(*length, h5_size(type));
    if (!values)
        result = run_fail(run, -ENOMEM, "%s/%s: %s", group_name, name, strerror(ENOMEM));
    else if (h5_read(dataset, type, 0, *length, values, &run->h5))
        result = run_fail(run, run->h5.code, "%s/%s: %s", group_name, name, run->h5.text);
    h5_close(dataset);
    if (result)
        free(values);
    else
        *into = values;
    return result;
}

int run_load_ints(struct sl_run *run, h5_id group, const char *group_name, const char *name, uint64_t *length,
                  int64_t **into)
{
    void *values = NULL;
    int result = load(run, group, group_name, name, H5_KIND_INTEGER, H5_I64, length, &values);
    *into = values;
    return result;
}

int run_load_reals(struct sl_run *run, h5_id group, const char *group_name, const char *name, uint64_t *length,
                   double **into)
{
    void *values = NULL;
    int result = load(run, group, group_name, name, H5_KIND_REAL, H5_F64, length, &values);
    *into = values;
    return result;
}

// Makes all of it valid UTF-8, or finds the first that is not: its number, else −1.
static int64_t check_texts(struct run_texts *into, uint64_t count, uint64_t *offsets, enum run_strictness strictness)
{
    struct buffer repaired = {0};
    bool broken = false;
    for (uint64_t i = 0; i < count; i++) {
        const char *text = into->bytes.data + offsets[i];
        if (utf8_is_valid(text, strlen(text)))
            continue;
        if (strictness == RUN_STRICT)
            return (int64_t)i;
        broken = true;
    }
    if (!broken)
        return -1;
    for (uint64_t i = 0; i < count; i++) {
        const char *text = into->bytes.data + offsets[i];
        offsets[i] = repaired.length;
        utf8_append(&repaired, text, strlen(text));
        buffer_append(&repaired, "", 1);
    }
    buffer_finish(&into->bytes);
    into->bytes = repaired;
    return -1;
}

static int read_texts(struct sl_run *run, h5_id dataset, const char *where, uint64_t count,
                      enum run_strictness strictness, struct run_texts *into)
{
    uint64_t *offsets = room(count, sizeof *offsets);
    into->texts = room(count, sizeof *into->texts);
    int result = 0;
    if (!offsets || !into->texts)
        result = run_fail(run, -ENOMEM, "%s: %s", where, strerror(ENOMEM));
    else if (h5_read_texts(dataset, 0, count, &into->bytes, offsets, &run->h5))
        result = run_fail(run, run->h5.code, "%s: %s", where, run->h5.text);
    int64_t broken = result ? -1 : check_texts(into, count, offsets, strictness);
    if (broken >= 0)
        result = run_fail(run, -EINVAL, "%s: text %" PRId64 " is not UTF-8", where, broken);
    for (uint64_t i = 0; result == 0 && i < count; i++)
        into->texts[i] = into->bytes.data + offsets[i];
    free(offsets);
    return result;
}

int run_load_texts(struct sl_run *run, h5_id group, const char *group_name, const char *name, uint64_t *length,
                   enum run_strictness strictness, struct run_texts *into)
{
    char where[256];
    h5_id dataset = open_column(run, group, group_name, name, H5_KIND_TEXT, length);
    if (dataset < 0)
        return (int)dataset;
    snprintf(where, sizeof where, "%s/%s", group_name, name);
    int result = read_texts(run, dataset, where, *length, strictness, into);
    h5_close(dataset);
    if (result)
        run_texts_finish(into);
    return result;
}

void run_texts_finish(struct run_texts *texts)
{
    free(texts->texts);
    buffer_finish(&texts->bytes);
    texts->texts = NULL;
}
