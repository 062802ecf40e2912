// A run as tables: processes, threads, tasks, regions, rings and their ledgers, open calls. The same functions fill it while the
// daemon drains and when the converter or a restarted daemon reads the spool back, so that live rows and the file cannot
// differ in what they mean. No I/O, no loop.
#ifndef SL_CORE_MODEL_H
#define SL_CORE_MODEL_H

#include <stdbool.h>
#include <stddef.h>

#include "core/facts.h"
#include "core/histogram.h"
#include "core/pace.h"
#include "core/steps.h"
#include "core/ticks.h"
#include "proto/segment.h"

enum { MODEL_TASK_CHUNK = 1024, MODEL_THREAD_CHUNK = 256 };

// A name of a run's region. Places (file, line) belong to the process's regions.
struct model_name {
    char *text;
    uint32_t length;
};

struct model_region {
    uint32_t name;  // in model.names
    int32_t line;
    char *file;
    uint64_t calls;
    uint64_t total, minimum, maximum;  // ticks
    int64_t self;                      // ticks: total less the children's
    struct histogram lengths;          // ticks
};

struct model_thread {
    struct thread_facts facts;
    bool known;  // a row was seen
    char *name;
    uint64_t calls;
    int64_t sampled_ns;         // when cpu_ns was read last, 0 never
    uint64_t calls_at_sample;
    uint64_t wait_ns;           // for a processor
    int64_t share_ns;           // when cpu_share was worked out, from the CPU time then; 0 never
    uint64_t share_cpu_ns;
    double cpu_share;           // 0..1 of the time since the sample before, -1 unknown
    uint64_t switches;          // how often it was given a processor
    char os_state;
    uint32_t living;  // 1 + place among the living, 0: none
};

struct model_threads {
    uint32_t ended;
    struct model_thread thread[MODEL_THREAD_CHUNK];
};

struct model_task {
    struct task_facts facts;
    char *name, *coro_name;
    uint64_t row;  // offset of its row in a live segment, 0 unknown
    int64_t told_running_ns, told_suspended_ns;  // what was answered last
};

struct model_slot {
    uint64_t next;  // sequence number of the record to come
    uint64_t steps_next;  // likewise, where queries have counted the steps that they saw ahead of it
    uint32_t owner;  // thread index, SL_RING_FREE before the first THREAD record
    bool shared;     // several threads have had it, one after another
    uint64_t calls;  // consumed, stored or lost here
    struct ledger ledger;
    struct ledger base;  // what an earlier part of the run has accounted for: taken off the producer's counters
    uint64_t newest_start;  // lane and start of the newest call: what a kill may have left open though it is published
    uint32_t newest_task, newest_thread;
};

// Exits without an enter: those of one region, on one lane, by one thread.
struct model_unmatched {
    uint32_t task, thread;  // SL_TASK_NONE: the bare thread's lane
    uint32_t region;
    uint64_t count;
    uint64_t first, last;  // ticks
};

// A time in which recording was paused, in monotonic ns; `end_ns` SL_UNKNOWN while it lasts.
struct model_pause {
    int64_t begin_ns, end_ns;
};

struct model_process {
    uint32_t number;  // in the run
    struct process_facts facts;
    struct process_status status;
    char *host, *program, *directory, *command;
    struct model_region *regions;  // by the process's region id
    uint32_t region_count;
    struct model_region other;  // region "(other)", and ids nobody explained
    bool keeps_lengths;
    uint32_t octaves_left;      // that histograms of its regions may still take
    struct pacing *paces;         // by name
    uint32_t pace_count;
    char **words;               // by word number
    uint32_t word_count;
    struct model_threads **threads;  // chunks, NULL where there are none (any more)
    uint32_t thread_chunks, thread_count;  // 1 + highest index
    uint32_t threads_kept;                 // before the oldest chunks of ended threads fold; 0: all
    uint64_t threads_known, threads_folded;
    uint64_t folded_cpu_ns, folded_wait_ns;  // of those that have folded
    uint64_t told_cpu_ns, told_wait_ns;      // the largest sums over all that were told
    uint32_t thread_fold_next;             // chunk
    uint32_t *living;                      // indices of threads that have begun and not ended
    uint32_t living_count, living_room;
    struct model_task ***tasks;  // chunks of MODEL_TASK_CHUNK pointers
    uint32_t task_chunks;
    uint64_t tasks_known, tasks_folded;
    struct steps_table steps;
    uint64_t fold_next;  // index of the task to be folded next, if it has finished
    struct model_slot *slots;
    uint32_t slot_count;
    struct ledger elsewhere, elsewhere_base;
    struct open_facts *open;  // the latest snapshot of open calls
    uint32_t open_count;
    struct open_facts *ended_open;  // ENDED_OPEN records: calls open when their task or thread ended
    uint32_t ended_open_count;
    struct model_unmatched *unmatched;
    uint32_t unmatched_count;
    uint64_t unmatched_others;  // beyond what the list holds
    struct model_pause *pauses;
    uint32_t pause_count;
    int64_t file_rank;  // -1 until given
    bool uses_tasks;
};

struct model {
    struct model_process **processes;
    uint32_t process_count;
    struct model_name *names;
    uint32_t name_count;
    uint32_t *name_places;  // hash of names: open addressing, 0 empty, else 1 + number
    uint32_t name_mask;
    struct ticks clock;      // of the machine's counter
    uint32_t clock_kind;
    uint32_t tasks_kept;     // tasks, and threads, kept per process before the oldest finished ones fold; 0: all
    uint32_t octaves_kept;   // of histograms of lengths, per process; 0: there are none
};

// A closed call as it comes out of a ring, its owner known.
struct model_call {
    uint32_t region, parent;  // the process's ids
    uint32_t thread, task;    // FACTS_NO_THREAD, SL_TASK_NONE
    uint64_t start, end;      // ticks
    uint64_t await;           // ticks
    unsigned kind;
};

typedef void (*model_on_call)(void *context, struct model_process *process, const struct model_call *call);

void model_init(struct model *model, uint32_t clock_kind, size_t anchors_kept, uint32_t tasks_kept);
void model_finish(struct model *model);

struct model_process *model_add_process(struct model *model, const struct process_facts *facts);
void model_set_status(struct model_process *process, const struct process_status *status);

uint32_t model_intern(struct model *model, const char *text, size_t length);

// A string of the process: a region, a word, a fact. Invalid UTF-8 in it is repaired.
void model_string(struct model *model, struct model_process *process, uint32_t type, uint32_t id, const char *name, size_t name_length,
                  const char *file, size_t file_length, int32_t line);

struct model_thread *model_thread(struct model_process *process, uint32_t index);  // made if need be; NULL beyond all bounds
struct model_thread *model_find_thread(const struct model_process *process, uint32_t index);  // NULL where it is not known (any more)
uint32_t model_next_thread(const struct model_process *process, uint32_t from);  // an index that may be known, thread_count at the end
void model_set_thread(struct model_process *process, const struct thread_facts *facts, const char *name);
struct model_task *model_task(const struct model_process *process, uint32_t index);  // NULL when not known
void model_set_task(struct model *model, struct model_process *process, const struct task_facts *facts, const char *name,
                    const char *coro_name);
struct model_slot *model_slot(struct model_process *process, uint32_t slot);

// Takes in records of a ring, `first` being the sequence number of the first. What was taken in before is passed over. Each call is
// counted as stored, or as lost for `lost_reason` when that is >= 0, and given to `on_call` where there is one.
void model_records(struct model *model, struct model_process *process, uint32_t slot, uint64_t first, const struct sl_record *records,
                   size_t count, int lost_reason, model_on_call on_call, void *context);

// Counts the steps in records that still wait in their ring. model_records will not count them again.
void model_steps_ahead(const struct model *model, struct model_process *process, uint32_t slot, uint64_t first,
                       const struct sl_record *records, size_t count);

// The producer's counters of a ring (or FACTS_ELSEWHERE), as read now; `stored` and the daemon's reasons are kept as they are.
void model_set_ledger(struct model_process *process, uint32_t slot, const struct ledger *ledger);
// What a continuation takes off: the earlier base and what its part has accounted for.
void model_rebase(struct ledger *base, const struct ledger *accounted);
// A whole ledger as spooled.
void model_restore_ledger(struct model_process *process, uint32_t slot, const struct ledger *ledger);

void model_set_open(struct model_process *process, const struct open_facts *open, uint32_t count);

// Recording is paused or resumed. False where it stood like that already.
bool model_set_paused(struct model_process *process, bool paused, int64_t now_ns);

// Sums over a process's rings.
struct ledger model_ledger(const struct model_process *process);
uint64_t model_lost(const struct ledger *ledger);
uint64_t model_calls(const struct model_process *process);
// Sums over a process's threads, added to what is there. They never go back, though a thread's exact time may be less than a sample that
// was taken while it already ended.
void model_add_cpu(struct model_process *process, uint64_t *cpu_ns, uint64_t *wait_ns);

// The region of an id, never NULL.
struct model_region *model_region(struct model_process *process, uint32_t id);
const char *model_region_name(const struct model *model, const struct model_region *region);
const char *model_word(const struct model_process *process, uint32_t id);  // a task kind; "task" when unknown

// Is this open call one that a ring has published as closed already? (Only a kill leaves such a one.)
bool model_is_published(const struct model_process *process, const struct open_facts *open);
// Or one that the end of its lane has told already? (A kill between the two leaves it in both.)
bool model_has_ended_open(const struct model_process *process, const struct open_facts *open);

// A lane as run files number it: the task's index, else -2 - thread, -1 unknown.
int64_t model_lane(uint32_t thread, uint32_t task);
// The thread that lost a ring's calls; FACTS_NO_THREAD where that cannot be told, for several have had the ring.
uint32_t model_ring_thread(const struct model_process *process, uint32_t slot);

// Monotonic ns of a process's ticks.
int64_t model_time_ns(struct model *model, const struct model_process *process, uint64_t ticks);
int64_t model_length_ns(const struct model *model, const struct model_process *process, uint64_t ticks);

// Gives file ranks (design.md §5 Ranks): a claim 0 <= r < 65,536 goes to the first process that claims it and has calls; all
// others with calls follow in order after the highest claim and the world size. -1 for processes without calls.
void model_give_ranks(struct model *model);

#endif
