// libscoped_lane_threads.so: loaded before a program (LD_PRELOAD, by `scoped-lane run --all-threads`), it makes every thread known at
// its start, whether it ever calls the library or not, and tells which ones nobody waits for. A library of its own, because it
// stands in for functions of libc. It does nothing in a program that does not use libscoped_lane.so.
//
// A thread registers itself before its own function runs. It may be detached by another thread before it has come that far: such a
// detach is noted here, and the thread finds it.
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

// ---- threads detached before they have registered

enum { PENDING = 256 };  // the oldest goes: it is of a thread that never came, or has ended

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t pending[PENDING];
static unsigned pending_next;

static void forget(void)  // in a fork child: the others are gone, also one that held the lock
{
    pthread_mutex_init(&lock, NULL);
    pending_next = 0;
    for (int i = 0; i < PENDING; i++)
        pending[i] = 0;
}

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, forget);
}

static void note_detached(uint64_t ident)
{
    if (!library_is_there())
        return;
    pthread_mutex_lock(&lock);
    if (!detached(ident))
        pending[pending_next++ % PENDING] = ident;
    pthread_mutex_unlock(&lock);
}

// Registers the calling thread.
static void start(bool is_detached)
{
    uint64_t self = (uint64_t)pthread_self();
    pthread_mutex_lock(&lock);
    for (int i = 0; i < PENDING; i++)
        if (pending[i] == self) {
            pending[i] = 0;
            is_detached = true;
        }
    started(is_detached);
    pthread_mutex_unlock(&lock);
}

// ---- in libc's stead

struct beginning {
    union {
        void *(*posix)(void *);
        thrd_start_t c11;
    } function;
    void *argument;
    bool is_detached;
};

static struct beginning take(void *data)
{
    struct beginning beginning = *(struct beginning *)data;
    free(data);
    if (library_is_there())
        start(beginning.is_detached);
    return beginning;
}

static void *begin_posix(void *data)
{
    struct beginning beginning = take(data);
    return beginning.function.posix(beginning.argument);
}

static int begin_c11(void *data)
{
    struct beginning beginning = take(data);
    return beginning.function.c11(beginning.argument);
}

// What the new thread is told; NULL: it goes without us. The thread that starts it becomes known too.
static void *prepare(struct beginning beginning)
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

PUBLIC int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *), void *argument)
{
    static void *found;
    int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    int state = PTHREAD_CREATE_JOINABLE;
    *(void **)&create = next(&found, "pthread_create");
    if (attributes)
        pthread_attr_getdetachstate(attributes, &state);
    void *data = prepare((struct beginning){{.posix = function}, argument, state == PTHREAD_CREATE_DETACHED});
    int error = data ? create(thread, attributes, begin_posix, data) : create(thread, attributes, function, argument);
    if (error)
        free(data);
    return error;
}

PUBLIC int thrd_create(thrd_t *thread, thrd_start_t function, void *argument)
{
    static void *found;
    int (*create)(thrd_t *, thrd_start_t, void *);
    *(void **)&create = next(&found, "thrd_create");
    void *data = prepare((struct beginning){{.c11 = function}, argument, false});
    int result = data ? create(thread, begin_c11, data) : create(thread, function, argument);
    if (result != thrd_success)
        free(data);
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
