"""What scope-profiler's own reader finds in the files of Python programs. Numbers are those of the shared list of test ideas."""

import json

import numpy as np
import pytest
import scope_profiler
from conftest import HERE, Scripts
from end_conftest import a_place
from scope_profiler.call_stack import build_call_arrays, split_by_lane

WORK = HERE / "scripts" / "work.py"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Recorded once: the programs with threads, with tasks out of step, and with neither."""
    with a_place(tmp_path_factory.mktemp("files")) as place:
        scripts = Scripts(place)
        yield {
            "threads": scripts.record(WORK, "scoped_lane", "threads", "", output="threads.h5"),
            "gather": scripts.record(WORK, "scoped_lane", "gather", "", output="gather.h5"),
        }


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
    for file in files.values():
        run = file.run
        origin = run.metadata["start_time_ns"] / 1e9
        for region in run:
            part = region[0]
            for start, thread in zip(part.start_times, part.thread_ids):
                row = run.threads[0][thread]
                assert row.start_time - 1e-3 <= start - origin <= row.end_time
