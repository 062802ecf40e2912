"""The library as it comes into programs by other ways than the linker's: opened and closed at run time, and twice in one image."""

import subprocess

import pytest
from conftest import BUILD, ROOT, wait_until
from runfile import RunFile

pytestmark = pytest.mark.beside

LIBRARY = BUILD / "lib" / "libscoped_lane.so"

OPENED = r"""
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static uint32_t (*region)(const char *);
static void (*enter)(uint32_t), (*leave)(uint32_t);

static void look_up(void *library)
{
    region = (uint32_t(*)(const char *))dlsym(library, "sl_region");
    enter = (void (*)(uint32_t))dlsym(library, "sl_enter");
    leave = (void (*)(uint32_t))dlsym(library, "sl_exit");
    if (!region || !enter || !leave)
        exit(3);
}

static void *calls(void *name)
{
    for (int i = 0; i < 10; i++) {
        enter(region(name));
        leave(region(name));
    }
    return NULL;
}

int main(int argc, char **argv)
{
    for (int i = 0; i < 1000; i++) {
        void *library = dlopen(argv[1], i % 2 ? RTLD_NOW | RTLD_LOCAL : RTLD_LAZY | RTLD_GLOBAL);
        if (!library)
            return fprintf(stderr, "%s\n", dlerror()), 3;
        look_up(library);
        enter(region("opened"));
        leave(region("opened"));
        if (dlclose(library) != 0)
            return 3;
    }
    pthread_t thread;
    pthread_create(&thread, NULL, calls, "on a thread after it was closed");
    pthread_join(thread, NULL);
    calls("after it was closed");
    return argc == 2 ? 0 : 2;
}
"""

TWICE = r"""
#include <dlfcn.h>
#include <scoped_lane.h>

int main(int argc, char **argv)
{
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    sl_region_t (*region)(const char *) = (sl_region_t(*)(const char *))dlsym(library, "sl_region");
    void (*enter)(sl_region_t) = (void (*)(sl_region_t))dlsym(library, "sl_enter");
    void (*leave)(sl_region_t) = (void (*)(sl_region_t))dlsym(library, "sl_exit");
    for (int i = 0; i < 100; i++) {
        sl_enter(sl_region("of the static copy"));
        enter(region("of the shared copy"));
        leave(region("of the shared copy"));
        if (i % 2)
            enter(region("of the shared copy, crossing"));
        sl_exit(sl_region("of the static copy"));
        if (i % 2)
            leave(region("of the shared copy, crossing"));
    }
    return argc == 2 ? 0 : 2;
}
"""


def build(place, source, *words):
    path = place.path / "program.c"
    path.write_text(source)
    done = subprocess.run(["cc", "-std=gnu11", "-O2", "-o", place.path / "program", path, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return place.path / "program"


def test_the_library_may_be_opened_and_closed_a_thousand_times(service):
    program = build(service, OPENED, "-ldl", "-lpthread")
    service.run(program, LIBRARY)
    file = RunFile(service.run_file())
    calls = {name: file.calls(name, 0) for name in file.run.region_names}
    assert calls == {"opened": 1000, "on a thread after it was closed": 10, "after it was closed": 10}
    (process,) = file.table("processes")
    assert (process["state"], process["threads"], process["lost"]) == ("ended", 2, 0)


def twice(service, *options):
    static = BUILD / "lib" / "libscoped_lane.a"
    program = build(service, TWICE, "-I", ROOT, "-I", ROOT / "client", static, "-ldl", "-lpthread", *options)
    service.run(program, LIBRARY, SCOPED_LANE_RUN="twice")
    wait_until(lambda: not service.segments(), what="the segments are taken away")
    file = RunFile(service.run_file())
    processes = file.table("processes")
    assert len({row["pid"] for row in processes}) == 1
    assert all((row["state"], row["lost"], row["unmatched"]) == ("ended", 0, 0) for row in processes)
    return file, processes


def test_a_static_and_a_shared_copy_in_one_image_record_side_by_side(service):
    file, processes = twice(service)
    assert file.calls("of the static copy") == file.calls("of the shared copy") == 100
    assert file.calls("of the shared copy, crossing") == 50
    assert [row["crossing"] for row in processes] == [0, 0], "each has lanes of its own"


def test_a_static_copy_that_the_program_exports_stands_in_for_the_shared_one(service):
    file, (process,) = twice(service, "-rdynamic")
    assert file.calls("of the static copy") == 50 and file.calls("of the shared copy") == 100
    assert process["crossing"] == 50 and process["stored"] == 250, "they share one lane"
