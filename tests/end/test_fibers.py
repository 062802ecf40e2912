"""docs/examples/fibers and pool: what lanes say of running agrees with the workers' own clocks, and threads' CPU times with the
process's, from the run file and from the live tables."""

import contextlib
import os
import re
import signal
from pathlib import Path

import numpy as np
import pytest
from conftest import wait_until
from runfile import RunFile

FIBERS = 64
CORES = os.cpu_count()
ROUNDS = 500 if not os.environ.get("SL_LONG") else 2500
TICK_NS = 1e9 / os.sysconf("SC_CLK_TCK")


def fibers(service, workers, rounds, length=100000):
    return service.start(service.example("fibers"), "-f", FIBERS, "-w", workers, "-r", rounds, "-n", length, "-c")


def said(program):
    """(resumes, busy ns, CPU ns) by the program's own clocks."""
    text = program.stdout_text
    return [int(re.search(pattern, text)[1]) for pattern in (r"(\d+) resumes", r"busy (\d+) ns", r"cpu (\d+) ns")]


@contextlib.contextmanager
def standing_still(pid):
    """All threads of a process are stopped: rows that are read one after another are of one moment."""

    def stopped():
        states = (path.read_text().rpartition(")")[2].split()[0] for path in Path(f"/proc/{pid}/task").glob("*/stat"))
        return set(states) == {"T"}

    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(stopped, what="every thread has stopped")
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("workers", [max(1, CORES), 2 * CORES], ids=["as many workers as cores", "oversubscribed twice"])
def test_running_times_are_the_workers_busy_times_and_cpu_times_the_process(service, workers):
    program = fibers(service, workers, ROUNDS)

    def live():
        rows = service.rows("tasks")
        return len(rows) == FIBERS and all(row["steps"] > 2 for row in rows) and rows

    rows = wait_until(live, what="each fiber has run")
    assert {row["kind"] for row in rows} == {"fiber"} and {row["name"] for row in rows} == {f"fiber {i}" for i in range(FIBERS)}
    with standing_still(program.pid):
        rows = live()
        on = [row["thread_index"] for row in rows if row["state"] == "running"]
        assert len(on) == len(set(on)) <= workers, "a worker steps one fiber at a time"
        for row in rows:
            assert row["stack"][:2] in (["life", "round"], ["life"], []) and row["coro_name"] == "fiber_main"
            assert row["state"] == "running" or row["stack"] == ["life", "round", "yield"], row
            assert row["suspended_ns"] >= 0 and row["longest_step_ns"] <= row["running_ns"]
        lanes = {row["label"]: row for row in service.rows("lanes")}
        assert sum("fiber_main" in label for label in lanes) == FIBERS

    program.ends()
    resumes, busy_ns, cpu_ns = said(program)
    file = RunFile(service.run_file(120))
    tasks = file.run.tasks[0]
    assert sum(task.steps for task in tasks) == resumes == FIBERS * (ROUNDS + 1)
    running_ns = sum(task.running_time for task in tasks) * 1e9
    assert running_ns == pytest.approx(busy_ns, rel=0.02)
    threads_ns = sum(thread.cpu_time for thread in file.threads(0)) * 1e9
    assert threads_ns == pytest.approx(cpu_ns, abs=2 * TICK_NS)
    (process,) = file.table("processes")
    assert (process["lost"], process["unmatched"], process["crossing"], process["abandoned"]) == (0, 0, 0, 0)
    assert process["stored"] == 1 + FIBERS * (1 + 3 * ROUNDS)

    # a worker holds a thread as long as its fibers run on it
    walls = {thread.index: thread.wall_time for thread in file.threads(0)}
    assert sum(task.running_time for task in tasks) <= sum(walls.values())
    for task in tasks:
        assert task.done and 0 < task.running_time + task.awaiting_time <= task.wall_time * 1.001


def test_a_fibers_waiting_is_in_the_calls_that_are_open_meanwhile_and_in_no_other(service):
    rounds = 40
    program = fibers(service, 2, rounds).ends()
    resumes, _, _ = said(program)
    file = RunFile(service.run_file(120))
    regions = {name: file.run.get_region(name)[0] for name in ("life", "round", "compute", "yield")}
    by_task = {task.index: task for task in file.run.tasks[0]}
    for task in by_task.values():
        calls = {name: region.task_ids == task.index for name, region in regions.items()}
        assert {name: int(mine.sum()) for name, mine in calls.items()} == {"life": 1} | dict.fromkeys(["round", "compute", "yield"], rounds)
        waited = {name: regions[name].await_times_ns[mine] for name, mine in calls.items()}
        assert not waited["compute"].any()
        assert np.abs(waited["round"] - waited["yield"]).max() <= 2
        assert waited["yield"].sum() == pytest.approx(task.awaiting_time * 1e9, abs=2 * rounds)
        assert waited["life"][0] == pytest.approx(waited["yield"].sum(), abs=2 * rounds)
        held = regions["yield"].durations_ns[calls["yield"]] - waited["yield"]
        assert (held >= 0).all()
    paths = file.call_paths(0)
    for index in by_task:
        label = file.run.lane_label(index, 0)
        assert label.startswith(f"fiber {index} (fiber_main) on worker ")
        assert {path: n for (lane, path), n in paths.items() if lane == label} == {
            "life": 1,
            "life > round": rounds,
            "life > round > compute": rounds,
            "life > round > yield": rounds,
        }
    # fibers did wander
    on = {tuple(set(regions["compute"].thread_ids[regions["compute"].task_ids == index].tolist())) for index in by_task}
    assert any(len(threads) > 1 for threads in on)
    assert resumes == FIBERS * (rounds + 1)


def test_every_thread_of_a_pool_has_its_row_and_its_time(service):
    bursts, threads, jobs = 20, 6, 40
    program = service.start(service.example("pool"), "-b", bursts, "-t", threads, "-j", jobs).ends()
    assert program.stdout_text == f"{bursts} bursts, {bursts * threads} threads, {bursts * jobs} jobs: 53094 primes\n"
    file = RunFile(service.run_file(120))
    rows = file.threads(0)
    assert rows[0].name == "main" and len(rows) == 1 + bursts * threads
    names = {f"burst {b}, thread {t}" for b in range(bursts) for t in range(threads)}
    assert {row.name for row in rows[1:]} == names
    assert all(row.end_time is not None and 0 < row.cpu_time <= row.wall_time + 2 * TICK_NS / 1e9 for row in rows)
    assert file.calls("small job") == bursts * jobs * 3 // 4 and file.calls("large job") == bursts * jobs // 4
    assert file.calls("burst") == bursts and file.table("loss") == []
    for burst in range(bursts):  # each job on a thread of its own burst
        indices = {row.index for row in rows if row.name.startswith(f"burst {burst},")}
        lo, hi = min(indices), max(indices)
        assert indices == set(range(lo, hi + 1))
    (process,) = file.table("processes")
    assert process["produced"] == process["stored"] == 1 + bursts + bursts * jobs
