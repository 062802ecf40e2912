// Regions: objects that stand for a name, one for each name and for ever, as in the library. `with region:` asks the type for
// __enter__ and __exit__; the descriptors there hand out callables that were made with the region, so that a pair costs
// two calls and no object.
//
// While recording is paused a lane remembers which of its calls were passed over (struct skip), so that each exit closes what its
// own enter opened.
#include "client/python/core.h"

#include <frameobject.h>
#include <stddef.h>

int core_slow, core_held;
static int is_paused;
static PyObject *regions;  // name -> struct region

// ---- calls while recording is, or was, paused

struct skip {
    sl_task_t task;
    sl_region_t region;
    int is_recorded;
};

struct skips {
    struct skip *items;
    uint32_t count, room, round;
};

static SL_TLS_ struct skips skips;
static uint32_t round_now = 1;  // rises when the last call that was passed over has ended
static uint32_t passed_over;    // such calls that are open, of all threads

static void settle_slow(void)
{
    core_slow = is_paused || passed_over;
    if (!core_slow)
        round_now++;
}

static bool push_skip(struct region *region, int is_recorded)
{
    if (skips.round != round_now)
        skips.count = 0, skips.round = round_now;
    if (skips.count == skips.room) {
        uint32_t room = skips.room ? 2 * skips.room : 16;
        struct skip *items = PyMem_RawRealloc(skips.items, room * sizeof *items);
        if (!items)
            return false;
        skips.items = items;
        skips.room = room;
    }
    skips.items[skips.count++] = (struct skip){sl_task_current(), region->id, is_recorded};
    passed_over += !is_recorded;
    return true;
}

// Was the call that ends now recorded?
static int pop_skip(struct region *region)
{
    sl_task_t task = sl_task_current();
    for (uint32_t i = skips.round == round_now ? skips.count : 0; i-- > 0;) {
        struct skip skip = skips.items[i];
        if (skip.task != task || skip.region != region->id)
            continue;
        memmove(skips.items + i, skips.items + i + 1, (--skips.count - i) * sizeof *skips.items);
        passed_over -= !skip.is_recorded;
        settle_slow();
        return skip.is_recorded;
    }
    return 1;
}

void core_enter_slow(struct region *region)
{
    if (region->is_off || (core_slow && !push_skip(region, !is_paused)) || is_paused)
        return;
    region->calls++;
    sl_enter(region->id);
}

void core_leave_slow(struct region *region)
{
    if (!region->is_off && pop_skip(region))
        sl_exit(region->id);
}

PyDoc_STRVAR(pause_doc, "pause(on)\n--\n\nFrom here on calls are passed over (True) or recorded (False).");
static PyObject *pause_recording(PyObject *module, PyObject *on)
{
    (void)module;
    int truth = PyObject_IsTrue(on);
    if (truth < 0)
        return NULL;
    is_paused = truth;
    settle_slow();
    Py_RETURN_NONE;
}

// ---- calls that an asynchronous generator holds
//
// One that is left early is closed by a task of its own (the loop's finalizer makes it), where a call that was entered in
// the task that used the generator is not open. So in such a frame __exit__ remembers the task.

struct held {
    PyObject_HEAD
    vectorcallfunc call;
    struct region *region;
    sl_task_t task;
    struct held *next, **link;  // link NULL: no longer open
};

static struct held *all_held;

// The running frame's code, borrowed; NULL where this interpreter keeps it elsewhere.
static inline PyCodeObject *running_code(void)
{
#if PY_VERSION_HEX >= 0x030e0000
    return NULL;
#elif PY_VERSION_HEX >= 0x030b0000
    // The first members of the interpreter's frame: 3.11 has the code fifth, 3.12 and 3.13 first.
#if PY_VERSION_HEX >= 0x030d0000
    void *const *frame = (void *const *)(void *)PyThreadState_Get()->current_frame;
    return frame && PyCode_Check((PyObject *)frame[0]) ? frame[0] : NULL;
#elif PY_VERSION_HEX >= 0x030c0000
    void *const *frame = (void *const *)(void *)PyThreadState_Get()->cframe->current_frame;
    return frame ? frame[0] : NULL;
#else
    void *const *frame = (void *const *)(void *)PyThreadState_Get()->cframe->current_frame;
    return frame ? frame[4] : NULL;
#endif
#else
    PyFrameObject *frame = PyEval_GetFrame();
    return frame ? frame->f_code : NULL;
#endif
}

static void unlink_held(struct held *held)
{
    if (!held->link)
        return;
    *held->link = held->next;
    if (held->next)
        held->next->link = held->link;
    held->link = NULL;
    core_held--;
}

static PyObject *held_call(PyObject *self, PyObject *const *args, size_t count, PyObject *names)
{
    struct held *held = (struct held *)self;
    (void)args, (void)count, (void)names;
    if (held->link) {
        unlink_held(held);
        if (sl_task_current() == held->task)
            core_leave(held->region);
        else
            sl_task_exit_(held->task, held->region->id);
    }
    Py_RETURN_NONE;
}

void core_release_held(sl_task_t task)
{
    for (struct held *held = all_held, *next; held; held = next) {
        next = held->next;
        if (held->task != task)
            continue;
        unlink_held(held);
        sl_exit(held->region->id);
    }
}

static void held_dealloc(PyObject *self)
{
    unlink_held((struct held *)self);
    PyObject_Free(self);
}

static PyTypeObject held_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "scoped_lane._core.HeldExit",
    .tp_basicsize = sizeof(struct held),
    .tp_dealloc = held_dealloc,
    .tp_vectorcall_offset = offsetof(struct held, call),
    .tp_call = PyVectorcall_Call,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
};

static PyObject *hold(struct region *region, sl_task_t task)
{
    struct held *held = PyObject_New(struct held, &held_type);
    if (!held) {
        PyErr_Clear();
        return Py_NewRef(region->leave);
    }
    held->call = held_call;
    held->region = region;
    held->task = task;
    held->next = all_held;
    held->link = &all_held;
    if (all_held)
        all_held->link = &held->next;
    all_held = held;
    core_held++;
    return (PyObject *)held;
}

// ---- the ready-made callables

struct hand {
    PyObject_HEAD
    vectorcallfunc call;
    struct region *region;  // which lives for ever
};

static PyObject *enter_call(PyObject *self, PyObject *const *args, size_t count, PyObject *names)
{
    struct region *region = ((struct hand *)self)->region;
    (void)args, (void)count, (void)names;
    core_enter(region);
    return Py_NewRef((PyObject *)region);
}

static PyObject *leave_call(PyObject *self, PyObject *const *args, size_t count, PyObject *names)
{
    (void)args, (void)count, (void)names;
    core_leave(((struct hand *)self)->region);
    Py_RETURN_NONE;
}

static PyTypeObject hand_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "scoped_lane._core.Hand",
    .tp_basicsize = sizeof(struct hand),
    .tp_vectorcall_offset = offsetof(struct hand, call),
    .tp_call = PyVectorcall_Call,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
};

static PyObject *make_hand(struct region *region, vectorcallfunc call)
{
    struct hand *hand = PyObject_New(struct hand, &hand_type);
    if (hand) {
        hand->call = call;
        hand->region = region;
    }
    return (PyObject *)hand;
}

// ---- __enter__ and __exit__ as the type has them: contextlib.ExitStack calls them with the region

static PyObject *enter_get(PyObject *self, PyObject *region, PyObject *type)
{
    (void)type;
    return Py_NewRef(region ? ((struct region *)region)->enter : self);
}

static inline bool is_in_task(void)
{
    const struct sl_lane *lane = sl_load_relaxed(&sl_self_->lane);
    return lane && lane != SL_LANE_OFF_ && lane->task != SL_TASK_NONE;
}

static PyObject *leave_get(PyObject *self, PyObject *object, PyObject *type)
{
    struct region *region = (struct region *)object;
    (void)type;
    if (!region)
        return Py_NewRef(self);
    if (sl_unlikely(is_in_task())) {
        PyCodeObject *code = running_code();
        if (sl_unlikely(code && (code->co_flags & CO_ASYNC_GENERATOR)))
            return hold(region, sl_task_current());
    }
    return Py_NewRef(region->leave);
}

static PyObject *through_type(PyObject *args, bool enters)
{
    PyObject *region = PyTuple_GET_SIZE(args) ? PyTuple_GET_ITEM(args, 0) : NULL;
    if (!region || Py_TYPE(region) != &core_region_type) {
        PyErr_SetString(PyExc_TypeError, "a region is wanted");
        return NULL;
    }
    return enters ? enter_call(((struct region *)region)->enter, NULL, 0, NULL)
                  : leave_call(((struct region *)region)->leave, NULL, 0, NULL);
}

static PyObject *enter_through_type(PyObject *self, PyObject *args, PyObject *names)
{
    (void)self, (void)names;
    return through_type(args, true);
}

static PyObject *leave_through_type(PyObject *self, PyObject *args, PyObject *names)
{
    (void)self, (void)names;
    return through_type(args, false);
}

static PyTypeObject enter_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "scoped_lane._core.Enter",
    .tp_basicsize = sizeof(PyObject),
    .tp_descr_get = enter_get,
    .tp_call = enter_through_type,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

static PyTypeObject leave_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "scoped_lane._core.Leave",
    .tp_basicsize = sizeof(PyObject),
    .tp_descr_get = leave_get,
    .tp_call = leave_through_type,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

// ---- the region itself

static PyObject *region_repr(PyObject *self)
{
    return PyUnicode_FromFormat("<region %R>", ((struct region *)self)->name);
}

static PyObject *region_name(PyObject *self, void *unused)
{
    (void)unused;
    return Py_NewRef(((struct region *)self)->name);
}

static PyObject *region_tags(PyObject *self, void *unused)
{
    (void)unused;
    return Py_NewRef(((struct region *)self)->tags);
}

static int region_set_tags(PyObject *self, PyObject *tags, void *unused)
{
    (void)unused;
    if (!tags || !PyTuple_Check(tags)) {
        PyErr_SetString(PyExc_TypeError, "tags are a tuple");
        return -1;
    }
    PyObject *before = ((struct region *)self)->tags;
    ((struct region *)self)->tags = Py_NewRef(tags);
    Py_DECREF(before);
    return 0;
}

static PyObject *region_id(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLong(((struct region *)self)->id);
}

static PyObject *region_calls(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(((struct region *)self)->calls);
}

static PyObject *region_is_off(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(((struct region *)self)->is_off);
}

static int region_set_off(PyObject *self, PyObject *off, void *unused)
{
    (void)unused;
    int truth = off ? PyObject_IsTrue(off) : 0;
    if (truth < 0)
        return -1;
    ((struct region *)self)->is_off = truth;
    return 0;
}

static PyGetSetDef region_members[] = {
    {"name", region_name, NULL, "What it is called.", NULL},
    {"tags", region_tags, region_set_tags, "Its tags, a tuple.", NULL},
    {"id", region_id, NULL, "The number that begin() and end() take.", NULL},
    {"num_calls", region_calls, NULL, "How often it was entered in this process while something was recorded, or could have been.", NULL},
    {"is_off", region_is_off, region_set_off, "Whether its calls are passed over.", NULL},
    {0},
};

PyDoc_STRVAR(region_doc, "A name that stretches of time are recorded under: `with region(\"solve\"):`.");
PyTypeObject core_region_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "scoped_lane.Region",
    .tp_basicsize = sizeof(struct region),
    .tp_repr = region_repr,
    .tp_getset = region_members,
    .tp_doc = region_doc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

static struct region *make_region(PyObject *name, PyObject *file, int line)
{
    PyObject *keep_name, *keep_file;
    struct region *region = PyObject_New(struct region, &core_region_type);
    if (!region)
        return NULL;
    region->name = Py_NewRef(name);
    region->tags = PyTuple_New(0);
    region->calls = 0;
    region->is_off = 0;
    const char *text = core_text(name, &keep_name), *path = core_text(file, &keep_file);
    region->id = sl_region_at(text, path, line);
    Py_XDECREF(keep_name);
    Py_XDECREF(keep_file);
    region->enter = make_hand(region, enter_call);
    region->leave = make_hand(region, leave_call);
    if (!region->tags || !region->enter || !region->leave || PyDict_SetItem(regions, name, (PyObject *)region) < 0)
        return NULL;  // memory is out; the halves are not given back
    return region;
}

PyDoc_STRVAR(find_region_doc, "find_region(name)\n--\n\nThe region of this name, None when there is none yet.");
static PyObject *find_region(PyObject *module, PyObject *name)
{
    (void)module;
    PyObject *region = PyDict_GetItemWithError(regions, name);
    if (!region && PyErr_Occurred())
        return NULL;
    return Py_NewRef(region ? region : Py_None);
}

PyDoc_STRVAR(new_region_doc, "new_region(name, file, line)\n--\n\nThe region of this name, made if need be.");
static PyObject *new_region(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (count != 3 || !PyUnicode_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "a region's name is a str");
        return NULL;
    }
    PyObject *found = PyDict_GetItemWithError(regions, args[0]);
    if (found)
        return Py_NewRef(found);
    long line = PyLong_AsLong(args[2]);
    if (PyErr_Occurred())
        return NULL;
    return (PyObject *)make_region(args[0], args[1], line > 0 && line < INT32_MAX ? (int)line : -1);
}

PyDoc_STRVAR(all_regions_doc, "all_regions()\n--\n\nA dict of all regions by name.");
static PyObject *all_regions(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyDict_Copy(regions);
}

// region(name, functions=None, tags=None): a known name alone is answered here, the rest by `make`, which the package gives. Names in
// source text are one object each, which is known by its address.
static PyObject *make;
static struct known {
    PyObject *name, *region;
} known_names[256];

static inline struct known *known_place(PyObject *name)
{
    return &known_names[((uintptr_t)name >> 4 ^ (uintptr_t)name >> 12) % (sizeof known_names / sizeof *known_names)];
}

static void know(PyObject *name, PyObject *region)
{
    struct known *place = known_place(name);
    PyObject *before = place->name;
    if (!PyUnicode_CHECK_INTERNED(name))
        return;
    *place = (struct known){Py_NewRef(name), region};  // the region lives for ever
    Py_XDECREF(before);
}

static PyObject *region_get(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    (void)module;
    if (sl_likely(count == 1 && !names)) {
        const struct known *known = known_place(args[0]);
        if (sl_likely(known->name == args[0]))
            return Py_NewRef(known->region);
        PyObject *found = PyUnicode_CheckExact(args[0]) ? PyDict_GetItemWithError(regions, args[0]) : NULL;
        if (found) {
            know(args[0], found);
            return Py_NewRef(found);
        }
    }
    if (!make) {
        PyErr_SetString(PyExc_RuntimeError, "scoped_lane is not imported");
        return NULL;
    }
    return PyObject_Vectorcall(make, args, (size_t)count, names);
}

PyDoc_STRVAR(set_maker_doc, "set_maker(function)\n--\n\nWho makes regions that region() does not know.");
static PyObject *set_maker(PyObject *module, PyObject *function)
{
    (void)module;
    PyObject *before = make;
    make = Py_NewRef(function);
    Py_XDECREF(before);
    Py_RETURN_NONE;
}

// ---- begin and end by id

// The id of a region, or the region itself; 0 with an exception for anything else.
static sl_region_t id_of(PyObject *object)
{
    if (Py_TYPE(object) == &core_region_type)
        return ((struct region *)object)->id;
#if PY_VERSION_HEX >= 0x030c0000
    if (sl_likely(PyLong_CheckExact(object) && PyUnstable_Long_IsCompact((PyLongObject *)object))) {
        Py_ssize_t small = PyUnstable_Long_CompactValue((PyLongObject *)object);
        if (sl_likely(small > 0))
            return (sl_region_t)small;
    }
#else
    if (sl_likely(PyLong_CheckExact(object) && Py_SIZE(object) == 1))
        return ((PyLongObject *)object)->ob_digit[0];
#endif
    unsigned long id = PyLong_AsUnsignedLong(object);
    if (id == (unsigned long)-1 && PyErr_Occurred())
        return 0;
    if (id == 0 || id > UINT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "no region has this id");
        return 0;
    }
    return (sl_region_t)id;
}

PyDoc_STRVAR(begin_doc, "begin(id)\n--\n\nEnters a region by its id.");
static PyObject *begin(PyObject *module, PyObject *object)
{
    (void)module;
    sl_region_t id = id_of(object);
    if (!id)
        return NULL;
    if (sl_likely(!is_paused))
        sl_enter(id);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(end_doc, "end(id)\n--\n\nLeaves the nearest open call of a region on this lane.");
static PyObject *end(PyObject *module, PyObject *object)
{
    (void)module;
    sl_region_t id = id_of(object);
    if (!id)
        return NULL;
    sl_exit(id);
    Py_RETURN_NONE;
}

// ---- a function with a region around it

struct profiled {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *function;
    struct region *region;
    PyObject *dict, *weak;
};

// A function in Python without the steps that other callables need.
static inline PyObject *call_function(PyObject *function, PyObject *const *args, size_t count, PyObject *names)
{
    if (sl_likely(PyFunction_Check(function)))
        return ((PyFunctionObject *)function)->vectorcall(function, args, count, names);
    return PyObject_Vectorcall(function, args, count, names);
}

static PyObject *profiled_call(PyObject *self, PyObject *const *args, size_t count, PyObject *names)
{
    struct profiled *profiled = (struct profiled *)self;
    struct region *region = profiled->region;
    if (sl_unlikely(is_paused | region->is_off))
        return PyObject_Vectorcall(profiled->function, args, count, names);
    region->calls++;
    sl_enter(region->id);
    PyObject *result = call_function(profiled->function, args, count, names);
    sl_exit(region->id);
    return result;
}

static int profiled_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(((struct profiled *)self)->function);
    Py_VISIT(((struct profiled *)self)->dict);
    return 0;
}

static int profiled_clear(PyObject *self)
{
    Py_CLEAR(((struct profiled *)self)->function);
    Py_CLEAR(((struct profiled *)self)->dict);
    return 0;
}

static void profiled_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    if (((struct profiled *)self)->weak)
        PyObject_ClearWeakRefs(self);
    profiled_clear(self);
    PyObject_GC_Del(self);
}

static PyObject *profiled_get(PyObject *self, PyObject *object, PyObject *type)
{
    (void)type;
    return object && object != Py_None ? PyMethod_New(self, object) : Py_NewRef(self);
}

// What a function has and this object has not (__code__, __defaults__, …) is the function's.
static PyObject *profiled_getattr(PyObject *self, PyObject *name)
{
    PyObject *found = PyObject_GenericGetAttr(self, name), *type, *value, *traceback;
    if (found || !PyErr_ExceptionMatches(PyExc_AttributeError))
        return found;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *function = ((struct profiled *)self)->function;
    found = function ? PyObject_GetAttr(function, name) : NULL;
    if (found) {
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(traceback);
        return found;
    }
    PyErr_Clear();
    PyErr_Restore(type, value, traceback);
    return NULL;
}

static PyObject *profiled_repr(PyObject *self)
{
    return PyObject_Repr(((struct profiled *)self)->function);
}

// By name, as functions are pickled.
static PyObject *profiled_reduce(PyObject *self, PyObject *unused)
{
    (void)unused;
    return PyObject_GetAttrString(self, "__qualname__");
}

static PyObject *profiled_region(PyObject *self, void *unused)
{
    (void)unused;
    return Py_NewRef((PyObject *)((struct profiled *)self)->region);
}

static PyMethodDef profiled_methods[] = {
    {"__reduce__", profiled_reduce, METH_NOARGS, NULL},
    {0},
};

static PyGetSetDef profiled_members[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {"region", profiled_region, NULL, "The region of its calls.", NULL},
    {0},
};

static PyTypeObject profiled_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "scoped_lane._core.Profiled",
    .tp_basicsize = sizeof(struct profiled),
    .tp_dealloc = profiled_dealloc,
    .tp_traverse = profiled_traverse,
    .tp_clear = profiled_clear,
    .tp_vectorcall_offset = offsetof(struct profiled, call),
    .tp_call = PyVectorcall_Call,
    .tp_descr_get = profiled_get,
    .tp_getattro = profiled_getattr,
    .tp_setattro = PyObject_GenericSetAttr,
    .tp_repr = profiled_repr,
    .tp_methods = profiled_methods,
    .tp_getset = profiled_members,
    .tp_dictoffset = offsetof(struct profiled, dict),
    .tp_weaklistoffset = offsetof(struct profiled, weak),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
};

PyDoc_STRVAR(wrap_doc, "wrap(function, region)\n--\n\nThe function with the region around each call.");
static PyObject *wrap(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (count != 2 || !PyCallable_Check(args[0]) || Py_TYPE(args[1]) != &core_region_type) {
        PyErr_SetString(PyExc_TypeError, "wrap() takes a callable and a region");
        return NULL;
    }
    struct profiled *profiled = PyObject_GC_New(struct profiled, &profiled_type);
    if (!profiled)
        return NULL;
    profiled->call = profiled_call;
    profiled->function = Py_NewRef(args[0]);
    profiled->region = (struct region *)args[1];
    profiled->dict = profiled->weak = NULL;
    PyObject_GC_Track((PyObject *)profiled);
    return (PyObject *)profiled;
}

static PyMethodDef functions[] = {
    {"region", (PyCFunction)(void (*)(void))region_get, METH_FASTCALL | METH_KEYWORDS,
     "region(name, functions=None, tags=None)\n--\n\nThe region of this name, to be used as `with region(name):`."},
    {"find_region", find_region, METH_O, find_region_doc},
    {"new_region", (PyCFunction)(void (*)(void))new_region, METH_FASTCALL, new_region_doc},
    {"all_regions", all_regions, METH_NOARGS, all_regions_doc},
    {"set_maker", set_maker, METH_O, set_maker_doc},
    {"pause", pause_recording, METH_O, pause_doc},
    {"begin", begin, METH_O, begin_doc},
    {"end", end, METH_O, end_doc},
    {"wrap", (PyCFunction)(void (*)(void))wrap, METH_FASTCALL, wrap_doc},
    {0},
};

static int add_descriptor(const char *name, PyTypeObject *type)
{
    PyObject *descriptor = PyObject_New(PyObject, type);
    int result = descriptor ? PyDict_SetItemString(core_region_type.tp_dict, name, descriptor) : -1;
    Py_XDECREF(descriptor);
    return result;
}

int core_add_region(PyObject *module)
{
    PyTypeObject *const types[] = {&held_type, &hand_type, &enter_type, &leave_type, &profiled_type, &core_region_type};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (PyType_Ready(types[i]) < 0)
            return -1;
    if (add_descriptor("__enter__", &enter_type) < 0 || add_descriptor("__exit__", &leave_type) < 0)
        return -1;
    PyType_Modified(&core_region_type);
    if (!regions)  // else the module is imported once more
        regions = PyDict_New();
    Py_INCREF(&core_region_type);
    if (!regions || PyModule_AddObject(module, "Region", (PyObject *)&core_region_type) < 0)
        return -1;
    return PyModule_AddFunctions(module, functions);
}
