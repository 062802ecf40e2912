// A page of a listing: which rows it holds, whose, and the pieces that rows share.
#ifndef SL_SERVICES_QUERY_PAGE_H
#define SL_SERVICES_QUERY_PAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/json.h"
#include "core/lanes.h"
#include "services/daemon.h"

// Where a page goes on: strictly behind this row. Rows of a listing come in rising (run, process, index).
struct row_key {
    uint64_t run;
    uint64_t process;
    uint64_t index;
};

struct row_filter {
    const char *run, *state, *region, *kind;  // NULL: all
    const char *lanes;  // "tasks", "threads"; NULL: both
    bool idle;   // lanes outside all regions too
    bool ranks;  // a row of regions for each process
    int64_t rank, pid, thread;
    bool has_rank, has_pid, has_thread;
    int64_t after_ns;  // lanes that have done nothing for so long, whatever else says that they are stuck
    bool has_after;
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
    void *context;  // a listing's own, while it walks
    void (*release)(void *context);
    // A listing of lanes, of which there may be very many, stops when it is late, and goes on in another turn of the loop: it is called
    // again with `resumed`, and walks from `at` on, which is a part of a process. What it had in `context` and has written is still there.
    int64_t until_ns;  // CLOCK_MONOTONIC; 0: it is never late
    bool moved;        // it has done a part in this turn
    bool paused, resumed;
    struct row_key at;
};

// May a row with this key be written now? It is counted then; else it lies before the page, or is the page's end (page->more).
bool page_wants(struct page *page, const struct row_key *key);
void page_finish(struct page *page);  // releases what its listing had in `context`

typedef void (*page_on_run)(struct page *page, struct run *run);
typedef void (*page_on_process)(struct page *page, struct run *run, struct model_process *process);
void page_each_run(struct page *page, page_on_run visit);  // oldest first, those that the asker may see
void page_each_process(struct page *page, struct run *run, page_on_process visit);
// A listing begins, or goes on; it has until then.
void page_begin_turn(struct page *page, int64_t until_ns);
// To be asked before each part: is it time to stop, to go on with this one?
bool page_pauses(struct page *page, const struct run *run, const struct model_process *process, uint32_t part);
uint32_t page_first_part(const struct page *page, const struct run *run, const struct model_process *process);
bool page_fits(const struct page *page, const struct model_process *process);  // by rank and pid
struct client *page_client_of(const struct page *page, const struct model_process *process);  // NULL: it has ended

void row_open(struct page *page, const struct run *run, const struct model_process *process);  // an object with run, host, rank, pid
void row_member_rank(struct json_writer *json, const char *key, int64_t rank, int64_t none);   // null for `none`
void row_member_share(struct json_writer *json, const struct model_thread *thread);  // cpu_share; null when not known, or NULL
int64_t row_time(struct run *run, const struct model_process *process, uint64_t ticks);         // SL_UNKNOWN for 0
int64_t row_ago(const struct page *page, struct run *run, const struct model_process *process, uint64_t ticks);  // ns; 0 for a time to come
void row_stack_of_view(struct page *page, struct run *run, struct model_process *process, const struct lane_view *view);
void row_stack_of_dead(struct page *page, struct run *run, struct model_process *process, uint32_t thread, uint32_t task);

#endif
