// Greenlets: a lane for each, stepped by the function that greenlet calls after every switch of a thread (greenlet.settrace). That is a
// thread's own affair, so each thread that has greenlets gets a function: when it makes one, which comes through the type, and where
// greenlets may be there already, at its next event. Whoever had a function there is called by ours.
//
// The first greenlet of a thread is the thread itself: its calls are the bare thread's. What a greenlet runs can no longer be asked for once
// it has begun, so the name of its target is taken when it is made, or when `run` is set. A greenlet is forgotten when it is dead, or
// when it is gone: then its lane is finished.
#include "client/python/core.h"

#include <frameobject.h>
#include <stddef.h>

struct known {
    PyObject_HEAD
    vectorcallfunc call;   // what the weak reference calls
    PyObject *greenlet;    // borrowed
    PyObject *weak;
    PyObject *run_name;    // of its target, where it could be told beforehand
    struct known *next;    // in the table
    sl_task_t task;
    uint32_t epoch;        // in which the lane was made
    uint32_t is_main;
    uint32_t count, room;  // tasks whose steps it was in when it was left, innermost first
    sl_task_t *inner;
};

static PyObject *settrace, *gettrace, *getcurrent;  // greenlet's own
static PyTypeObject *greenlet_type;      // its type, while we watch
static uint32_t epoch = 1;               // lanes of earlier ones are of no use: another process
static PyObject *word_dead, *word_parent, *word_run, *word_gevent_run, *word_name;

// ---- the table, by address

static struct known **table;
static size_t places, known_count;

static inline struct known **place_of(PyObject *greenlet)
{
    size_t hash = (uintptr_t)greenlet >> 4;
    struct known **place = &table[(hash ^ hash >> 16) & (places - 1)];
    while (*place && (*place)->greenlet != greenlet)
        place = &(*place)->next;
    return place;
}

static bool make_room(void)
{
    if (known_count < places)
        return true;
    size_t old_places = places;
    struct known **old = table, **larger = PyMem_RawCalloc(places ? 2 * places : 256, sizeof *table);
    if (!larger)
        return places != 0;
    table = larger;
    places = places ? 2 * places : 256;
    for (size_t i = 0; i < old_places; i++)
        for (struct known *known = old[i], *next; known; known = next) {
            next = known->next;
            known->next = NULL;
            *place_of(known->greenlet) = known;
        }
    PyMem_RawFree(old);
    return true;
}

static inline struct known *find(PyObject *greenlet)
{
    return places ? *place_of(greenlet) : NULL;
}

// Out of the table, and with its lane: it will not run again.
static void forget(struct known *known)
{
    struct known **place = place_of(known->greenlet);
    if (*place != known)
        return;
    *place = known->next;
    known_count--;
    if (known->task && known->epoch == epoch)
        sl_task_finish(known->task);
    Py_CLEAR(known->weak);  // and `known` with it
}

static PyObject *known_call(PyObject *self, PyObject *const *args, size_t count, PyObject *names)
{
    (void)args, (void)count, (void)names;
    Py_INCREF(self);
    forget((struct known *)self);
    Py_DECREF(self);
    Py_RETURN_NONE;
}

static void known_dealloc(PyObject *self)
{
    struct known *known = (struct known *)self;
    Py_XDECREF(known->run_name);
    PyMem_RawFree(known->inner);
    PyObject_Free(self);
}

static PyTypeObject known_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "scoped_lane._core.KnownGreenlet",
    .tp_basicsize = sizeof(struct known),
    .tp_dealloc = known_dealloc,
    .tp_vectorcall_offset = offsetof(struct known, call),
    .tp_call = PyVectorcall_Call,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
};

static const PyGetSetDef *dead_member;  // greenlet's own, which is asked after every switch; NULL where it is no plain member

static bool is_dead(PyObject *greenlet)
{
    PyObject *dead = sl_likely(dead_member != NULL) ? dead_member->get(greenlet, dead_member->closure) : PyObject_GetAttr(greenlet, word_dead);
    bool truth = dead == Py_True;
    if (!dead)
        PyErr_Clear();
    Py_XDECREF(dead);
    return truth;
}

// NULL: memory is short, and it goes without a lane.
static struct known *learn(PyObject *greenlet)
{
    struct known *known = make_room() ? PyObject_New(struct known, &known_type) : NULL;
    if (!known) {
        PyErr_Clear();
        return NULL;
    }
    *known = (struct known){.ob_base = known->ob_base, .call = known_call, .greenlet = greenlet};
    known->weak = PyWeakref_NewRef(greenlet, (PyObject *)known);
    Py_DECREF(known);  // the weak reference's
    if (!known->weak)
        return PyErr_Clear(), NULL;
    PyObject *parent = PyObject_GetAttr(greenlet, word_parent);
    known->is_main = parent == Py_None;
    Py_XDECREF(parent);
    PyErr_Clear();
    *place_of(greenlet) = known;
    known_count++;
    return known;
}

// ---- names

static PyObject *attribute(PyObject *object, const char *name)
{
    PyObject *found = PyObject_GetAttrString(object, name);
    if (!found)
        PyErr_Clear();
    return found;
}

// A new reference to a text, NULL where the object has none.
static PyObject *name_of_callable(PyObject *callable)
{
    static const char *const names[] = {"__qualname__", "__name__"};
    for (int i = 0; i < 2; i++) {
        PyObject *name = attribute(callable, names[i]);
        if (name && PyUnicode_Check(name))
            return name;
        Py_XDECREF(name);
    }
    PyObject *function = attribute(callable, "func"), *name = NULL;  // functools.partial
    if (function)
        name = name_of_callable(function);
    Py_XDECREF(function);
    if (name || !PyCallable_Check(callable))
        return name;
    const char *type = strrchr(Py_TYPE(callable)->tp_name, '.');
    return PyUnicode_FromString(type ? type + 1 : Py_TYPE(callable)->tp_name);
}

static PyObject *name_of_attribute(PyObject *greenlet, PyObject *attribute_name)
{
    PyObject *callable = PyObject_GetAttr(greenlet, attribute_name);
    if (!callable)
        return PyErr_Clear(), NULL;
    PyObject *name = PyCallable_Check(callable) ? name_of_callable(callable) : NULL;
    Py_DECREF(callable);
    return name;
}

// Of one that had begun before we came: the code that it is in, outermost. It is the one that runs.
static PyObject *name_of_frame(void)
{
    PyFrameObject *frame = PyEval_GetFrame();  // borrowed
    Py_XINCREF(frame);
    for (PyFrameObject *back; frame && (back = PyFrame_GetBack(frame)) != NULL;) {
        Py_DECREF(frame);
        frame = back;
    }
    if (!frame)
        return NULL;
    PyObject *code = (PyObject *)PyFrame_GetCode(frame), *name = attribute(code, "co_qualname");
    if (!name)
        name = attribute(code, "co_name");
    Py_DECREF(code);
    Py_DECREF(frame);
    return name;
}

static PyObject *target_name(struct known *known)
{
    PyObject *name = Py_TYPE(known->greenlet) != greenlet_type ? name_of_attribute(known->greenlet, word_gevent_run) : NULL;
    if (!name && known->run_name)
        name = Py_NewRef(known->run_name);
    if (!name)
        name = name_of_attribute(known->greenlet, word_run);
    return name ? name : name_of_frame();
}

static bool is_hub(PyObject *greenlet)
{
    PyObject *modules = PyImport_GetModuleDict(), *module = modules ? PyDict_GetItemString(modules, "gevent.hub") : NULL;
    PyObject *hub = module ? attribute(module, "Hub") : NULL;
    bool is_one = hub && PyType_Check(hub) && PyObject_TypeCheck(greenlet, (PyTypeObject *)hub);
    Py_XDECREF(hub);
    return is_one;
}

static PyObject *own_name(PyObject *greenlet, bool hub)
{
    PyObject *name = Py_TYPE(greenlet) != greenlet_type ? PyObject_GetAttr(greenlet, word_name) : NULL;
    PyErr_Clear();
    if (name && PyUnicode_Check(name) && PyUnicode_GET_LENGTH(name))
        return name;
    Py_XDECREF(name);
    char text[40];
    snprintf(text, sizeof text, "greenlet-%zx", (size_t)(uintptr_t)greenlet);
    return PyUnicode_FromString(hub ? "hub" : text);
}

// Where gevent has put greenlets in the place of threads: the threading.Thread that this one is. A new reference.
static PyObject *thread_within(PyObject *greenlet)
{
    PyObject *run = Py_TYPE(greenlet) != greenlet_type ? PyObject_GetAttr(greenlet, word_gevent_run) : NULL;
    PyErr_Clear();
    PyObject *thread = run ? attribute(run, "__self__") : NULL;
    Py_XDECREF(run);
    if (thread && !PyObject_HasAttrString(thread, "_bootstrap_inner"))
        Py_CLEAR(thread);
    return thread;
}

// Its name, and what it runs: new references, as far as there are any.
static void thread_names(PyObject *thread, PyObject **name, PyObject **target)
{
    PyObject *function = attribute(thread, "_target");
    *name = attribute(thread, "name");
    if (!function || function == Py_None)
        Py_XSETREF(function, attribute(thread, "run"));
    *target = function ? name_of_callable(function) : NULL;
    Py_XDECREF(function);
}

static void make_lane(struct known *known)
{
    PyObject *keep_name, *keep_target, *name = NULL, *target = NULL, *thread = thread_within(known->greenlet);
    bool hub = is_hub(known->greenlet);
    if (thread)
        thread_names(thread, &name, &target);
    Py_XDECREF(thread);
    if (!name)
        name = own_name(known->greenlet, hub);
    if (!target)
        target = target_name(known);
    core_meet();
    known->epoch = epoch;
    const char *text = core_text(name, &keep_name), *target_text = core_text(target, &keep_target);
    known->task = sl_task_create(hub ? "hub" : "greenlet", text, target_text);
    Py_XDECREF(keep_name);
    Py_XDECREF(keep_target);
    Py_XDECREF(name);
    Py_XDECREF(target);
    Py_CLEAR(known->run_name);
    PyErr_Clear();
}

// ---- switches

// An asyncio task may be in a step here: it goes out first, and comes in again with the greenlet.
static void set_aside(struct known *known, sl_task_t task)
{
    if (known->count == known->room) {
        uint32_t room = known->room ? 2 * known->room : 4;
        sl_task_t *inner = PyMem_RawRealloc(known->inner, room * sizeof *inner);
        if (!inner)
            return;
        known->inner = inner;
        known->room = room;
    }
    known->inner[known->count++] = task;
}

static inline void leave(struct known *known)
{
    sl_task_t own = known->is_main || known->epoch != epoch ? 0 : known->task;
    for (sl_task_t task; sl_unlikely((task = sl_task_current()) != own && task);) {
        sl_task_step_out(task);
        if (sl_task_current() == task)
            return;
        set_aside(known, task);
    }
    if (own && sl_task_current() == own)
        sl_task_step_out(own);
}

static inline void enter(struct known *known)
{
    if (!known->is_main) {
        if (sl_unlikely(known->epoch != epoch)) {
            make_lane(known);
            known->count = 0;
        }
        core_meet();
        sl_task_step_in(known->task);
    }
    while (sl_unlikely(known->count))
        sl_task_step_in(known->inner[--known->count]);
}

static inline struct known *known_or_new(PyObject *greenlet)
{
    struct known *known = find(greenlet);
    return sl_likely(known != NULL) ? known : learn(greenlet);
}

static void switched(PyObject *origin, PyObject *target)
{
    struct known *from = known_or_new(origin);
    if (from) {
        leave(from);
        if (!from->is_main && is_dead(origin))
            forget(from);
    }
    struct known *to = known_or_new(target);
    if (to)
        enter(to);
}

// ---- the function of a thread

struct hook {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *before;  // the application's, NULL none
};

static SL_TLS_ struct hook *own_hook;  // greenlet's to keep

static void hook_dealloc(PyObject *self)
{
    struct hook *hook = (struct hook *)self;
    if (own_hook == hook)
        own_hook = NULL;
    Py_XDECREF(hook->before);
    PyObject_Free(self);
}

// Where another function was put over ours without our knowing, ours stays below it and does nothing.
static void take_out_hook(struct hook *hook)
{
    PyObject *present = PyObject_CallNoArgs(gettrace), *before = Py_NewRef(hook->before ? hook->before : Py_None);
    own_hook = NULL;
    PyObject *result = present == (PyObject *)hook ? PyObject_CallFunctionObjArgs(settrace, before, NULL) : NULL;
    Py_XDECREF(result);
    Py_DECREF(before);
    Py_XDECREF(present);
    PyErr_Clear();
}

static PyObject *hook_call(PyObject *self, PyObject *const *args, size_t count, PyObject *names)
{
    struct hook *hook = (struct hook *)self;
    if (sl_likely(PyVectorcall_NARGS(count) == 2 && PyTuple_Check(args[1]) && PyTuple_GET_SIZE(args[1]) == 2)) {
        PyObject *origin = PyTuple_GET_ITEM(args[1], 0), *target = PyTuple_GET_ITEM(args[1], 1);
        if (sl_likely(greenlet_type && own_hook == hook)) {
            if (origin != target)
                switched(origin, target);
        } else if (own_hook == hook) {  // nobody wants us any more: this thread hears of it now
            struct known *from = find(origin);
            Py_INCREF(self);
            if (from)
                leave(from);
            take_out_hook(hook);
            Py_DECREF(self);
        }
    }
    if (sl_likely(!hook->before))
        Py_RETURN_NONE;
    Py_INCREF(self);
    PyObject *result = PyObject_Vectorcall(hook->before, args, count, names);
    if (!result && own_hook == hook) {  // greenlet takes a function out that fails; the next greenlet made here puts us in again
        struct known *present = PyVectorcall_NARGS(count) == 2 && PyTuple_Check(args[1]) ? find(PyTuple_GET_ITEM(args[1], 1)) : NULL;
        if (present)
            leave(present);
        own_hook = NULL;
    }
    Py_DECREF(self);
    return result;
}

static PyTypeObject hook_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "scoped_lane._core.GreenletTrace",
    .tp_basicsize = sizeof(struct hook),
    .tp_dealloc = hook_dealloc,
    .tp_vectorcall_offset = offsetof(struct hook, call),
    .tp_call = PyVectorcall_Call,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
};

// The greenlet that runs here already, if it is not the thread itself.
static void adopt_current(void)
{
    PyObject *current = PyObject_CallNoArgs(getcurrent);
    struct known *known = current ? known_or_new(current) : NULL;
    if (known && !known->is_main && known->epoch != epoch)
        enter(known);
    Py_XDECREF(current);
    PyErr_Clear();
}

static void put_in_hook(void)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    struct hook *hook = PyObject_New(struct hook, &hook_type);
    if (hook) {
        hook->call = hook_call;
        hook->before = NULL;
        PyObject *before = PyObject_CallFunctionObjArgs(settrace, hook, NULL);
        if (before) {
            own_hook = hook;
            hook->before = before == Py_None ? NULL : Py_NewRef(before);
            adopt_current();
        }
        Py_XDECREF(before);
        Py_DECREF(hook);
    }
    PyErr_Clear();
    PyErr_Restore(type, value, traceback);
}

static inline void meet_thread(void)
{
    if (sl_unlikely(greenlet_type && !own_hook))
        put_in_hook();
}

// ---- threads that were there before: each hears of it at its next event

static int at_next_event(PyObject *unused, PyFrameObject *frame, int what, PyObject *arg)
{
    (void)unused, (void)frame, (void)what, (void)arg;
    PyEval_SetProfile(NULL, NULL);
    meet_thread();
    return 0;
}

static void tell_threads(void)
{
    PyThreadState *self = PyThreadState_Get();
    PyThreadState *first = PyInterpreterState_ThreadHead(self->interp);
#if PY_VERSION_HEX >= 0x030c0000
    bool is_alone = true;
    for (PyThreadState *thread = first; thread; thread = PyThreadState_Next(thread)) {
        if (thread->c_profilefunc)
            return;  // all or none there: a profiler is not to be disturbed
        is_alone = is_alone && thread == self;
    }
    if (!is_alone)
        PyEval_SetProfileAllThreads(at_next_event, NULL);
#else
    for (PyThreadState *thread = first; thread; thread = PyThreadState_Next(thread))
        if (thread != self && !thread->c_profilefunc)
            _PyEval_SetProfile(thread, at_next_event, NULL);
#endif
}

// ---- the type: where greenlets are made, and where they are given what to run

static newfunc plain_new;
static initproc plain_init;
static PyObject *plain_init_method, *plain_run;

static void note_run(PyObject *greenlet, PyObject *run)
{
    struct known *known = run && run != Py_None ? known_or_new(greenlet) : NULL;
    if (!known)
        return;
    PyObject *name = name_of_callable(run), *before = known->run_name;
    known->run_name = name;
    Py_XDECREF(before);
    PyErr_Clear();
}

static PyObject *greenlet_new(PyTypeObject *type, PyObject *args, PyObject *names)
{
    meet_thread();
    return plain_new(type, args, names);
}

static int greenlet_init(PyObject *self, PyObject *args, PyObject *names)
{
    int result = plain_init(self, args, names);
    if (result == 0 && greenlet_type) {
        PyObject *run = PyTuple_GET_SIZE(args) ? PyTuple_GET_ITEM(args, 0) : names ? PyDict_GetItem(names, word_run) : NULL;
        note_run(self, run);
    }
    return result;
}

static PyObject *get_run(PyObject *self, void *unused)
{
    (void)unused;
    return Py_TYPE(plain_run)->tp_descr_get(plain_run, self, (PyObject *)Py_TYPE(self));
}

static int set_run(PyObject *self, PyObject *run, void *unused)
{
    (void)unused;
    int result = Py_TYPE(plain_run)->tp_descr_set(plain_run, self, run);
    if (result == 0 && greenlet_type)
        note_run(self, run);
    return result;
}

static PyGetSetDef run_member = {"run", get_run, set_run, NULL, NULL};

// Types made before have taken the slots over.
static void replace_slots(PyTypeObject *type, newfunc from_new, newfunc to_new, initproc from_init, initproc to_init)
{
    if (type->tp_new == from_new)
        type->tp_new = to_new;
    if (type->tp_init == from_init)
        type->tp_init = to_init;
    PyType_Modified(type);
    PyObject *subclasses = PyObject_CallMethod((PyObject *)type, "__subclasses__", NULL);
    for (Py_ssize_t i = 0; subclasses && PyList_Check(subclasses) && i < PyList_GET_SIZE(subclasses); i++)
        replace_slots((PyTypeObject *)PyList_GET_ITEM(subclasses, i), from_new, to_new, from_init, to_init);
    Py_XDECREF(subclasses);
    PyErr_Clear();
}

static int put_in_type(PyTypeObject *type)
{
    PyObject *init = PyDescr_NewWrapper(type, &core_init_base, (void *)greenlet_init), *run = PyDescr_NewGetSet(type, &run_member);
    PyObject *before_init = PyDict_GetItemString(type->tp_dict, "__init__"), *before_run = PyDict_GetItemString(type->tp_dict, "run");
    int result = -1;
    if (init && run && before_init && before_run && Py_TYPE(before_run)->tp_descr_get && Py_TYPE(before_run)->tp_descr_set) {
        Py_XDECREF(plain_init_method);
        Py_XDECREF(plain_run);
        plain_init_method = Py_NewRef(before_init);
        plain_run = Py_NewRef(before_run);
        PyObject *dead = PyDict_GetItemString(type->tp_dict, "dead");
        dead_member = dead && Py_TYPE(dead) == &PyGetSetDescr_Type ? ((PyGetSetDescrObject *)dead)->d_getset : NULL;
        plain_new = type->tp_new;
        plain_init = type->tp_init;
        result = PyDict_SetItemString(type->tp_dict, "__init__", init) < 0 || PyDict_SetItemString(type->tp_dict, "run", run) < 0 ? -1 : 0;
        replace_slots(type, plain_new, greenlet_new, plain_init, greenlet_init);
    }
    Py_XDECREF(init);
    Py_XDECREF(run);
    PyErr_Clear();
    return result;
}

static void take_out_type(PyTypeObject *type)
{
    PyDict_SetItemString(type->tp_dict, "__init__", plain_init_method);
    PyDict_SetItemString(type->tp_dict, "run", plain_run);
    replace_slots(type, greenlet_new, plain_new, greenlet_init, plain_init);
    PyErr_Clear();
}

// ---- what the package calls

static void take_out(void)
{
    PyTypeObject *type = greenlet_type;
    PyObject *current = PyObject_CallNoArgs(getcurrent);
    struct known *known = current ? find(current) : NULL;
    greenlet_type = NULL;
    take_out_type(type);
    if (own_hook) {
        if (known)
            leave(known);
        take_out_hook(own_hook);
    }
    Py_XDECREF(current);
    PyErr_Clear();
}

PyDoc_STRVAR(hook_greenlets_doc, "hook_greenlets(type, settrace, gettrace, getcurrent)\n--\n\nFrom here on every greenlet has a lane. Nothing: no more.");
static PyObject *hook_greenlets(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (count != 4) {
        if (greenlet_type)
            take_out();
        Py_RETURN_FALSE;
    }
    if (greenlet_type || !PyType_Check(args[0]) || !((PyTypeObject *)args[0])->tp_dict)
        return PyBool_FromLong(greenlet_type != NULL);
    PyObject **const functions[] = {&settrace, &gettrace, &getcurrent};
    for (int i = 0; i < 3; i++) {
        Py_XDECREF(*functions[i]);
        *functions[i] = Py_NewRef(args[1 + i]);
    }
    if (put_in_type((PyTypeObject *)args[0]) < 0)
        Py_RETURN_FALSE;
    greenlet_type = (PyTypeObject *)Py_NewRef(args[0]);  // for good: it is a part of a module that stays
    meet_thread();
    tell_threads();
    Py_RETURN_TRUE;
}

PyDoc_STRVAR(renew_greenlets_doc, "renew_greenlets()\n--\n\nIn the child of a fork: each greenlet gets a lane of this process.");
static PyObject *renew_greenlets(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    epoch++;
    if (greenlet_type && own_hook)
        adopt_current();
    Py_RETURN_NONE;
}

// settrace and gettrace as the program sees them: what it sets is called by ours.
PyDoc_STRVAR(settrace_doc, "settrace(callback) -> object\n\nSets a new tracing function and returns the previous one.");
static PyObject *program_settrace(PyObject *module, PyObject *function)
{
    (void)module;
    if (!greenlet_type || !own_hook)
        return PyObject_CallFunctionObjArgs(settrace, function, NULL);
    PyObject *before = own_hook->before;
    own_hook->before = function == Py_None ? NULL : Py_NewRef(function);
    return before ? before : Py_NewRef(Py_None);
}

PyDoc_STRVAR(gettrace_doc, "gettrace() -> object\n\nReturns the currently set tracing function, or None.");
static PyObject *program_gettrace(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    PyObject *found = PyObject_CallNoArgs(gettrace);
    if (!found || Py_TYPE(found) != &hook_type)
        return found;
    PyObject *before = ((struct hook *)found)->before, *result = Py_NewRef(before ? before : Py_None);
    Py_DECREF(found);
    return result;
}

// What is known of the greenlet that runs; NULL where that is the thread's own, or nothing is known of it.
static const struct known *running_greenlet(void)
{
    PyObject *current = greenlet_type && own_hook ? PyObject_CallNoArgs(getcurrent) : NULL;
    const struct known *known = current ? find(current) : NULL;
    Py_XDECREF(current);
    PyErr_Clear();
    return known && !known->is_main ? known : NULL;
}

bool core_runs_greenlet(void)
{
    return running_greenlet() != NULL;
}

void core_name_greenlet(PyObject *name)
{
    const struct known *known = running_greenlet();
    if (known)
        core_rename_task(known->task, name);
}

PyDoc_STRVAR(rename_greenlet_doc, "rename_greenlet(ident, name)\n--\n\nTrue where the thread of this ident is the calling greenlet.");
static PyObject *rename_greenlet(PyObject *module, PyObject *args)
{
    unsigned long ident;
    PyObject *name;
    (void)module;
    if (!PyArg_ParseTuple(args, "kU", &ident, &name))
        return NULL;
    const struct known *known = ident != PyThread_get_thread_ident() ? running_greenlet() : NULL;
    if (known)
        core_rename_task(known->task, name);
    return PyBool_FromLong(known != NULL);
}

PyDoc_STRVAR(known_greenlets_doc, "known_greenlets()\n--\n\nHow many are remembered.");
static PyObject *known_greenlets(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyLong_FromSize_t(known_count);
}

static PyMethodDef functions[] = {
    {"hook_greenlets", (PyCFunction)(void (*)(void))hook_greenlets, METH_FASTCALL, hook_greenlets_doc},
    {"renew_greenlets", renew_greenlets, METH_NOARGS, renew_greenlets_doc},
    {"greenlet_settrace", program_settrace, METH_O, settrace_doc},
    {"greenlet_gettrace", program_gettrace, METH_NOARGS, gettrace_doc},
    {"rename_greenlet", rename_greenlet, METH_VARARGS, rename_greenlet_doc},
    {"known_greenlets", known_greenlets, METH_NOARGS, known_greenlets_doc},
    {0},
};

int core_add_greenlet(PyObject *module)
{
    static const struct core_word words[] = {{&word_dead, "dead"}, {&word_parent, "parent"}, {&word_run, "run"}, {&word_gevent_run, "_run"}, {&word_name, "name"}};
    if (core_intern(words, sizeof words / sizeof *words) < 0 || PyType_Ready(&known_type) < 0 || PyType_Ready(&hook_type) < 0)
        return -1;
    return PyModule_AddFunctions(module, functions);
}
