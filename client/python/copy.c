// One copy of the library for a process: two would make two segments of it, each with half of its calls. The loader takes the one that is
// there where it goes by the same name (libscoped_lane.so.0), whoever brought it. Against others (linked statically into the program or
// another extension, or under another name) only looking helps, before ours does anything.
#include "client/python/core.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

struct search {
    const char *own;  // the object that ours is in
    PyObject *other;
};

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static int look_at(struct dl_phdr_info *info, size_t size, void *data)
{
    struct search *search = data;
    (void)size;
    if (strncmp(base_name(info->dlpi_name), "libscoped_lane.so", 17) != 0 || strcmp(info->dlpi_name, search->own) == 0)
        return 0;
    search->other = PyUnicode_DecodeFSDefault(info->dlpi_name);
    return 1;
}

// A segment of this process that is mapped although our copy has made none.
static PyObject *foreign_segment(void)
{
    char line[4600];
    PyObject *found = NULL;
    FILE *maps = sl_is_active() ? NULL : fopen("/proc/self/maps", "re");
    while (maps && !found && fgets(line, sizeof line, maps)) {
        const char *name = strstr(line, "/scoped-lane.");
        unsigned uid;
        long pid;
        if (name && sscanf(name, "/scoped-lane.%u.%ld.", &uid, &pid) == 2 && pid == (long)getpid())
            found = PyUnicode_FromString("a program or extension that holds it within");
    }
    if (maps)
        fclose(maps);
    return found;
}

int core_refuse_second_copy(void)
{
    Dl_info own;
    struct search search = {dladdr((void *)(uintptr_t)sl_attach, &own) ? own.dli_fname : "", NULL};
    dl_iterate_phdr(look_at, &search);
    if (!search.other)
        search.other = foreign_segment();
    if (!search.other)
        return PyErr_Occurred() ? -1 : 0;
    PyErr_Format(PyExc_ImportError, "this process has another copy of libscoped_lane already: %U", search.other);
    Py_DECREF(search.other);
    return -1;
}
