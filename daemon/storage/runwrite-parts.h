// What runwrite.c and runtables.c share: the writer's state. Nobody else includes it.
#ifndef SL_STORAGE_RUNWRITE_PARTS_H
#define SL_STORAGE_RUNWRITE_PARTS_H

#include "storage/column.h"
#include "storage/runwrite.h"

enum { CALL_BATCH = 1024 };  // calls are turned into columns so many at a time, in the first-level cache

enum { EVENT_START, EVENT_END, EVENT_THREAD, EVENT_TASK, EVENT_AWAIT, EVENT_COLUMNS };
enum {
    INDEX_REGION,
    INDEX_RANK,
    INDEX_OFFSET,
    INDEX_COUNT,
    INDEX_LINE,
    INDEX_FILE,
    INDEX_TEXT,
    INDEX_TAGS,
    INDEX_EXCLUSIVE,
    INDEX_SUMMARY,
    INDEX_COLUMNS
};

// A table whose rows go out as they come; its group exists from the first row on.
struct growing_table {
    const char *name;  // for messages
    h5_id group;
    size_t count;
    struct column columns[RUN_COLUMNS_MAX];
    int64_t last_rank, last_index;  // of the lane tables: their rows come in order
};

struct run_region;
struct run_pair;

struct run_row {
    bool open;
    uint32_t region, rank;
    char *source_file;
    int64_t source_line;
    uint64_t first;    // call of the row in the file
    uint64_t count;
    int64_t previous_start_ns;
    struct h5_summary summary;  // of the calls so far; until the row ends, mean is the distance from `first`
};

struct runwrite {
    char *path, *temporary;
    bool created;        // the temporary file is there
    struct runwrite_options options;
    int code;            // the first error
    struct h5_error error;
    char message[1024];

    h5_id file, metadata, index_group, event_group, own_group;
    struct column events[EVENT_COLUMNS], index[INDEX_COLUMNS];
    uint64_t calls;      // written
    struct run_row row;
    struct growing_table threads, tasks, own;

    struct run_region *by_name, **regions;  // the same, by name and by number
    uint32_t region_count, region_capacity, named_count;
    struct run_region **named;              // those with rows, in the order of the file
    struct run_pair *pairs;                 // (rank, region) that have a row
};

// The first error stays. `what` completes "cannot write run file PATH: …", w->error or `why` completes it. Returns the
// code.
int runwrite_fail(struct runwrite *w, int code, const char *what, const char *why);
int runwrite_fail_hdf5(struct runwrite *w, const char *what);  // with what w->error holds

int run_tables_end(struct runwrite *w);
void run_tables_drop(struct runwrite *w);

#endif
