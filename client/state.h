// What the client keeps in private memory. Both structs lie in pages that a fork child finds zeroed (MADV_WIPEONFORK): the
// child sees a NULL lane on its next call, takes the cold path and finds out there, at no cost to the hot path. What must
// outlive a fork (the table of regions, the facts read from the environment) lies in ordinary memory of its own file.
//
// The process's state:   NEW ──no daemon, off, setuid──> OFF ──sl_attach──> NEW
//                         │                               └──a tracker──> LOCAL ──sl_attach──┐
//                         └──segment made──> RECORDING <─────────────────────────────────────┘
//
// LOCAL: there is no segment, hence no ring and no call; threads and tasks are known to trackers only.
#ifndef SL_CLIENT_STATE_H
#define SL_CLIENT_STATE_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "client/testpoint.h"
// before the header that it gives testpoints to
#include "client/scoped_lane.h"
#include "proto/segment.h"

enum client_phase { CLIENT_NEW = 0, CLIENT_OFF = 1, CLIENT_RECORDING = 2, CLIENT_LOCAL = 3 };

// One thread's private page.
struct producer {
    struct sl_producer hot;     // first: sl_self_ points here
    struct sl_lane *lane;       // the present lane, also where hot.lane is NULL; NULL itself when there is none
    struct sl_thread_row *row;  // in the segment, else own_row
    uint32_t tid;               // 0: this page is free, or a fork wiped it
    uint32_t index;             // of the thread in the segment
    uint32_t serial;            // number of the thread in the process, from 0, whatever becomes of segments
    uint32_t seen;              // the client's epoch this thread has acted on
    uint32_t local;             // 1: registered without a segment
    uint32_t daemon_told;       // 1: the program itself said whether it is a daemon
    uint32_t slot;              // number of its slot, SL_RING_FREE none
    uint32_t unannounced;       // 1: the THREAD record of this owner did not fit yet
    uint64_t task;              // handle of the current task, 0 none; trackers read it too
    struct sl_task_row *task_row;  // its row, which stays while it is stepped; NULL where it has none, or has not been looked up yet
    uint64_t woken;             // 1 + tail when the daemon was last woken: once is enough until it has moved
    uint64_t dropped_head;      // head when the latest nested append was dropped
    uint32_t full_rounds;       // too deep enters that followed a too deep exit, since the stack was less than full
    uint32_t left_full;         // 1: the latest call on a full stack was such an exit
    uint32_t unaccounted;       // too deep enters whose level went when the stack was cleaned: their exits may still come
    struct producer *next_free;
    struct producer *next, *previous;  // of the registered ones
    uint64_t free_tasks[16];  // offsets of rows this thread may take without the lock
    uint32_t free_task_count;
    struct sl_lane rowless;  // stands in for the lane of a task that has none in the segment
    struct sl_thread_row own_row;
};

// Rows of one kind: carved from extents that double, then reused once the daemon has them.
struct pool {
    uint32_t extents;
    uint64_t offset[24];
    uint32_t count[24];
    uint32_t carved;                 // rows taken from the last extent
    uint32_t hand_extent, hand_row;  // where to look next for a spooled row
    uint32_t rests;                  // rows to carve before that
    uint32_t total;
};

// Blocks of one size, linked through their first word when free.
struct blocks {
    uint64_t next, end;  // the rest of the last extent
    uint64_t free;
    uint64_t extent_bytes;
};

#define TASK_PAUSED    0x80000000u  // in sl_lane.stepping: the step is interrupted by a nested one
#define TASK_UNIT_BITS 6            // rows lie at multiples of 64 bytes

// Rows of tasks that only trackers follow: while there is no segment, or no room in it.
#define LOCAL_TASK_BYTES offsetof(struct sl_task_row, stack)  // no call is open in them
struct local_tasks {
    char *base;
    uint64_t size, opened, reserved;
    uint64_t free;  // 1 + offset of a free row, which holds the next in `created`
    uint32_t count;
};

// Which file a descriptor names: programs close what they did not open, and its number comes back as another file.
struct file_id {
    dev_t device;
    ino_t inode;
};

// The process.
struct client {
    uint32_t phase;
    uint32_t lock;
    int32_t off_errno;
    uint32_t clock;  // enum sl_clock_kind
    uint64_t slow_step;  // ticks: a step of so many leaves a record
    struct sl_segment *segment;
    uint64_t reserved;        // bytes mapped from `segment` on, most of them beyond the file's end, and closed
    uint64_t size;            // bytes allocated
    struct sl_extent *table;  // the present table of extents
    uint32_t table_used, table_room;
    char path[256];  // of the segment's file
    int file;     // descriptor kept open, verified before use; -1 none
    int place;    // runtime directory where a daemon was found, by number
    int socket;   // to the daemon, -1 none
    int wake[2];  // the daemon's eventfd under two numbers, -1 none
    struct file_id file_id, socket_id, wake_id;
    int64_t socket_tried_ns;
    uint32_t refused;  // by the daemon: no further tries
    int64_t looked_ns;  // at the socket
    uint32_t welcomed;  // the daemon at its other end has answered
    uint32_t slot_count, slot_room;
    uint64_t *slot_offsets;  // by number
    uint32_t *free_slots;    // a stack of numbers
    uint32_t free_slot_count;
    uint64_t strings_next, strings_end;
    struct pool threads, tasks;
    struct blocks names, stacks;
    struct producer *free_producers;
    struct producer *producers;  // registered threads
    uint32_t epoch;              // rises when threads have something new to look at: a tracker, a segment
    uint32_t generation;         // 1 … 31, another one than the parent's: part of task handles
    struct sl_tracker *trackers, *free_trackers;
    uint32_t trackers_installed;
    struct local_tasks local_tasks;
    uint64_t private_names;  // free blocks of names outside the segment
    uint64_t anchor_ticks;   // read together at the start
    int64_t anchor_ns;
    double ns_per_tick;      // measured a little later; 0 before
    pthread_key_t key;
    uint32_t key_made;
};

#define AT(offset) ((void *)((char *)client->segment + (offset)))
#define OFFSET_OF(pointer) ((uint64_t)((char *)(pointer) - (char *)client->segment))

extern struct client *client;        // set once, never unset
extern struct producer client_idle;   // where sl_self_ points until a thread is registered, and while recording is off

// The calling thread's page; NULL when it is not registered (yet, any more, or in this fork child).
static inline struct producer *producer_self(void)
{
    struct producer *self = (struct producer *)(void *)sl_self_;
    return self->tid ? self : NULL;
}

static inline bool task_is_local(const struct sl_task_row *row)
{
    const struct local_tasks *local = &client->local_tasks;
    return (uint64_t)((const char *)row - sl_load_relaxed(&local->base)) < sl_load_relaxed(&local->size);
}

// Recording is paused: calls that are entered now get no record.
static inline bool is_paused(void)
{
    return sl_load_relaxed(&client->segment->control) & SL_CONTROL_PAUSED;
}

// Whatever `entries` says, which is the daemon's way to call for the cold path.
static inline uint32_t lane_room(const struct sl_lane *lane)
{
    return lane->task == SL_TASK_NONE ? SL_THREAD_ENTRIES : SL_TASK_ENTRIES;
}

static inline struct sl_entry *lane_entry(struct sl_lane *lane, uint32_t i)
{
    uint32_t room = lane_room(lane);
    if (i < room)
        return sl_lane_stack(lane) + i;
    return (struct sl_entry *)AT(lane->overflow) + (i - room);
}

// The bare thread's; NULL while it has no ring.
static inline struct sl_lane *thread_lane(struct producer *self)
{
    return self->hot.ring ? sl_ring_lane(self->hot.ring) : NULL;
}

// Makes it the thread's present lane; the inline functions use it where they can, and do nothing where no call can be recorded.
static inline void lane_use(struct producer *self, struct sl_lane *lane)
{
    bool inline_path = lane && lane != &self->rowless && self->hot.ring && !self->unannounced &&
                       client->clock != SL_CLOCK_MONOTONIC;
    bool off = !inline_path && self->local && self->seen == sl_load_relaxed(&client->epoch);
    self->lane = lane;
    sl_store_relaxed(&self->hot.lane, inline_path ? lane : off ? SL_LANE_OFF_ : NULL);
}

// Threads that are not registered: 1, nothing is recorded; 0, their next call has to find out.
static inline void client_idle_is_off(bool off)
{
    sl_store_relaxed(&client_idle.hot.lane, off ? SL_LANE_OFF_ : NULL);
}

static inline uint32_t lane_capacity(const struct sl_lane *lane)
{
    return lane_room(lane) + (lane->overflow ? SL_OVERFLOW_ENTRIES : 0);
}

// ---- process.c
struct guard {
    uint64_t mask;
    int cancel_state;
    int saved_errno;
};
bool client_begin(void);                 // the struct is there
void client_lock(struct guard *guard);   // signals blocked, cancellation off, errno kept
bool client_try_lock(struct guard *guard);
void client_unlock(struct guard *guard);
bool client_start(void);                 // under the lock: NEW -> RECORDING or OFF; true when recording
void client_live(void);                  // under the lock: what RECORDING and LOCAL have in common
void client_stir(void);                                  // under the lock: every registered thread's next call takes the cold path
uint64_t client_ticks(void);
void client_anchor(uint64_t *ticks, int64_t *ns);  // both clocks at one moment

// ---- memory.c: memory straight from the kernel, never given back
void *memory_wiped(size_t size);    // zero; a fork child finds it zero again. NULL when there is none
void *memory_private(size_t size);  // zero; outlives a fork. Under the lock
// Bytes [from, to) of a reservation may be used from now on. What is reserved and has no memory yet is PROT_NONE: checkers read all
// that is readable, and valgrind's search for leaks takes a signal for each word that a mapping has beyond its file's end.
bool memory_open(void *reserved, uint64_t from, uint64_t to);

// ---- grow.c: the segment's file; under the lock
int segment_create(void);  // 0 or -errno
uint64_t segment_extend(enum sl_extent_kind kind, uint32_t first, uint32_t count, uint64_t size);  // offset, 0: full
uint64_t segment_ring_bytes(void);  // for the next slot
int file_identify(int fd, struct file_id *id);  // 0 or -errno
bool file_is(int fd, const struct file_id *id);
int file_move_high(int fd);  // to a number where programs that close or count on the low ones are not disturbed

// ---- pool.c: rows and blocks of the segment; under the lock
void *pool_take(struct pool *pool, enum sl_extent_kind kind, uint32_t row_bytes, uint32_t limit);  // FREE, or NULL
uint64_t blocks_take(struct blocks *blocks, enum sl_extent_kind kind, uint32_t block_bytes);       // offset, 0: none
void blocks_give(struct blocks *blocks, uint64_t block);

// ---- attach.c
int attach_socket(void);  // under the lock: connected, or the daemon is busy: 0; no daemon: -errno
void attach_hello(void);  // under the lock: sends the segment, never waits
void attach_sorry(int error);  // under the lock: tells the daemon that no segment could be made, and hangs up
void attach_poll_now(void);  // under the lock: reads the welcome when it is there, tries again when the socket is gone
void attach_poll(void);  // under the lock, where a program comes by often: the same, once a second when the welcome has been read
bool attach_wake(void);   // a ring is half full: false when the daemon is awake, so that it is worth asking again

// ---- regions.c: under the lock, but for the two that take it
uint32_t region_intern(const char *name, const char *file, int line);
uint32_t word_intern(const char *word);  // task kinds; 0 when there are too many
const char *word_text(uint32_t id);      // "task" for 0; lives as long as the process
void regions_publish_all(void);          // copies the tables into a new segment
bool strings_add(enum sl_string_type type, uint32_t id, const char *name, const char *file, int line);

// ---- names.c: texts of rows; under the lock where a name is, or may become, longer than SL_NAME_INLINE
void name_store(struct sl_name *name, const char *text);
bool name_store_plain(struct sl_name *name, const char *text);  // false, and nothing done, where that is not simple; no lock needed
void name_drop(struct sl_name *name);
bool name_is_short(const char *text);
void name_copy(struct sl_name *to, const struct sl_name *from);
void name_read(const struct sl_name *name, char *into);  // all of its length, no zero behind

// ---- thread.c
struct producer *thread_producer(void);  // the calling thread's, registered if need be; NULL while off
// Under the lock, RECORDING or LOCAL: the same, also where trackers alone want it.
struct producer *thread_register(void);
void thread_announce(struct producer *self);
void thread_store_comm(struct sl_thread_row *row, const char *comm);  // the kernel's name, where it is another one; under the lock
void thread_store_own_comm(struct sl_thread_row *row);               // of the calling thread
void thread_ended(void *page);           // destructor of the thread's key

// ---- lane.c
bool lane_append(struct producer *self, const struct sl_record *record, uint64_t frame);
bool lane_leave(struct producer *self, struct sl_lane *lane, uint32_t region, uint64_t now, uint64_t frame);  // false: not open there
void lane_end(struct producer *self, struct sl_lane *lane, uint64_t now);  // what is open: ENDED_OPEN, then empty
void lane_shrink(struct sl_lane *lane);  // an empty lane's overflow block goes back; under the lock

// ---- task.c
struct sl_task_row *task_row(sl_task_t task);                 // NULL when it has none, or has ended
void task_thread_ended(struct producer *self);                // steps in progress end, cached rows go back

// ---- local.c: without a segment; under the lock
bool local_begin(void);  // NEW or OFF -> LOCAL; true in LOCAL and RECORDING
struct sl_task_row *local_task_take(void);
void local_task_give(struct sl_task_row *row);

// ---- tracker.c: what trackers have to hear; under the lock
void tracker_thread_seen(struct producer *self);   // registered, or told of a new epoch
void tracker_thread_ended(struct producer *self);
void tracker_task_seen(struct sl_task_row *row);   // created, or stepped for the first time in a new epoch
void tracker_task_ended(struct sl_task_row *row);  // before the row is given away

#endif
