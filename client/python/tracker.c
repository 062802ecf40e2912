// Trackers: the library's, as an object that gives tuples and columns. What is made of them is scoped_lane/concurrency.py's affair.
#include "client/python/core.h"

struct tracker {
    PyObject_HEAD
    sl_tracker_t tracker;
};

static PyObject *text(const char *bytes)
{
    return PyUnicode_DecodeUTF8(bytes, (Py_ssize_t)strlen(bytes), "replace");
}

static PyObject *thread_tuple(const struct sl_thread_record *row)
{
    return Py_BuildValue("(LLLNLLLLL)", row->index, row->ident, row->native_id, text(row->name), row->daemon, row->start_ns,
                         row->end_ns, row->cpu_ns, row->task_index);
}

static PyObject *task_tuple(const struct sl_task_record *row)
{
    return Py_BuildValue("(LNNNLLLLLLLLL)", row->index, text(row->kind), text(row->name), text(row->coro_name), row->thread_index,
                         row->created_ns, row->done_ns, row->steps, row->running_ns, row->suspended_ns, row->step_started_ns,
                         row->last_step_end_ns, row->is_running);
}

static sl_tracker_t tracker_of(PyObject *self)
{
    return ((struct tracker *)self)->tracker;
}

static PyObject *tracker_install(PyObject *self, PyObject *unused)
{
    (void)unused;
    sl_tracker_install(tracker_of(self));
    Py_RETURN_NONE;
}

static PyObject *tracker_uninstall(PyObject *self, PyObject *unused)
{
    (void)unused;
    sl_tracker_uninstall(tracker_of(self));
    Py_RETURN_NONE;
}

static PyObject *tracker_is_installed(PyObject *self, PyObject *unused)
{
    (void)unused;
    return PyBool_FromLong(sl_tracker_is_installed(tracker_of(self)));
}

static PyObject *tracker_current_thread(PyObject *self, PyObject *unused)
{
    (void)unused;
    int64_t index = sl_tracker_current_thread(tracker_of(self));
    if (index < 0)
        return PyErr_NoMemory();
    if (core_told != core_epoch)
        core_tell_thread();
    return PyLong_FromLongLong(index);
}

static PyObject *tracker_task_index(PyObject *self, PyObject *task)
{
    unsigned long long handle = PyLong_AsUnsignedLongLong(task);
    if (PyErr_Occurred())
        return NULL;
    return PyLong_FromLongLong(sl_tracker_task_index(tracker_of(self), handle));
}

static PyObject *tracker_thread(PyObject *self, PyObject *number)
{
    long long index = PyLong_AsLongLong(number);
    if (PyErr_Occurred())
        return NULL;
    struct sl_thread_record *row = sl_tracker_thread(tracker_of(self), index);
    PyObject *result = row ? thread_tuple(row) : Py_NewRef(Py_None);
    free(row);
    return result;
}

static PyObject *tracker_task(PyObject *self, PyObject *number)
{
    long long index = PyLong_AsLongLong(number);
    if (PyErr_Occurred())
        return NULL;
    struct sl_task_record *row = sl_tracker_task(tracker_of(self), index);
    PyObject *result = row ? task_tuple(row) : Py_NewRef(Py_None);
    free(row);
    return result;
}

// How many threads and tasks it knows.
static PyObject *tracker_counts(PyObject *self, PyObject *unused)
{
    (void)unused;
    size_t threads, tasks;
    free(sl_tracker_threads(tracker_of(self), &threads));
    free(sl_tracker_tasks(tracker_of(self), &tasks));
    return Py_BuildValue("(nn)", (Py_ssize_t)threads, (Py_ssize_t)tasks);
}

static PyObject *texts(const char **items, size_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list && i < count; i++) {
        PyObject *item = text(items[i]);
        if (!item)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)i, item);
    }
    return list;
}

static PyObject *numbers(const int64_t *items, size_t count)
{
    return PyBytes_FromStringAndSize((const char *)items, (Py_ssize_t)(count * sizeof *items));
}

static PyObject *tracker_snapshot(PyObject *self, PyObject *origin)
{
    long long origin_ns = PyLong_AsLongLong(origin);
    if (PyErr_Occurred())
        return NULL;
    struct sl_snapshot *snapshot = sl_tracker_snapshot(tracker_of(self), origin_ns);
    if (!snapshot)
        return PyErr_NoMemory();
    const struct sl_thread_columns *t = &snapshot->threads;
    const struct sl_task_columns *k = &snapshot->tasks;
    PyObject *result = Py_BuildValue(
        "{s{sNsNsNsNsNsNsNsN}s{sNsNsNsNsNsNsNsNsNsN}}", "threads", "index", numbers(t->index, t->count), "ident",
        numbers(t->ident, t->count), "native_id", numbers(t->native_id, t->count), "name", texts(t->name, t->count), "daemon",
        PyBytes_FromStringAndSize((const char *)t->daemon, (Py_ssize_t)t->count), "start_ns", numbers(t->start_ns, t->count),
        "end_ns", numbers(t->end_ns, t->count), "cpu_ns", numbers(t->cpu_ns, t->count), "tasks", "index",
        numbers(k->index, k->count), "kind", texts(k->kind, k->count), "name", texts(k->name, k->count), "coro_name",
        texts(k->coro_name, k->count), "thread_index", numbers(k->thread_index, k->count), "created_ns",
        numbers(k->created_ns, k->count), "done_ns", numbers(k->done_ns, k->count), "steps", numbers(k->steps, k->count),
        "running_ns", numbers(k->running_ns, k->count), "suspended_ns", numbers(k->suspended_ns, k->count));
    free(snapshot);
    return result;
}

static PyMethodDef methods[] = {
    {"install", tracker_install, METH_NOARGS, NULL},
    {"uninstall", tracker_uninstall, METH_NOARGS, NULL},
    {"is_installed", tracker_is_installed, METH_NOARGS, NULL},
    {"current_thread", tracker_current_thread, METH_NOARGS, "Index of the calling thread."},
    {"task_index", tracker_task_index, METH_O, "Index of a task by its handle, -1."},
    {"thread", tracker_thread, METH_O, "A row by its index."},
    {"task", tracker_task, METH_O, "A row by its index."},
    {"counts", tracker_counts, METH_NOARGS, "(threads, tasks)"},
    {"snapshot", tracker_snapshot, METH_O, "Columns; numbers as bytes."},
    {0},
};

static PyObject *tracker_new(PyTypeObject *type, PyObject *args, PyObject *names)
{
    (void)args, (void)names;
    struct tracker *self = (struct tracker *)type->tp_alloc(type, 0);
    if (!self)
        return NULL;
    self->tracker = sl_tracker_create();
    if (self->tracker)
        return (PyObject *)self;
    Py_DECREF(self);
    return PyErr_NoMemory();
}

static void tracker_dealloc(PyObject *self)
{
    sl_tracker_destroy(tracker_of(self));
    Py_TYPE(self)->tp_free(self);
}

static PyTypeObject tracker_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "scoped_lane._core.Tracker",
    .tp_basicsize = sizeof(struct tracker),
    .tp_dealloc = tracker_dealloc,
    .tp_methods = methods,
    .tp_new = tracker_new,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

int core_add_tracker(PyObject *module)
{
    if (PyType_Ready(&tracker_type) < 0)
        return -1;
    Py_INCREF(&tracker_type);
    return PyModule_AddObject(module, "Tracker", (PyObject *)&tracker_type);
}
