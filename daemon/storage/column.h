// A dataset that is written from front to back: values are collected in memory and go out in large pieces. What fits
// one piece of 64 KiB ends up contiguous, as scope-profiler leaves small datasets; what does not is chunked and grows.
// A column whose length is known beforehand is contiguous at any size unless it is to be compressed: that is what
// writes fastest.
#ifndef SL_STORAGE_COLUMN_H
#define SL_STORAGE_COLUMN_H

#include "storage/h5.h"

enum {
    COLUMN_SMALL_BYTES = 64 << 10,  // datasets up to here are contiguous
    COLUMN_UNKNOWN = -1,
};

struct column {
    const char *name;      // of the dataset; must stay
    enum h5_type type;     // in the file
    h5_id parent;          // group it belongs to; not ours
    h5_id dataset;         // 0 until the first piece is written
    int64_t length;        // of all, or COLUMN_UNKNOWN
    bool compress;
    bool grows;            // the dataset does
    uint64_t written;      // elements that are in the dataset
    struct buffer values;  // of h5_size(type) each; for H5_STRING the offsets of texts
    struct buffer texts;
};

void column_init(struct column *column, h5_id parent, const char *name, enum h5_type type, int64_t length,
                 bool compress);

// Append. Integers that do not fit the column's type are -ERANGE. Texts are copied, made UTF-8 on the way.
int column_ints(struct column *column, const int64_t *values, size_t count, struct h5_error *error);
int column_int(struct column *column, int64_t value, struct h5_error *error);
int column_real(struct column *column, double value, struct h5_error *error);
int column_text(struct column *column, const char *text, struct h5_error *error);
int column_summary(struct column *column, const struct h5_summary *summary, struct h5_error *error);

// Writes out the rest. A column with a known length that did not get as many values is -EINVAL. Frees what the column
// holds, also where it fails.
int column_end(struct column *column, struct h5_error *error);

// Frees it and gives up what was not written.
void column_drop(struct column *column);

#endif
