"""The same programs under the real scope-profiler and under scoped_lane: the same regions, calls, lanes, names, steps, nesting
from two runs, and the same times from one run that both record."""

import collections
import statistics
import sys

import pytest
from conftest import HERE, PYTHON, RunFile
from runfile import accept

WORK = HERE / "scripts" / "work.py"
PROGRAMS = ["threads", "gather", "group", "cancelled", "loops", "mixed", "recursion", "exceptions", "generators"]


def theirs(scripts, name):
    scripts.run(WORK, "scope_profiler", name, "theirs.h5", python=sys.executable)
    return RunFile(scripts.path / "theirs.h5")


def shape(file, ordered):
    """All of a file that two runs of one program have in common. Where threads race, their numbers are no matter."""
    run = file.run
    arrays = run.call_stack(rank=0)
    threads = [(thread.name, thread.daemon, thread.alive) for thread in run.threads[0]]
    names = {thread.index: thread.name for thread in run.threads[0]}
    tasks = [
        (task.kind, task.name if ordered else "", task.coro_name, names[task.thread_index], task.steps, task.done)
        for task in run.tasks.get(0, [])
    ]
    lanes = collections.defaultdict(collections.Counter)
    for call in arrays:
        lanes[call["lane"]][call["call_path"]] += 1
    by_task = {task.index: (task.coro_name, names[task.thread_index]) for task in run.tasks.get(0, [])}
    calls = collections.Counter(
        (by_task[lane] if lane >= 0 else names[-2 - lane], tuple(sorted(paths.items()))) for lane, paths in lanes.items()
    )
    return {
        "regions": {region.name: region[0].num_calls for region in run},
        "threads": threads if ordered else collections.Counter(threads),
        "tasks": tasks if ordered else collections.Counter(tasks),
        "calls": calls,
    }


def settled(found, original):
    """The main thread of ours has ended with its process, theirs was alive at finalize."""
    for side in (found, original):
        threads = collections.Counter(side["threads"]) if isinstance(side["threads"], list) else side["threads"]
        side["threads"] = collections.Counter()
        for (name, daemon, alive), count in threads.items():
            side["threads"][(name, daemon, alive and name != "MainThread" and not name.startswith("asyncio_"))] += count
    return found, original


@pytest.mark.parametrize("name", PROGRAMS)
def test_both_profilers_tell_the_same_of_a_program(scripts, name):
    ours = scripts.record(WORK, "scoped_lane", name, "")
    racing = name in ("loops", "threads", "mixed")
    found, original = settled(shape(ours, not racing), shape(theirs(scripts, name), not racing))
    for what in original:
        assert found[what] == original[what], what
    assert ours.table("loss") == [] or all(row["count"] == 0 for row in ours.table("loss"))
    if name == "mixed":  # seconds each
        accept(ours.path)


@pytest.mark.skipif(PYTHON != sys.executable, reason="scope-profiler is not there for the other interpreter")
@pytest.mark.parametrize("name", ["threads", "gather", "mixed", "exceptions"])
def test_both_profilers_measure_the_same_times_in_one_run(scripts, name):
    env = {"PYTHONPATH": f"{scripts.env['PYTHONPATH']}:{HERE / 'scripts'}"}
    ours = scripts.record(WORK, "both", name, "theirs.h5", **env).run
    original = RunFile(scripts.path / "theirs.h5").run
    for region in original:
        if region[0].num_calls < 3:  # one call proves nothing: what comes between the two readings may be the scheduler
            continue
        mine, its = sorted(ours[region.name][0].durations_ns), sorted(region[0].durations_ns)
        assert len(mine) == len(its), region.name
        apart = [abs(int(a) - int(b)) / max(int(b), 100_000_000) for a, b in zip(mine, its)]  # 1 % or 1 ms
        assert statistics.median(apart) <= 0.01, (region.name, mine, its)
        if region[0].await_times_ns is None or ours[region.name][0].await_times_ns is None:
            continue  # no task in this program
        waits = zip(sorted(ours[region.name][0].await_times_ns), sorted(region[0].await_times_ns))
        assert statistics.median(abs(int(a) - int(b)) / max(int(b), 100_000_000) for a, b in waits) <= 0.01, region.name
    steps = [[task.steps for task in run.tasks.get(0, [])] for run in (ours, original)]
    if name != "mixed":  # two profilers' session regions end at two times, and so does what the executor's end takes
        assert steps[0] == steps[1]
