// Threads: what Python knows of them and the library does not. A thread is told of where it begins and where it ends
// (scoped_lane.hooks); one that threading has not begun, or did before we were there, at its first call, and its end is where its thread
// state is cleared. Both ends are on the thread itself and before join() returns.
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

static bool type_has(PyTypeObject *type, PyObject *word, PyObject *property)
{
    PyObject *present = PyObject_GetAttr((PyObject *)type, word);
    bool is_it = present == property;
    Py_XDECREF(present);
    PyErr_Clear();
    return is_it;
}

// The properties of threading.Thread are functions in Python that give what a member holds. Where threads of a type have these very
// properties the members are read straight away. A type has another version tag when something in it or in its bases has changed.
static bool has_plain_properties(PyTypeObject *type)
{
    static PyTypeObject *known;
    static unsigned known_version;
    if (sl_likely(type == known && type->tp_version_tag == known_version && PyType_HasFeature(type, Py_TPFLAGS_VALID_VERSION_TAG)))
        return true;
    if (!name_property || !type_has(type, word_name, name_property) || !type_has(type, word_daemon, daemon_property))
        return false;
    known = type;
    known_version = type->tp_version_tag;
    return true;
}

// A new reference, NULL where there is none.
static PyObject *property_of(PyObject *thread, PyObject *word, PyObject *member)
{
    PyObject *value = has_plain_properties(Py_TYPE(thread)) ? PyObject_GetAttr(thread, member) : NULL;
    if (sl_unlikely(!value)) {
        PyErr_Clear();
        value = PyObject_GetAttr(thread, word);
        if (!value)
            PyErr_Clear();
    }
    return value;
}

static PyObject *name_of(PyObject *thread)
{
    return property_of(thread, word_name, word_own_name);
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

// ---- the end

static void tell_name(PyObject *name)
{
    PyObject *keep;
    sl_thread_name(core_text(name, &keep));
    Py_XDECREF(keep);
}

// On the thread itself, whose last name counts, whoever gave it. `told`: the name as it was told, given up here.
static void end(PyObject *thread, PyObject *told)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *name = thread ? name_of(thread) : NULL;
    if (name && name != told)
        tell_name(name);
    Py_XDECREF(name);
    Py_XDECREF(told);
    sl_thread_ended_();
    core_told = 0;
    PyErr_Restore(type, value, traceback);
}

// Stands in the thread state's dictionary where nothing of ours is called at the thread's end.
struct sentinel {
    PyObject_HEAD
    PyObject *thread, *told;
};

static void sentinel_dealloc(PyObject *object)
{
    struct sentinel *self = (struct sentinel *)object;
    end(self->thread, self->told);
    Py_XDECREF(self->thread);
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

// The calling thread's; returns the name as it was told, NULL where it has none. No exception is set, before or after.
static PyObject *introduce(PyObject *thread)
{
    PyObject *keep, *name = name_of(thread), *daemon = property_of(thread, word_daemon, word_own_daemon);
    bool is_daemon = daemon && PyObject_IsTrue(daemon) == 1;
    PyErr_Clear();
    Py_XDECREF(daemon);
    sl_thread_introduce_(core_text(name, &keep), is_daemon);
    Py_XDECREF(keep);
    return name;
}

void core_tell_thread(void)
{
    PyObject *type, *value, *traceback;
    core_told = core_epoch;  // first: asking may come here again
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *thread = own_thread();
    PyErr_Clear();
    if (thread) {
        PyObject *told = introduce(thread);
        watch_end(thread, told);
        Py_XDECREF(told);
        Py_DECREF(thread);
    }
    PyErr_Restore(type, value, traceback);
}

void core_enter_cold(uint32_t region, uint64_t frame)
{
    core_meet();
    sl_enter_cold_(region, frame);
}

// ---- where a thread begins

static PyObject *plain_begin;  // threading.Thread._bootstrap_inner; stays known, for a thread may be about to begin when ours is taken out

static PyObject *begin_thread(PyObject *thread, PyObject *unused)
{
    (void)unused;
    if (sl_unlikely(core_runs_greenlet())) {  // gevent runs the thread in one
        PyObject *name = name_of(thread);
        core_name_greenlet(name);
        Py_XDECREF(name);
        return PyObject_CallFunctionObjArgs(plain_begin, thread, NULL);
    }
    core_told = core_epoch;
    PyObject *told = introduce(thread), *result = PyObject_CallFunctionObjArgs(plain_begin, thread, NULL);
    end(thread, told);
    return result;
}

PyDoc_STRVAR(begin_method_doc, "begin_method(type, plain)\n--\n\nWhat makes a thread known and then does what `plain` does.");
static PyObject *begin_method(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    static PyMethodDef method = {"_bootstrap_inner", begin_thread, METH_NOARGS, NULL};
    (void)module;
    if (count != 2 || !PyType_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "begin_method() takes a type and a function");
        return NULL;
    }
    Py_XSETREF(plain_begin, Py_NewRef(args[1]));
    return PyDescr_NewMethod((PyTypeObject *)args[0], &method);
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
    {"begin_method", (PyCFunction)(void (*)(void))begin_method, METH_FASTCALL, begin_method_doc},
    {"know_properties", (PyCFunction)(void (*)(void))know_properties, METH_FASTCALL, know_properties_doc},
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
