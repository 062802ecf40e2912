"""What scope-profiler's own reader finds in the files of Python programs. Numbers are those of the shared list of test ideas."""

import json

import h5py
import numpy as np
import pytest
import scope_profiler
from conftest import HERE, RunFile, Scripts
from end_conftest import a_place
from scope_profiler.call_stack import NestingError, build_call_arrays, split_by_lane

WORK = HERE / "scripts" / "work.py"
UNTRACKED = """
import importlib, sys, threading
sp = importlib.import_module(sys.argv[1])
entered, leave = threading.Event(), threading.Event()

def overlap():
    with sp.region("right"):
        entered.set()
        leave.wait()

sp.setup(file_path=sys.argv[2])
worker = threading.Thread(target=overlap, name="worker")
with sp.region("left"):
    worker.start()
    entered.wait()
leave.set()
worker.join()
sp.finalize(verbose=False)
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Recorded once: the programs with threads, with tasks out of step, and with neither."""
    with a_place(tmp_path_factory.mktemp("files")) as place:
        scripts = Scripts(place)
        files = {
            "threads": scripts.record(WORK, "scoped_lane", "threads", "", output="threads.h5"),
            "gather": scripts.record(WORK, "scoped_lane", "gather", "", output="gather.h5"),
            "plain": scripts.record(UNTRACKED, "scoped_lane", "ours.h5", output="plain.h5"),
        }
        scripts.run(UNTRACKED, "scope_profiler", "theirs.h5")
        files["theirs"] = RunFile(scripts.path / "theirs.h5")
        yield files


def test_nothing_is_lost_or_doubled_and_each_worker_has_its_calls(files):  # 1, 2, 3
    outer, inner = files["threads"].run["outer"][0], files["threads"].run["inner"][0]
    assert outer.num_calls == inner.num_calls == 12
    assert sorted(outer.threads) == [1, 2, 3, 4] and np.bincount(outer.thread_ids)[1:].tolist() == [3, 3, 3, 3]


def test_own_time_is_what_is_left_after_the_inner_calls(files):  # 4
    outer, inner = files["threads"].run["outer"][0], files["threads"].run["inner"][0]
    assert outer.exclusive_duration == pytest.approx(outer.total_duration - inner.total_duration, rel=1e-9)


def test_there_is_a_lane_for_each_worker_and_one_for_the_session(files):  # 5, 6
    arrays = build_call_arrays(files["threads"].run.get_regions(), rank=0)
    assert len(set(arrays.lane.tolist())) == 5
    rows = arrays.region_index == arrays.names.index("inner")
    assert not np.any(arrays.parent[rows] < 0)
    assert [lane for lane, _ in split_by_lane(arrays)] == [-6, -5, -4, -3, -2]  # 34


def test_the_thread_table_and_the_summary_are_in_order_of_registration(files):  # 9, 11, 12, 13, 14
    run = files["threads"].run
    names = [thread.name for thread in run.threads[0]]
    assert names[0] == "MainThread" and sorted(names[1:]) == ["w0", "w1", "w2", "w3"]
    assert len({thread.ident for thread in run.threads[0]}) == 5
    for thread in run.threads[0][1:]:
        assert not thread.alive and thread.wall_time > 0 and thread.cpu_time > 0
    summary = run.thread_summary(rank=0)
    assert [row["name"] for row in summary] == names
    assert [row["num_calls"] for row in summary] == [1, 6, 6, 6, 6]
    assert all(0 < row["region_time"] <= row["wall_time"] for row in summary)
    assert run.thread_summary(rank=7) == []


def test_slices_by_thread_add_up(files):  # 15
    outer = files["threads"].run["outer"][0]
    slices = [outer.for_thread(index) for index in (1, 2, 3, 4)]
    assert [part.num_calls for part in slices] == [3, 3, 3, 3]
    assert sum(part.total_duration for part in slices) == pytest.approx(outer.total_duration)
    line = 1 + WORK.read_text().splitlines().index('            with sp.region("outer"):')
    assert outer.source_file == "work.py" and outer.source_lineno == line


def test_summary_readers_see_the_lanes(files):  # 18, 104
    summary = scope_profiler.read_h5_summary(files["threads"].path)
    assert [t.name for t in summary.threads[0]] == [t.name for t in files["threads"].run.threads[0]]


def test_tasks_that_interleave_have_their_own_waiting_time(files):  # 41, 42, 43, 48
    job = files["gather"].run["job"][0]
    assert job.num_calls == 3 and set(job.thread_ids.tolist()) == {0} and len(set(job.task_ids.tolist())) == 3
    for duration, waited, least in zip(job.durations, job.await_times, (0.03, 0.01, 0.02)):
        assert waited >= least and duration - waited >= 0.003
    assert job.total_await_duration == pytest.approx(sum(job.await_times))
    assert job.await_times_ns[0] == pytest.approx(job.await_times[0] * 1e9)
    arrays = build_call_arrays(files["gather"].run.get_regions(), rank=0)
    rows = arrays.region_index == arrays.names.index("job")
    assert np.all(arrays.parent[rows] < 0) and np.all(arrays.depth[rows] == 0)


def test_a_call_outside_any_task_waits_for_nothing(files):  # 44, 45
    session = files["gather"].run["scope_profiler.session"][0]
    assert session.task_ids.tolist() == [-1] and session.await_times.tolist() == [0.0]
    assert files["gather"].run["main"][0].task_ids[0] >= 0


def test_tasks_rows_events_and_labels(files):  # 46, 47, 50, 56
    run = files["gather"].run
    tails = [task.coro_name.rsplit(".", 1)[-1] for task in run.tasks[0]]
    assert tails[:4] == ["main", "job", "job", "job"]
    for task in run.tasks[0][1:4]:
        assert task.kind == "task" and task.name.startswith("Task-") and task.steps == 2 and task.done
        assert task.running_time >= 0.003 and 0 < task.awaiting_time < task.wall_time
    event = run["job"][0].events()[0]
    assert event["thread"] == 0 and event["task"] >= 0 and event["await_duration"] >= 0.03
    label = run.lane_label(run["job"][0].task_ids[0].item(), 0)
    assert label.startswith("Task-2") and "job" in label and label.endswith("on MainThread")


def test_speedscope_has_a_profile_for_each_lane_whose_time_never_goes_back(files, tmp_path):  # 33, 57
    for name, lanes in (("threads", 5), ("gather", 5)):
        scope_profiler.export_speedscope(files[name].run, str(tmp_path / f"{name}.json"))
        profiles = json.loads((tmp_path / f"{name}.json").read_text())["profiles"]
        assert len(profiles) == lanes
        for profile in profiles:
            times = [event["at"] for event in profile["events"]]
            assert times == sorted(times) and profile["name"].startswith("rank 0 - ")


def test_table_times_lie_on_the_events_time_line(files):  # 118
    for name in ("threads", "gather"):
        run = files[name].run
        origin = run.metadata["start_time_ns"] / 1e9
        for region in run:
            part = region[0]
            for start, thread in zip(part.start_times, part.thread_ids):
                row = run.threads[0][thread]
                assert row.start_time - 1e-3 <= start - origin <= row.end_time


def test_on_purpose_calls_have_their_threads_though_nobody_asked(files):  # 7, 8, 16, 19, 37
    """Two calls of two threads that half overlap: the original cannot tell them apart, and refuses them."""
    theirs, ours = files["theirs"], files["plain"]
    with h5py.File(theirs.path) as file:
        assert "thread_ids" not in file["events"] and "thread_table" not in file
    left = theirs.run["left"][0]
    assert theirs.run.threads == {} and left.threads == [] and not left.has_thread_data
    with pytest.raises(ValueError, match="track_threads"):
        left.for_thread(0)
    with pytest.raises(NestingError, match="not properly nested"):
        build_call_arrays(theirs.run.get_regions(), rank=0)
    assert build_call_arrays([theirs.run["left"]], rank=0).lane.size == 0

    arrays = build_call_arrays(ours.run.get_regions(), rank=0)
    assert arrays.parent.tolist() == [-1, -1] and arrays.lane.tolist() == [-2, -3]
    assert [thread.name for thread in ours.run.threads[0]] == ["MainThread", "worker"]
    assert ours.run["right"][0].for_thread(1).num_calls == 1 and ours.run["right"][0].has_thread_data


def test_lanes_are_split_and_labelled(files):  # 35, 36
    run = files["threads"].run
    arrays = build_call_arrays([run["scope_profiler.session"]], rank=0)
    assert split_by_lane(arrays) == [(-2, arrays)], "one lane: unchanged"
    assert split_by_lane(build_call_arrays([], rank=0)) == []
    labels = [run.lane_label(lane, 0) for lane in (-2, -1, -99, 7)]
    assert labels == ["MainThread", "unknown lane", "thread 97", "task 7"]
    assert run.lane_label(-3, 0) in {"w0", "w1", "w2", "w3"}


def test_what_the_reader_gives_is_what_the_file_holds(files):  # 17, 49
    run = files["gather"].run
    with h5py.File(files["gather"].path) as file:
        columns = {table: {name: column[:] for name, column in file[table].items()} for table in ("thread_table", "task_table", "events")}
    threads, tasks, events = columns["thread_table"], columns["task_table"], columns["events"]
    assert [(row.index, row.cpu_time) for row in run.threads[0]] == list(zip(threads["index"], threads["cpu_ns"] / 1e9))
    assert [row.name.encode() for row in run.threads[0]] == threads["name"].tolist()
    assert [row.index for row in run.tasks[0]] == tasks["index"].tolist()
    for name in ("kind", "name", "coro_name"):
        assert [getattr(row, name).encode() for row in run.tasks[0]] == tasks[name].tolist()
    parts = [region[0] for region in run]
    for column, name in (("thread_ids", "thread_ids"), ("task_ids", "task_ids"), ("await_ns", "await_times_ns")):
        assert sorted(events[column].tolist()) == sorted(value for part in parts for value in getattr(part, name).tolist())
