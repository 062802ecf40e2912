"""Greenlets: a lane for each, on every thread, with gevent and without; the same as scope-profiler tells where it can tell it."""

import collections
import os
import subprocess
import sys

import h5py
import pytest
from conftest import HERE, RunFile, installed, wait_until

GREENS = HERE / "scripts" / "greens.py"
GENERATIONS = HERE / "scripts" / "generations.py"
COUNT = 1_000_000 if os.environ.get("SL_LONG") else 60_000
KEPT = 10_000  # finished ones that the live tables keep
pytestmark = pytest.mark.skipif(not installed("gevent"), reason="gevent is not installed")

PREAMBLE = """
import gc, sys, threading, time
import scoped_lane as sl
from greenlet import getcurrent, greenlet

def burn(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass

def pause():
    getcurrent().parent.switch()
"""


def tasks(file, *kinds):
    return [task for task in file.run.tasks.get(0, []) if not kinds or task.kind in kinds]


def memory_kb(pid):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon:"))


def whole(file):
    """Nothing was lost, crossed, left open or left over."""
    (process,) = file.table("processes")
    assert (process["lost"], process["unmatched"], process["crossing"]) == (0, 0, 0)
    assert file.table("open_calls") == [] and process["produced"] == process["stored"]
    return file


# -- beside scope-profiler


def shape(file):
    lanes = collections.defaultdict(collections.Counter)
    for call in file.run.call_stack(rank=0):
        if call["lane"] >= 0:
            lanes[call["lane"]][call["call_path"]] += 1
    return sorted((task.steps, task.done, sorted(lanes[task.index].items())) for task in tasks(file) if task.kind == "greenlet")


@pytest.mark.parametrize("name", ["interleaved", "chained", "failing", "hubs"])
def test_both_profilers_tell_the_same_of_greenlets(scripts, name):
    ours = whole(scripts.record(GREENS, "scoped_lane", name, ""))
    scripts.run(GREENS, "scope_profiler", name, "theirs.h5", python=sys.executable)
    theirs = RunFile(scripts.path / "theirs.h5")
    # theirs has a row for the thread's own greenlet, which is the thread here, and one for the hub, which has a kind of its own
    own = [task for task in tasks(theirs) if task.coro_name in ("NoneType", "Hub.run") and not task.done]
    assert len(own) <= 1 + (name == "hubs") and len(tasks(ours, "hub")) == (name == "hubs")
    found, original = shape(ours), shape(theirs)
    for _ in own:
        original.remove(next(row for row in original if not row[1] and not row[2]))
    assert found == original


def test_on_purpose_the_session_and_the_targets_are_known_and_other_threads_have_lanes(scripts):  # 114
    ours = whole(scripts.record(GREENS, "scoped_lane", "in_threads", ""))
    assert ours.calls("scope_profiler.session") == 1
    assert {task.coro_name for task in tasks(ours)} == {"job"}
    names = {thread.index: thread.name for thread in ours.threads(0)}
    assert collections.Counter(names[task.thread_index] for task in tasks(ours)) == {"w0": 3, "w1": 3, "w2": 3}
    scripts.run(GREENS, "scope_profiler", "in_threads", "theirs.h5", python=sys.executable)
    assert len(tasks(RunFile(scripts.path / "theirs.h5"), "greenlet")) == 0
    scripts.run(GREENS, "scope_profiler", "interleaved", "theirs.h5", python=sys.executable)
    theirs = RunFile(scripts.path / "theirs.h5")
    assert {task.coro_name for task in tasks(theirs, "greenlet")} == {"NoneType"}
    assert theirs.calls("scope_profiler.session") == 0


# -- names


def test_the_target_gives_the_name_however_it_was_given(scripts):  # L22, 55
    file = scripts.record(
        PREAMBLE
        + """
import functools
def plain(*args): pass
class Own(greenlet):
    def __init__(self, x): self.x = x
    def run(self): pass
class Holder:
    def method(self): pass
class Callable:
    def __call__(self): pass
def later(): pass
greenlet(plain).switch()
greenlet(run=plain).switch()
Own(3).switch()
greenlet(Holder().method).switch()
greenlet(functools.partial(plain, 1)).switch()
greenlet(Callable()).switch()
one = greenlet(); one.run = later; one.switch()
with sl.region("a file has the processes that have calls"):
    pass
"""
    )
    assert [task.coro_name for task in tasks(file)] == ["plain", "plain", "Own.run", "Holder.method", "plain", "Callable", "later"]
    assert all(task.name.startswith("greenlet-") and task.done and task.steps == 1 for task in tasks(file))


EARLY = """
import threading
from greenlet import getcurrent, greenlet

def early(go):
    while True:
        getcurrent().parent.switch()
        if go.is_set():
            with sl.region("later"):
                getcurrent().parent.switch()
            return

def work(ready, go):
    ones = [greenlet(early) for _ in range(2)]
    for one in ones:
        one.switch(go)
    ready.set()
    go.wait()
    while any(ones):
        for one in ones:
            if not one.dead:
                one.switch()

go, threads = threading.Event(), []
for i in range(3):
    ready = threading.Event()
    threads.append(threading.Thread(target=work, args=(ready, go), name=f"w{i}"))
    threads[-1].start()
    ready.wait()
import scoped_lane as sl
tracker = sl.ConcurrencyTracker(track_async=True)
tracker.install()
go.set()
for thread in threads:
    thread.join()
print([(row.coro_name, row.kind, row.steps, row.done) for row in tracker.tasks])
"""


def test_greenlets_that_run_already_have_lanes_from_their_next_switch_on_every_thread(scripts):  # L21
    assert scripts.run(EARLY).strip() == str([("early", "greenlet", 2, True)] * 6), "for a tracker, without a daemon"
    file = whole(scripts.record(EARLY))
    assert [(row.coro_name, row.kind, row.steps, row.done) for row in tasks(file)] == [("early", "greenlet", 2, True)] * 6
    names = {thread.index: thread.name for thread in file.threads(0)}
    lanes = collections.Counter((names[row.thread_index], row.index) for row in tasks(file))
    assert collections.Counter(name for name, _ in lanes) == {f"w{i}": 2 for i in range(3)}
    assert sorted(file.run["later"][0].task_ids) == sorted(row.index for row in tasks(file))


# -- ends


def test_one_that_dies_by_an_exception_is_thrown_at_or_dropped_is_finished(scripts):  # 114
    file = whole(
        scripts.record(
            PREAMBLE
            + """
def fails():
    with sl.region("fails"):
        raise KeyError
def waits():
    with sl.region("waits"):
        pause()
try:
    greenlet(fails).switch()
except KeyError:
    pass
thrown = greenlet(waits); thrown.switch()
try:
    thrown.throw(ValueError)
except ValueError:
    pass
killed = greenlet(waits); killed.switch(); killed.throw()
dropped = greenlet(waits); dropped.switch(); del dropped
greenlet(waits).throw()
unstarted = greenlet(waits); del unstarted
from scoped_lane import _core
print(_core.known_greenlets())
"""
        )
    )
    assert [(task.coro_name, task.steps, task.done) for task in tasks(file)] == [("fails", 1, True)] + [("waits", 2, True)] * 3 + [("waits", 1, True)]
    assert file.calls("fails") == 1 and file.calls("waits") == 3
    assert int(file.said) <= 2  # the thread's own, and no more than one that is still named


@pytest.mark.parametrize("how", ["greenlet", "spawn_later"])
def test_a_million_generations_leave_nothing_behind_in_the_program_nor_in_the_daemon(scripts, service, how):  # L28
    program = service.start(scripts.python, GENERATIONS, how, COUNT, stdin=subprocess.PIPE, **scripts.env)
    seen = []
    for quarter in range(1, 5):
        wait_until(lambda: program.stdout_text.count("\n") == quarter or program.poll() is not None, 300, f"quarter {quarter}")
        count, resident_kb, known = map(int, program.stdout_text.splitlines()[-1].split())
        assert count == quarter * COUNT // 4 and known <= 4
        (process,) = wait_until(lambda: [row for row in service.rows("processes") if row["produced"] == row["stored"] + row["lost"] == count])
        (segment,) = service.segments()
        seen.append((resident_kb, memory_kb(service.daemon.pid), segment.stat().st_size >> 10))
        if quarter < 4:
            program.stdin.write(b"\n")
            program.stdin.flush()
    print("resident kB of the program and of the daemon, kB of shared memory at each quarter:", *seen)
    for program_kb, daemon_kb, shared_kb in seen[1:]:
        assert program_kb < seen[0][0] + 1024 and shared_kb < 64 << 10, seen
        # A daemon that was kept waiting takes many rows at once: never more than the segment has room for.
        assert daemon_kb < 1.2 * seen[0][1] + 4096 + (shared_kb - seen[0][2]) / 5, seen
    others = process["tasks"] - COUNT  # the hub
    assert others == (how == "spawn_later")
    wait_until(lambda: service.rows("processes")[0]["tasks_folded"] >= COUNT - KEPT, what="all but the newest are folded")
    assert len(service.rows("tasks")) <= KEPT + 2 and process["lost"] < COUNT // 10
    program.stdin.close()
    program.ends()
    file = RunFile(service.run_file(120))
    with h5py.File(file.path) as h5:
        kinds = collections.Counter(h5["task_table/kind"].asstr()[()])
        assert kinds["greenlet"] == COUNT and (h5["task_table/done_ns"][()] > 0).sum() >= COUNT
    assert file.calls("generation") == process["stored"]


# -- the application's own trace


def test_the_applications_trace_goes_on_and_what_it_asks_for_is_its_own(scripts):
    said = scripts.record(
        """
import greenlet
seen = []
def mine(event, args):
    seen.append(event)
greenlet.settrace(mine)
import scoped_lane as sl
assert greenlet.gettrace() is mine, greenlet.gettrace()
greenlet.greenlet(lambda: None).switch()
assert seen == ["switch", "switch"], seen
other = []
assert greenlet.settrace(lambda *args: other.append(args)) is mine
def fails():
    raise KeyError
try:
    greenlet.greenlet(fails).switch()
except KeyError:
    pass
assert len(seen) == 2 and [event for event, _ in other] == ["switch", "throw"], other
def broken(event, args):
    raise ValueError("trace")
greenlet.settrace(broken)
try:
    greenlet.greenlet(lambda: None).switch()
except ValueError as error:
    print(error)
assert greenlet.gettrace() is None
with sl.region("on"):
    greenlet.greenlet(lambda: None).switch()
"""
    )
    assert said.said == "trace\n" and said.calls("on") == 1
    assert len(tasks(said)) >= 3 and tasks(said)[-1].done


def test_a_trace_that_was_put_over_ours_stays_when_ours_is_taken_out(scripts):
    scripts.run(
        """
import greenlet
settrace, gettrace, seen = greenlet.settrace, greenlet.gettrace, []
import scoped_lane as sl
tracker = sl.ConcurrencyTracker(track_async=True)
tracker.install()
below = gettrace()
def over(event, args):
    seen.append(event)
    below(event, args)
assert settrace(over) is below
greenlet.greenlet(lambda: None).switch()
tracker.uninstall()
greenlet.greenlet(lambda: None).switch()
assert gettrace() is over and len(seen) == 4 and len(tracker.tasks) == 1
tracker.install()
greenlet.greenlet(lambda: None).switch()
assert len(seen) == 6 and [row.done for row in tracker.tasks] == [True, True]
"""
    )


def test_what_was_put_in_is_taken_out(scripts):
    scripts.run(
        PREAMBLE
        + """
import greenlet as module
before = (module.settrace, module.gettrace, module.greenlet.__init__, module.greenlet.__dict__["run"], module.gettrace())
def other(ready, go):
    one = module.greenlet(lambda: getcurrent().parent.switch())
    one.switch()
    ready.set(); go.wait()
    one.switch()
    assert module.gettrace() is None
ready, go = threading.Event(), threading.Event()
tracker = sl.ConcurrencyTracker(track_async=True)
tracker.install()
assert module.settrace is not before[0] and module.gettrace() is None
thread = threading.Thread(target=other, args=(ready, go)); thread.start(); ready.wait()
class Made(greenlet):
    pass
assert Made(lambda: 5).switch() == 5
tracker.uninstall()
go.set(); thread.join()
assert (module.settrace, module.gettrace, module.greenlet.__init__, module.greenlet.__dict__["run"], module.gettrace()) == before
assert Made(lambda: 6).switch() == 6
rows = [(row.coro_name, row.steps) for row in tracker.tasks]
assert rows == [("other.<locals>.<lambda>", 1), ("<lambda>", 1)], rows
"""
    )


# -- gevent


def test_geventless_time_is_not_charged_to_who_sleeps(scripts):  # L19
    file = whole(
        scripts.record(
            PREAMBLE
            + """
import gevent
def foo():
    with sl.region("foo"):
        for _ in range(5):
            burn(0.02)
            gevent.sleep(0.1)
started = time.process_time()
gevent.joinall([gevent.spawn(foo) for _ in range(4)])
print(time.process_time() - started)
"""
        )
    )
    greens = tasks(file, "greenlet")
    assert [task.coro_name for task in greens] == ["foo"] * 4 and [task.name for task in greens] == [f"Greenlet-{i}" for i in range(4)]
    assert all(task.done and task.steps == 6 and task.awaiting_time >= 0.5 for task in greens)
    foo = file.run["foo"][0]
    for task in greens:
        (call,) = [i for i in range(4) if foo.task_ids[i] == task.index]
        assert foo.await_times_ns[call] >= 0.5e9 and abs(foo.durations_ns[call] - foo.await_times_ns[call] - task.running_time * 1e9) < 5e6
        assert task.running_time >= 0.1
    (hub,) = tasks(file, "hub")
    assert hub.name == "hub" and hub.coro_name == "Hub.run"


def test_the_running_time_of_all_lanes_is_the_processor_time_of_the_process(scripts):  # L09
    file = whole(
        scripts.record(
            PREAMBLE
            + """
import gevent, greenlet as module
spent = {False: [0.0, 0.0], True: [0.0, 0.0]}  # by whether it is one of ours: wall, processor
def clocks():
    return time.perf_counter(), time.thread_time()
def trace(event, args):
    global last
    now = clocks()
    for i in range(2):
        spent[isinstance(args[0], gevent.Greenlet)][i] += now[i] - last[i]
    last = now
def work():
    for _ in range(50):
        burn(0.01)
        gevent.sleep(0.05)
with sl.region("all"):
    last = clocks()
    module.settrace(trace)
    began = time.process_time()
    gevent.joinall([gevent.spawn(work) for _ in range(4)])
    print(time.process_time() - began, *spent[True])
"""
        )
    )
    process, wall, processor = map(float, file.said.split())
    greens = tasks(file, "greenlet")
    assert [(task.coro_name, task.steps, task.done) for task in greens] == [("work", 51, True)] * 4
    running = sum(task.running_time for task in greens)
    # Others may have the processor in the middle of a step, which runs on then: that much the program has seen itself.
    assert 0.95 < (running - (wall - processor)) / process < 1.05, (running, wall, processor, process)


def test_gevent_on_threads_names_kills_and_native_pool_threads(scripts):  # L21, L23
    file = whole(
        scripts.record(
            PREAMBLE
            + """
import gevent, gevent.threadpool
def waits():
    with sl.region("waits"):
        gevent.sleep(100)
def native():
    with sl.region("native"):
        time.sleep(0.005)
def fails():
    with sl.region("fails"):
        raise ValueError
class Own(gevent.Greenlet):
    def _run(self):
        with sl.region("own"):
            gevent.sleep(0)
def work():
    named = gevent.spawn(waits); named.name = "named"
    gevent.sleep(0.001)
    named.kill()
    gevent.spawn(waits).kill()
    Own.spawn().get()
    failed = gevent.spawn(fails); failed.join()
with sl.session(verbose=False, output=None):
    work()
    thread = threading.Thread(target=work, name="second"); thread.start(); thread.join()
    pool = gevent.threadpool.ThreadPool(2)
    for result in [pool.spawn(native) for _ in range(4)]:
        result.get()
""",
        )
    )
    names = {thread.index: thread.name for thread in file.threads(0)}
    rows = collections.Counter((names[task.thread_index], task.kind, task.coro_name, task.name == "named", task.done) for task in tasks(file))
    for thread in ("MainThread", "second"):
        assert rows[(thread, "greenlet", "waits", True, True)] == 1 and rows[(thread, "greenlet", "fails", False, True)] == 1
        assert rows[(thread, "greenlet", "Own._run", False, True)] == 1 and sum(rows[(thread, "hub", "Hub.run", False, done)] for done in (True, False)) == 1
    assert {name: file.calls(name) for name in ("waits", "native", "fails", "own", "scope_profiler.session")} == {
        "waits": 2, "native": 4, "fails": 2, "own": 2, "scope_profiler.session": 1
    }  # fmt: skip


@pytest.mark.parametrize(
    "first",
    [
        "from gevent import monkey; monkey.patch_all()\nimport scoped_lane as sl",
        "import scoped_lane as sl\nfrom gevent import monkey; monkey.patch_all()",
    ],
)
def test_threads_that_gevent_has_made_greenlets_of_keep_their_names(scripts, first):
    file = whole(
        scripts.record(
            first
            + """
import threading, time
def work(new_name):
    with sl.region("work"):
        time.sleep(0.005)
        if new_name:
            threading.current_thread().name = new_name
        with sl.region("inner"):
            time.sleep(0.005)
with sl.region("main"):
    threads = [threading.Thread(target=work, args=(new,), name=name) for name, new in (("kept", ""), ("given", "last"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""
        )
    )
    assert [(task.name, task.coro_name, task.done) for task in tasks(file, "greenlet")] == [("kept", "work", True), ("last", "work", True)]
    assert [thread.name for thread in file.threads(0)] == ["MainThread"]
    assert {name: file.calls(name) for name in ("main", "work", "inner")} == {"main": 1, "work": 2, "inner": 2}


def test_a_task_of_asyncio_that_runs_greenlets_keeps_its_step(scripts):
    file = whole(
        scripts.record(
            PREAMBLE
            + """
import asyncio
async def spawn(function):
    one = greenlet(function, getcurrent())
    result = one.switch()
    while not one.dead:
        result = one.switch(await result)
    return result
def sync():
    with sl.region("sync"):
        return getcurrent().parent.switch(asyncio.sleep(0.002, 7))
async def job():
    with sl.region("job"):
        assert await spawn(sync) == 7
async def main():
    await asyncio.gather(job(), job(), job())
asyncio.run(main())
"""
        )
    )
    assert collections.Counter(task.coro_name for task in tasks(file) if task.kind == "greenlet") == {"sync": 3}
    assert file.calls("job") == 3 and file.calls("sync") == 3
    assert all(task.done for task in tasks(file))


def test_a_fork_in_a_greenlet_is_followed_in_it(scripts):
    file = scripts.record(
        PREAMBLE
        + """
import os
def forks():
    with sl.region("before"):
        pid = os.fork()
        if pid:
            os.waitpid(pid, 0)
    with sl.region("after"):
        pause()
one = greenlet(forks)
one.switch()
one.switch()
""",
        SCOPED_LANE_FORK="follow",
    )
    assert [(file.calls("before", rank), file.calls("after", rank)) for rank in (0, 1)] == [(1, 1), (0, 1)]
    assert [[(task.coro_name, task.done) for task in file.run.tasks[rank]] for rank in (0, 1)] == [[("forks", True)]] * 2
