// What the files of the extension module share: regions (region.c), threads (thread.c), tasks (task.c), greenlets (greenlet.c),
// functions of programs that are not edited (functions.c), trackers (tracker.c), and the module itself (module.c). Everything here
// runs under the interpreter's lock; nothing here raises into a program that did not ask for it: where memory is short, or an
// attribute is missing, the program's own call goes on without us.
#ifndef SL_PYTHON_CORE_H
#define SL_PYTHON_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

// Calls of one Python function come from frames of the interpreter that differ by a few words, or not at all: near ones count as one.
#define SL_FRAME_UNIT_ 0x10000
#define SL_ENTER_COLD_ core_enter_cold  // a thread's first call makes it known
void core_enter_cold(uint32_t region, uint64_t frame);
#include <scoped_lane.h>

#if PY_VERSION_HEX < 0x030a0000
#define Py_NewRef(object) core_new_ref((PyObject *)(object))
static inline PyObject *core_new_ref(PyObject *object)
{
    Py_INCREF(object);
    return object;
}
typedef enum { PYGEN_RETURN = 0, PYGEN_ERROR = -1, PYGEN_NEXT = 1 } PySendResult;
#endif

// ---- thread.c

// The epoch at which the calling thread's name was told to the library; another one than core_epoch: it has to be told.
extern SL_TLS_ uint32_t core_told;
extern uint32_t core_epoch;
void core_tell_thread(void);

// Before the first step or task of a thread, and where the library asks for the cold path anyhow; sl_enter does it by itself.
static inline void core_meet(void)
{
    if (sl_unlikely(!sl_load_relaxed(&sl_self_->lane)) && core_told != core_epoch)
        core_tell_thread();
}

// Attributes and keys that are asked for again and again: strings made once. -1 with an exception where there is no memory.
struct core_word {
    PyObject **word;
    const char *text;
};
int core_intern(const struct core_word *words, size_t count);

// Text for the library, good until `keep` is released; "" where there is none.
const char *core_text_slow(PyObject *text, PyObject **keep);
static inline const char *core_text(PyObject *text, PyObject **keep)
{
    *keep = NULL;
    if (sl_likely(text && PyUnicode_CheckExact(text) && PyUnicode_IS_COMPACT_ASCII(text)))
        return (const char *)PyUnicode_1BYTE_DATA(text);
    return core_text_slow(text, keep);
}
int core_add_thread(PyObject *module);

// ---- region.c

extern int core_slow;  // not 0: calls are not simply recorded; a recording is paused, or a name has to be told
int core_add_region(PyObject *module);

struct region {
    PyObject_HEAD
    PyObject *name, *tags;
    PyObject *enter, *leave;  // ready-made callables
    uint64_t calls;
    sl_region_t id;
    int is_off;
};
extern PyTypeObject core_region_type;

void core_enter_slow(struct region *region);
void core_leave_slow(struct region *region);

SL_INLINE_ void core_enter(struct region *region)
{
    if (sl_unlikely(core_slow | region->is_off)) {
        core_enter_slow(region);
        return;
    }
    region->calls++;
    sl_enter(region->id);
}

SL_INLINE_ void core_leave(struct region *region)
{
    if (sl_unlikely(core_slow | region->is_off))
        core_leave_slow(region);
    else
        sl_exit(region->id);
}

// Ends the calls that generators of this task still hold; it is the current one and ends now.
void core_release_held(sl_task_t task);
extern int core_held;  // how many such calls there are

// ---- init.c

extern struct wrapperbase core_init_base;  // for PyDescr_NewWrapper, with an initproc

// ---- copy.c

int core_refuse_second_copy(void);  // -1 with an ImportError where this process has one already

// ---- task.c, greenlet.c, functions.c, tracker.c

int core_add_task(PyObject *module);
void core_rename_task(sl_task_t task, PyObject *name);
int core_add_greenlet(PyObject *module);
bool core_runs_greenlet(void);  // false: the thread's own greenlet runs, or none is known
void core_name_greenlet(PyObject *name);  // the one that runs
int core_add_functions(PyObject *module);
int core_add_tracker(PyObject *module);

#endif
