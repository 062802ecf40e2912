// HDF5, and the only file that knows of it: thin helpers over what run files need, which is groups, one-dimensional
// datasets of numbers or texts, and scalar attributes. Errors come back as a code and words instead of going to stderr.
// One thread: the serial HDF5 library has global state.
//
// What a file says is checked here where HDF5 leaves that to its user. HDF5 1.10 itself can still crash on a file with
// damaged references: who reads files from anywhere does it in a process of its own (cli/isolated.h).
//
// An id is HDF5's own (hid_t is int64_t), positive when valid. Functions that make or open something return the id or a
// negative errno; the others 0 or a negative errno. Where they fail, `error` says why, in HDF5's innermost words or,
// where the operating system refused something, in its words ("No space left on device").
#ifndef SL_STORAGE_H5_H
#define SL_STORAGE_H5_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"

typedef int64_t h5_id;

struct h5_error {
    int code;        // negative errno; -EIO where HDF5 does not name one
    char text[400];  // one line, no name of the file
};

// Element types, of a dataset in the file as of an array in memory; HDF5 converts between any two numbers, clipping.
enum h5_type {
    H5_I8,
    H5_I16,
    H5_I32,
    H5_I64,
    H5_U32,
    H5_U64,
    H5_F64,
    H5_STRING,   // variable-length UTF-8; in memory const char *
    H5_SUMMARY,  // struct h5_summary
};

// One row of rank_region_index/summary_statistics; the members are the compound's fields.
struct h5_summary {
    int64_t total, minimum, maximum, first, last;  // durations, ns
    int64_t start_minimum, end_maximum;            // absolute, ns
    uint64_t gpu_count;
    int64_t gpu_total;
    double mean, m2;
};

size_t h5_size(enum h5_type type);  // bytes of an element in memory

// -- files ------------------------------------------------------------------------------------------------------------

// Makes `path`, replacing what is there. Takes no lock: its name is the caller's own temporary one, and some file
// systems have no locks (case L83).
h5_id h5_create(const char *path, struct h5_error *error);

// Opens `path` for reading. A file that another program has open for writing is refused (-EBUSY) where the file system
// has locks. -ENOENT, -EISDIR, -EACCES as from open; -EINVAL for a file that is not HDF5 or is cut off.
h5_id h5_open(const char *path, struct h5_error *error);

// Writes out and closes, with everything in it that is still open. The id is gone even where it fails.
int h5_close_file(h5_id file, struct h5_error *error);

// -- groups -----------------------------------------------------------------------------------------------------------

h5_id h5_group_create(h5_id parent, const char *name, struct h5_error *error);
h5_id h5_group_open(h5_id parent, const char *name, struct h5_error *error);  // -ENOENT where there is none
bool h5_exists(h5_id parent, const char *name);                               // a direct child, of whatever kind
void h5_close(h5_id id);                                                      // a group or dataset; ≤ 0 is left alone

// Calls `each` for the names of the direct children until it returns false: 1 then, 0 when all were seen.
int h5_children(h5_id group, bool (*each)(void *context, const char *name), void *context, struct h5_error *error);

// -- datasets ---------------------------------------------------------------------------------------------------------

struct h5_layout {
    enum h5_type type;
    uint64_t length;  // elements now
    uint64_t chunk;   // 0: contiguous, of fixed length. Else chunks of so many elements, and the dataset can grow
    bool deflate;     // level 4 after shuffle; chunked numbers only
};

h5_id h5_dataset_create(h5_id parent, const char *name, const struct h5_layout *layout, struct h5_error *error);
int h5_dataset_grow(h5_id dataset, uint64_t length, struct h5_error *error);

// Writes or reads `count` elements from element `first` on; `memory` is an array of `type`.
int h5_write(h5_id dataset, enum h5_type type, uint64_t first, uint64_t count, const void *memory,
             struct h5_error *error);
int h5_read(h5_id dataset, enum h5_type type, uint64_t first, uint64_t count, void *memory, struct h5_error *error);

// What a dataset holds, as far as reading goes.
enum h5_kind { H5_KIND_INTEGER, H5_KIND_REAL, H5_KIND_TEXT, H5_KIND_COMPOUND, H5_KIND_OTHER };
struct h5_shape {
    enum h5_kind kind;
    int dimensions;
    uint64_t length;  // of the first dimension
    bool stored;      // the file really holds that many elements: a header can claim 2^60 of them in 100 bytes
};

h5_id h5_dataset_open(h5_id parent, const char *name, struct h5_shape *shape, struct h5_error *error);

// The name of the first field of struct h5_summary that the dataset's compound does not have as a number; NULL: it has
// all.
const char *h5_summary_lacks(h5_id dataset);

// Reads texts of either kind, variable or fixed length. For each element its bytes and a final zero are appended to
// `texts`, and the offset of its first byte is put into offsets[0..count-1]. A text that was never written reads as "".
int h5_read_texts(h5_id dataset, uint64_t first, uint64_t count, struct buffer *texts, uint64_t *offsets,
                  struct h5_error *error);

// -- attributes -------------------------------------------------------------------------------------------------------

int h5_attribute_put_int(h5_id object, const char *name, int64_t value, struct h5_error *error);
int h5_attribute_put_text(h5_id object, const char *name, const char *value, struct h5_error *error);

enum h5_attribute_kind {
    H5_ATTRIBUTE_NONE,     // there is no such attribute
    H5_ATTRIBUTE_INTEGER,  // a scalar of any width
    H5_ATTRIBUTE_REAL,
    H5_ATTRIBUTE_TEXT,
    H5_ATTRIBUTE_OTHER,    // arrays, also of one element; booleans (HDF5 enumerations); anything else
};

// One attribute; `integer`, `real` or `text` (appended, with a final zero) is set according to the kind returned. Text
// of fixed length is `fixed`: the reader of scope-profiler sees bytes there. Negative errno where it cannot be read.
struct h5_attribute {
    int64_t integer;  // values beyond INT64_MAX come clipped
    double real;
    bool fixed;
    struct buffer text;
};
int h5_attribute_get(h5_id object, const char *name, struct h5_attribute *value, struct h5_error *error);

// Calls `each` for the texts of an attribute that is an array of them, as h5_children; for none where there is no such attribute.
int h5_attribute_texts(h5_id object, const char *name, bool (*each)(void *context, const char *text), void *context,
                       struct h5_error *error);

// Calls `each` for the names of the attributes, as h5_children.
int h5_attributes(h5_id object, bool (*each)(void *context, const char *name), void *context, struct h5_error *error);

#endif
