// `__init__` of a type that is not ours and has our tp_init: what the type shows in its dict, so that a call of
// `Type.__init__` from a derived class comes to us too. PyDescr_NewWrapper is given the function beside.
#include "client/python/core.h"

static PyObject *init_method(PyObject *self, PyObject *args, void *wrapped, PyObject *names)
{
    if (((initproc)wrapped)(self, args, names) < 0)
        return NULL;
    Py_RETURN_NONE;
}

struct wrapperbase core_init_base = {
    .name = "__init__",
    .wrapper = (wrapperfunc)(void (*)(void))init_method,
    .doc = "Initialize self.  See help(type(self)) for accurate signature.",
    .flags = PyWrapperFlag_KEYWORDS,
};
