// See column.h. The pieces are the chunks too, so that no chunk is ever read back.
#include "storage/column.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"

enum { LARGE_BYTES = 512 << 10 };  // a piece of a column whose length is known to be large

void column_init(struct column *column, h5_id parent, const char *name, enum h5_type type, int64_t length,
                 bool compress)
{
    *column = (struct column){.parent = parent, .name = name, .type = type, .length = length, .compress = compress};
}

static uint64_t waiting(const struct column *column)
{
    return column->values.length / h5_size(column->type);
}

static uint64_t small(const struct column *column)
{
    return COLUMN_SMALL_BYTES / h5_size(column->type);
}

// Contiguous from the start, in its full length.
static bool fixed(const struct column *column)
{
    return column->length >= 0 && (!column->compress || (uint64_t)column->length <= small(column));
}

static uint64_t piece(const struct column *column)
{
    uint64_t large = LARGE_BYTES / h5_size(column->type);
    if (column->length < 0)
        return small(column);
    return (uint64_t)column->length < large && column->length > 0 ? (uint64_t)column->length : large;
}

static int make(struct column *column, bool last, struct h5_error *error)
{
    struct h5_layout layout = {.type = column->type};
    if (fixed(column))
        layout.length = (uint64_t)column->length;
    else if (last && waiting(column) <= small(column))
        layout.length = waiting(column);
    else
        layout.chunk = piece(column), layout.deflate = column->compress, column->grows = true;
    h5_id dataset = h5_dataset_create(column->parent, column->name, &layout, error);
    if (dataset < 0)
        return (int)dataset;
    column->dataset = dataset;
    return 0;
}

static int write_texts(struct column *column, uint64_t count, struct h5_error *error)
{
    const uint64_t *offsets = (const uint64_t *)column->values.data;
    const char **texts = alloc_zeroed(count, sizeof *texts);
    for (uint64_t i = 0; i < count; i++)
        texts[i] = column->texts.data + offsets[i];
    int result = h5_write(column->dataset, H5_STRING, column->written, count, texts, error);
    free(texts);
    return result;
}

static int flush(struct column *column, bool last, struct h5_error *error)
{
    uint64_t count = waiting(column);
    int result = column->dataset ? 0 : make(column, last, error);
    if (result == 0 && column->grows && count)
        result = h5_dataset_grow(column->dataset, column->written + count, error);
    if (result == 0 && column->type == H5_STRING)
        result = write_texts(column, count, error);
    else if (result == 0)
        result = h5_write(column->dataset, column->type, column->written, count, column->values.data, error);
    column->written += count;
    buffer_clear(&column->values);
    buffer_clear(&column->texts);
    return result;
}

static int out_of_place(const struct column *column, int code, const char *what, struct h5_error *error)
{
    error->code = code;
    snprintf(error->text, sizeof error->text, "column %s: %s", column->name, what);
    return code;
}

// How many of `wanted` values can be appended now, after a full piece has gone out; -errno.
static int64_t room(struct column *column, size_t wanted, struct h5_error *error)
{
    if (column->length >= 0 && wanted > (uint64_t)column->length - column->written - waiting(column))
        return out_of_place(column, -EINVAL, "more values than its length", error);
    int result = waiting(column) >= piece(column) ? flush(column, false, error) : 0;
    uint64_t left = piece(column) - waiting(column);
    return result ? result : wanted < left ? (int64_t)wanted : (int64_t)left;
}

// One loop for each width: the compiler makes vector code of them.
#define NARROW(TYPE)                               \
    for (size_t i = 0; i < count; i++) {           \
        ((TYPE *)place)[i] = (TYPE)values[i];      \
        lost |= (TYPE)values[i] != values[i];      \
    }

static bool narrow(enum h5_type type, const int64_t *values, size_t count, void *place)
{
    bool lost = false;
    switch (type) {
    case H5_I8: NARROW(int8_t) break;
    case H5_I16: NARROW(int16_t) break;
    case H5_I32: NARROW(int32_t) break;
    case H5_U32: NARROW(uint32_t) break;
    case H5_U64:
        for (size_t i = 0; i < count; i++)
            lost |= values[i] < 0;
        memcpy(place, values, count * sizeof *values);
        break;
    default: memcpy(place, values, count * sizeof *values);
    }
    return !lost;
}

int column_ints(struct column *column, const int64_t *values, size_t count, struct h5_error *error)
{
    while (count) {
        int64_t now = room(column, count, error);
        if (now < 0)
            return (int)now;
        void *place = buffer_extend(&column->values, (size_t)now * h5_size(column->type));
        if (!narrow(column->type, values, (size_t)now, place))
            return out_of_place(column, -ERANGE, "a value does not fit its type", error);
        values += now;
        count -= (size_t)now;
    }
    return 0;
}

int column_int(struct column *column, int64_t value, struct h5_error *error)
{
    return column_ints(column, &value, 1, error);
}

static int append(struct column *column, const void *value, struct h5_error *error)
{
    int64_t now = room(column, 1, error);
    if (now < 0)
        return (int)now;
    buffer_append(&column->values, value, h5_size(column->type));
    return 0;
}

int column_real(struct column *column, double value, struct h5_error *error)
{
    return append(column, &value, error);
}

int column_summary(struct column *column, const struct h5_summary *summary, struct h5_error *error)
{
    return append(column, summary, error);
}

int column_text(struct column *column, const char *text, struct h5_error *error)
{
    int64_t now = room(column, 1, error);
    if (now < 0)
        return (int)now;
    uint64_t offset = column->texts.length;
    utf8_append(&column->texts, text, strlen(text));
    buffer_append(&column->texts, "", 1);
    buffer_append(&column->values, &offset, sizeof offset);
    return 0;
}

int column_end(struct column *column, struct h5_error *error)
{
    int result = flush(column, true, error);
    if (result == 0 && column->length >= 0 && column->written != (uint64_t)column->length)
        result = out_of_place(column, -EINVAL, "fewer values than its length", error);
    column_drop(column);
    return result;
}

void column_drop(struct column *column)
{
    h5_close(column->dataset);
    column->dataset = 0;
    buffer_finish(&column->values);
    buffer_finish(&column->texts);
}
