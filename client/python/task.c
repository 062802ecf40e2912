// Asyncio tasks: a timer around the coroutine of each, and the places of asyncio.Task where it comes in.
//
// The timer is what the task runs: each send, throw and close that the loop does goes through it, so a step of the task is a
// step of its lane. It comes in where every task is made, whoever makes it (a loop's create_task, a task factory, a task group,
// another loop than asyncio's): in the type's own __init__. No loop is touched, no factory is replaced. get_coro gives the program its
// own coroutine back, set_name tells us the name. All three are put back when nobody wants tasks any more; the timers of tasks
// that live on go on.
#include "client/python/core.h"

#include <stddef.h>

struct timer {
    PyObject_HEAD
    PyObject *inner;
    PyObject *task;  // borrowed, while it is being made; NULL then
    sl_task_t lane;
    uint8_t is_made;      // the lane is there, or nobody wanted one
    uint8_t is_finished;
    uint8_t is_started;   // the coroutine has run
    uint8_t is_adopted;   // its task was in the middle of a step already
};

static PyTypeObject timer_type;

// Timers are made and dropped with every task: some are kept, linked by `inner`.
#define TIMERS_KEPT 256
static struct timer *free_timers;
static uint32_t free_timer_count;

// ---- lanes

// The qualified name, its code's name, or the type's: a new reference.
static PyObject *coroutine_name_of(PyObject *coroutine)
{
    static const char *const names[] = {"__qualname__", "__name__"}, *const codes[] = {"cr_code", "gi_code"},
                      *const code_names[] = {"co_qualname", "co_name"};
    if (PyCoro_CheckExact(coroutine) && PyUnicode_Check(((PyCoroObject *)coroutine)->cr_qualname))
        return Py_NewRef(((PyCoroObject *)coroutine)->cr_qualname);
    for (int i = 0; i < 2; i++) {
        PyObject *name = PyObject_GetAttrString(coroutine, names[i]);
        if (name && PyUnicode_Check(name) && PyUnicode_GET_LENGTH(name))
            return name;
        Py_XDECREF(name);
        PyErr_Clear();
    }
    for (int i = 0; i < 2; i++) {
        PyObject *code = PyObject_GetAttrString(coroutine, codes[i]);
        for (int j = 0; code && j < 2; j++) {
            PyObject *name = PyObject_GetAttrString(code, code_names[j]);
            if (name && PyUnicode_Check(name)) {
                Py_DECREF(code);
                return name;
            }
            Py_XDECREF(name);
            PyErr_Clear();
        }
        Py_XDECREF(code);
        PyErr_Clear();
    }
    const char *type = strrchr(Py_TYPE(coroutine)->tp_name, '.');
    return PyUnicode_FromString(type ? type + 1 : Py_TYPE(coroutine)->tp_name);
}

static void make_lane(struct timer *timer, const char *name)
{
    PyObject *keep, *coroutine = coroutine_name_of(timer->inner);
    if (sl_unlikely(!coroutine))
        PyErr_Clear();
    timer->is_made = 1;
    core_meet();
    const char *coroutine_text = core_text(coroutine, &keep);
    timer->lane = sl_task_create("task", name, coroutine_text);
    Py_XDECREF(keep);
    Py_XDECREF(coroutine);
}

static PyTypeObject *task_type;     // asyncio's own, while our functions are in it
static PyCFunction plain_get_name;  // its get_name, where that is a plain function of C

static PyObject *name_of(PyObject *task)
{
    if (sl_likely(Py_TYPE(task) == task_type && plain_get_name))
        return plain_get_name(task, NULL);
    return PyObject_CallMethod(task, "get_name", NULL);
}

// The one word of a task that holds this object; NULL where none or several do.
static PyObject **place_in(PyObject *task, PyObject *object)
{
    PyObject **words = (PyObject **)task, **found = NULL;
    size_t count = (size_t)task_type->tp_basicsize / sizeof *words;
    for (size_t i = sizeof(PyObject) / sizeof *words; i < count; i++)
        if (words[i] == object) {
            if (found)
                return NULL;
            found = &words[i];
        }
    return found;
}

// ---- the names that asyncio gives. From Python 3.12 on a task keeps the bare number until somebody asks for its name, which is then
// made and kept. Most tasks are never asked, and making it costs more than all else that a lane needs. So where the number stands is
// found out with one task, and believed only when its get_name puts "Task-" and that number into the same place.

static ptrdiff_t number_at = PY_VERSION_HEX < 0x030c0000 ? -1 : 0;  // bytes into a task; 0 not known yet, -1 it is kept another way

#define NUMBER_NAME_BYTES 32
static const char *number_name(char *buffer, long long number)
{
    char *at = buffer + NUMBER_NAME_BYTES;
    *--at = 0;
    do
        *--at = (char)('0' + number % 10);
    while (number /= 10);
    return memcpy(at - 5, "Task-", 5);
}

static int find_int(PyObject *object, void *found)
{
    if (PyLong_CheckExact(object))
        *(PyObject **)found = object;
    return 0;
}

// The task's name, as name_of() gives it.
static PyObject *find_number(PyObject *task)
{
    PyObject *number = NULL;
    if (Py_TYPE(task) == task_type && task_type->tp_traverse)
        task_type->tp_traverse(task, find_int, &number);
    PyObject **place = number ? place_in(task, number) : NULL;
    long long value = place ? PyLong_AsLongLong(number) : -1;
    PyErr_Clear();
    PyObject *name = name_of(task);
    char buffer[NUMBER_NAME_BYTES];
    if (place && value >= 0)
        number_at = name && *place == name && PyUnicode_CompareWithASCIIString(name, number_name(buffer, value)) == 0
                        ? (char *)place - (char *)task
                        : -1;
    return name;
}

// The task's number, where it has no other name yet; else -1.
static inline long long number_of(PyObject *task)
{
    if (number_at <= 0 || Py_TYPE(task) != task_type)
        return -1;
    PyObject *kept = *(PyObject **)(void *)((char *)task + number_at);
    int overflow;
    return PyLong_CheckExact(kept) ? PyLong_AsLongLongAndOverflow(kept, &overflow) : -1;
}

static void make_lane_of_task(struct timer *timer)
{
    char buffer[NUMBER_NAME_BYTES];
    long long number = number_of(timer->task);
    if (sl_likely(number >= 0)) {
        make_lane(timer, number_name(buffer, number));
        return;
    }
    PyObject *keep, *name = number_at ? name_of(timer->task) : find_number(timer->task);
    if (sl_unlikely(!name))
        PyErr_Clear();
    make_lane(timer, core_text(name, &keep));
    Py_XDECREF(keep);
    Py_XDECREF(name);
}

// Its first step comes before the task is quite made (eager factories).
static __attribute__((noinline)) void make_lane_of_eager_task(struct timer *timer)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    make_lane_of_task(timer);
    PyErr_Restore(type, value, traceback);
}

static inline void step_in(struct timer *timer)
{
    if (sl_unlikely(!timer->is_made && timer->task))
        make_lane_of_eager_task(timer);
    if (sl_unlikely(timer->is_adopted)) {
        timer->is_adopted = 0;
        sl_task_step_out(timer->lane);
    }
    core_meet();
    timer->is_started = 1;
    sl_task_step_in(timer->lane);
}

static void finish(struct timer *timer)
{
    if (timer->is_finished)
        return;
    timer->is_finished = 1;
    sl_task_finish(timer->lane);
}

// While the lane is current: what generators still hold ends with the task.
static inline void step_out(struct timer *timer, bool is_last)
{
    if (sl_unlikely(is_last && core_held && timer->lane))
        core_release_held(timer->lane);
    sl_task_step_out(timer->lane);
    if (is_last)
        finish(timer);
}

// ---- the timer

static PyObject *timer_new(PyObject *coroutine, PyObject *task)
{
    struct timer *timer = free_timers;
    if (sl_likely(timer != NULL)) {
        free_timers = (struct timer *)timer->inner;
        free_timer_count--;
        PyObject_Init((PyObject *)timer, &timer_type);
    } else {
        timer = PyObject_GC_New(struct timer, &timer_type);
    }
    if (!timer)
        return NULL;
    timer->inner = Py_NewRef(coroutine);
    timer->task = task;
    timer->lane = 0;
    timer->is_made = timer->is_finished = timer->is_started = timer->is_adopted = 0;
    PyObject_GC_Track((PyObject *)timer);
    return (PyObject *)timer;
}

// The coroutine may run on when it is dropped (finally), and then on its own lane.
static void drop(struct timer *timer)
{
    PyObject *inner = timer->inner, *type, *value, *traceback;
    if (!inner)
        return;
    timer->inner = NULL;
    if (timer->is_finished || !timer->is_started) {
        Py_DECREF(inner);
        finish(timer);
        return;
    }
    PyErr_Fetch(&type, &value, &traceback);
    step_in(timer);
    Py_DECREF(inner);
    step_out(timer, true);
    PyErr_Restore(type, value, traceback);
}

static int timer_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(((struct timer *)self)->inner);
    return 0;
}

static int timer_clear(PyObject *self)
{
    drop((struct timer *)self);
    return 0;
}

static void timer_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    struct timer *timer = (struct timer *)self;
    drop(timer);
    if (free_timer_count == TIMERS_KEPT) {
        PyObject_GC_Del(self);
        return;
    }
    timer->inner = (PyObject *)free_timers;
    free_timers = timer;
    free_timer_count++;
}

static PyObject *gone(void)
{
    PyErr_SetString(PyExc_RuntimeError, "cannot reuse already awaited coroutine");
    return NULL;
}

#if PY_VERSION_HEX >= 0x030a0000
static PySendResult timer_am_send(PyObject *self, PyObject *value, PyObject **result)
{
    struct timer *timer = (struct timer *)self;
    if (sl_unlikely(!timer->inner)) {
        *result = gone();
        return PYGEN_ERROR;
    }
    step_in(timer);
    PySendResult status = PyIter_Send(timer->inner, value, result);
    step_out(timer, status != PYGEN_NEXT);
    return status;
}

static PyObject *timer_send(PyObject *self, PyObject *value)
{
    PyObject *result;
    PySendResult status = timer_am_send(self, value, &result);
    if (status == PYGEN_NEXT)
        return result;
    if (status == PYGEN_RETURN) {
        PyObject *stop = PyObject_CallFunctionObjArgs(PyExc_StopIteration, result, NULL);
        if (stop)
            PyErr_SetObject(PyExc_StopIteration, stop);
        Py_XDECREF(stop);
        Py_DECREF(result);
    }
    return NULL;
}
#else
static PyObject *timer_send(PyObject *self, PyObject *value)
{
    struct timer *timer = (struct timer *)self;
    if (!timer->inner)
        return gone();
    step_in(timer);
    PyObject *result = PyCoro_CheckExact(timer->inner) || PyGen_CheckExact(timer->inner)
                           ? _PyGen_Send((PyGenObject *)timer->inner, value)
                           : PyObject_CallMethod(timer->inner, "send", "O", value);
    step_out(timer, !result);
    return result;
}
#endif

static PyObject *timer_next(PyObject *self)
{
    return timer_send(self, Py_None);
}

static PyObject *call_method(PyObject *object, const char *name, PyObject *const *args, Py_ssize_t count)
{
    PyObject *method = PyObject_GetAttrString(object, name);
    PyObject *result = method ? PyObject_Vectorcall(method, args, (size_t)count, NULL) : NULL;
    Py_XDECREF(method);
    return result;
}

static PyObject *timer_throw(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    struct timer *timer = (struct timer *)self;
    if (!timer->inner)
        return gone();
    if (!timer->is_started) {  // cancelled before its first step: nothing of it runs
        PyObject *result = call_method(timer->inner, "throw", args, count);
        finish(timer);
        return result;
    }
    step_in(timer);
    PyObject *result = call_method(timer->inner, "throw", args, count);
    step_out(timer, !result);
    return result;
}

static PyObject *timer_close(PyObject *self, PyObject *unused)
{
    struct timer *timer = (struct timer *)self;
    (void)unused;
    if (!timer->inner)
        Py_RETURN_NONE;
    if (!timer->is_started) {
        finish(timer);
        return call_method(timer->inner, "close", NULL, 0);
    }
    step_in(timer);
    PyObject *result = call_method(timer->inner, "close", NULL, 0);
    step_out(timer, result != NULL);
    return result;
}

static PyObject *timer_itself(PyObject *self)
{
    return Py_NewRef(self);
}

// cr_frame, cr_code, cr_await, __qualname__, …: the coroutine's.
static PyObject *timer_getattr(PyObject *self, PyObject *name)
{
    PyObject *found = PyObject_GenericGetAttr(self, name), *inner = ((struct timer *)self)->inner;
    if (found || !inner || !PyErr_ExceptionMatches(PyExc_AttributeError))
        return found;
    PyErr_Clear();
    return PyObject_GetAttr(inner, name);
}

static PyObject *timer_name(PyObject *self, void *name)
{
    PyObject *inner = ((struct timer *)self)->inner;
    if (inner)
        return PyObject_GetAttrString(inner, name);
    PyErr_SetString(PyExc_AttributeError, name);
    return NULL;
}

static PyObject *timer_repr(PyObject *self)
{
    PyObject *inner = ((struct timer *)self)->inner;
    return inner ? PyObject_Repr(inner) : PyUnicode_FromString("<coroutine>");
}

static PyMethodDef timer_methods[] = {
    {"send", timer_send, METH_O, "A step with a value."},
    {"throw", (PyCFunction)(void (*)(void))timer_throw, METH_FASTCALL, "A step with an exception."},
    {"close", timer_close, METH_NOARGS, "The last step."},
    {0},
};

static PyGetSetDef timer_members[] = {
    {"__name__", timer_name, NULL, NULL, "__name__"},
    {"__qualname__", timer_name, NULL, NULL, "__qualname__"},
    {0},
};

static PyAsyncMethods timer_async = {
    .am_await = timer_itself,
#if PY_VERSION_HEX >= 0x030a0000
    .am_send = timer_am_send,
#endif
};

static PyTypeObject timer_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "scoped_lane._core.StepTimer",
    .tp_basicsize = sizeof(struct timer),
    .tp_dealloc = timer_dealloc,
    .tp_traverse = timer_traverse,
    .tp_clear = timer_clear,
    .tp_as_async = &timer_async,
    .tp_iter = timer_itself,
    .tp_iternext = timer_next,
    .tp_getattro = timer_getattr,
    .tp_repr = timer_repr,
    .tp_methods = timer_methods,
    .tp_getset = timer_members,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC
#ifdef Py_TPFLAGS_HAVE_AM_SEND
                | Py_TPFLAGS_HAVE_AM_SEND
#endif
    ,
};

// ---- asyncio.Task

static initproc plain_init;      // what was there before; kept, for subclasses made meanwhile go on with ours
static PyObject *plain_init_method, *plain_get_coro, *plain_set_name;
static unsigned long long made, escaped;

// What asyncio itself takes for a coroutine. Its answer for a type does not change.
static bool is_coroutine(PyObject *object)
{
    static PyTypeObject *known;  // the latest type, other than the interpreter's own, that is one
    if (PyCoro_CheckExact(object) || Py_TYPE(object) == known)
        return true;
    if (Py_TYPE(object) == &timer_type)
        return false;
    PyObject *module = PyImport_ImportModule("asyncio.coroutines");
    PyObject *answer = module ? PyObject_CallMethod(module, "iscoroutine", "O", object) : NULL;
    bool is_one = answer && PyObject_IsTrue(answer) == 1;
    if (is_one) {
        Py_XDECREF((PyObject *)known);
        known = (PyTypeObject *)Py_NewRef((PyObject *)Py_TYPE(object));
    }
    Py_XDECREF(answer);
    Py_XDECREF(module);
    PyErr_Clear();
    return is_one;
}

// A task's first argument, wherever it stands: borrowed.
static PyObject *coroutine_argument(PyObject *args, PyObject *names)
{
    if (PyTuple_GET_SIZE(args) > 0)
        return PyTuple_GET_ITEM(args, 0);
    return names ? PyDict_GetItemString(names, "coro") : NULL;
}

static int init_timed(PyObject *self, PyObject *args, PyObject *names, PyObject *coroutine, PyObject *timer)
{
    int result;
    if (PyTuple_GET_SIZE(args) == 0) {
        PyObject *copy = PyDict_Copy(names);
        result = copy && PyDict_SetItemString(copy, "coro", timer) == 0 ? plain_init(self, args, copy) : -1;
        Py_XDECREF(copy);
    } else if (Py_REFCNT(args) == 1) {  // nobody else sees it
        PyTuple_SET_ITEM(args, 0, timer);
        result = plain_init(self, args, names);
        PyTuple_SET_ITEM(args, 0, coroutine);
    } else {
        PyObject *copy = PyTuple_GetSlice(args, 0, PyTuple_GET_SIZE(args));
        if (!copy)
            return -1;
        if (Py_REFCNT(copy) != 1) {  // a whole slice is the tuple itself
            Py_ssize_t count = PyTuple_GET_SIZE(args);
            Py_DECREF(copy);
            copy = PyTuple_New(count);
            for (Py_ssize_t i = 0; copy && i < count; i++)
                PyTuple_SET_ITEM(copy, i, Py_NewRef(PyTuple_GET_ITEM(args, i)));
            if (!copy)
                return -1;
        }
        Py_DECREF(PyTuple_GET_ITEM(copy, 0));
        PyTuple_SET_ITEM(copy, 0, Py_NewRef(timer));
        result = plain_init(self, copy, names);
        Py_DECREF(copy);
    }
    return result;
}

static int task_init(PyObject *self, PyObject *args, PyObject *names)
{
    PyObject *coroutine = task_type ? coroutine_argument(args, names) : NULL;
    PyObject *timer = coroutine && is_coroutine(coroutine) ? timer_new(coroutine, self) : NULL;
    if (!timer) {
        PyErr_Clear();
        return plain_init(self, args, names);
    }
    int result = init_timed(self, args, names, coroutine, timer);
    if (result == 0) {
        made++;
        if (!((struct timer *)timer)->is_made)
            make_lane_of_task((struct timer *)timer);
    }
    ((struct timer *)timer)->task = NULL;
    Py_DECREF(timer);
    return result;
}

// The timer that a task runs; borrowed, for the task has it. NULL: it has none.
static struct timer *timer_of(PyObject *task)
{
    PyObject *coroutine = PyObject_GetAttrString(task, "_coro");
    if (!coroutine) {
        PyErr_Clear();
        return NULL;
    }
    Py_DECREF(coroutine);
    return Py_TYPE(coroutine) == &timer_type ? (struct timer *)coroutine : NULL;
}

static PyObject *task_get_coro(PyObject *self, PyObject *unused)
{
    (void)unused;
    PyObject *coroutine = PyObject_CallFunctionObjArgs(plain_get_coro, self, NULL);
    if (coroutine && Py_TYPE(coroutine) == &timer_type && ((struct timer *)coroutine)->inner) {
        PyObject *inner = Py_NewRef(((struct timer *)coroutine)->inner);
        Py_DECREF(coroutine);
        return inner;
    }
    return coroutine;
}

void core_rename_task(sl_task_t task, PyObject *name)
{
    PyObject *keep;
    sl_task_rename(task, core_text(name, &keep));
    Py_XDECREF(keep);
}

static void tell_name(struct timer *timer, PyObject *task)
{
    PyObject *name = name_of(task);
    if (name)
        core_rename_task(timer->lane, name);
    PyErr_Clear();
    Py_XDECREF(name);
}

static PyObject *task_set_name(PyObject *self, PyObject *name)
{
    PyObject *result = PyObject_CallFunctionObjArgs(plain_set_name, self, name, NULL);
    struct timer *timer = result ? timer_of(self) : NULL;
    if (timer && timer->lane)
        tell_name(timer, self);
    return result;
}

static PyMethodDef get_coro_method = {"get_coro", task_get_coro, METH_NOARGS, NULL};
static PyMethodDef set_name_method = {"set_name", task_set_name, METH_O, NULL};

// Types that took the slot over when they were made.
static void replace_init(PyTypeObject *type, initproc from, initproc to)
{
    if (type->tp_init != from)
        return;
    type->tp_init = to;
    PyType_Modified(type);
    PyObject *subclasses = PyObject_CallMethod((PyObject *)type, "__subclasses__", NULL);
    for (Py_ssize_t i = 0; subclasses && PyList_Check(subclasses) && i < PyList_GET_SIZE(subclasses); i++)
        replace_init((PyTypeObject *)PyList_GET_ITEM(subclasses, i), from, to);
    Py_XDECREF(subclasses);
    PyErr_Clear();
}

static int put(PyTypeObject *type, const char *name, PyObject *object, PyObject **before)
{
    PyObject *present = PyDict_GetItemString(type->tp_dict, name);
    if (!object || !present)
        return -1;
    if (before)
        *before = Py_NewRef(present);
    return PyDict_SetItemString(type->tp_dict, name, object);
}

static void take_out(void)
{
    PyTypeObject *type = task_type;
    task_type = NULL;
    replace_init(type, task_init, plain_init);
    if (plain_init_method)
        put(type, "__init__", plain_init_method, NULL);
    if (plain_get_coro)
        put(type, "get_coro", plain_get_coro, NULL);
    if (plain_set_name)
        put(type, "set_name", plain_set_name, NULL);
    PyType_Modified(type);
}

static void find_get_name(PyTypeObject *type)
{
    PyObject *method = PyDict_GetItemString(type->tp_dict, "get_name");
    bool is_plain = method && Py_TYPE(method) == &PyMethodDescr_Type && ((PyMethodDescrObject *)method)->d_method->ml_flags == METH_NOARGS;
    plain_get_name = is_plain ? ((PyMethodDescrObject *)method)->d_method->ml_meth : NULL;
}

static int put_in(PyTypeObject *type)
{
    PyObject *init = PyDescr_NewWrapper(type, &core_init_base, (void *)task_init);
    PyObject *get_coro = PyDescr_NewMethod(type, &get_coro_method), *set_name = PyDescr_NewMethod(type, &set_name_method);
    Py_CLEAR(plain_init_method);
    Py_CLEAR(plain_get_coro);
    Py_CLEAR(plain_set_name);
    plain_init = type->tp_init;
    task_type = type;
    find_get_name(type);
    int result = put(type, "__init__", init, &plain_init_method) < 0 || put(type, "get_coro", get_coro, &plain_get_coro) < 0 ||
                         put(type, "set_name", set_name, &plain_set_name) < 0
                     ? -1
                     : 0;
    Py_XDECREF(init);
    Py_XDECREF(get_coro);
    Py_XDECREF(set_name);
    replace_init(type, plain_init, task_init);
    PyType_Modified(type);
    if (result < 0) {
        PyErr_Clear();
        take_out();
    }
    return result;
}

// A task that is there already: its coroutine is taken out of the task and put back inside a timer. Where the member that holds it cannot
// be found for certain the task is left alone and counted.
PyDoc_STRVAR(adopt_task_doc, "adopt_task(task, is_running)\n--\n\nGives a task that is there already a lane. True when it has one.");
static PyObject *adopt_task(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (count != 2 || !task_type || !PyObject_TypeCheck(args[0], task_type))
        Py_RETURN_FALSE;
    PyObject *coroutine = PyObject_GetAttrString(args[0], "_coro");
    if (!coroutine || !is_coroutine(coroutine)) {
        bool has_one = coroutine && Py_TYPE(coroutine) == &timer_type;
        PyErr_Clear();
        Py_XDECREF(coroutine);
        return PyBool_FromLong(has_one);
    }
    PyObject **place = place_in(args[0], coroutine);
    struct timer *timer = place ? (struct timer *)timer_new(coroutine, args[0]) : NULL;
    Py_DECREF(coroutine);
    if (!timer) {
        PyErr_Clear();
        escaped++;
        Py_RETURN_FALSE;
    }
    make_lane_of_task(timer);
    timer->task = NULL;
    timer->is_started = 1;
    *place = (PyObject *)timer;
    Py_DECREF(coroutine);  // the task's; the timer has one of its own
    if (PyObject_IsTrue(args[1]) == 1) {
        sl_task_step_in(timer->lane);
        timer->is_adopted = 1;
    }
    Py_RETURN_TRUE;
}

PyDoc_STRVAR(end_adopted_doc, "end_adopted_step(task)\n--\n\nThe step that an adopted task was in has ended.");
static PyObject *end_adopted_step(PyObject *module, PyObject *task)
{
    (void)module;
    struct timer *timer = timer_of(task);
    if (timer && timer->is_adopted) {
        timer->is_adopted = 0;
        sl_task_step_out(timer->lane);
        PyObject *done = PyObject_CallMethod(task, "done", NULL);
        if (done == Py_True)
            finish(timer);
        Py_XDECREF(done);
        PyErr_Clear();
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(hook_tasks_doc, "hook_tasks(type)\n--\n\nFrom here on every task of this type has a lane. None: no more.");
static PyObject *hook_tasks(PyObject *module, PyObject *type)
{
    (void)module;
    if (task_type && (PyObject *)task_type != type)
        take_out();
    if (type == Py_None)
        Py_RETURN_TRUE;
    bool is_native = PyType_Check(type) && ((PyTypeObject *)type)->tp_dict && strcmp(((PyTypeObject *)type)->tp_name, "_asyncio.Task") == 0;
    if (is_native && !task_type && put_in((PyTypeObject *)type) < 0)
        is_native = false;
    return PyBool_FromLong(is_native);
}

PyDoc_STRVAR(time_coroutine_doc, "time_coroutine(coroutine, name)\n--\n\nA coroutine that runs this one on a lane of its own.");
static PyObject *time_coroutine(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "time_coroutine() takes a coroutine and a name");
        return NULL;
    }
    PyObject *keep, *timer = timer_new(args[0], NULL);
    if (timer) {
        made++;
        make_lane((struct timer *)timer, core_text(args[1], &keep));
        Py_XDECREF(keep);
    }
    return timer;
}

PyDoc_STRVAR(rename_doc, "rename(timer, name)\n--\n\nThe lane's new name.");
static PyObject *rename_timer(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (count == 2 && Py_TYPE(args[0]) == &timer_type)
        core_rename_task(((struct timer *)args[0])->lane, args[1]);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(coroutine_name_doc, "coroutine_name(coroutine)\n--\n\nThe best name there is for it.");
static PyObject *coroutine_name(PyObject *module, PyObject *coroutine)
{
    (void)module;
    return coroutine_name_of(coroutine);
}

PyDoc_STRVAR(inner_doc, "inner(timer)\n--\n\nThe coroutine that a timer runs; anything else as it is.");
static PyObject *inner(PyObject *module, PyObject *object)
{
    (void)module;
    if (Py_TYPE(object) == &timer_type && ((struct timer *)object)->inner)
        return Py_NewRef(((struct timer *)object)->inner);
    return Py_NewRef(object);
}

PyDoc_STRVAR(current_task_doc, "current_task()\n--\n\nThe library's handle of the task whose step this is, 0 outside.");
static PyObject *current_task(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyLong_FromUnsignedLongLong(sl_task_current());
}

PyDoc_STRVAR(task_counts_doc, "task_counts()\n--\n\nHow many tasks were given a lane, and how many could not be.");
static PyObject *task_counts(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return Py_BuildValue("KK", made, escaped);
}

static PyMethodDef functions[] = {
    {"hook_tasks", hook_tasks, METH_O, hook_tasks_doc},
    {"adopt_task", (PyCFunction)(void (*)(void))adopt_task, METH_FASTCALL, adopt_task_doc},
    {"end_adopted_step", end_adopted_step, METH_O, end_adopted_doc},
    {"time_coroutine", (PyCFunction)(void (*)(void))time_coroutine, METH_FASTCALL, time_coroutine_doc},
    {"rename", (PyCFunction)(void (*)(void))rename_timer, METH_FASTCALL, rename_doc},
    {"coroutine_name", coroutine_name, METH_O, coroutine_name_doc},
    {"inner", inner, METH_O, inner_doc},
    {"current_task", current_task, METH_NOARGS, current_task_doc},
    {"task_counts", task_counts, METH_NOARGS, task_counts_doc},
    {0},
};

int core_add_task(PyObject *module)
{
    if (PyType_Ready(&timer_type) < 0)
        return -1;
    Py_INCREF(&timer_type);
    if (PyModule_AddObject(module, "StepTimer", (PyObject *)&timer_type) < 0)
        return -1;
    return PyModule_AddFunctions(module, functions);
}
