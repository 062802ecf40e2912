// Reading run files: scope-profiler's HDF5 files of schema 1, 2 and 3 (the aggregate layout too), and what scoped-lane
// adds to its own. C11 and C++17.
//
//     char error[SL_RUN_ERROR_MAX];
//     struct sl_run *run;
//     if (sl_run_open(&run, "run.h5", error) < 0)
//         …print error…
//     for (size_t i = 0; i < sl_run_row_count(run); i++) {
//         const struct sl_run_row *row = sl_run_row(run, i);
//         printf("%s on rank %u: %llu calls\n", row->name, row->rank, (unsigned long long)row->calls);
//     }
//     sl_run_close(run);
//
// Functions that can fail return 0 or a negative errno and put one line into `error` (room for SL_RUN_ERROR_MAX bytes;
// NULL where nobody wants it) that says what was tried, on what, and why it failed. A file is input: whatever is in it,
// the answer is a result or an error. -ENOENT, -EACCES, -EISDIR, -EBUSY (open for writing elsewhere) as from open();
// -EINVAL for what is not a run file or contradicts itself; -ENOTSUP for a schema newer than 3; -ENOMEM.
//
// The one exception: HDF5 1.10 crashes on some files whose inner references are damaged (not on truncated ones). A
// program that takes files from strangers reads them in a child process.
//
// One thread: HDF5 has global state, so runs must not be read by two threads at once, not even two runs. What has been
// read (calls, stacks, tables) is plain memory. Pointers obtained from a run live until sl_run_close; calls and call
// stacks are freed by their own functions.
#ifndef SCOPED_LANE_RUN_H
#define SCOPED_LANE_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    SL_RUN_ERROR_MAX = 1024,
    SL_RUN_NO_TASK = -1,
    SL_RUN_UNKNOWN = -1,
};

struct sl_run;

// -- the file ---------------------------------------------------------------------------------------------------------

int sl_run_open(struct sl_run **run, const char *path, char error[SL_RUN_ERROR_MAX]);
void sl_run_close(struct sl_run *run);  // NULL is accepted

int sl_run_schema(const struct sl_run *run);          // 1, 2 or 3
bool sl_run_is_aggregate(const struct sl_run *run);   // statistics only, no calls
bool sl_run_has_threads(const struct sl_run *run);    // calls know their thread
bool sl_run_has_tasks(const struct sl_run *run);      // … and their task
uint32_t sl_run_rank_count(const struct sl_run *run); // highest rank + 1, or metadata mpi_size where that is more

// The ranks that the file has rows of, of regions, threads or tasks; ascending.
const uint32_t *sl_run_ranks(const struct sl_run *run, size_t *count);

// Metadata. Numbers are given as text too; NULL where the key is absent or holds something else (a list). The number of
// a text of digits is its value; false where there is none.
const char *sl_run_metadata_text(const struct sl_run *run, const char *key);
bool sl_run_metadata_int(const struct sl_run *run, const char *key, int64_t *value);

// Zero of the tables' times on the calls' clock: metadata start_time_ns, else the first entry of any region.
int64_t sl_run_origin_ns(const struct sl_run *run);

// -- regions: a row for each (rank, region) that was called -----------------------------------------------------------

struct sl_run_row {
    uint32_t region;          // 0 … sl_run_region_count − 1
    uint32_t rank;
    const char *name;         // of the region; UTF-8
    const char *source_file;  // "" unknown
    int64_t source_line;      // −1 unknown
    const char *tags;           // a JSON list of texts, "[]" where there are none
    const char *call_metadata;  // a JSON list with an object for each call in stored order, "[]" where there are none
    uint64_t calls;
    int64_t total_ns;         // sum of durations
    int64_t minimum_ns, maximum_ns;
    int64_t first_ns, last_ns;                  // durations of the first and last call, in stored order
    int64_t start_minimum_ns, end_maximum_ns;   // 0 in aggregate files
    double mean_ns;
    double m2;                // Σ (duration − mean)²; not in aggregate files: NaN
    int64_t exclusive_ns;     // self time as the file states it, −1 where it does not: see sl_call_stack_exclusive
};

size_t sl_run_region_count(const struct sl_run *run);
const char *sl_run_region_name(const struct sl_run *run, size_t region);

size_t sl_run_row_count(const struct sl_run *run);
const struct sl_run_row *sl_run_row(const struct sl_run *run, size_t row);  // in the order of the file

// -- lanes ------------------------------------------------------------------------------------------------------------

// A call belongs to its task when it ran in one, else to its thread, and only calls of one lane can nest. Tasks have
// their index as lane, threads −2 − index, a call of an unknown thread −1. `tasks` may be NULL.
void sl_lane_ids(const int64_t *threads, const int64_t *tasks, size_t count, int64_t *lanes);

// Times in seconds from the start of the run; NaN where there is none yet.
struct sl_run_thread {
    uint32_t rank;
    int64_t index;
    uint64_t ident;
    int64_t native_id;
    const char *name;
    bool daemon, alive;
    double start_time, end_time, wall_time, cpu_time;  // end and wall: NaN while alive
};

struct sl_run_task {
    uint32_t rank;
    int64_t index;
    const char *kind, *name, *coro_name;
    int64_t thread_index;  // of the last step
    bool done;
    double created_time, done_time, wall_time;  // done and wall: NaN while not done
    int64_t steps;
    double running_time, awaiting_time;
};

// Columns as a tracker's snapshot and the file have them: times in ns, SL_RUN_UNKNOWN where there is none yet.
struct sl_run_thread_columns {
    size_t count;
    const int64_t *index, *ident, *native_id;
    const int8_t *daemon;
    const int64_t *start_ns, *end_ns, *cpu_ns;
    const char *const *name;
};
struct sl_run_task_columns {
    size_t count;
    const int64_t *index, *thread_index, *created_ns, *done_ns, *steps, *running_ns, *suspended_ns;
    const char *const *kind, *const *name, *const *coro_name;
};

// Turns the columns of one rank into rows; each may be NULL. `threads` and `tasks` have room for as many rows as there
// are; their texts are those of the columns.
void sl_lane_tables_from_columns(uint32_t rank, const struct sl_run_thread_columns *thread_columns,
                                 struct sl_run_thread *threads, const struct sl_run_task_columns *task_columns,
                                 struct sl_run_task *tasks);

// The rows of one rank, in the order of the file, which is that of their index in a good one; NULL and 0 where there is
// none.
const struct sl_run_thread *sl_run_threads(const struct sl_run *run, uint32_t rank, size_t *count);
const struct sl_run_task *sl_run_tasks(const struct sl_run *run, uint32_t rank, size_t *count);

// A lane in words, as snprintf: a thread's name; "NAME (tail of coro_name) on THREAD"; "thread 3", "task 7" without a
// row; "unknown lane".
int sl_lane_label(const struct sl_run *run, uint32_t rank, int64_t lane, char *text, size_t size);

// -- calls ------------------------------------------------------------------------------------------------------------

// All calls of a rank, regions in the order of their first entry (anywhere), each region's in stored order. The column
// a run does not have is NULL.
struct sl_calls {
    size_t count;
    uint32_t rank;
    int64_t *start_ns, *end_ns;
    uint32_t *region;
    uint64_t *call_index;  // number of the call in its (rank, region)
    int64_t *thread, *task, *await_ns;
};

// Reads them; a rank without calls has none. The caller frees.
int sl_run_calls(struct sl_run *run, uint32_t rank, struct sl_calls *calls, char error[SL_RUN_ERROR_MAX]);
void sl_calls_finish(struct sl_calls *calls);  // accepts one that is all zero, or that sl_run_calls failed on

// -- call stacks ------------------------------------------------------------------------------------------------------

// How the calls of a rank nested. Call i of it is call order[i] of the calls it was built from; parents stand before
// their children.
struct sl_call_stack {
    size_t count;
    uint64_t *order;
    int64_t *lane;       // NULL where the run has no threads: the rank is one lane
    int64_t *parent;     // −1: a root
    uint32_t *depth;     // 0: a root
    int64_t *exclusive_ns;  // duration less those of the direct children
};

struct sl_nesting_call {
    uint32_t region;
    uint64_t call_index;
    int64_t start_ns, end_ns;
};

// What is wrong: `inner` starts inside `outer` and ends after it, or, where `backward`, ends before it starts.
struct sl_nesting_error {
    bool backward;
    int64_t lane;
    struct sl_nesting_call inner, outer;
};

// Sorts by start, the longer first, equal ones as they stand in `calls`, and nests each lane by itself. A call that
// begins as another ends is its sibling; of two equal intervals one is in the other; a call of no length is inside what
// it starts with. -EBADMSG, and *wrong, where the calls of a lane do not nest. Time: linear in calls, however many
// lanes.
int sl_call_stack_build(const struct sl_calls *calls, struct sl_call_stack *stack, struct sl_nesting_error *wrong);
void sl_call_stack_finish(struct sl_call_stack *stack);

// The error in words, as snprintf: "rank 0, lane worker: 'inner' call 3 [10, 25] ns starts inside 'outer' …".
int sl_nesting_error_text(const struct sl_run *run, uint32_t rank, const struct sl_nesting_error *wrong, char *text,
                          size_t size);

// Sums exclusive times per region into totals[0 … sl_run_region_count − 1].
void sl_call_stack_exclusive(const struct sl_call_stack *stack, const struct sl_calls *calls, int64_t *totals);

// The names from the root to the call, joined by " > ", as snprintf.
size_t sl_call_path(const struct sl_run *run, const struct sl_call_stack *stack, const struct sl_calls *calls,
                    size_t call, char *text, size_t size);

// The same calls lane by lane, lanes ascending (without threads: one, −1): those of lane l are calls[lanes[l].first …]
// of the stack, and parent is the parent's position among them.
struct sl_lane_span {
    int64_t id;
    size_t first, count;
};
struct sl_lane_split {
    size_t lane_count;
    struct sl_lane_span *lanes;
    uint64_t *calls;
    int64_t *parent;
};
int sl_call_stack_split(const struct sl_call_stack *stack, struct sl_lane_split *split);  // 0 or -ENOMEM
void sl_lane_split_finish(struct sl_lane_split *split);

// -- tables of scoped-lane: loss, open_calls, crossing, processes, clock, samples -------------------------------------

enum sl_table_type { SL_TABLE_INT, SL_TABLE_REAL, SL_TABLE_TEXT };

struct sl_table_column {
    const char *name;
    enum sl_table_type type;
    const int64_t *integers;  // the one of its type; the others NULL
    const double *reals;
    const char *const *texts;
};
struct sl_table {
    int64_t version;
    size_t rows, column_count;
    const struct sl_table_column *columns;
};

// Reads one; it lives as long as the run. *table is NULL where the file has none of that name.
int sl_run_table(struct sl_run *run, const char *name, const struct sl_table **table, char error[SL_RUN_ERROR_MAX]);
const struct sl_table_column *sl_table_column(const struct sl_table *table, const char *name);  // NULL: none

// Single facts that scoped-lane notes of a run; as metadata.
const char *sl_run_fact_text(const struct sl_run *run, const char *key);
bool sl_run_fact_int(const struct sl_run *run, const char *key, int64_t *value);

#ifdef __cplusplus
}
#endif

#endif
