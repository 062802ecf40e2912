"""4 ranks x 3 threads x 50 tasks: the real scope-profiler reads threads, tasks, call stacks and waiting times, and they are what the
program itself counted; live, tasks are shown with their stacks."""

import json
import subprocess
from collections import Counter
from dataclasses import dataclass

import pytest
from conftest import a_place, wait_until
from runfile import VENV, RunFile, accept

RANKS, THREADS, TASKS, STEPS = 4, 3, 50, 6
PER_RANK = THREADS * TASKS


@dataclass
class Counted:
    """What a task counted of itself."""

    steps: int
    calls: int
    waited_least: int
    waited_most: int
    job_least: int
    job_most: int


def read_counts(directory):
    """{rank: {task name: Counted}}"""
    counts = {}
    for path in directory.glob("tasks.*"):
        lines = (line.split() for line in path.read_text().splitlines())
        counts[int(path.suffix[1:])] = {name: Counted(*map(int, numbers)) for name, *numbers in lines}
    return counts


@pytest.fixture(scope="module")
def tasks_run(tmp_path_factory):
    """A run: its place, its file, what it counted, and the live rows of tasks when all were in mid-job."""
    with a_place(tmp_path_factory.mktemp("tasks")) as place:
        place.daemon = place.serve()
        go = place.path / "go"
        program = place.start(*place.mpirun(RANKS, place.api("tasks_mpi"), THREADS, TASKS, STEPS, go))

        def in_mid_job():
            rows = place.rows("tasks")
            return len(rows) == RANKS * PER_RANK and all(row["steps"] == STEPS // 2 and row["state"] == "suspended" for row in rows) and rows

        rows = wait_until(in_mid_job, 60, "every task has made half of its steps")
        table = place.command("tasks")
        go.touch()
        program.ends()
        yield place, RunFile(place.run_file(60)), read_counts(place.tallies), rows, table


@pytest.mark.beside
def test_scope_profiler_accepts_the_file(tasks_run):
    accept(tasks_run[1].path)


def test_live_tasks_are_shown_suspended_in_the_middle_of_their_jobs(tasks_run):
    _, _, _, rows, table = tasks_run
    assert Counter(row["rank"] for row in rows) == dict.fromkeys(range(RANKS), PER_RANK)
    for row in rows:
        assert row["stack"] == ["job"] and row["kind"] == "coroutine" and row["coro_name"] == "job_steps"
        assert row["suspended_ns"] > 0 and 0 < row["longest_step_ns"] <= row["running_ns"] and row["done_ns"] is None
    assert table.count("job_steps") == RANKS * PER_RANK and "STACK" in table


def test_threads_and_tasks_of_every_rank_are_in_the_tables(tasks_run):
    _, file, counts, _, _ = tasks_run
    assert sorted(file.run.threads) == sorted(file.run.tasks) == sorted(counts) == list(range(RANKS))
    for rank in range(RANKS):
        assert sorted(t.name for t in file.threads(rank)) == ["main"] + [f"worker {i}" for i in range(THREADS)]
        tasks = file.run.tasks[rank]
        assert [t.index for t in tasks] == list(range(PER_RANK))
        for task in tasks:
            counted = counts[rank][task.name]
            assert task.kind == "coroutine" and task.coro_name == "job_steps" and task.done
            assert task.steps == counted.steps == STEPS
            assert file.threads(rank)[task.thread_index].name.startswith("worker")
            waited = task.awaiting_time * 1e9
            assert 0.99 * counted.waited_least <= waited <= 1.01 * counted.waited_most


def test_a_jobs_waiting_is_its_tasks_and_its_parts_wait_for_nothing(tasks_run):
    _, file, counts, _, _ = tasks_run
    for rank in range(RANKS):
        job, part = file.run.get_region("job")[rank], file.run.get_region("part")[rank]
        names = {task.index: task.name for task in file.run.tasks[rank]}
        assert job.num_calls == PER_RANK and part.num_calls == PER_RANK * STEPS
        assert not part.await_times_ns.any()
        for task, waited, duration in zip(job.task_ids.tolist(), job.await_times_ns.tolist(), job.durations_ns.tolist()):
            counted = counts[rank][names[task]]
            assert 0.99 * counted.waited_least <= waited <= 1.01 * counted.waited_most
            assert 0.99 * counted.job_least <= duration <= 1.01 * counted.job_most
            assert waited < duration


def test_each_lane_has_its_own_call_stack_and_all_of_them_nest(tasks_run):
    _, file, _, _, _ = tasks_run
    for rank in range(RANKS):
        per_lane = {}
        for (lane, path), calls in file.call_paths(rank).items():
            per_lane.setdefault(lane, {})[path] = calls
        session = "scope_profiler.session"
        assert per_lane.pop("main") == {session: 1, f"{session} > allreduce": STEPS}
        assert len(per_lane) == PER_RANK
        for lane, paths in per_lane.items():
            assert lane.startswith(f"rank{rank}-task") and "(job_steps) on worker" in lane
            assert paths == {"job": 1, "job > part": STEPS}
        summary = {row["name"]: row for row in file.run.thread_summary(rank)}
        assert sum(summary[f"worker {i}"]["num_calls"] for i in range(THREADS)) == PER_RANK * (1 + STEPS)
        assert all(0 < row["cpu_time"] <= row["wall_time"] * 1.01 for row in summary.values())


def test_speedscope_gets_a_profile_for_each_lane(tasks_run):
    place, file, _, _, _ = tasks_run
    env = place.env | {"PATH": f"{VENV}:{place.env['PATH']}"}
    words = ["scope-profiler", "export", "speedscope", file.path, "--ranks", f"0-{RANKS - 1}", "-o", place.path]
    subprocess.run(words, check=True, env=env, capture_output=True, timeout=120)
    (made,) = place.path.glob("*speedscope*.json")
    profiles = json.loads(made.read_text())["profiles"]
    assert len(profiles) == RANKS * (PER_RANK + 1)
    assert len({profile["name"] for profile in profiles}) == len(profiles)
    for profile in profiles:
        times = [event["at"] for event in profile["events"]]
        assert times == sorted(times) and len(times) in (2 * (1 + STEPS),)


def test_the_report_tells_of_tasks_and_their_longest_step(tasks_run):
    place, file, counts, rows, _ = tasks_run
    report = json.loads(place.command("report", "--json", file.path))
    (group,) = report["task_groups"]
    assert (group["kind"], group["name"], group["tasks"], group["done"]) == ("coroutine", "job_steps", RANKS * PER_RANK, RANKS * PER_RANK)
    assert group["steps"] == RANKS * PER_RANK * STEPS
    assert group["running_ns"] >= RANKS * PER_RANK * STEPS * 20000
    assert 20000 <= max(row["longest_step_ns"] for row in rows) <= group["longest_step_ns"] < group["running_ns"]
    tasks = {(row["rank"], row["index"]): row for row in file.table("tasks")}
    assert len(tasks) == RANKS * PER_RANK and max(row["longest_step_ns"] for row in tasks.values()) == group["longest_step_ns"]
    text = place.command("report", file.path)
    assert "LONGEST STEP" in text and "nothing was lost" in text
    assert report["remarks"] == [], "everything nests"
