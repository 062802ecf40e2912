// libscoped_lane_threads.so: loaded before a program (LD_PRELOAD, by `scoped-lane run --all-threads`), it makes every thread known at
// its start, whether it ever calls the library or not, and tells which ones nobody waits for. A library of its own, because it
// stands in for functions of libc. It does nothing in a program that does not use libscoped_lane.so.
//
// A thread registers itself before its own function runs. It may be detached by another thread before it has come that far: it is
// told then. One that ended before it was detached was none that nobody waits for.
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <threads.h>

#define PUBLIC __attribute__((visibility("default")))

// ---- the library, once the program has it

static int (*started)(int is_detached);
static int (*detached)(uint64_t ident);

static bool library_is_there(void)
{
    return __atomic_load_n(&detached, __ATOMIC_ACQUIRE) != NULL;
}

// One that comes later, by dlopen, is found by the next thread that starts another. Only there: a new thread must not wait for the
// loader's lock, which may be held by a constructor that waits for the new thread. RTLD_NOLOAD: it is not loaded for us.
static void find_library(void)
{
    int saved = errno;
    void *library = dlopen("libscoped_lane.so.0", RTLD_LAZY | RTLD_NOLOAD);
    void *first = library ? dlsym(library, "sl_thread_started_") : NULL;
    void *second = library ? dlsym(library, "sl_thread_detached_") : NULL;
    if (first && second) {
        *(void **)&started = first;
        __atomic_store_n(&detached, (int (*)(uint64_t))second, __ATOMIC_RELEASE);
    }
    errno = saved;
}

static void *next(void **found, const char *function)
{
    void *present = __atomic_load_n(found, __ATOMIC_RELAXED);
    if (!present) {
        present = dlsym(RTLD_NEXT, function);
        __atomic_store_n(found, present, __ATOMIC_RELAXED);
    }
    return present;
}

// ---- threads from their creation until they are detached, or another one has their ident

// What a new thread is told. It belongs to the thread itself until that has started, and to the table.
struct beginning {
    union {
        void *(*posix)(void *);
        thrd_start_t c11;
    } function;
    void *argument;
    bool is_detached;
    bool has_started;
    int owners;
    uint64_t ident;
    struct beginning *next;
};

enum { PLACES = 256 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct beginning *table[PLACES];

static void forget(void)  // in a fork child: the others are gone, also one that held the lock
{
    pthread_mutex_init(&lock, NULL);
    for (int i = 0; i < PLACES; i++)
        table[i] = NULL;
}

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, forget);
}

static struct beginning **place_of(uint64_t ident)
{
    struct beginning **place = &table[(ident >> 12 ^ ident >> 20) % PLACES];
    while (*place && (*place)->ident != ident)
        place = &(*place)->next;
    return place;
}

static void release(struct beginning *beginning)
{
    if (--beginning->owners == 0)
        free(beginning);
}

static struct beginning *take_out(uint64_t ident)
{
    struct beginning **place = place_of(ident), *beginning = *place;
    if (beginning)
        *place = beginning->next;
    return beginning;
}

// NULL: it goes without us. The thread that starts it becomes known too.
static struct beginning *prepare(struct beginning beginning)
{
    if (!library_is_there())
        find_library();
    if (!library_is_there())
        return NULL;
    started(false);
    struct beginning *copy = malloc(sizeof *copy);
    if (copy)
        *copy = beginning;
    return copy;
}

static void note_created(struct beginning *beginning, uint64_t ident)
{
    pthread_mutex_lock(&lock);
    struct beginning *earlier = beginning->is_detached ? NULL : take_out(ident);  // has been joined
    if (earlier)
        release(earlier);
    if (beginning->is_detached) {
        release(beginning);
    } else {
        beginning->ident = ident;
        *place_of(ident) = beginning;
    }
    pthread_mutex_unlock(&lock);
}

static void note_detached(uint64_t ident)
{
    if (!library_is_there())
        return;
    pthread_mutex_lock(&lock);
    struct beginning *beginning = take_out(ident);
    if (beginning && !beginning->has_started)
        beginning->is_detached = true;
    else
        detached(ident);  // nobody is found where it has ended already
    if (beginning)
        release(beginning);
    pthread_mutex_unlock(&lock);
}

// The new thread registers.
static struct beginning begin(void *data)
{
    struct beginning *shared = data;
    pthread_mutex_lock(&lock);
    struct beginning own = *shared;
    shared->has_started = true;
    started(own.is_detached);
    release(shared);
    pthread_mutex_unlock(&lock);
    return own;
}

static void *begin_posix(void *data)
{
    struct beginning beginning = begin(data);
    return beginning.function.posix(beginning.argument);
}

static int begin_c11(void *data)
{
    struct beginning beginning = begin(data);
    return beginning.function.c11(beginning.argument);
}

// ---- in libc's stead

PUBLIC int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *), void *argument)
{
    static void *found;
    int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    int state = PTHREAD_CREATE_JOINABLE;
    *(void **)&create = next(&found, "pthread_create");
    if (attributes)
        pthread_attr_getdetachstate(attributes, &state);
    struct beginning *beginning = prepare((struct beginning){
        .function.posix = function, .argument = argument, .is_detached = state == PTHREAD_CREATE_DETACHED, .owners = 2});
    if (!beginning)
        return create(thread, attributes, function, argument);
    int error = create(thread, attributes, begin_posix, beginning);
    if (error)
        free(beginning);
    else
        note_created(beginning, (uint64_t)*thread);
    return error;
}

PUBLIC int thrd_create(thrd_t *thread, thrd_start_t function, void *argument)
{
    static void *found;
    int (*create)(thrd_t *, thrd_start_t, void *);
    *(void **)&create = next(&found, "thrd_create");
    struct beginning *beginning = prepare((struct beginning){.function.c11 = function, .argument = argument, .owners = 2});
    if (!beginning)
        return create(thread, function, argument);
    int result = create(thread, begin_c11, beginning);
    if (result != thrd_success)
        free(beginning);
    else
        note_created(beginning, (uint64_t)*thread);
    return result;
}

PUBLIC int pthread_detach(pthread_t thread)
{
    static void *found;
    int (*detach)(pthread_t);
    *(void **)&detach = next(&found, "pthread_detach");
    note_detached((uint64_t)thread);
    return detach(thread);
}

PUBLIC int thrd_detach(thrd_t thread)
{
    static void *found;
    int (*detach)(thrd_t);
    *(void **)&detach = next(&found, "thrd_detach");
    note_detached((uint64_t)thread);
    return detach(thread);
}
