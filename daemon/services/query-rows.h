// Rows of the listings: what the tables and the lane blocks say now, as JSON.
#ifndef SL_SERVICES_QUERY_ROWS_H
#define SL_SERVICES_QUERY_ROWS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/json.h"
#include "services/daemon.h"

// Where a page goes on: strictly behind this row. Rows of a listing come in rising (run, process, index).
struct row_key {
    uint64_t run;
    uint64_t process;
    uint64_t index;
};

struct row_filter {
    const char *run, *state, *region, *kind;  // NULL: all
    int64_t rank, pid, thread;
    bool has_rank, has_pid, has_thread;
};

struct page {
    struct json_writer *json;
    const struct daemon *daemon;
    const struct row_filter *filter;
    uid_t uid;        // whose rows; root and the daemon's own user see all
    bool sees_all;
    struct row_key after;
    bool has_after;
    uint32_t limit, count;
    size_t bytes_max;
    bool more;        // there are rows behind this page
    struct row_key last;
    int64_t now_ns;
};

// Each writes the rows of its listing that fit the page.
void rows_runs(struct page *page);
void rows_processes(struct page *page);
void rows_threads(struct page *page);
void rows_tasks(struct page *page);
void rows_regions(struct page *page);
void rows_loss(struct page *page);

// What every reply says of its own trustworthiness.
void rows_trust(struct json_writer *json, const struct page *page);

#endif
