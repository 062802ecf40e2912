"""Asyncio tasks as lanes of the run file. Numbers in comments are those of the shared list of cases."""

import collections
import importlib.util
import json
import sys

import pytest
from conftest import PYTHON, VERSION

PREAMBLE = """
import asyncio, sys, time, threading
import scoped_lane as sl

def spin(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass
"""

THEIRS = PREAMBLE.replace("import scoped_lane as sl", "import scope_profiler as sl; OUTPUT = 'theirs.h5'")
needs_uvloop = pytest.mark.skipif(
    PYTHON != sys.executable or importlib.util.find_spec("uvloop") is None, reason="uvloop is not installed"
)


def tasks(file, tail=None):
    rows = file.run.tasks.get(0, [])
    return [row for row in rows if tail is None or row.coro_name.rsplit(".", 1)[-1] == tail]


def untouched(file):
    """Nothing lost, unmatched or crossing, whatever the program did."""
    assert sum(row["count"] for row in file.table("loss")) == 0
    assert file.table("crossing") == []
    assert "unmatched" not in file.complaints


@pytest.mark.parametrize("loop", ["asyncio", pytest.param("uvloop", marks=needs_uvloop)])
def test_every_way_of_making_a_task_gives_one_lane_exactly_once(scripts, loop):  # L11, L12
    file = scripts.record(
        PREAMBLE
        + f"""
loops = {loop!r}
if loops == "uvloop":
    import uvloop
    new_loop = uvloop.new_event_loop
else:
    new_loop = asyncio.new_event_loop

async def job(way):
    asyncio.current_task().set_name(way)
    with sl.region("job"):
        await asyncio.sleep(0.001)

async def main():
    loop = asyncio.get_running_loop()
    await asyncio.create_task(job("create_task"))
    await loop.create_task(job("loop.create_task"))
    await asyncio.ensure_future(job("ensure_future"))
    await asyncio.gather(job("gather"))
    await asyncio.wait_for(job("wait_for"), 5)
    await asyncio.Task(job("Task"))
    if sys.version_info >= (3, 11):
        async with asyncio.TaskGroup() as group:
            group.create_task(job("TaskGroup"))

loop = new_loop()
loop.run_until_complete(main())
loop.run_until_complete(job("run_until_complete"))
loop.close()
if sys.version_info >= (3, 11):
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(job("Runner"))
assert sl.untracked_tasks() == 0
"""
    )
    ways = ["create_task", "loop.create_task", "ensure_future", "gather", "Task", "run_until_complete"]
    ways += ["TaskGroup", "Runner"] if VERSION >= (3, 11) else []
    ways += ["wait_for"]
    names = collections.Counter(row.name for row in tasks(file, "job"))
    if VERSION >= (3, 12):  # wait_for awaits in its caller's task there, whose name it sets then
        del names["wait_for"]
        ways.remove("wait_for")
    else:
        assert names.pop("wait_for") == 1
        ways.remove("wait_for")
    assert names == {way: 1 for way in ways}
    assert file.calls("job", 0) == len(ways) + 1
    assert all(row.done and row.steps >= 2 for row in tasks(file, "job"))
    assert len({int(task) for task in file.run["job"][0].task_ids}) == len(ways) + 1
    untouched(file)


@pytest.mark.parametrize("loop", ["asyncio.run", pytest.param("uvloop.run", marks=needs_uvloop)])
def test_waiting_and_working_are_told_apart(scripts, loop):  # L01, L04, L06, L11, L15
    file = scripts.record(
        PREAMBLE
        + f"""
import {loop.split(".")[0]}

async def waits():
    with sl.region("waits"):
        await asyncio.sleep(0.3)

async def works():
    with sl.region("works"):
        time.sleep(0.3)

async def main():
    await asyncio.gather(waits(), works())

{loop}(main())
"""
    )
    region, = (file.run["waits"][0],)
    assert region.durations[0] - region.await_times[0] < 0.1 < 0.25 < region.await_times[0]
    assert file.run["works"][0].await_times[0] == 0 and file.run["works"][0].durations[0] >= 0.3
    worker, = tasks(file, "works")
    assert worker.running_time >= 0.3 and worker.steps == 1
    waiter, = tasks(file, "waits")
    assert waiter.running_time < 0.1 and waiter.awaiting_time > 0.25 and waiter.steps == 2
    lanes = {call["name"]: call["lane"] for call in file.run.call_stack(rank=0)}
    assert lanes["waits"] != lanes["works"] and min(lanes.values()) >= 0
    assert not any("_run_once" in row.coro_name for row in tasks(file))
    untouched(file)


def test_a_task_that_ends_before_it_is_awaited_is_whole(scripts):  # L02
    file = scripts.record(
        PREAMBLE
        + """
async def waits(seconds):
    with sl.region("task"):
        await asyncio.sleep(seconds)

async def main():
    for more in (-0.02, 0, 0.02):
        task = asyncio.create_task(waits(0.05 + more))
        with sl.region("main"):
            await asyncio.sleep(0.05)
        await task

asyncio.run(main())
"""
    )
    assert file.calls("task", 0) == file.calls("main", 0) == 3
    assert sorted(file.run["task"][0].durations)[0] >= 0.03
    untouched(file)


def test_names_given_and_set_later_win(scripts):  # 109
    """scope-profiler stores "Task-N" for names given at creation."""
    code = """
async def job():
    await asyncio.sleep(0)

async def main():
    named = asyncio.create_task(job(), name="given")
    later = asyncio.create_task(job())
    later.set_name("set later")
    last = asyncio.create_task(job(), name="first")
    await asyncio.gather(named, later, last)
    last.set_name("last")
    assert (named.get_name(), later.get_name(), last.get_name()) == ("given", "set later", "last")

with sl.session(track_async=True, verbose=False, output=OUTPUT):
    with sl.region("all"):
        asyncio.run(main())
"""
    file = scripts.record("OUTPUT = None" + PREAMBLE + code)
    assert [row.name for row in tasks(file, "job")][:2] == ["given", "set later"]
    assert tasks(file, "job")[2].name in ("first", "last")  # a task that has ended may be gone from the tables
    scripts.run(THEIRS + code, python=sys.executable)
    theirs = type(file)(scripts.path / "theirs.h5")
    assert not any(row.name == "given" for row in theirs.run.tasks[0]), "theirs has learnt it: tell the docs"


def test_an_application_s_task_factory_is_called_before_and_after_ours(scripts):  # L13, 54
    file = scripts.record(
        PREAMBLE
        + """
seen = []

def factory(loop, coro, **kwargs):
    seen.append(coro.__name__)
    return asyncio.Task(coro, loop=loop, **kwargs)

class Own(asyncio.Task):
    def __init__(self, coro, **kwargs):
        super().__init__(coro, **kwargs)
        self.mine = True

async def job():
    with sl.region("job"):
        await asyncio.sleep(0)

async def main():
    loop = asyncio.get_running_loop()
    loop.set_task_factory(factory)
    assert loop.get_task_factory() is factory
    await asyncio.gather(job(), job())
    assert seen == ["job", "job"]
    loop.set_task_factory(lambda loop, coro, **kwargs: Own(coro, loop=loop, **kwargs))
    task = asyncio.create_task(job())
    assert type(task) is Own and task.mine
    await task
    if sys.version_info >= (3, 12):
        loop.set_task_factory(asyncio.eager_task_factory)
        await asyncio.gather(job(), job())
    assert sl.untracked_tasks() == 0

asyncio.run(main())
"""
    )
    count = 5 if VERSION >= (3, 12) else 3
    assert len(tasks(file, "job")) == file.calls("job", 0) == count
    assert len(set(file.run["job"][0].task_ids.tolist())) == count
    untouched(file)


def test_tracking_that_begins_in_a_running_loop_makes_its_tasks_lanes(scripts):  # L18
    file = scripts.record(
        """
import asyncio

async def before():
    await started.wait()
    import scoped_lane
    with scoped_lane.region("before"):
        await asyncio.sleep(0.001)

async def main():
    global started
    started = asyncio.Event()
    task = asyncio.create_task(before())
    await asyncio.sleep(0)
    import scoped_lane as sl
    with sl.region("main"):
        started.set()
        await asyncio.sleep(0.02)
        await task
    assert sl.untracked_tasks() == 0

asyncio.run(main())
"""
    )
    rows = {row.coro_name: row for row in tasks(file)}
    assert set(rows) >= {"main", "before"} and rows["main"].done and rows["before"].done
    assert set(file.run["main"][0].task_ids.tolist()) == {rows["main"].index}
    assert file.calls("before", 0) == 1
    untouched(file)


def test_a_region_around_yield_in_an_async_generator_left_early_is_closed(scripts):  # 109
    """scope-profiler loses it."""
    code = """
async def numbers():
    with sl.region("numbers"):
        for n in range(100):
            yield n
            await asyncio.sleep(0)

async def leaves(n):
    async for number in numbers():
        if number == n:
            break
    await asyncio.sleep(0.01)

async def ends_at_once(n):
    async for number in numbers():
        if number == n:
            break

async def main():
    await asyncio.gather(leaves(1), leaves(3), ends_at_once(2), ends_at_once(2))
    generator = numbers()
    async for number in generator:
        break
    await generator.aclose()
    await asyncio.sleep(0.01)

with sl.session(track_async=True, verbose=False, output=OUTPUT):
    asyncio.run(main())
"""
    file = scripts.record("OUTPUT = None" + PREAMBLE + code)
    assert file.calls("numbers", 0) == 5
    assert file.table("open_calls") == []
    names = {row.index: row.coro_name for row in tasks(file)}
    owners = collections.Counter(names[task] for task in file.run["numbers"][0].task_ids.tolist())
    assert owners == {"leaves": 2, "ends_at_once": 2, "main": 1}
    untouched(file)
    scripts.run(THEIRS + code, python=sys.executable)
    theirs = type(file)(scripts.path / "theirs.h5")
    assert theirs.calls("numbers", 0) < 5, "theirs has learnt it: tell the docs"


def test_debug_mode_stacks_timeouts_and_cancellation_behave_as_without_us(scripts):
    code = (
        PREAMBLE
        + """
import io, inspect, warnings

async def inner(event):
    await event.wait()

async def outer(event):
    with sl.region("outer"):
        await inner(event)

async def main():
    event = asyncio.Event()
    coro = outer(event)
    task = asyncio.create_task(coro, name="outer")
    await asyncio.sleep(0)
    assert task.get_coro() is coro
    assert inspect.getcoroutinestate(task.get_coro()) == "CORO_SUSPENDED"
    print([frame.f_code.co_name for frame in task.get_stack()])
    text = io.StringIO()
    task.print_stack(file=text)
    print("await inner(event)" in text.getvalue())
    print(repr(task).split(" at ")[0], type(task).__name__)
    task.cancel("because")
    try:
        await task
    except asyncio.CancelledError as error:
        print("cancelled", error.args)
    try:
        await asyncio.wait_for(outer(event), 0.01)
    except asyncio.TimeoutError:
        print("timeout")
    if sys.version_info >= (3, 11):
        try:
            async with asyncio.timeout(0.01):
                await outer(event)
        except TimeoutError:
            print("timeout")
    try:
        asyncio.Task("no coroutine")
    except TypeError as error:
        print(error)

    async def fails():
        raise KeyError("mine")

    try:
        await asyncio.create_task(fails())
    except KeyError as error:
        print([frame.name for frame in __import__("traceback").extract_tb(error.__traceback__)])
    print(asyncio.Task.__init__.__name__, asyncio.Task.set_name.__name__, hasattr(asyncio.Task, "get_coro"))
    return 7

print(asyncio.run(main(), debug=True))
"""
    )
    assert scripts.record(code, PYTHONASYNCIODEBUG="1").said == scripts.run(code)


def test_with_scoped_lane_async_0_there_is_no_task(scripts):
    file = scripts.record(
        PREAMBLE
        + """
plain = asyncio.Task.__dict__["__init__"]

async def main():
    with sl.region("main"):
        await asyncio.sleep(0)

asyncio.run(main())
assert type(plain).__name__ == "wrapper_descriptor"
print(sl.manager._core.task_counts())
""",
        SCOPED_LANE_ASYNC="0",
    )
    assert file.said == "(0, 0)\n" and file.run.tasks == {} and file.calls("main", 0) == 1


def test_thirty_thousand_tasks_in_one_region_cost_time_linear_in_tasks(scripts):  # 115
    file = scripts.record(
        PREAMBLE
        + """
async def job(event):
    with sl.region("both"):
        await event.wait()

async def main():
    times = []
    for count in (3000, 30000):
        event = asyncio.Event()
        begun = time.process_time()
        jobs = [asyncio.create_task(job(event)) for _ in range(count)]
        await asyncio.sleep(0)
        event.set()
        await asyncio.gather(*jobs)
        times.append(time.process_time() - begun)
    assert times[1] < 60 * times[0], times  # ten times the work; a quadratic one is a hundred

asyncio.run(main())
""",
        SCOPED_LANE_RING="4M",
    )
    assert file.calls("both", 0) == 33000
    assert sum(1 for row in tasks(file, "job")) == 33000


def test_asyncio_s_task_in_python_has_lanes_too(scripts):
    file = scripts.record(
        PREAMBLE
        + """
import asyncio.tasks
asyncio.Task = asyncio.tasks._CTask = asyncio.tasks.Task = asyncio.tasks._PyTask

async def job():
    with sl.region("job"):
        await asyncio.sleep(0.001)

async def main():
    task = asyncio.create_task(job(), name="mine")
    assert type(task) is asyncio.tasks._PyTask and task.get_coro().cr_code.co_name == "job"
    await task

asyncio.get_event_loop_policy()
loop = asyncio.new_event_loop()
loop.run_until_complete(main())
loop.close()
"""
    )
    assert [(row.name, row.done, row.steps) for row in tasks(file, "job")] == [("mine", True, 2)]
    assert file.calls("job", 0) == 1
    untouched(file)


def test_loops_of_several_threads_and_a_long_step_are_seen(scripts):  # L08, L14, 52
    file = scripts.record(
        PREAMBLE
        + """
async def burns():
    with sl.region("burns"):
        spin(0.1)

async def idles():
    for _ in range(5):
        await asyncio.sleep(0.005)

async def main():
    await asyncio.gather(burns(), idles(), idles(), idles())

thread = threading.Thread(target=lambda: asyncio.run(main()), name="loop")
thread.start()
thread.join()
"""
    )
    thread = next(row for row in file.threads(0) if row.name == "loop")
    assert all(row.thread_index == thread.index for row in tasks(file))
    burner, = tasks(file, "burns")
    assert burner.running_time >= 0.1 and all(row.running_time < 0.1 for row in tasks(file, "idles"))
    assert sum(row.running_time for row in tasks(file)) <= thread.wall_time


def test_tasks_keep_their_durations_when_only_threads_are_asked_for(scripts):  # 121
    """In scope-profiler they change places."""
    code = """
async def job(seconds):
    with sl.region("job"):
        await asyncio.sleep(seconds)

async def main():
    await asyncio.gather(job(0.02), job(0.1), job(0.3))

with sl.session(track_threads=True, verbose=False, output=OUTPUT):
    asyncio.run(main())
"""
    file = scripts.record("OUTPUT = None" + PREAMBLE + code)
    names = {row.index: row.name for row in tasks(file)}
    region = file.run["job"][0]
    assert [names[task] for task in region.task_ids] == ["Task-2", "Task-3", "Task-4"]
    first, second, third = region.durations
    assert 0.02 <= first and 0.1 <= second and 0.3 <= third and first < third
    scripts.run(THEIRS + code, python=sys.executable)
    theirs = type(file)(scripts.path / "theirs.h5")
    assert theirs.run["job"][0].durations[0] >= 0.3, "theirs has learnt it: tell the docs"


def test_a_tracker_beside_a_daemon_knows_what_the_file_knows(scripts):
    file = scripts.record(
        PREAMBLE
        + """
import json

async def job(n):
    with sl.region("job"):
        await asyncio.sleep(0.001 * n)

async def main():
    await asyncio.gather(job(1), job(2))

def work():
    asyncio.run(main())

tracker = sl.ConcurrencyTracker(track_async=True)
tracker.install()
thread = threading.Thread(target=work, name="worker")
thread.start()
thread.join()
columns = tracker.snapshot()["tasks"]
print(json.dumps([[row.name, row.coro_name, row.steps, row.running_ns, row.suspended_ns] for row in tracker.tasks]))
print(json.dumps([row.name for row in tracker.threads]))
assert columns["steps"].tolist() == [row.steps for row in tracker.tasks]
tracker.uninstall()
"""
    )
    rows, threads = map(json.loads, file.said.splitlines())
    assert threads == ["worker"]
    found = [[row.name, row.coro_name, row.steps, row.running_time * 1e9, row.awaiting_time * 1e9] for row in tasks(file)]
    assert [row[:3] for row in found] == [row[:3] for row in rows]
    for mine, its in zip(rows, found):
        assert mine[3:] == pytest.approx(its[3:], rel=0.01, abs=10_000)


@pytest.mark.skipif(VERSION < (3, 12), reason="eager factories come with 3.12")
def test_an_eager_task_factory_loses_no_call(scripts):  # 109
    """In scope-profiler every call that is open at the task's first suspension is lost."""
    code = """
async def job():
    with sl.region("job"):
        await asyncio.sleep(0.001)

async def at_once():
    with sl.region("at once"):
        return 7

async def main():
    asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
    with sl.region("main"):
        assert await asyncio.create_task(at_once()) == 7
        await asyncio.gather(asyncio.create_task(job(), name="named"), job())

with sl.session(track_async=True, verbose=False, output=OUTPUT):
    asyncio.run(main())
"""
    file = scripts.record("OUTPUT = None" + PREAMBLE + code)
    assert (file.calls("job", 0), file.calls("at once", 0), file.calls("main", 0)) == (2, 1, 1)
    (eager,) = tasks(file, "at_once")
    assert (eager.name, eager.steps, eager.done) == ("Task-2", 1, True)
    named, other = tasks(file, "job")
    assert named.name == "named" and other.name in ("Task-4", "None")  # some versions set the name to None
    assert set(file.run["at once"][0].task_ids.tolist()) == {eager.index}
    untouched(file)
    if PYTHON == sys.executable:  # theirs is installed there alone
        scripts.run(THEIRS + code, python=sys.executable)
        assert type(file)(scripts.path / "theirs.h5").calls("job", 0) < 2, "theirs has learnt it: tell the docs"
