// See h5.h. HDF5's own printing of errors is switched off at the first use; instead its error stack is read where a
// call has failed. What is read may have been written by anyone: links into other files and data kept in other files
// are refused, and sizes are compared with the file's before memory is asked for.
#include "storage/h5.h"

#include <errno.h>
#include <fcntl.h>
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(sizeof(h5_id) == sizeof(hid_t), "h5_id carries HDF5's ids");

enum { TEXT_BATCH = 1024, DEFLATE_LEVEL = 4, ATTRIBUTE_TEXTS_MOST = 1 << 16 };

// -- errors -----------------------------------------------------------------------------------------------------------

static int fail(struct h5_error *error, int code, const char *text)
{
    error->code = code;
    snprintf(error->text, sizeof error->text, "%s", text);
    return code;
}

// The innermost entry of the error stack tells most. Where the operating system refused something it holds
// "errno = 28, error message = 'No space left on device'" among addresses that nobody wants to read.
static herr_t innermost(unsigned n, const H5E_error2_t *entry, void *context)
{
    struct h5_error *error = context;
    (void)n;
    const char *number = strstr(entry->desc, "errno = ");
    if (number) {
        int system_error = atoi(number + strlen("errno = "));
        error->code = system_error > 0 ? -system_error : -EIO;
        snprintf(error->text, sizeof error->text, "%s", system_error > 0 ? strerror(system_error) : entry->desc);
    } else {
        snprintf(error->text, sizeof error->text, "%s", entry->desc);
    }
    return 1;  // the first is enough
}

static int fail_hdf5(struct h5_error *error, int code)
{
    fail(error, code, "HDF5 gives no reason");
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, innermost, error);
    H5Eclear2(H5E_DEFAULT);
    return error->code;
}

static void silence(void)
{
    static bool done;
    if (!done)
        H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    done = true;
}

// -- types ------------------------------------------------------------------------------------------------------------

static hid_t string_type(void)
{
    hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, H5T_VARIABLE);
    H5Tset_cset(type, H5T_CSET_UTF8);
    return type;
}

static const struct {
    const char *name;
    size_t offset;
    enum h5_type type;
} summary_fields[] = {
    {"total", offsetof(struct h5_summary, total), H5_I64},
    {"minimum", offsetof(struct h5_summary, minimum), H5_I64},
    {"maximum", offsetof(struct h5_summary, maximum), H5_I64},
    {"first", offsetof(struct h5_summary, first), H5_I64},
    {"last", offsetof(struct h5_summary, last), H5_I64},
    {"start_minimum", offsetof(struct h5_summary, start_minimum), H5_I64},
    {"end_maximum", offsetof(struct h5_summary, end_maximum), H5_I64},
    {"gpu_count", offsetof(struct h5_summary, gpu_count), H5_U64},
    {"gpu_total", offsetof(struct h5_summary, gpu_total), H5_I64},
    {"mean", offsetof(struct h5_summary, mean), H5_F64},
    {"m2", offsetof(struct h5_summary, m2), H5_F64},
};
enum { SUMMARY_FIELDS = sizeof summary_fields / sizeof *summary_fields };

static hid_t memory_type(enum h5_type type);

static hid_t summary_type(void)
{
    hid_t compound = H5Tcreate(H5T_COMPOUND, sizeof(struct h5_summary));
    for (int i = 0; i < SUMMARY_FIELDS; i++) {
        hid_t member = memory_type(summary_fields[i].type);
        H5Tinsert(compound, summary_fields[i].name, summary_fields[i].offset, member);
        H5Tclose(member);
    }
    return compound;
}

static hid_t memory_type(enum h5_type type)
{
    switch (type) {
    case H5_I8: return H5Tcopy(H5T_NATIVE_INT8);
    case H5_I16: return H5Tcopy(H5T_NATIVE_INT16);
    case H5_I32: return H5Tcopy(H5T_NATIVE_INT32);
    case H5_I64: return H5Tcopy(H5T_NATIVE_INT64);
    case H5_U32: return H5Tcopy(H5T_NATIVE_UINT32);
    case H5_U64: return H5Tcopy(H5T_NATIVE_UINT64);
    case H5_F64: return H5Tcopy(H5T_NATIVE_DOUBLE);
    case H5_STRING: return string_type();
    case H5_SUMMARY: return summary_type();
    }
    return H5I_INVALID_HID;
}

size_t h5_size(enum h5_type type)
{
    switch (type) {
    case H5_I8: return 1;
    case H5_I16: return 2;
    case H5_I32:
    case H5_U32: return 4;
    case H5_I64:
    case H5_U64:
    case H5_F64: return 8;
    case H5_STRING: return sizeof(char *);
    case H5_SUMMARY: return sizeof(struct h5_summary);
    }
    return 0;
}

// -- files ------------------------------------------------------------------------------------------------------------

static hid_t access_list(void)
{
    hid_t list = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_file_locking(list, false, true);
    H5Pset_fclose_degree(list, H5F_CLOSE_STRONG);
    return list;
}

// HDF5 1.10 crashes in its exit handler over a file that it could not close, as on a full disk. All files are closed
// here, so that it is not needed; where HDF5 was in use before, it has been registered and stays.
h5_id h5_create(const char *path, struct h5_error *error)
{
    H5dont_atexit();
    silence();
    hid_t list = access_list();
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, list);
    if (file < 0)
        file = fail_hdf5(error, -EIO);
    H5Pclose(list);
    return file;
}

// Asks the operating system first: its answers are better than HDF5's, and a FIFO or a lock would make HDF5 hang or
// complain of something else.
static int openable(const char *path, struct h5_error *error)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return fail(error, -errno, strerror(errno));
    struct stat status;
    int result = 0;
    if (fstat(fd, &status) < 0)
        result = fail(error, -errno, strerror(errno));
    else if (S_ISDIR(status.st_mode))
        result = fail(error, -EISDIR, strerror(EISDIR));
    else if (!S_ISREG(status.st_mode))
        result = fail(error, -EINVAL, "not a regular file");
    else if (status.st_size == 0)
        result = fail(error, -EINVAL, "it is empty");
    else if (flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK)
        result = fail(error, -EBUSY, "another program has it open for writing");
    close(fd);
    return result;
}

h5_id h5_open(const char *path, struct h5_error *error)
{
    silence();
    int result = openable(path, error);
    if (result)
        return result;
    if (H5Fis_hdf5(path) == 0)
        return fail(error, -EINVAL, "it is not HDF5");
    hid_t list = access_list();
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, list);
    if (file < 0) {
        file = fail_hdf5(error, -EINVAL);
        if (strstr(error->text, "truncated"))
            fail(error, -EINVAL, "it is cut off (the end of the HDF5 file is missing)");
    }
    H5Pclose(list);
    return file;
}

int h5_close_file(h5_id file, struct h5_error *error)
{
    if (H5Fflush(file, H5F_SCOPE_LOCAL) < 0) {
        fail_hdf5(error, -EIO);
        H5Fclose(file);
        H5Eclear2(H5E_DEFAULT);
        return error->code;
    }
    return H5Fclose(file) < 0 ? fail_hdf5(error, -EIO) : 0;
}

// -- groups -----------------------------------------------------------------------------------------------------------

h5_id h5_group_create(h5_id parent, const char *name, struct h5_error *error)
{
    hid_t group = H5Gcreate2(parent, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    return group < 0 ? fail_hdf5(error, -EIO) : group;
}

bool h5_exists(h5_id parent, const char *name)
{
    bool exists = H5Lexists(parent, name, H5P_DEFAULT) > 0;
    H5Eclear2(H5E_DEFAULT);
    return exists;
}

// A link that a reader may follow: there, and not into another file.
static int followable(hid_t parent, const char *name, struct h5_error *error)
{
    if (!h5_exists(parent, name))
        return fail(error, -ENOENT, "there is none");
    H5L_info_t info;
    if (H5Lget_info(parent, name, &info, H5P_DEFAULT) < 0)
        return fail_hdf5(error, -EINVAL);
    if (info.type != H5L_TYPE_HARD && info.type != H5L_TYPE_SOFT)
        return fail(error, -EINVAL, "it is a link into another file");
    return 0;
}

static hid_t open_object(hid_t parent, const char *name, H5I_type_t wanted, struct h5_error *error)
{
    int result = followable(parent, name, error);
    if (result)
        return result;
    hid_t object = H5Oopen(parent, name, H5P_DEFAULT);
    if (object < 0)
        return fail_hdf5(error, -EINVAL);
    if (H5Iget_type(object) == wanted)
        return object;
    H5Oclose(object);
    return fail(error, -EINVAL, wanted == H5I_GROUP ? "it is not a group" : "it is not a dataset");
}

h5_id h5_group_open(h5_id parent, const char *name, struct h5_error *error)
{
    return open_object(parent, name, H5I_GROUP, error);
}

void h5_close(h5_id id)
{
    if (id > 0)
        H5Idec_ref(id);
}

// Names are collected before anyone is called, who then may do with HDF5 what he likes.
static herr_t collect_link(hid_t group, const char *name, const H5L_info_t *info, void *names)
{
    (void)group, (void)info;
    buffer_append(names, name, strlen(name) + 1);
    return 0;
}

static int tell(struct buffer *names, int result, bool (*each)(void *context, const char *name), void *context)
{
    bool on = true;
    for (size_t at = 0; result == 0 && on && at < names->length; at += strlen(names->data + at) + 1)
        on = each(context, names->data + at);
    buffer_finish(names);
    return result ? result : !on;
}

static int list_links(hid_t group, struct buffer *names, struct h5_error *error)
{
    herr_t result = H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, NULL, collect_link, names);
    return result < 0 ? fail_hdf5(error, -EINVAL) : 0;
}

int h5_children(h5_id group, bool (*each)(void *context, const char *name), void *context, struct h5_error *error)
{
    struct buffer names = {0};
    return tell(&names, list_links(group, &names, error), each, context);
}

// -- datasets ---------------------------------------------------------------------------------------------------------

static hid_t creation_list(const struct h5_layout *layout)
{
    hid_t list = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_obj_track_times(list, false);  // the same run makes the same bytes
    H5Pset_fill_time(list, H5D_FILL_TIME_NEVER);
    if (layout->type == H5_STRING)
        H5Pset_fill_time(list, H5D_FILL_TIME_IFSET);  // HDF5 wants it so for variable lengths
    if (!layout->chunk)
        return list;
    hsize_t chunk = layout->chunk;
    H5Pset_chunk(list, 1, &chunk);
    if (layout->deflate && layout->type != H5_STRING) {
        H5Pset_shuffle(list);
        H5Pset_deflate(list, DEFLATE_LEVEL);
    }
    return list;
}

h5_id h5_dataset_create(h5_id parent, const char *name, const struct h5_layout *layout, struct h5_error *error)
{
    hsize_t length = layout->length, most = layout->chunk ? H5S_UNLIMITED : layout->length;
    hid_t space = H5Screate_simple(1, &length, &most);
    hid_t type = memory_type(layout->type);
    hid_t list = creation_list(layout);
    hid_t dataset = H5Dcreate2(parent, name, type, space, H5P_DEFAULT, list, H5P_DEFAULT);
    if (dataset < 0)
        dataset = fail_hdf5(error, -EIO);
    H5Pclose(list);
    H5Tclose(type);
    H5Sclose(space);
    return dataset;
}

int h5_dataset_grow(h5_id dataset, uint64_t length, struct h5_error *error)
{
    hsize_t size = length;
    return H5Dset_extent(dataset, &size) < 0 ? fail_hdf5(error, -EIO) : 0;
}

// The elements first..first+count−1 of a dataset as a file space, and an array of `count` as a memory space.
static int select_range(hid_t dataset, uint64_t first, uint64_t count, hid_t *in_file, hid_t *in_memory,
                        struct h5_error *error)
{
    hsize_t offset = first, length = count;
    *in_file = H5Dget_space(dataset);
    *in_memory = H5Screate_simple(1, &length, NULL);
    if (*in_file >= 0 && *in_memory >= 0 &&
        H5Sselect_hyperslab(*in_file, H5S_SELECT_SET, &offset, NULL, &length, NULL) >= 0 &&
        H5Sselect_valid(*in_file) > 0)
        return 0;
    fail_hdf5(error, -EINVAL);
    if (*in_file >= 0)
        H5Sclose(*in_file);
    if (*in_memory >= 0)
        H5Sclose(*in_memory);
    return error->code;
}

int h5_write(h5_id dataset, enum h5_type type, uint64_t first, uint64_t count, const void *memory,
             struct h5_error *error)
{
    hid_t in_file, in_memory;
    if (count == 0)
        return 0;
    int result = select_range(dataset, first, count, &in_file, &in_memory, error);
    if (result)
        return result;
    hid_t elements = memory_type(type);
    if (H5Dwrite(dataset, elements, in_memory, in_file, H5P_DEFAULT, memory) < 0)
        result = fail_hdf5(error, -EIO);
    H5Tclose(elements);
    H5Sclose(in_memory);
    H5Sclose(in_file);
    return result;
}

static int read_as(hid_t dataset, hid_t elements, uint64_t first, uint64_t count, void *memory, struct h5_error *error)
{
    hid_t in_file, in_memory;
    if (count == 0)
        return 0;
    int result = select_range(dataset, first, count, &in_file, &in_memory, error);
    if (result)
        return result;
    if (H5Dread(dataset, elements, in_memory, in_file, H5P_DEFAULT, memory) < 0)
        result = fail_hdf5(error, -EIO);
    H5Sclose(in_memory);
    H5Sclose(in_file);
    return result;
}

int h5_read(h5_id dataset, enum h5_type type, uint64_t first, uint64_t count, void *memory, struct h5_error *error)
{
    hid_t elements = memory_type(type);
    int result = read_as(dataset, elements, first, count, memory, error);
    H5Tclose(elements);
    return result;
}

static enum h5_kind kind_of(hid_t type)
{
    switch (H5Tget_class(type)) {
    case H5T_INTEGER:
    case H5T_ENUM: return H5_KIND_INTEGER;  // h5py writes bool as an enumeration of int8
    case H5T_FLOAT: return H5_KIND_REAL;
    case H5T_STRING: return H5_KIND_TEXT;
    case H5T_COMPOUND: return H5_KIND_COMPOUND;
    default: return H5_KIND_OTHER;
    }
}

const char *h5_summary_lacks(h5_id dataset)
{
    const char *missing = NULL;
    hid_t type = H5Dget_type(dataset);
    bool compound = type >= 0 && H5Tget_class(type) == H5T_COMPOUND;
    for (int i = 0; !missing && i < SUMMARY_FIELDS; i++) {
        int member = compound ? H5Tget_member_index(type, summary_fields[i].name) : -1;
        H5T_class_t class = member < 0 ? H5T_NO_CLASS : H5Tget_member_class(type, (unsigned)member);
        if (class != H5T_INTEGER && class != H5T_FLOAT)
            missing = summary_fields[i].name;
    }
    if (type >= 0)
        H5Tclose(type);
    H5Eclear2(H5E_DEFAULT);
    return missing;
}

static uint64_t file_size(hid_t object)
{
    hid_t file = H5Iget_file_id(object);
    hsize_t size = 0;
    if (file >= 0) {
        H5Fget_filesize(file, &size);
        H5Fclose(file);
    }
    return size;
}

static bool is_stored(hid_t dataset, hid_t type, uint64_t length)
{
    enum { DEFLATE_AT_BEST = 1100 };  // a stream of zeros shrinks to 1/1032
    uint64_t storage = H5Dget_storage_size(dataset), size = H5Tget_size(type) ? H5Tget_size(type) : 1;
    return length == 0 ||
           (storage <= file_size(dataset) && length <= storage / size * DEFLATE_AT_BEST + DEFLATE_AT_BEST);
}

static bool is_elsewhere(hid_t dataset)
{
    hid_t list = H5Dget_create_plist(dataset);
    bool elsewhere = list < 0 || H5Pget_external_count(list) != 0 || H5Pget_layout(list) == H5D_VIRTUAL;
    if (list >= 0)
        H5Pclose(list);
    return elsewhere;
}

static int measure(hid_t dataset, struct h5_shape *shape, struct h5_error *error)
{
    hid_t space = H5Dget_space(dataset), type = H5Dget_type(dataset);
    int result = 0;
    hsize_t sizes[H5S_MAX_RANK] = {0};
    shape->dimensions = space < 0 ? -1 : H5Sget_simple_extent_dims(space, sizes, NULL);
    if (type < 0 || shape->dimensions < 0) {
        result = fail_hdf5(error, -EINVAL);
    } else {
        shape->kind = kind_of(type);
        shape->length = sizes[0];
        shape->stored = is_stored(dataset, type, sizes[0]);
    }
    if (type >= 0)
        H5Tclose(type);
    if (space >= 0)
        H5Sclose(space);
    return result;
}

h5_id h5_dataset_open(h5_id parent, const char *name, struct h5_shape *shape, struct h5_error *error)
{
    hid_t dataset = open_object(parent, name, H5I_DATASET, error);
    if (dataset < 0)
        return dataset;
    int result =
        is_elsewhere(dataset) ? fail(error, -EINVAL, "its data lie in another file") : measure(dataset, shape, error);
    if (result == 0)
        return dataset;
    H5Dclose(dataset);
    return result;
}

// -- texts ------------------------------------------------------------------------------------------------------------

struct text_reader {
    hid_t dataset, type;
    bool variable;
    size_t width;       // bytes of an element in memory
    size_t most_bytes;  // elements of a hostile file may share one text: together no more than the file holds
    struct buffer *into;
};

static void take_text(struct text_reader *reader, const char *element, uint64_t *offset)
{
    *offset = reader->into->length;
    if (reader->variable) {
        const char *text = *(char *const *)element;
        if (text)
            buffer_text(reader->into, text);
    } else {
        buffer_append(reader->into, element, strnlen(element, reader->width));
    }
    buffer_append(reader->into, "", 1);
}

static int read_batch(struct text_reader *reader, uint64_t first, uint64_t count, char *batch, uint64_t *offsets,
                      struct h5_error *error)
{
    memset(batch, 0, count * reader->width);
    int result = read_as(reader->dataset, reader->type, first, count, batch, error);
    if (result)
        return result;  // what the batch holds now is HDF5's secret
    for (uint64_t i = 0; i < count; i++)
        take_text(reader, batch + i * reader->width, &offsets[i]);
    if (reader->variable)
        for (uint64_t i = 0; i < count; i++)
            H5free_memory(((char **)batch)[i]);
    if (reader->into->length > reader->most_bytes)
        result = fail(error, -EINVAL, "its texts are longer than the file");
    return result;
}

static int read_all_texts(struct text_reader *reader, uint64_t first, uint64_t count, uint64_t *offsets,
                          struct h5_error *error)
{
    uint64_t most = reader->width > 4096 ? 1 : TEXT_BATCH;
    char *batch = calloc(most, reader->width);
    if (!batch)
        return fail(error, -ENOMEM, strerror(ENOMEM));
    int result = 0;
    for (uint64_t done = 0; result == 0 && done < count;) {
        uint64_t now = count - done < most ? count - done : most;
        result = read_batch(reader, first + done, now, batch, offsets + done, error);
        done += now;
    }
    free(batch);
    return result;
}

int h5_read_texts(h5_id dataset, uint64_t first, uint64_t count, struct buffer *texts, uint64_t *offsets,
                  struct h5_error *error)
{
    hid_t stored = H5Dget_type(dataset);
    if (stored < 0)
        return fail_hdf5(error, -EINVAL);
    int result;
    if (H5Tget_class(stored) != H5T_STRING) {
        result = fail(error, -EINVAL, "it does not hold text");
    } else {
        struct text_reader reader = {.dataset = dataset, .type = stored, .into = texts};
        reader.variable = H5Tis_variable_str(stored) > 0;
        reader.width = reader.variable ? sizeof(char *) : H5Tget_size(stored);
        reader.most_bytes = texts->length + count * (reader.variable ? 1 : reader.width + 1) + file_size(dataset);
        result = read_all_texts(&reader, first, count, offsets, error);
    }
    H5Tclose(stored);
    return result;
}

// -- attributes -------------------------------------------------------------------------------------------------------

static int put_attribute(hid_t object, const char *name, hid_t type, const void *value, struct h5_error *error)
{
    if (H5Aexists(object, name) > 0)
        return fail(error, -EEXIST, "it is there already");
    int result = 0;
    hid_t space = H5Screate(H5S_SCALAR);
    hid_t attribute = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    if (attribute < 0 || H5Awrite(attribute, type, value) < 0)
        result = fail_hdf5(error, -EIO);
    if (attribute >= 0)
        H5Aclose(attribute);
    H5Sclose(space);
    return result;
}

int h5_attribute_put_int(h5_id object, const char *name, int64_t value, struct h5_error *error)
{
    return put_attribute(object, name, H5T_NATIVE_INT64, &value, error);
}

int h5_attribute_put_text(h5_id object, const char *name, const char *value, struct h5_error *error)
{
    hid_t type = string_type();
    int result = put_attribute(object, name, type, &value, error);
    H5Tclose(type);
    return result;
}

static int get_text(hid_t attribute, hid_t type, struct h5_attribute *value, struct h5_error *error)
{
    if (H5Tis_variable_str(type) > 0) {
        char *text = NULL;
        if (H5Aread(attribute, type, &text) < 0)
            return fail_hdf5(error, -EINVAL);
        buffer_text(&value->text, text ? text : "");
        H5free_memory(text);
    } else {
        size_t size = H5Tget_size(type), before = value->text.length;
        char *place = buffer_extend(&value->text, size);
        if (H5Aread(attribute, type, place) < 0)
            return fail_hdf5(error, -EINVAL);
        value->fixed = true;
        value->text.length = before + strnlen(place, size);
    }
    buffer_append(&value->text, "", 1);
    return H5_ATTRIBUTE_TEXT;
}

static int get_scalar(hid_t attribute, hid_t type, struct h5_attribute *value, struct h5_error *error)
{
    switch (H5Tget_class(type)) {
    case H5T_INTEGER:
        return H5Aread(attribute, H5T_NATIVE_INT64, &value->integer) < 0 ? fail_hdf5(error, -EINVAL)
                                                                         : H5_ATTRIBUTE_INTEGER;
    case H5T_FLOAT:
        return H5Aread(attribute, H5T_NATIVE_DOUBLE, &value->real) < 0 ? fail_hdf5(error, -EINVAL) : H5_ATTRIBUTE_REAL;
    case H5T_STRING: return get_text(attribute, type, value, error);
    default: return H5_ATTRIBUTE_OTHER;
    }
}

struct attribute {
    hid_t id, space, type;
};

static void close_attribute(const struct attribute *attribute)
{
    if (attribute->type >= 0)
        H5Tclose(attribute->type);
    if (attribute->space >= 0)
        H5Sclose(attribute->space);
    H5Aclose(attribute->id);
}

// 1: it is open; 0: there is none.
static int open_attribute(hid_t object, const char *name, struct attribute *attribute, struct h5_error *error)
{
    if (H5Aexists(object, name) <= 0) {
        H5Eclear2(H5E_DEFAULT);
        return 0;
    }
    attribute->id = H5Aopen(object, name, H5P_DEFAULT);
    if (attribute->id < 0)
        return fail_hdf5(error, -EINVAL);
    attribute->space = H5Aget_space(attribute->id);
    attribute->type = H5Aget_type(attribute->id);
    if (attribute->space >= 0 && attribute->type >= 0)
        return 1;
    int result = fail_hdf5(error, -EINVAL);
    close_attribute(attribute);
    return result;
}

int h5_attribute_get(h5_id object, const char *name, struct h5_attribute *value, struct h5_error *error)
{
    struct attribute attribute;
    int result = open_attribute(object, name, &attribute, error);
    if (result <= 0)
        return result < 0 ? result : H5_ATTRIBUTE_NONE;
    bool scalar = H5Sget_simple_extent_type(attribute.space) == H5S_SCALAR;
    result = scalar ? get_scalar(attribute.id, attribute.type, value, error) : H5_ATTRIBUTE_OTHER;
    close_attribute(&attribute);
    return result;
}

// Each is ended by a zero.
static int collect_texts(hid_t attribute, hid_t type, size_t count, struct buffer *texts, struct h5_error *error)
{
    bool variable = H5Tis_variable_str(type) > 0;
    size_t width = variable ? sizeof(char *) : H5Tget_size(type);
    char *values = calloc(count + 1, width + 1);
    if (!values)
        return fail(error, -ENOMEM, strerror(ENOMEM));
    int result = H5Aread(attribute, type, values) < 0 ? fail_hdf5(error, -EINVAL) : 0;
    for (size_t i = 0; result == 0 && i < count; i++) {
        char *place = values + i * width, *text = place;
        if (variable)
            memcpy(&text, place, sizeof text);
        if (text)
            buffer_append(texts, text, variable ? strlen(text) : strnlen(text, width));
        buffer_append(texts, "", 1);
        if (variable)
            H5free_memory(text);
    }
    free(values);
    return result;
}

static int list_texts(hid_t object, const char *name, struct buffer *texts, struct h5_error *error)
{
    struct attribute attribute;
    int result = open_attribute(object, name, &attribute, error);
    if (result <= 0)
        return result;
    hssize_t count = H5Sget_simple_extent_npoints(attribute.space);
    if (count < 0)
        result = fail_hdf5(error, -EINVAL);
    else if (H5Tget_class(attribute.type) != H5T_STRING || count > ATTRIBUTE_TEXTS_MOST)
        result = fail(error, -EINVAL, "it does not hold texts");
    else
        result = collect_texts(attribute.id, attribute.type, (size_t)count, texts, error);
    close_attribute(&attribute);
    return result;
}

int h5_attribute_texts(h5_id object, const char *name, bool (*each)(void *context, const char *text), void *context,
                       struct h5_error *error)
{
    struct buffer texts = {0};
    return tell(&texts, list_texts(object, name, &texts, error), each, context);
}

static herr_t collect_attribute(hid_t object, const char *name, const H5A_info_t *info, void *names)
{
    (void)object, (void)info;
    buffer_append(names, name, strlen(name) + 1);
    return 0;
}

static int list_attributes(hid_t object, struct buffer *names, struct h5_error *error)
{
    herr_t result = H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_INC, NULL, collect_attribute, names);
    return result < 0 ? fail_hdf5(error, -EINVAL) : 0;
}

int h5_attributes(h5_id object, bool (*each)(void *context, const char *name), void *context, struct h5_error *error)
{
    struct buffer names = {0};
    return tell(&names, list_attributes(object, &names, error), each, context);
}
