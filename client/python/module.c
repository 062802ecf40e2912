// scoped_lane._core: the module. One for the process, as the library is: subinterpreters with a lock of their own are refused, and a
// build without the lock gets it back.
#include "client/python/core.h"

PyDoc_STRVAR(is_active_doc, "is_active()\n--\n\nWhether a daemon records this process.");
static PyObject *is_active(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyBool_FromLong(sl_is_active());
}

PyDoc_STRVAR(attach_doc, "attach()\n--\n\nLooks for a daemon. 0 when this process is recorded now, else an errno.");
static PyObject *attach(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    int result = sl_attach();
    if (result == 0)
        core_epoch++;  // threads told of while nothing was recorded
    return PyLong_FromLong(-result);
}

PyDoc_STRVAR(follow_doc, "follow()\n--\n\nThe same in the child of a fork, which is not recorded otherwise.");
static PyObject *follow(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    int result = sl_follow_();
    if (result == 0)
        core_epoch++;
    return PyLong_FromLong(-result);
}

PyDoc_STRVAR(set_rank_doc, "set_rank(rank)\n--\n\nThe process's rank in its run.");
static PyObject *set_rank(PyObject *module, PyObject *rank)
{
    (void)module;
    long long number = PyLong_AsLongLong(rank);
    if (PyErr_Occurred())
        return NULL;
    sl_rank(number);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"is_active", is_active, METH_NOARGS, is_active_doc},
    {"attach", attach, METH_NOARGS, attach_doc},
    {"follow", follow, METH_NOARGS, follow_doc},
    {"set_rank", set_rank, METH_O, set_rank_doc},
    {0},
};

static int fill(PyObject *module)
{
    if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
        PyErr_SetString(PyExc_ImportError, "scoped_lane works in the main interpreter only");
        return -1;
    }
    if (core_refuse_second_copy() < 0)
        return -1;
    if (PyModule_AddFunctions(module, functions) < 0 || core_add_thread(module) < 0 || core_add_region(module) < 0 ||
        core_add_task(module) < 0 || core_add_greenlet(module) < 0 || core_add_functions(module) < 0 ||
        core_add_tracker(module) < 0)
        return -1;
    return 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)fill},
#if PY_VERSION_HEX >= 0x030c0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
#if PY_VERSION_HEX >= 0x030d0000
    {Py_mod_gil, Py_MOD_GIL_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "scoped_lane._core",
    .m_doc = "The part of scoped_lane that is in C.",
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void)
{
    return PyModuleDef_Init(&definition);
}
