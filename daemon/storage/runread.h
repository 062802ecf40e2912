// What the files of the reading library share: the state of an open run, and the loading of whole columns. The
// interface is scoped_lane_run.h; nobody but runread.c, runindex.c, runlegacy.c, runlanes.c and runcalls.c includes
// this page.
//
// Index and tables are read when the run is opened, calls when they are asked for.
#ifndef SL_STORAGE_RUNREAD_H
#define SL_STORAGE_RUNREAD_H

#include "storage/h5.h"
#include "storage/scoped_lane_run.h"

enum { EVENT_START, EVENT_END, EVENT_THREAD, EVENT_TASK, EVENT_AWAIT, EVENT_COLUMNS };

// The texts of a column: texts[i] points into `bytes`.
struct run_texts {
    const char **texts;
    struct buffer bytes;
};

struct run_attribute {
    char *key, *text;  // text NULL: neither a number nor a text
    bool is_number;
    int64_t number;
};

struct run_attributes {
    size_t count;
    struct run_attribute *each;
};

// The rows of one rank in a table sorted by rank.
struct run_span {
    uint32_t rank;
    size_t first, count;
};

struct run_lanes {
    struct run_span *thread_spans, *task_spans;
    size_t thread_span_count, task_span_count;
    struct sl_run_thread *threads;
    struct sl_run_task *tasks;
    struct run_texts thread_names, task_kinds, task_names, coro_names;
};

struct run_table {
    struct run_table *next;
    char *name;
    struct sl_table table;
    struct sl_table_column *columns;
    struct run_texts *texts;  // one for each column
};

struct sl_run {
    char *path;
    const char *doing;  // "open" or "read", for messages
    char *error;  // where the present function is to put its words, or NULL
    struct h5_error h5;
    h5_id file;

    int schema;
    bool aggregate, deltas;
    h5_id events[EVENT_COLUMNS];  // datasets; 0 for a column the run does not have
    uint64_t event_count;

    struct run_attributes metadata, facts;
    uint32_t rank_count;
    size_t present_count;
    uint32_t *present;          // ranks that have calls or rows in a lane table, ascending
    int64_t origin_ns;

    size_t region_count;
    struct run_texts names;
    size_t row_count;
    struct sl_run_row *rows;
    uint64_t *offsets;          // of each row, its first call
    struct run_texts files, tags, call_metadata;
    size_t *by_rank;            // rows by (rank, first entry of their region): the order of sl_run_calls
    char **groups;              // schema 1: of each row, "rank3/regions/NAME"

    struct run_lanes lanes;
    struct run_table *tables;
};

// Words into run->error: "cannot open PATH: …", or "read". Returns the code.
int run_fail(struct sl_run *run, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

// Whole columns of a group, which is called `group_name` in messages. They have to be one-dimensional and of `length`
// elements, or of any number if that is RUN_ANY_LENGTH, which is then set. What is returned is malloc'd.
#define RUN_ANY_LENGTH UINT64_MAX
int run_load_ints(struct sl_run *run, h5_id group, const char *group_name, const char *name, uint64_t *length,
                  int64_t **into);
int run_load_reals(struct sl_run *run, h5_id group, const char *group_name, const char *name, uint64_t *length,
                   double **into);

enum run_strictness {
    RUN_REPAIR,  // broken UTF-8 becomes U+FFFD
    RUN_STRICT,  // broken UTF-8 is an error, as it is to scope-profiler in lane tables
};
int run_load_texts(struct sl_run *run, h5_id group, const char *group_name, const char *name, uint64_t *length,
                   enum run_strictness strictness, struct run_texts *into);
void run_texts_finish(struct run_texts *texts);

// Opens GROUP/NAME as a one-dimensional dataset of integers. The id or -errno.
h5_id run_open_ints(struct sl_run *run, h5_id group, const char *group_name, const char *name, uint64_t *length);

// Reads `count` starts and ends of a row from its call `first` on, decoded. `previous` carries the last start from
// piece to piece of one row; 0 before the first.
int run_read_times(struct sl_run *run, size_t row, uint64_t first, uint64_t count, int64_t *previous, int64_t *start_ns,
                   int64_t *end_ns);

int run_read_index(struct sl_run *run);   // runindex.c: schema 2 and 3
int run_read_legacy(struct sl_run *run);  // runlegacy.c: schema 1
int run_summarise(struct sl_run *run);    // runindex.c: fills the rows' statistics from the calls
int run_read_lanes(struct sl_run *run);   // runlanes.c
void run_lanes_finish(struct run_lanes *lanes);
void run_tables_finish(struct sl_run *run);  // runowntables.c

#endif
