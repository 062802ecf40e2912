// Writes a run file: scope-profiler's HDF5 layout (schema 2 or 3), plus tables of our own under /scoped_lane that its
// reader passes over. The file grows under a temporary name beside the final one, so that the final name is a whole
// file or none:
//
//     runwrite_open(&w, "run.h5", &options)
//     runwrite_metadata_text(w, "label", "heat") …
//     for each (rank, region):  runwrite_row_begin, runwrite_row_calls as often as wanted, runwrite_row_end
//     runwrite_thread …, runwrite_task …
//     runwrite_table_begin, runwrite_table_row …, runwrite_table_end     for each table of ours
//     runwrite_publish(w)
//     runwrite_close(w)
//
// Rows, threads, tasks and tables may come in any order relative to each other; only a row or a table has to be ended
// before the next of its kind begins. All times are absolute (CLOCK_MONOTONIC ns); what the file wants relative is made
// so here.
//
// Errors. Each function returns 0 or a negative errno. The first error stays: every later call returns it again and
// does nothing, so that checking runwrite_publish alone is enough. runwrite_error says what was tried, on what, and why
// it failed. -EINVAL and -ERANGE mean that the caller broke a rule of this page; the rest comes from the system.
//
// One thread. Memory: about 4 MiB, plus 150 bytes for each (rank, region).
#ifndef SL_STORAGE_RUNWRITE_H
#define SL_STORAGE_RUNWRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    RUN_NO_TASK = -1,
    RUN_UNKNOWN = -1,            // the end of a thread that lives or a task that is not done; a line or thread not known
    RUNWRITE_CALLS_UNKNOWN = -1,
};

struct runwrite;

struct runwrite_options {
    int schema;               // 2: absolute times; 3: start gaps and durations. 0 means 2
    bool compress;            // deflate and shuffle what is over 64 KiB
    int64_t start_ns;         // of the run, for all ranks: becomes metadata start_time_ns and the origin of the tables
    int64_t calls;            // exactly how many will be written, or RUNWRITE_CALLS_UNKNOWN, which is slower
    const char *tag;          // writers of the same tag clear away what one that was killed has left beside the file; NULL
    bool threads, tasks;      // were tracked: the file has lane columns and tables. tasks implies threads

    // No call has a greater thread or task index, none waits longer: the columns get the narrowest type that holds these,
    // and a call beyond them is -ERANGE. A longest_await_ns of 0 says that nothing is known.
    int32_t highest_thread, highest_task;
    int64_t longest_await_ns;
};

// *w is set in any case, so that runwrite_error can be asked, and must be closed. A directory in the place of the final
// name, or one that cannot be written, is found out here.
int runwrite_open(struct runwrite **w, const char *path, const struct runwrite_options *options);

// Writes out, fsyncs, renames to the final name (a file there is replaced) and fsyncs the directory.
int runwrite_publish(struct runwrite *w);

// Frees; a file that was not published is removed. NULL is accepted.
void runwrite_close(struct runwrite *w);

const char *runwrite_error(const struct runwrite *w);  // one line; "" while there is none; lives as long as w

// -- metadata: keys of scope-profiler's metadata group. start_time_ns is written by open. The same key again is -EEXIST -------------

int runwrite_metadata_int(struct runwrite *w, const char *key, int64_t value);
int runwrite_metadata_text(struct runwrite *w, const char *key, const char *value);  // cut beyond 60,000 bytes

// -- calls ------------------------------------------------------------------------------------------------------------

struct run_call {
    int64_t start_ns, end_ns;  // end ≥ start, else -EINVAL
    int64_t await_ns;          // 0 ≤ await ≤ duration; 0 outside tasks
    int32_t thread;            // index in its rank, or RUN_UNKNOWN
    int32_t task;              // index in its rank, or RUN_NO_TASK
};

// The number of a region name. Names that the file cannot tell apart have one number: invalid UTF-8 becomes U+FFFD, and
// " > ", which scope-profiler joins paths by, becomes " › ". Whoever has the same name from several places writes one
// row for them, with the source of one. A name that gets no row does not appear in the file. Never fails; a name costs
// a hash lookup.
uint32_t runwrite_region(struct runwrite *w, const char *name, size_t length);

// A row is what one rank called of one region: its calls in their final order, in any number of pieces. A second row
// for the same (rank, region) is -EEXIST, found out by row_end. A row without calls is left out.
int runwrite_row_begin(struct runwrite *w, uint32_t region, uint32_t rank, const char *source_file,
                       int64_t source_line);
int runwrite_row_calls(struct runwrite *w, const struct run_call *calls, size_t count);
int runwrite_row_end(struct runwrite *w, int64_t exclusive_total_ns);  // −1: not computed

// -- lane tables: the rows of a rank together, ranks ascending, index 0, 1, 2 … in each, else -EINVAL -----------------

struct run_thread {
    uint32_t rank;
    int64_t index;
    uint64_t ident;      // pthread_t
    int64_t native_id;   // kernel tid, 0 unknown
    bool daemon;
    const char *name;    // invalid UTF-8 becomes U+FFFD, here as in tasks: the reader is strict in these tables
    int64_t start_ns;    // absolute
    int64_t end_ns;      // absolute, or RUN_UNKNOWN while it lives
    int64_t cpu_ns;
};
int runwrite_thread(struct runwrite *w, const struct run_thread *thread);

struct run_task {
    uint32_t rank;
    int64_t index;
    const char *kind, *name, *coro_name;
    int64_t thread_index;
    int64_t created_ns;  // absolute
    int64_t done_ns;     // absolute, or RUN_UNKNOWN
    int64_t steps, running_ns, suspended_ns;
};
int runwrite_task(struct runwrite *w, const struct run_task *task);

// -- tables of ours: a group /scoped_lane/NAME with @version and a dataset for each column ----------------------------

enum run_column_type { RUN_INT, RUN_REAL, RUN_TEXT };  // int64, double, UTF-8

struct run_column {
    const char *name;
    enum run_column_type type;
};

union run_value {
    int64_t integer;
    double real;
    const char *text;
};

enum { RUN_COLUMNS_MAX = 24 };

int runwrite_table_begin(struct runwrite *w, const char *name, int version, const struct run_column *columns,
                         size_t count);
int runwrite_table_row(struct runwrite *w, const union run_value *values);  // as many as there are columns
int runwrite_table_end(struct runwrite *w);

// Single facts: attributes of the group /scoped_lane.
int runwrite_fact_int(struct runwrite *w, const char *key, int64_t value);
int runwrite_fact_text(struct runwrite *w, const char *key, const char *value);

#endif
