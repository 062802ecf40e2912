// Functions of programs that are not edited: a region around each call of those that were chosen, by sys.monitoring where it exists
// (3.12), else by a profile function. A code object is asked for once; what became of it stands in its extra word: nothing yet, not
// chosen, or its region and of which kind it is. Under sys.monitoring what is not chosen is switched off there and then.
//
// A coroutine is one call from its start to its end, waiting included, as a decorated one is; a generator is one for each resumption. Either
// ends however it is left: by return, by an exception, by throw() and close().
#include "client/python/core.h"

#include <frameobject.h>

#if PY_VERSION_HEX < 0x030c0000
#define PyUnstable_Code_GetExtra         _PyCode_GetExtra
#define PyUnstable_Code_SetExtra         _PyCode_SetExtra
#define PyUnstable_Eval_RequestCodeExtraIndex _PyEval_RequestCodeExtraIndex
#endif

enum kind { KIND_FUNCTION, KIND_GENERATOR, KIND_COROUTINE };

#define NOT_CHOSEN ((uintptr_t)3)  // no kind

static Py_ssize_t extra_index = -1;
static PyObject *choose;      // (code, globals) -> id of a region, 0 not chosen
static PyObject *choose_c;    // (callable) -> id of a region; NULL: functions in C are left out
static PyObject *c_regions;   // address of a method's definition -> id
static PyObject *disable;     // sys.monitoring.DISABLE

static inline uintptr_t word_of(PyObject *code)
{
    void *word = NULL;
    return PyUnstable_Code_GetExtra(code, extra_index, &word) < 0 ? 0 : (uintptr_t)word;
}

static inline enum kind kind_of(uintptr_t word)
{
    return (enum kind)(word & 3);
}

static inline sl_region_t region_of(uintptr_t word)
{
    return (sl_region_t)(word >> 2);
}

// Whatever the choice fails with is not the program's: not chosen then.
static uintptr_t decide(PyObject *code, PyObject *globals)
{
    int flags = ((PyCodeObject *)code)->co_flags;
    uintptr_t word = NOT_CHOSEN;
    if (choose && globals && (flags & (CO_OPTIMIZED | CO_NEWLOCALS)) == (CO_OPTIMIZED | CO_NEWLOCALS)) {  // else a module, a class
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        PyObject *answer = PyObject_CallFunctionObjArgs(choose, code, globals, NULL);
        unsigned long id = answer ? PyLong_AsUnsignedLong(answer) : 0;
        enum kind kind = flags & CO_COROUTINE ? KIND_COROUTINE : flags & (CO_GENERATOR | CO_ASYNC_GENERATOR) ? KIND_GENERATOR : KIND_FUNCTION;
        if (id && !PyErr_Occurred())
            word = (uintptr_t)id << 2 | kind;
        Py_XDECREF(answer);
        PyErr_Clear();
        PyErr_Restore(type, value, traceback);
    }
    PyUnstable_Code_SetExtra(code, extra_index, (void *)word);
    return word;
}

static inline void enter(uintptr_t word)
{
    if (sl_unlikely(core_slow))
        return;
    sl_enter(region_of(word));
}

static inline void leave(uintptr_t word)
{
    sl_exit(region_of(word));
}

// ---- functions in C

static sl_region_t c_region(PyObject *callable)
{
    const void *definition = PyCFunction_Check(callable) ? (void *)((PyCFunctionObject *)(void *)callable)->m_ml
                             : Py_TYPE(callable) == &PyMethodDescr_Type ? (void *)((PyMethodDescrObject *)(void *)callable)->d_method
                                                                        : NULL;
    if (!definition || !choose_c)
        return 0;
    PyObject *key = PyLong_FromVoidPtr((void *)(uintptr_t)definition), *id = key ? PyDict_GetItem(c_regions, key) : NULL;
    Py_XINCREF(id);
    if (!id && key) {
        id = PyObject_CallFunctionObjArgs(choose_c, callable, NULL);
        if (id)
            PyDict_SetItem(c_regions, key, id);
    }
    unsigned long region = id ? PyLong_AsUnsignedLong(id) : 0;
    if (PyErr_Occurred()) {
        PyErr_Clear();
        region = 0;
    }
    Py_XDECREF(id);
    Py_XDECREF(key);
    return (sl_region_t)region;
}

static void c_event(PyObject *callable, bool enters)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    sl_region_t region = c_region(callable);
    PyErr_Restore(type, value, traceback);
    if (!region)
        return;
    if (!enters) {
        sl_exit(region);
    } else if (!core_slow) {
        sl_enter(region);
    }
}

// ---- sys.monitoring: the first argument is the code object

#define CALLBACK(name) static PyObject *name(PyObject *module, PyObject *const *args, Py_ssize_t count)

CALLBACK(on_start)
{
    (void)module, (void)count;
    uintptr_t word = word_of(args[0]);
    if (sl_unlikely(!word))
        word = decide(args[0], PyEval_GetGlobals());
    if (sl_unlikely(word == NOT_CHOSEN))
        return Py_NewRef(disable);
    enter(word);
    Py_RETURN_NONE;
}

static inline uintptr_t chosen(PyObject *code)
{
    uintptr_t word = word_of(code);
    return word == NOT_CHOSEN ? 0 : word;
}

CALLBACK(on_return)  // PY_UNWIND too, which comes from all code
{
    (void)module, (void)count;
    uintptr_t word = chosen(args[0]);
    if (word)
        leave(word);
    Py_RETURN_NONE;
}

CALLBACK(on_yield)
{
    (void)module, (void)count;
    uintptr_t word = chosen(args[0]);
    if (word && kind_of(word) == KIND_GENERATOR)
        leave(word);
    Py_RETURN_NONE;
}

CALLBACK(on_resume)  // PY_THROW too, which comes from all code
{
    (void)module, (void)count;
    uintptr_t word = chosen(args[0]);
    if (word && kind_of(word) == KIND_GENERATOR)
        enter(word);
    Py_RETURN_NONE;
}

CALLBACK(on_c_call)
{
    (void)module, (void)count;
    c_event(args[2], true);
    Py_RETURN_NONE;
}

CALLBACK(on_c_return)
{
    (void)module, (void)count;
    c_event(args[2], false);
    Py_RETURN_NONE;
}

// ---- the profile function, before 3.12

static unsigned char yield_value = 255, yield_from = 255, resume = 255;  // opcodes

// The instruction that a frame is at; *argument follows it. -1: none yet.
static int instruction(PyFrameObject *frame, PyObject *code, int *argument)
{
    PyObject *place = PyObject_GetAttrString((PyObject *)frame, "f_lasti"), *bytes = PyObject_GetAttrString(code, "co_code");
    long at = place ? PyLong_AsLong(place) : -1;
    int found = -1;
    if (bytes && PyBytes_Check(bytes) && at >= 0 && at + 1 < PyBytes_GET_SIZE(bytes)) {
        found = (unsigned char)PyBytes_AS_STRING(bytes)[at];
        *argument = (unsigned char)PyBytes_AS_STRING(bytes)[at + 1];
        if (PY_VERSION_HEX < 0x030b0000 && at + 3 < PyBytes_GET_SIZE(bytes) && (unsigned char)PyBytes_AS_STRING(bytes)[at + 2] == yield_from)
            found = yield_from;  // which waits for its turn at the instruction before
    }
    Py_XDECREF(place);
    Py_XDECREF(bytes);
    PyErr_Clear();
    return found;
}

static bool starts(PyFrameObject *frame, PyObject *code)
{
    int argument = 0, found = instruction(frame, code, &argument);
    return found < 0 || (found == resume && (argument & 3) == 0);
}

static bool suspends(PyFrameObject *frame, PyObject *code)
{
    int argument, found = instruction(frame, code, &argument);
    return found >= 0 && (found == yield_value || found == yield_from);
}

static int on_event(PyObject *unused, PyFrameObject *frame, int what, PyObject *arg)
{
    (void)unused;
    bool is_c = what == PyTrace_C_CALL || what == PyTrace_C_RETURN || what == PyTrace_C_EXCEPTION;
    if ((what != PyTrace_CALL && what != PyTrace_RETURN && !is_c) || (is_c && !choose_c))
        return 0;
    PyObject *code = (PyObject *)PyFrame_GetCode(frame);
    uintptr_t word = word_of(code);
    if (sl_unlikely(!word) && what == PyTrace_CALL) {
        PyObject *globals = PyObject_GetAttrString((PyObject *)frame, "f_globals");
        word = decide(code, globals);
        Py_XDECREF(globals);
        PyErr_Clear();
    }
    if (word && word != NOT_CHOSEN) {
        bool waits = kind_of(word) == KIND_COROUTINE;
        if (is_c) {
            c_event(arg, what == PyTrace_C_CALL);
        } else if (what == PyTrace_CALL) {
            if (!waits || starts(frame, code))
                enter(word);
        } else if (!waits || !arg || !suspends(frame, code)) {
            leave(word);
        }
    }
    Py_DECREF(code);
    return 0;
}

PyDoc_STRVAR(profile_thread_doc, "profile_thread(*event)\n--\n\nFrom here on the calling thread's functions are recorded; threading calls it in new ones.");
static PyObject *profile_thread(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module, (void)args, (void)count;
    if (core_told != core_epoch)
        core_tell_thread();
    PyEval_SetProfile(on_event, NULL);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(choose_functions_doc, "choose_functions(choose, choose_c, disable, opcodes)\n--\n\nWho says which functions are recorded.");
static PyObject *choose_functions(PyObject *module, PyObject *args)
{
    PyObject *c;
    (void)module;
    Py_XDECREF(choose);
    Py_XDECREF(disable);
    Py_CLEAR(choose_c);
    if (!PyArg_ParseTuple(args, "OOO(bbb)", &choose, &c, &disable, &yield_value, &yield_from, &resume))
        return choose = disable = NULL, NULL;
    Py_INCREF(choose);
    Py_INCREF(disable);
    choose_c = c == Py_None ? NULL : Py_NewRef(c);
    if (extra_index < 0)
        extra_index = PyUnstable_Eval_RequestCodeExtraIndex(NULL);
    if (!c_regions)
        c_regions = PyDict_New();
    if (extra_index < 0 || !c_regions) {
        PyErr_SetString(PyExc_RuntimeError, "code objects have no room left");
        return NULL;
    }
    Py_RETURN_NONE;
}

#define FUNCTION(name, function, doc) {name, (PyCFunction)(void (*)(void))function, METH_FASTCALL, doc}
static PyMethodDef functions[] = {
    {"choose_functions", choose_functions, METH_VARARGS, choose_functions_doc},
    FUNCTION("profile_thread", profile_thread, profile_thread_doc),
    FUNCTION("on_start", on_start, NULL),
    FUNCTION("on_return", on_return, NULL),
    FUNCTION("on_yield", on_yield, NULL),
    FUNCTION("on_resume", on_resume, NULL),
    FUNCTION("on_c_call", on_c_call, NULL),
    FUNCTION("on_c_return", on_c_return, NULL),
    {0},
};

int core_add_functions(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
