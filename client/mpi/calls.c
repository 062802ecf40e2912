// libscoped_lane_mpi.so: MPI calls as regions, in a program that need not know of it. Linked before MPI, or loaded before the program
// (LD_PRELOAD, by `scoped-lane run --mpi`), it stands in for the calls of calls.h: each is a region of that name around MPI's own. It
// never calls MPI for itself, and is not linked to it, so that it does nothing in programs that have none.
//
// Fortran has entries of its own, for MPI's Fortran libraries go on to PMPI_: mpi_send_ (mpif.h, use mpi) and mpi_send_f08_ (use
// mpi_f08). They hand on what they were given, so that addresses with a meaning, as MPI_IN_PLACE, keep it.
//
// What an MPI library calls for itself on the way is not counted: a call within another one is its caller's affair.
#include <dlfcn.h>
#include <errno.h>
#include <mpi.h>

#include "client/mpi/calls.h"
#include "client/scoped_lane.h"

// ---- the region

struct call {
    sl_region_t region;
    uint32_t is_outermost;
};

static SL_TLS_ uint64_t outermost;  // frame of the thread's present call, 0 none. One that was left by longjmp lies below later ones

SL_INLINE_ struct call enter(sl_region_t *region, const char *name)
{
    uint64_t frame = sl_frame_();
    if (sl_unlikely(outermost && frame < outermost))
        return (struct call){0, 0};
    outermost = frame;
    struct call call = {sl_region_once_(region, name, NULL, -1), 1};
    sl_enter(call.region);
    return call;
}

SL_INLINE_ void leave(const struct call *call)
{
    if (sl_unlikely(!call->is_outermost))
        return;
    sl_exit(call->region);
    outermost = 0;
}

// Until the end of the block, also where an error handler of the program throws an exception.
#define REGION(name)                                                    \
    static sl_region_t region;                                          \
    const struct call here __attribute__((cleanup(leave), unused)) = enter(&region, name)

// ---- MPI's own function

// An MPI that only its caller can see, as Python loads it, is found among what the caller was linked to.
static void *look_up(void **place, const char *name, void *caller)
{
    int saved = errno;
    void *found = dlsym(RTLD_DEFAULT, name);
    Dl_info info;
    if (!found && dladdr(caller, &info)) {
        void *library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
        found = library ? dlsym(library, name) : NULL;
        if (library)
            dlclose(library);
    }
    sl_store_relaxed(place, found);
    errno = saved;
    return found;
}

SL_INLINE_ void *find(void **place, const char *name, void *caller)
{
    void *found = sl_load_relaxed(place);
    return sl_likely(found) ? found : look_up(place, name, caller);
}

// ---- parameters by their number: v1, v2 …

#define TAKE_0()            void
#define TAKE_1(t)           t v1
#define TAKE_2(t, ...)      t v2, TAKE_1(__VA_ARGS__)
#define TAKE_3(t, ...)      t v3, TAKE_2(__VA_ARGS__)
#define TAKE_4(t, ...)      t v4, TAKE_3(__VA_ARGS__)
#define TAKE_5(t, ...)      t v5, TAKE_4(__VA_ARGS__)
#define TAKE_6(t, ...)      t v6, TAKE_5(__VA_ARGS__)
#define TAKE_7(t, ...)      t v7, TAKE_6(__VA_ARGS__)
#define TAKE_8(t, ...)      t v8, TAKE_7(__VA_ARGS__)
#define TAKE_9(t, ...)      t v9, TAKE_8(__VA_ARGS__)
#define TAKE_10(t, ...)     t v10, TAKE_9(__VA_ARGS__)
#define TAKE_11(t, ...)     t v11, TAKE_10(__VA_ARGS__)
#define TAKE_12(t, ...)     t v12, TAKE_11(__VA_ARGS__)
#define TAKE_13(t, ...)     t v13, TAKE_12(__VA_ARGS__)
#define GIVE_0
#define GIVE_1              v1
#define GIVE_2              v2, GIVE_1
#define GIVE_3              v3, GIVE_2
#define GIVE_4              v4, GIVE_3
#define GIVE_5              v5, GIVE_4
#define GIVE_6              v6, GIVE_5
#define GIVE_7              v7, GIVE_6
#define GIVE_8              v8, GIVE_7
#define GIVE_9              v9, GIVE_8
#define GIVE_10             v10, GIVE_9
#define GIVE_11             v11, GIVE_10
#define GIVE_12             v12, GIVE_11
#define GIVE_13             v13, GIVE_12
#define GIVE_14             v14, GIVE_13
#define ADDRESSES_1         void *v1
#define ADDRESSES_2         void *v2, ADDRESSES_1
#define ADDRESSES_3         void *v3, ADDRESSES_2
#define ADDRESSES_4         void *v4, ADDRESSES_3
#define ADDRESSES_5         void *v5, ADDRESSES_4
#define ADDRESSES_6         void *v6, ADDRESSES_5
#define ADDRESSES_7         void *v7, ADDRESSES_6
#define ADDRESSES_8         void *v8, ADDRESSES_7
#define ADDRESSES_9         void *v9, ADDRESSES_8
#define ADDRESSES_10        void *v10, ADDRESSES_9
#define ADDRESSES_11        void *v11, ADDRESSES_10
#define ADDRESSES_12        void *v12, ADDRESSES_11
#define ADDRESSES_13        void *v13, ADDRESSES_12
#define ADDRESSES_14        void *v14, ADDRESSES_13

// ---- in MPI's stead

#define IN_C(name, lower, fortran_count, count, ...)                                                                    \
    SL_PUBLIC int MPI_##name(TAKE_##count(__VA_ARGS__))                                                                 \
    {                                                                                                                   \
        static void *place;                                                                                             \
        int (*next)(TAKE_##count(__VA_ARGS__));                                                                         \
        *(void **)&next = find(&place, "PMPI_" #name, __builtin_return_address(0));                                     \
        if (sl_unlikely(!next))                                                                                         \
            return MPI_ERR_INTERN;                                                                                      \
        REGION("MPI_" #name);                                                                                           \
        return next(GIVE_##count);                                                                                      \
    }

#define FORTRAN_ENTRY(name, symbol, count)                                                                              \
    SL_PUBLIC void symbol(ADDRESSES_##count);                                                                           \
    SL_PUBLIC void symbol(ADDRESSES_##count)                                                                            \
    {                                                                                                                   \
        static void *place;                                                                                             \
        void (*next)(ADDRESSES_##count);                                                                                \
        *(void **)&next = find(&place, "p" #symbol, __builtin_return_address(0));                                       \
        if (sl_unlikely(!next))                                                                                         \
            return;                                                                                                     \
        REGION("MPI_" #name);                                                                                           \
        next(GIVE_##count);                                                                                             \
    }

#define IN_FORTRAN(name, lower, count, ...) \
    FORTRAN_ENTRY(name, mpi_##lower##_, count) \
    FORTRAN_ENTRY(name, mpi_##lower##_f08_, count)

#define IN_FORTRAN_BESIDE(name, lower, count) FORTRAN_ENTRY(name, mpi_##lower##_, count)

MPI_CALLS(IN_C)
MPI_CALLS(IN_FORTRAN)
MPI_FORTRAN_CALLS(IN_FORTRAN_BESIDE)
