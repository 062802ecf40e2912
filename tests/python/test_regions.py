"""Regions in Python: context managers, decorators, ids; that exceptions pass and references are whole."""

import asyncio
import collections
import contextlib
import inspect
import os
import pickle
import sys

import pytest
import scoped_lane
from conftest import PYTHON

PREAMBLE = """
import asyncio, sys, time, threading
import scoped_lane as sl
"""


@scoped_lane.profile
def pickled(x):
    return x


# -- in this process, where nothing is recorded


def test_a_region_is_one_object_for_its_name_and_gives_itself(sl):
    region = sl.region("name")
    assert sl.region("name") is region and sl.region("na" + "me") is region and region.name == "name"
    with region as inner:
        assert inner is region
        with region as deeper:
            assert deeper is region
    assert repr(region) == "<region 'name'>" and region.id > 0 and region.num_calls == 2
    with contextlib.ExitStack() as stack:
        assert stack.enter_context(region) is region
    assert region.num_calls == 3
    assert region.__exit__(None, None, None) is None
    for wrong in (7, None, b"name"):
        with pytest.raises(TypeError):
            sl.region(wrong)


def test_exceptions_pass_unharmed(sl):
    error = KeyError("mine")

    @sl.profile
    def fails():
        raise error

    with pytest.raises(KeyError) as caught:
        with sl.region("around"):
            fails()
    assert caught.value is error and error.__context__ is None and error.__cause__ is None
    names = [frame.name for frame in __import__("traceback").extract_tb(error.__traceback__)]
    assert names[-2:] == ["test_exceptions_pass_unharmed", "fails"]


def test_a_profiled_function_is_still_that_function(sl):
    def plain(a, b=2, *args, c: int = 3, **kwargs) -> int:
        """What it does."""
        return a, b, args, c, kwargs

    plain.mark = 5
    wrapped = sl.profile("other")(plain)
    assert wrapped(1, 2, 3, c=4, d=5) == (1, 2, (3,), 4, {"d": 5}) and wrapped(1) == (1, 2, (), 3, {})
    assert (wrapped.__name__, wrapped.__doc__, wrapped.__qualname__) == ("plain", "What it does.", plain.__qualname__)
    assert wrapped.__module__ == __name__ and wrapped.__wrapped__ is plain and wrapped.mark == 5
    assert inspect.signature(wrapped) == inspect.signature(plain) and wrapped.__code__ is plain.__code__
    assert wrapped.region is sl.region("other")
    with pytest.raises(AttributeError):
        wrapped.no_such_thing
    with pytest.raises(TypeError):
        wrapped()
    assert pickle.loads(pickle.dumps(pickled)) is pickled

    class Holder:
        @sl.profile
        def method(self, x):
            return self, x

        @classmethod
        @sl.profile
        def of_class(cls):
            return cls

        @staticmethod
        @sl.profile
        def static():
            return 7

    holder = Holder()
    assert holder.method(3) == (holder, 3) and Holder.method(holder, 4) == (holder, 4)
    bound = holder.method
    assert bound(5) == (holder, 5) and Holder.of_class() is Holder and holder.static() == 7


def test_other_kinds_of_functions_stay_what_they_are(sl):
    @sl.profile
    async def coroutine(x):
        await asyncio.sleep(0)
        return x

    @sl.profile
    def generator(n):
        got = []
        for i in range(n):
            try:
                got.append((yield i))
            except ValueError as error:
                got.append(error.args)
        return got

    @sl.profile
    async def agenerator(n):
        for i in range(n):
            yield i

    @sl.profile
    @contextlib.contextmanager
    def manager():
        yield 5

    with manager() as five:
        assert five == 5
    assert inspect.iscoroutinefunction(coroutine) and inspect.isgeneratorfunction(generator)
    assert inspect.isasyncgenfunction(agenerator)
    assert asyncio.run(coroutine(3)) == 3
    assert list(generator(3)) == [0, 1, 2]
    running = generator(3)
    assert next(running) == 0 and running.send("a") == 1 and running.throw(ValueError("b")) == 2
    with pytest.raises(StopIteration) as stop:
        running.send("c")
    assert stop.value.value == ["a", ("b",), "c"]
    left = generator(3)
    next(left)
    left.close()

    async def use():
        return [i async for i in agenerator(3)]

    assert asyncio.run(use()) == [0, 1, 2]


def test_instrument_puts_regions_around_a_module_s_functions(sl):
    import types

    module = types.ModuleType("mine")
    exec("def a(): return 1\ndef b(): return 2\ndef _c(): return 3\nD = 4\nclass E: pass", vars(module))
    changed = sl.instrument(module, exclude=("_*", "b"))
    assert set(changed) == {"a"} and module.a() == 1 and module.b() == 2
    assert sl.region("mine.a").num_calls == 1
    sl.instrument(module, include=("b",), prefix="other")
    assert module.b() == 2 and sl.region("other.b").num_calls == 1


def test_pausing_passes_over_whole_calls(sl):  # 21
    sl.setup(deactivate_file_output=True)
    a, b = sl.region("pause a"), sl.region("pause b")
    sl.pause()
    with a:
        sl.resume()
        with b, b:
            pass
        sl.pause()
    assert (a.num_calls, b.num_calls) == (0, 2)
    sl.resume()
    with a:
        pass
    assert a.num_calls == 1


def test_opt_in_tags_leave_regions_out_until_they_are_asked_for(sl):
    sl.register_opt_in_tag("library")

    @sl.profile("tagged function", tags=("library",))
    def function():
        return 1

    with sl.region("tagged", tags=("library", "more")):
        function()
    assert sl.region("tagged").num_calls == 0 and sl.region("tagged function").num_calls == 0
    sl.setup(enable_tags=["library"], deactivate_file_output=True)
    with sl.region("tagged", tags=("library", "more")):
        function()
    assert sl.region("tagged").num_calls == 1 and sl.region("tagged function").num_calls == 1
    with pytest.raises(ValueError):
        sl.region("tagged", tags=("another",))
    with pytest.raises(TypeError):
        sl.register_opt_in_tag("")


def test_setup_takes_the_original_s_options(sl):
    from scope_profiler import profile_manager

    assert set(sl.manager.ACTING) | set(sl.manager.IDLE) == set(profile_manager._CONFIG_FIELDS)
    for name in ("setup", "session", "finalize", "profile", "define_region", "instrument", "region_factory"):
        mine, its = (inspect.signature(getattr(module, name)) for module in (sl, profile_manager.ProfileManager))
        assert list(mine.parameters) == list(its.parameters), name
    with pytest.warns(UserWarning, match="use_memray"):
        sl.setup(use_memray=True, buffer_limit=2)
    with pytest.raises(RuntimeError):
        sl.setup()
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = sl.setup(use_memray=True, replace=True, file_path="x.h5")  # once
    assert sl.is_configured() and run.file_path == "x.h5" and not sl.is_active()
    with pytest.raises(TypeError, match="no_such_option"):
        sl.setup(replace=True, no_such_option=1)
    for name in sl.manager.NOT_WITH_THREADS:  # 28, 29
        with pytest.raises(ValueError, match="cannot be combined"):
            sl.setup(replace=True, track_threads=True, **{name: True})
    assert sl.manager.Config(track_async=True).track_threads  # 30
    sl.reset()
    assert not sl.is_configured() and sl.finalize() is None
    for name in profile_manager.ProfileManager.__dict__:
        if not name.startswith("_") and name in ("region", "profile_region", "setup", "finalize", "reset", "pause"):
            assert hasattr(sl.ProfileManager, name)


def test_the_tool_raises_nothing_into_a_program_whose_output_cannot_be_written(scripts):
    file = scripts.record(
        PREAMBLE
        + """
import warnings
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    with sl.session(file_path="/no/such/directory/x.h5"):
        with sl.region("r"):
            pass
print(len(said))
"""
    )
    assert file.said == "1\n" and file.calls("r", 0) == 1


COUNTED = """
region, function = sl.region("counted"), sl.profile("counted too")(lambda: None)
objects = [region, function, region.name, region.__class__, None]

def use(n):
    for _ in range(n):
        with region:
            function()
        sl.begin(region.id)
        sl.end(region)
        sl.region("counted")

use(10)
before = [sys.getrefcount(item) for item in objects]
use(1_000_000)
after = [sys.getrefcount(item) for item in objects]
assert all(abs(a - b) < 50 for a, b in zip(before, after)), (before, after)
"""


def test_references_stay_flat_where_nothing_is_recorded(scripts):
    scripts.run(PREAMBLE + COUNTED)


def test_references_stay_flat_while_all_is_recorded(scripts):
    file = scripts.record(PREAMBLE + COUNTED)
    assert file.calls("counted", 0) + file.calls("counted too", 0) + sum(row["count"] for row in file.table("loss")) == 3 * 1_000_010


# -- recorded


def test_threads_names_daemons_and_calls(scripts):  # 1 to 6, 11, 20, 23, 45 of regions; L68
    file = scripts.record(
        PREAMBLE
        + """
def work(i):
    for _ in range(40):
        with sl.region("outer"):
            with sl.region("inner"):
                pass
    if i == 2:
        sl.thread_name("renamed \\N{SNOWMAN} " + "long" * 40)

with sl.session(track_threads=True):
    threads = [threading.Thread(target=work, args=(i,), name=f"checkpoint-writer-{i}", daemon=i == 1) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""
    )
    rows = file.threads(0)
    assert [row.name for row in rows][0] == "MainThread"
    assert sorted(row.name for row in rows[1:]) == sorted(
        ["checkpoint-writer-0", "checkpoint-writer-1", "renamed ☃ " + "long" * 40, "checkpoint-writer-3"]
    )
    assert {row.name: row.daemon for row in rows}["checkpoint-writer-1"] is True
    assert all(not row.alive and row.wall_time > 0 and row.cpu_time > 0 and row.ident for row in rows[1:])
    paths = file.call_paths(0)
    assert sum(count for (_, path), count in paths.items() if path == "outer > inner") == 160
    assert sorted(file.run["outer"][0].threads) == [1, 2, 3, 4]


def test_threads_that_were_alive_before_us_and_foreign_ones_are_known_when_they_record(scripts):
    file = scripts.record(
        """
import threading, _thread, time

go = threading.Event()
done = threading.Event()

def early():
    go.wait()
    import scoped_lane
    with scoped_lane.region("early"):
        pass

thread = threading.Thread(target=early, name="early bird")
thread.start()
import scoped_lane as sl
go.set()
thread.join()

def foreign():
    with sl.region("foreign"):
        pass
    done.set()

_thread.start_new_thread(foreign, ())
done.wait()
assert len(threading.enumerate()) == 1, "we made nobody up"
with sl.region("main"):
    pass
"""
    )
    by = {region: thread for thread, region in file.by_thread(0)}
    assert by["early"] == "early bird" and by["main"] == "MainThread" and "Main" not in by["foreign"]


def test_bare_setup_numbers_threads_as_they_record(scripts):  # 26
    file = scripts.record(
        PREAMBLE
        + """
sl.setup(track_threads=True)
def work():
    with sl.region("work"):
        pass
thread = threading.Thread(target=work, name="first")
thread.start()
thread.join()
"""
    )
    assert [row.name for row in file.threads(0)] == ["first"]


def test_generators_and_coroutines_under_the_decorator(scripts):
    file = scripts.record(
        PREAMBLE
        + """
@sl.profile
def generator():
    yield 1
    yield 2

@sl.profile
async def coroutine():
    await asyncio.sleep(0.02)

@sl.profile
async def agenerator():
    yield 1
    await asyncio.sleep(0.001)
    yield 2

async def main():
    await coroutine()
    async for _ in agenerator():
        with sl.region("use"):
            pass

for _ in generator():
    with sl.region("use"):
        pass
for _ in generator():
    break
asyncio.run(main())
"""
    )
    assert file.calls("coroutine", 0) == 1 and file.run["coroutine"][0].await_times[0] > 0.015
    assert file.calls("generator", 0) == 3 + 1 + 1  # resumptions, the one that ends it among them, and a close
    assert file.calls("agenerator", 0) == 3
    assert {call["call_path"] for call in file.run.call_stack(rank=0) if call["name"] == "use"} == {"use"}
    assert file.table("crossing") == [] and file.table("open_calls") == []


def test_a_scope_left_in_another_thread_is_reported(scripts):  # 112
    file = scripts.record(
        PREAMBLE
        + """
region = sl.region("moved")
sl.begin(region)
thread = threading.Thread(target=sl.end, args=(region.id,), name="other")
thread.start()
thread.join()
"""
    )
    assert [row["region"] for row in file.table("open_calls")] == ["moved"]
    said = scripts.place.command("report", file.path)
    assert "moved" in said and "other" in said, said


def test_python_and_c_regions_nest_on_one_lane(scripts):
    from conftest import BUILD

    file = scripts.record(
        PREAMBLE
        + f"""
import ctypes
library = ctypes.CDLL({str(BUILD / "lib" / "libscoped_lane.so.0")!r})
inner = library.sl_region(b"in C")

async def main():
    with sl.region("in Python"):
        library.sl_enter(inner)
        with sl.region("again"):
            await asyncio.sleep(0)
        library.sl_exit(inner)

asyncio.run(main())
"""
    )
    paths = collections.Counter(call["call_path"] for call in file.run.call_stack(rank=0))
    assert paths == {"in Python": 1, "in Python > in C": 1, "in Python > in C > again": 1}
    assert len({call["lane"] for call in file.run.call_stack(rank=0)}) == 1


def test_without_a_daemon_no_hook_is_installed(scripts):
    assert (
        scripts.run(
            """
import threading, asyncio, sys
def hooks():
    thread = threading.Thread
    return threading._profile_hook, thread._bootstrap_inner, thread.__dict__["name"], asyncio.Task.__dict__["__init__"], list(sys.meta_path)

before = hooks()
import scoped_lane as sl
print(before == hooks(), sl.is_active(), sl.manager.hooks._users)
"""
        )
        == "True False {}\n"
    )


def test_a_program_that_does_not_import_asyncio_does_not_get_it(scripts):
    file = scripts.record(
        """
import sys
import scoped_lane as sl
with sl.region("r"):
    pass
print("asyncio" in sys.modules)
import asyncio
async def main():
    with sl.region("r"):
        pass
asyncio.run(main())
"""
    )
    assert file.said == "False\n"
    assert [row.coro_name for row in file.run.tasks[0]][0] == "main"


def test_finalize_writes_the_file_that_was_asked_for_while_the_program_goes_on(scripts):  # L34
    file = scripts.record(
        """
import scoped_lane as scope_profiler

with scope_profiler.session(file_path="asked.h5", label="mine", verbose=False, return_results=True) as run:
    with scope_profiler.region("solve"):
        pass
if run.results is None:  # the reader is not installed
    print(1, scope_profiler.is_active())
else:
    print(run.results["solve"][0].num_calls, scope_profiler.is_active())
with scope_profiler.region("later"):
    pass
"""
    )
    asked = type(file)(scripts.path / "asked.h5")
    assert file.said == "1 True\n", file.complaints
    assert asked.calls("solve", 0) == 1 and asked.calls("later", 0) == 0
    assert asked.calls("scope_profiler.session", 0) == 1 and file.calls("later", 0) == 1
    assert PYTHON != sys.executable or asked.run.metadata["label"] == "mine"
    assert [path.name for path in scripts.path.glob(".asked*")] == []


def test_ranks_of_a_launcher_are_one_file(scripts):  # L45, L57
    script = scripts.write(
        PREAMBLE
        + """
import os
async def main():
    with sl.region("step"):
        await asyncio.sleep(0.001)
with sl.region("rank"):
    asyncio.run(main())
"""
    )
    place = scripts.place
    env = {name: value for name, value in scripts.env.items()}
    words = [place.lane, "run", "-o", "ranks.h5", "--", *place.mpirun(2, sys.executable, script)]
    place.run(*words, **env)
    from conftest import RunFile

    file = RunFile(scripts.path / "ranks.h5")
    assert file.ranks == [0, 1] and file.calls("step") == 2 and file.calls("rank") == 2


def test_a_region_left_by_an_exception_and_one_left_open_at_a_kill(scripts):  # L51, 113
    file = scripts.record(
        PREAMBLE
        + """
import os, signal
try:
    with sl.region("raises"):
        raise ValueError
except ValueError:
    pass
def hangs():
    with sl.region("hangs"):
        threading.Event().wait()
threading.Thread(target=hangs, name="daemon", daemon=True).start()
while sl.region("hangs").num_calls == 0:
    time.sleep(0.001)
with sl.region("open"):
    os.kill(os.getpid(), signal.SIGKILL)
""",
        status=None,
    )
    assert file.calls("raises", 0) == 1
    assert file.open_stacks(0) == {"MainThread": ["open"], "daemon": ["hangs"]}


def test_a_fork_s_child_stands_down_and_the_parent_s_calls_are_not_doubled(scripts):  # 116, 76
    file = scripts.record(
        PREAMBLE
        + """
import os
with sl.region("around"):
    with sl.region("before"):
        pass
    pid = os.fork()
    with sl.region("after"):
        pass
    if pid == 0:
        async def main():
            with sl.region("child"):
                await asyncio.sleep(0)
        asyncio.run(main())
        assert type(threading.Thread._bootstrap_inner) is type(main) and not sl.is_active()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
"""
    )
    assert file.ranks == [0]
    assert {name: calls for _, name, calls in file.counts} == {"around": 1, "before": 1, "after": 1}


def test_an_interpreter_without_its_lock_is_refused(scripts):  # 117
    """It gets the lock back, unless the user has forbidden that (PYTHON_GIL=0), which is what sys.flags says then."""
    said = scripts.run(
        """
import sys
class Flags:
    gil = 0
    def __getattr__(self, name):
        return getattr(flags, name)
flags, sys.flags = sys.flags, Flags()
try:
    import scoped_lane
except ImportError as error:
    print(error)
"""
    )
    assert "PYTHON_GIL" in said


def test_subinterpreters_are_refused(scripts):
    said = scripts.run(
        """
import scoped_lane
try:
    import _xxsubinterpreters as interpreters
except ImportError:
    import _interpreters as interpreters
other = interpreters.create()
code = '''
import sys
sys.path = %r
try:
    import scoped_lane
    print("imported", flush=True)
except ImportError as error:
    print("refused", flush=True)
''' % (__import__("sys").path,)
interpreters.run_string(other, code)
with scoped_lane.region("still"):
    print("fine")
"""
    )
    assert said == "refused\nfine\n"


def test_very_many_tasks_leave_memory_flat(scripts):
    count = 1_000_000 if os.environ.get("SL_LONG") else 100_000
    scripts.record(
        PREAMBLE
        + f"""
def rss():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 - segment()

def segment():
    total = 0
    with open("/proc/self/smaps") as file:
        mine = False
        for line in file:
            if "-" in line.split()[0]:
                mine = "scoped-lane" in line
            elif mine and line.startswith("Rss:"):
                total += int(line.split()[1]) * 1024
    return total

async def job():
    pass

async def main():
    for _ in range({count} // 10):
        await asyncio.create_task(job())
    before = rss()
    for _ in range({count}):
        await asyncio.create_task(job())
    grown = rss() - before
    assert grown < 4 << 20, grown

asyncio.run(main())
"""
    )


def test_the_module_may_be_imported_once_more(scripts):
    file = scripts.record(
        """
import sys
import scoped_lane
with scoped_lane.region("twice"):
    pass
for name in [name for name in sys.modules if name.startswith("scoped_lane")]:
    del sys.modules[name]
import asyncio
import scoped_lane as again
async def main():
    with again.region("twice"):
        pass
asyncio.run(main())
try:
    type(again.region("twice"))()
except TypeError:
    print("fine")
"""
    )
    assert file.said == "fine\n" and file.calls("twice", 0) == 2


def test_a_daemon_that_comes_later_is_found_by_setup(scripts):
    import time

    place = scripts.place
    script = scripts.write(
        PREAMBLE
        + """
import os
assert not sl.is_active()
with sl.region("too early"):
    print("waiting", flush=True)
while not os.path.exists("go"):
    time.sleep(0.01)
sl.setup()
assert sl.is_active()
async def main():
    with sl.region("in time"):
        await asyncio.sleep(0)
asyncio.run(main())
"""
    )
    env = {name: value for name, value in scripts.env.items() if value is not None}
    program = place.start(scripts.python, script, **env)
    end = time.monotonic() + 30
    while "waiting" not in program.stdout_text and time.monotonic() < end:
        time.sleep(0.01)
    place.serve()
    (scripts.path / "go").touch()
    program.ends()
    from conftest import RunFile

    file = RunFile(place.run_file())
    assert {name: calls for _, name, calls in file.counts} == {"in time": 1}
    assert [row.name for row in file.threads(0)] == ["MainThread"] and file.run.tasks[0][0].coro_name == "main"


def test_an_interpreter_that_is_made_otherwise_is_left_alone(scripts):
    file = scripts.record(
        """
import asyncio, asyncio.tasks, warnings
del asyncio.tasks._PyTask
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    import scoped_lane as sl
print(len(said), "not followed" in str(said[0].message))
with sl.region("r"):
    asyncio.run(asyncio.sleep(0))
"""
    )
    assert file.said == "1 True\n" and file.calls("r", 0) == 1
