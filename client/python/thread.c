// Threads: what Python knows of them and the library does not. A thread is told of at its first bytecode (the hook that
// scoped_lane.hooks puts into threading), else at its first call. It ends when its thread state is cleared, on itself, which is before
// join() returns.
#include "client/python/core.h"

#include <unistd.h>

SL_TLS_ uint32_t core_told;
uint32_t core_epoch = 1;

static PyObject *word_name, *word_daemon, *word_own_name, *word_own_daemon, *word_threading, *word_active, *word_sentinel;

int core_intern(const struct core_word *words, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!(*words[i].word = PyUnicode_InternFromString(words[i].text)))
            return -1;
    return 0;
}

const char *core_text_slow(PyObject *text, PyObject **keep)
{
    if (!text || !PyUnicode_Check(text))
        return "";
    const char *bytes = PyUnicode_AsUTF8(text);
    if (bytes)
        return bytes;
    PyErr_Clear();
    *keep = PyUnicode_AsEncodedString(text, "utf-8", "replace");  // half a surrogate pair
    if (*keep)
        return PyBytes_AS_STRING(*keep);
    PyErr_Clear();
    return "";
}

// ---- what a thread's object says

static PyObject *name_property, *daemon_property;  // threading.Thread's

// The properties of threading.Thread are functions in Python that give what a member holds. Where the thread has this very property,
// the member is read straight away. A new reference, NULL where there is none.
static PyObject *property_of(PyObject *thread, PyObject *word, PyObject *property, PyObject *member)
{
    PyObject *present = property ? PyObject_GetAttr((PyObject *)Py_TYPE(thread), word) : NULL;
    PyObject *value = present == property && property ? PyObject_GetAttr(thread, member) : NULL;
    Py_XDECREF(present);
    PyErr_Clear();
    if (!value)
        value = PyObject_GetAttr(thread, word);
    PyErr_Clear();
    return value;
}

static PyObject *name_of(PyObject *thread)
{
    return property_of(thread, word_name, name_property, word_own_name);
}

PyDoc_STRVAR(know_properties_doc, "know_properties(name, daemon)\n--\n\nThe properties that give _name and _daemonic.");
static PyObject *know_properties(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (count == 2) {
        Py_XSETREF(name_property, Py_NewRef(args[0]));
        Py_XSETREF(daemon_property, Py_NewRef(args[1]));
    }
    Py_RETURN_NONE;
}

// ---- the end: an object in the thread state's dictionary

struct sentinel {
    PyObject_HEAD
    PyObject *thread, *told;  // the name as it was told
};

static void tell_name(PyObject *name)
{
    PyObject *keep;
    sl_thread_name(core_text(name, &keep));
    Py_XDECREF(keep);
}

// On the thread itself, whose last name counts, whoever gave it.
static void sentinel_dealloc(PyObject *object)
{
    struct sentinel *self = (struct sentinel *)object;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *name = self->thread ? name_of(self->thread) : NULL;
    if (name && name != self->told)
        tell_name(name);
    Py_XDECREF(name);
    Py_XDECREF(self->thread);
    Py_XDECREF(self->told);
    sl_thread_ended_();
    core_told = 0;
    PyErr_Restore(type, value, traceback);
    PyObject_Free(self);
}

static PyTypeObject sentinel_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "scoped_lane._core.ThreadEnd",
    .tp_basicsize = sizeof(struct sentinel),
    .tp_dealloc = sentinel_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

// The interpreter's first thread lives as long as the process, and its state is cleared before its last calls.
static void watch_end(PyObject *thread, PyObject *told)
{
    PyObject *dict = PyThreadState_Get()->id != 1 ? PyThreadState_GetDict() : NULL;  // borrowed
    if (!dict || PyDict_GetItemWithError(dict, word_sentinel))
        return;
    struct sentinel *sentinel = PyObject_New(struct sentinel, &sentinel_type);
    if (!sentinel)
        return;
    Py_XINCREF(thread);
    Py_XINCREF(told);
    sentinel->thread = thread;
    sentinel->told = told;
    PyDict_SetItem(dict, word_sentinel, (PyObject *)sentinel);
    Py_DECREF(sentinel);
}

// ---- names

// The calling thread's object, new; NULL for one that the threading module does not know: asking it would make one up.
static PyObject *own_thread(void)
{
    PyObject *modules = PyImport_GetModuleDict(), *threading = modules ? PyDict_GetItemWithError(modules, word_threading) : NULL;
    PyObject *active = threading ? PyObject_GetAttr(threading, word_active) : NULL, *thread = NULL;
    PyObject *ident = active && PyDict_Check(active) ? PyLong_FromUnsignedLong(PyThread_get_thread_ident()) : NULL;
    if (ident) {
        thread = PyDict_GetItemWithError(active, ident);
        Py_XINCREF(thread);
    }
    if (!thread && threading && PyThread_get_thread_native_id() == (unsigned long)getpid()) {
        PyErr_Clear();
        thread = PyObject_GetAttrString(threading, "_main_thread");  // gevent enters it under a number of its own
    }
    Py_XDECREF(ident);
    Py_XDECREF(active);
    return thread;
}

static void tell(PyObject *thread)
{
    PyObject *keep, *name = name_of(thread), *daemon = property_of(thread, word_daemon, daemon_property, word_own_daemon);
    bool is_daemon = daemon && PyObject_IsTrue(daemon) == 1;
    PyErr_Clear();
    Py_XDECREF(daemon);
    sl_thread_introduce_(core_text(name, &keep), is_daemon);
    Py_XDECREF(keep);
    watch_end(thread, name);
    Py_XDECREF(name);
}

// `thread`: the calling thread's object, NULL where it is to be found.
static void tell_of(PyObject *thread)
{
    PyObject *type, *value, *traceback;
    core_told = core_epoch;  // first: telling may come here again
    PyErr_Fetch(&type, &value, &traceback);
    thread = thread ? Py_NewRef(thread) : own_thread();
    if (thread)
        tell(thread);
    Py_XDECREF(thread);
    PyErr_Clear();
    PyErr_Restore(type, value, traceback);
}

void core_tell_thread(void)
{
    tell_of(NULL);
}

PyDoc_STRVAR(tell_thread_doc, "tell_thread(thread)\n--\n\nThe calling thread, whose object this is, is made known.");
static PyObject *tell_thread(PyObject *module, PyObject *thread)
{
    (void)module;
    tell_of(thread);
    Py_RETURN_NONE;
}

// ---- the first event of a new thread: threading gives each one this profile function, which takes itself out

static PyObject *earlier_hook;  // what threading gave before; it sees the event and stays

PyDoc_STRVAR(first_event_doc, "first_event(frame, event, arg)\n--\n\nThe profile function that makes a new thread known.");
static PyObject *first_event(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    PyEval_SetProfile(NULL, NULL);
    core_tell_thread();
    if (!earlier_hook || count != 3)
        Py_RETURN_NONE;
    PyObject *hook = Py_NewRef(earlier_hook), *set = PySys_GetObject("setprofile");  // borrowed
    PyObject *result = set ? PyObject_CallFunctionObjArgs(set, hook, NULL) : NULL;
    Py_XDECREF(result);
    result = result ? PyObject_Vectorcall(hook, args, 3, NULL) : NULL;
    Py_DECREF(hook);
    return result;
}

PyDoc_STRVAR(chain_first_event_doc, "chain_first_event(function)\n--\n\nWho sees first events after us; None: nobody.");
static PyObject *chain_first_event(PyObject *module, PyObject *function)
{
    (void)module;
    PyObject *before = earlier_hook;
    earlier_hook = function == Py_None ? NULL : Py_NewRef(function);
    Py_XDECREF(before);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(thread_name_doc, "thread_name(name)\n--\n\nNames the calling thread. The last name counts.");
static PyObject *thread_name(PyObject *module, PyObject *name)
{
    (void)module;
    if (!PyUnicode_Check(name)) {
        PyErr_SetString(PyExc_TypeError, "a name is a str");
        return NULL;
    }
    if (core_told != core_epoch)
        core_tell_thread();
    tell_name(name);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(forget_threads_doc, "forget_threads()\n--\n\nEach thread is told of once more at its next call.");
static PyObject *forget_threads(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    core_epoch++;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"tell_thread", tell_thread, METH_O, tell_thread_doc},
    {"first_event", (PyCFunction)(void (*)(void))first_event, METH_FASTCALL, first_event_doc},
    {"know_properties", (PyCFunction)(void (*)(void))know_properties, METH_FASTCALL, know_properties_doc},
    {"chain_first_event", chain_first_event, METH_O, chain_first_event_doc},
    {"thread_name", thread_name, METH_O, thread_name_doc},
    {"forget_threads", forget_threads, METH_NOARGS, forget_threads_doc},
    {0},
};

int core_add_thread(PyObject *module)
{
    static const struct core_word words[] = {{&word_name, "name"}, {&word_daemon, "daemon"}, {&word_own_name, "_name"},
                                             {&word_own_daemon, "_daemonic"}, {&word_threading, "threading"},
                                             {&word_active, "_active"}, {&word_sentinel, "scoped_lane._core.ThreadEnd"}};
    if (core_intern(words, sizeof words / sizeof *words) < 0 || PyType_Ready(&sentinel_type) < 0)
        return -1;
    return PyModule_AddFunctions(module, functions);
}
