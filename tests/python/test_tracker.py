"""ConcurrencyTracker and its rows. Numbers are those of the shared list of test ideas."""

import array
import asyncio
import gc
import os
import sys
import threading
import time

import numpy as np
import pytest
from scoped_lane import _core, hooks
from scoped_lane.concurrency import (
    CPU_SAMPLE_MASK,
    NO_TASK,
    UNKNOWN,
    ConcurrencyTracker,
    TaskInfo,
    TaskRecord,
    ThreadInfo,
    ThreadRecord,
    lane_ids,
    lane_tables_from_columns,
)


def plain_hooks():
    return (
        asyncio.Task.__dict__["__init__"],
        asyncio.Task.__dict__["set_name"],
        asyncio.Task.__dict__["get_coro"],
        asyncio.BaseEventLoop.run_forever,
        asyncio.BaseEventLoop.create_task,
        asyncio.tasks._PyTask.__init__,
        threading.Thread.__dict__["name"],
        threading.Thread.__dict__["_bootstrap_inner"],
        threading._profile_hook,
    )


def threads_are_met():
    """Whether new threads are told of."""
    return threading.Thread._bootstrap_inner is hooks._begin


@pytest.fixture(autouse=True)
def hooks_are_put_back():
    before = plain_hooks()
    yield
    gc.collect()
    assert all(a is b for a, b in zip(plain_hooks(), before))
    assert not hooks._users


@pytest.fixture
def tracker():
    tracker = ConcurrencyTracker(track_async=True)
    tracker.install()
    yield tracker
    tracker.uninstall()


def in_thread(function, name="worker", daemon=False):
    thread = threading.Thread(target=function, name=name, daemon=daemon)
    thread.start()
    thread.join()


def test_constants_are_the_original_s():
    theirs = pytest.importorskip("scope_profiler.concurrency")
    assert (NO_TASK, UNKNOWN, CPU_SAMPLE_MASK) == (theirs.NO_TASK, theirs.UNKNOWN, theirs.CPU_SAMPLE_MASK)


def test_names_arguments_and_defaults_are_the_original_s():
    import inspect

    theirs = pytest.importorskip("scope_profiler.concurrency")
    import scoped_lane.concurrency as ours

    for name in ("ConcurrencyTracker", "ThreadRecord", "TaskRecord", "ThreadInfo", "TaskInfo", "lane_ids"):
        mine, its = getattr(ours, name), getattr(theirs, name)
        parameters = [[(p.name, p.default) for p in inspect.signature(f).parameters.values()] for f in (mine, its)]
        assert parameters[0] == parameters[1], name
        if inspect.isclass(its):
            public = {member for member in dir(its) if not member.startswith("_")}
            assert public <= set(dir(mine)) | set(getattr(mine(), "__dict__", {}) if name == "ConcurrencyTracker" else ()), name
            for member in public:
                function = getattr(its, member)
                if inspect.isfunction(function):
                    own = inspect.signature(getattr(mine, member)).parameters
                    assert [(p.name, p.default) for p in own.values()] == [
                        (p.name, p.default) for p in inspect.signature(function).parameters.values()
                    ], (name, member)


def test_the_current_thread_has_one_record():  # 32, 58
    tracker = ConcurrencyTracker()
    record = tracker.current_thread()
    assert record is tracker.current_thread() and record.index == 0 and tracker.threads == [record]
    assert record.ident == threading.get_ident() and record.native_id == threading.get_native_id()
    assert record.alive and record.end_ns == UNKNOWN and record.task is None and record.daemon is False
    before = record.cpu_ns
    record.sample_cpu()
    assert 0 < before <= record.cpu_ns and "index=0" in repr(record)
    for i in range(3):
        in_thread(tracker.current_thread, f"t{i}")
    assert [row.index for row in tracker.threads] == [0, 1, 2, 3]
    assert [row.name for row in tracker.threads[1:]] == ["t0", "t1", "t2"]


def test_threads_are_known_from_their_first_bytecode_and_end_exactly(tracker):  # 9, 11, 12, 59, 74
    seen = []

    def work():
        seen.append((sys.getprofile(), tracker.threads[-1].name, tracker.threads[-1].alive))
        end = time.thread_time() + 0.01
        while time.thread_time() < end:
            pass

    in_thread(work, "one")
    assert seen == [(None, "one", True)]
    (record,) = [row for row in tracker.threads if row.name == "one"]
    assert not record.alive and record.end_ns > record.start_ns > 0 and record.cpu_ns >= 10_000_000 and record.ident
    in_thread(lambda: None, "two", daemon=True)
    assert tracker.threads[-1].name == "two" and tracker.threads[-1].daemon is True


def test_an_earlier_profile_hook_of_threads_is_chained():  # 75
    events = []

    def earlier(frame, event, arg):
        events.append(event)

    threading.setprofile(earlier)
    try:
        tracker = ConcurrencyTracker()
        tracker.install()
        seen = []
        in_thread(lambda: seen.append(sys.getprofile()), "hooked")
        assert seen == [earlier] and events[0] == "call" and tracker.threads[-1].name == "hooked"
        tracker.uninstall()
        assert threading._profile_hook is earlier
    finally:
        threading.setprofile(None)


def test_a_hook_that_the_program_set_after_ours_is_left():
    tracker = ConcurrencyTracker()
    tracker.install()
    threading.setprofile(print)
    tracker.uninstall()
    assert threading._profile_hook is print
    threading.setprofile(None)


def test_a_beginning_that_somebody_put_around_ours_stays_and_leads_to_it_once():
    tracker, begun, plain = ConcurrencyTracker(), [], threading.Thread._bootstrap_inner
    tracker.install()
    ours = threading.Thread._bootstrap_inner
    assert ours is not plain

    def begin(thread):
        begun.append(thread.name)
        ours(thread)

    threading.Thread._bootstrap_inner = begin
    try:
        tracker.uninstall()
        assert threading.Thread._bootstrap_inner is begin
        tracker.install()
        in_thread(lambda: None, "once")
        assert begun == ["once"] and [row.name for row in tracker.threads].count("once") == 1
        tracker.uninstall()
    finally:
        threading.Thread._bootstrap_inner = plain


def test_the_last_name_of_a_thread_counts_whoever_gave_it(tracker):  # 113
    go, named = threading.Event(), threading.Event()

    def work():
        threading.current_thread().name = "by itself"
        named.set()
        go.wait()

    thread = threading.Thread(target=work, name="first")
    thread.start()
    named.wait()
    assert tracker.threads[-1].name == "by itself"
    thread.name = "by another 🧵"
    go.set()
    thread.join()
    assert tracker.threads[-1].name == "by another 🧵"


def test_uninstall_restores_everything_and_may_come_twice():  # 53, 71
    before = plain_hooks()
    tracker = ConcurrencyTracker(track_async=True)
    tracker.uninstall()
    tracker.install()
    tracker.install()
    assert plain_hooks()[0] is not before[0] and threads_are_met()
    tracker.uninstall()
    tracker.uninstall()
    assert plain_hooks() == before
    asyncio.run(asyncio.sleep(0))
    assert tracker.tasks == []
    plain = ConcurrencyTracker()
    plain.install()
    plain.uninstall()
    plain.uninstall()
    assert plain.threads == [] and plain.tasks == []


@pytest.mark.parametrize("first_out", [0, 1])
def test_several_trackers_are_uninstalled_in_any_order(first_out):  # 111
    async def job():
        await asyncio.sleep(0)

    trackers = [ConcurrencyTracker(track_async=True), ConcurrencyTracker(track_async=True)]
    trackers[0].install()
    asyncio.run(job())
    trackers[1].install()
    asyncio.run(job())
    trackers[first_out].uninstall()
    asyncio.run(job())
    trackers[1 - first_out].uninstall()
    asyncio.run(job())
    names = [[row.coro_name.rsplit(".", 1)[-1] for row in tracker.tasks].count("job") for tracker in trackers]
    assert names == ([2, 2] if first_out == 0 else [3, 1])


def test_a_loop_that_outlives_the_tracker_is_as_it_was():  # 110
    seen = []

    def factory(loop, coro, **kwargs):
        seen.append(coro)
        return asyncio.Task(coro, loop=loop, **kwargs)

    async def job():
        await asyncio.sleep(0)

    loop = asyncio.new_event_loop()
    loop.set_task_factory(factory)
    tracker = ConcurrencyTracker(track_async=True)
    tracker.install()
    loop.run_until_complete(job())
    tracker.uninstall()
    count = len(tracker.tasks)
    loop.run_until_complete(job())
    assert len(seen) == 2 and len(tracker.tasks) == count == 1 and loop.get_task_factory() is factory
    loop.close()


def test_a_task_s_row_tells_of_its_steps(tracker):  # 46, 47, 60
    rows = []

    async def job():
        record = tracker.current_thread().task
        rows.append((record, record.steps, record.running_ns >= 0, record.done))
        time.sleep(0.01)
        assert record.running_ns >= 10_000_000, "a step in progress counts"
        await asyncio.sleep(0.02)
        assert record.steps == 2 and record.suspended_ns >= 20_000_000

    async def main():
        await asyncio.gather(job(), job())

    asyncio.run(main())
    tails = [row.coro_name.rsplit(".", 1)[-1] for row in tracker.tasks]
    assert tails[:3] == ["main", "job", "job"]
    for row, steps, _, done in rows:
        assert steps == 1 and not done and row.done and row.kind == "task" and row.name.startswith("Task-")
        assert row.thread_index == tracker.current_thread().index
        assert row.created_ns <= row.step_started_ns <= row.last_step_end_ns <= row.done_ns
    assert tracker.current_thread().task is None
    assert repr(tracker.tasks[0]).startswith("TaskRecord(index=0, kind='task'")


def test_a_cancelled_task_has_one_finished_row(tracker):  # 51
    async def forever():
        await asyncio.sleep(60)

    async def main():
        task = asyncio.ensure_future(forever())
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    (row,) = [row for row in tracker.tasks if row.coro_name.endswith("forever")]
    assert row.done and row.steps == 2 and row.suspended_ns >= 10_000_000


def test_a_task_collected_while_suspended_is_finished(tracker):
    async def waits():
        await asyncio.sleep(60)

    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)
    task = loop.create_task(waits())
    loop.call_soon(loop.stop)
    loop.run_forever()
    (row,) = tracker.tasks
    assert not row.done and row.done_ns == UNKNOWN
    del task
    loop.close()
    del loop
    gc.collect()
    assert row.done


def test_rows_that_stand_alone_work_as_the_original_s():  # 60, 61
    record = TaskRecord(7, "task", "name", "coro", 0)
    assert (record.index, record.done, record.done_ns, record.steps) == (7, False, UNKNOWN, 0)
    record.enter_step()
    record.leave_step()
    running = record.running_ns
    record.enter_step()
    record.leave_step()
    assert record.steps == 2 and 0 < running < record.running_ns and record.suspended_ns > 0
    record.finish()
    first = record.done_ns
    record.finish()
    assert record.done and record.done_ns == first
    thread = ThreadRecord(3, threading.current_thread())
    assert thread.index == 3 and thread.alive and thread.cpu_ns > 0 and thread.name == threading.current_thread().name
    thread.task = record
    assert thread.task is record


def test_the_step_timer_forwards_send_throw_and_close(tracker):  # 62, 63
    class Two:
        def __await__(self):
            assert (yield 1) == "sent"
            yield 2

    async def coro():
        await Two()
        return 7

    timer = _core.time_coroutine(coro(), "timed")
    assert iter(timer) is timer and timer.__await__() is timer and asyncio.iscoroutine(timer)
    assert timer.send(None) == 1 and timer.send("sent") == 2
    with pytest.raises(StopIteration) as stop:
        next(timer)
    assert stop.value.value == 7
    row = tracker.tasks[-1]
    assert row.name == "timed" and row.steps == 3 and row.done
    timer = _core.time_coroutine(coro(), "thrown")
    timer.send(None)
    with pytest.raises(ZeroDivisionError):
        timer.throw(ZeroDivisionError("mine"))
    assert tracker.tasks[-1].steps == 2 and tracker.tasks[-1].done
    inner = coro()
    timer = _core.time_coroutine(inner, "closed")
    timer.send(None)
    timer.close()
    assert tracker.tasks[-1].done and inner.cr_frame is None


def test_coroutine_names():  # 64
    async def coro():
        pass

    class OnlyCode:
        cr_code = coro.__code__

    c = coro()
    assert _core.coroutine_name(c) == coro.__qualname__
    c.close()
    assert _core.coroutine_name(OnlyCode()) in (coro.__qualname__, "coro")
    assert _core.coroutine_name(object()) == "object"


def test_lanes_of_calls():  # 31, 65, 120
    assert list(lane_ids([0, 1, 2, -1], None)) == [-2, -3, -4, -1]
    assert list(lane_ids([0, 1, 2, -1], [-1, 7, -1, 0])) == [-2, 7, -4, 0]
    assert isinstance(lane_ids([0], None), np.ndarray)
    assert lane_ids([], []).size == 0


def test_a_snapshot_is_columns_shifted_by_its_origin(tracker):  # 66, 67
    in_thread(lambda: None, "ended")
    asyncio.run(asyncio.sleep(0))
    plain, shifted = tracker.snapshot(), tracker.snapshot(1000)
    threads = plain["threads"]
    assert threads["index"].dtype == np.int64 and threads["daemon"].dtype == np.int8
    assert (shifted["threads"]["start_ns"] == threads["start_ns"] - 1000).all()
    alive = threads["end_ns"] == UNKNOWN
    assert (shifted["threads"]["end_ns"][alive] == UNKNOWN).all() and alive.any() and not alive.all()
    assert set(plain["tasks"]) >= {"index", "kind", "name", "coro_name", "thread_index", "steps", "running_ns"}
    infos, tasks = lane_tables_from_columns(3, plain)
    assert {info.name for info in infos} >= {"ended"} and all(info.rank == 3 for info in infos)
    assert tasks[0].kind == "task" and tasks[0].done and tasks[0].wall_time > 0 and tasks[0].steps
    empty = ConcurrencyTracker().snapshot()
    assert empty["tasks"]["index"].size == 0 and empty["threads"]["index"].size == 0
    assert lane_tables_from_columns(0, {}) == ([], [])


def test_without_numpy_columns_are_arrays(monkeypatch):
    monkeypatch.setitem(sys.modules, "numpy", None)
    tracker = ConcurrencyTracker()
    tracker.current_thread()
    columns = tracker.snapshot(5)["threads"]
    assert columns["index"] == array.array("q", [0]) and columns["daemon"].typecode == "b"
    assert lane_ids([0, -1], [3, -1]) == array.array("q", [3, -1])


def test_rows_of_a_file_are_seconds():  # 68, 69, 70
    columns = {"threads": {"index": [4], "name": [b"caf\xc3\xa9"], "ident": [1], "native_id": [2], "daemon": [1]}}
    columns["threads"] |= {"start_ns": [1_000_000_000], "end_ns": [3_000_000_000], "cpu_ns": [500_000_000]}
    ((info,), tasks) = lane_tables_from_columns(1, columns)
    assert (info.name, info.daemon, info.wall_time, info.cpu_time, info.alive) == ("café", True, 2.0, 0.5, False)
    assert tasks == [] and "ThreadInfo(rank=1" in repr(info)
    alive = ThreadInfo(0, 0, "x", 1, 2, 0, 5, UNKNOWN, 1)
    assert alive.alive and alive.end_time is None and alive.wall_time is None
    task = TaskInfo(0, 0, "task", "n", "c", 0, 5, UNKNOWN, 1, 2, 3)
    assert not task.done and task.done_time is None and task.wall_time is None and "TaskInfo" in repr(task)


def test_the_child_of_a_fork_stands_down(tracker):  # 72, 76, 77
    in_thread(lambda: None)
    threads = len(tracker.threads)
    plain = _core.task_counts()
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        answer = b"failed"
        try:

            async def main():
                await asyncio.gather(*(asyncio.sleep(0) for _ in range(20)))

            asyncio.run(main())
            facts = [tracker.threads, tracker.tasks, threads_are_met(), _core.task_counts() == plain]
            if facts == [[], [], False, True] and not hooks._users and tracker._core.is_installed() is False:
                answer = b"empty"
            tracker.install()
            in_thread(lambda: None, "child's")
            tracker.uninstall()
            if [row.name for row in tracker.threads] != ["child's"]:
                answer = repr([row.name for row in tracker.threads]).encode()
        finally:
            os.write(write, answer)
            os._exit(0)
    os.close(write)
    assert os.read(read, 1000) == b"empty"
    os.close(read)
    os.waitpid(pid, 0)
    assert len(tracker.threads) == threads and threads_are_met()


def test_a_tracker_that_is_dropped_is_uninstalled():
    ConcurrencyTracker(track_async=True).install()
    gc.collect()
    assert not hooks._users


def test_instrument_loop_tells_of_tasks_without_track_async():
    tracker = ConcurrencyTracker()
    loop = asyncio.new_event_loop()
    tracker.instrument_loop(loop)
    tracker.instrument_loop(loop)
    loop.run_until_complete(asyncio.sleep(0))
    assert [row.coro_name for row in tracker.tasks] == ["sleep"]
    tracker.uninstall()
    loop.close()


def test_only_threads_asked_for_gives_no_tasks():  # 30
    tracker = ConcurrencyTracker()
    both = ConcurrencyTracker(track_async=True)
    tracker.install()
    both.install()
    asyncio.run(asyncio.sleep(0))
    assert tracker.tasks == [] and tracker.snapshot()["tasks"]["index"].size == 0 and len(both.tasks) >= 1
    tracker.uninstall()
    both.uninstall()
