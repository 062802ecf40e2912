"""What lanes of greenlets and functions that are not edited cost, beside scope-profiler and with clients that look on.

    .venv/bin/python tests/python/bench_lanes.py        # after make and make python; on a quiet machine
"""

import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("SL_BUILD", ROOT / "obj" / "release")).resolve()
POLLERS = 16
LANES = 1000
PROCESSORS = sorted(os.sched_getaffinity(0))


def switching(seconds=2.0):
    """The best of ns per switch."""
    from greenlet import getcurrent, greenlet

    def other():
        parent = getcurrent().parent
        while True:
            parent.switch()

    one = greenlet(other)
    one.switch()
    best, started = float("inf"), time.perf_counter()
    while (begun := time.perf_counter()) - started < seconds:
        for _ in range(5000):
            one.switch()
        best = min(best, (time.perf_counter() - begun) / 10000 * 1e9)
    return best


def looked_at(seconds=16.0):
    """A thousand greenlets that switch as fast as they can: for each tenth of a second begin, end, switches and processor time."""
    from greenlet import getcurrent, greenlet

    def other():
        parent = getcurrent().parent
        while True:
            parent.switch()

    ones = [greenlet(other) for _ in range(LANES)]
    end, begun = time.perf_counter() + seconds, time.perf_counter()
    while begun < end:
        count, processor = 0, time.process_time()
        while (now := time.perf_counter()) < begun + 0.1:
            for one in ones:
                one.switch()
            count += 2 * LANES
        print(begun, now, count, time.process_time() - processor)
        begun = now


def calling(seconds=1.0):
    """The best of ns per call of a function."""

    def function():
        pass

    best, started = float("inf"), time.perf_counter()
    while (begun := time.perf_counter()) - started < seconds:
        for _ in range(10000):
            function()
        best = min(best, (time.perf_counter() - begun) / 10000 * 1e9)
    return best


def side(what):
    module, _, how = what.partition(" ")
    if module == "scope_profiler":
        import scope_profiler

        scope_profiler.setup(track_async=True, track_threads=True, deactivate_file_output=True)
    elif module == "scoped_lane":
        import scoped_lane

        assert scoped_lane.is_recording()
    if how.startswith("looked at"):
        os.sched_setaffinity(0, {int(word) for word in how.split()[2:]})
        looked_at()
    else:
        print(calling() if how == "call" else switching())


def run(what, before=(), look=lambda place, is_over: None):
    """What it printed, as numbers."""
    with tempfile.TemporaryDirectory(prefix="sl-", dir="/tmp") as place:
        env = os.environ | {"PYTHONPATH": str(BUILD / "python"), "SCOPED_LANE_RUNDIR": place}
        recorded = [BUILD / "bin" / "scoped-lane", "run", "-o", Path(place) / "run.h5", "--"] if "scoped_lane" in what else []
        program = [ROOT / "tests/python/scripts/whole.py"] if what.endswith(" whole") else [__file__, what]
        words = [*recorded, sys.executable, *before, *program]
        with subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            look(place, lambda: process.poll() is not None)
            return [float(word) for word in process.stdout.read().split()]


def poll(place, period, looking, looks, is_over):
    """A client that stays, and asks again and again while it is to."""
    from scoped_lane import live

    while not is_over():
        looking.wait(0.1)
        for daemon in [live.Daemon(path) for path in Path(place).glob("run-*")] if looking.is_set() else []:
            try:
                looks.append(len(daemon.tasks(limit=LANES)))
            except (ConnectionError, ValueError):
                pass
        time.sleep(period)


def pollers(apart, period):
    """The same program with clients and without, in turns of a second, so that what else the machine does is in both."""
    turns, looks, looking = [], [], threading.Event()

    def look(place, is_over):
        clients = [threading.Thread(target=poll, args=(place, period, looking, looks, is_over)) for _ in range(POLLERS)]
        for client in clients:
            client.start()
        while not is_over():
            (looking.clear if looking.is_set() else looking.set)()
            time.sleep(0.2)  # for what is under way
            begun = time.perf_counter()
            time.sleep(1)
            turns.append((begun, time.perf_counter(), looking.is_set()))
        for client in clients:
            client.join()

    os.sched_setaffinity(0, set(PROCESSORS[1:] if apart else PROCESSORS))  # the daemon's too, and the clients'
    numbers = iter(run(f"scoped_lane looked at {' '.join(map(str, PROCESSORS[:1] if apart else PROCESSORS))}", look=look))
    os.sched_setaffinity(0, set(PROCESSORS))
    sums = {True: [0, 0, 0], False: [0, 0, 0]}
    for begun, ended, *counts in zip(*[numbers] * 4):
        for of in (sums[on] for first, last, on in turns if first <= begun and ended <= last):
            of[:] = (of[0] + ended - begun, of[1] + counts[0], of[2] + counts[1])
    by_clock, by_processor = (100 * sums[True][1] / sums[True][i] / (sums[False][1] / sums[False][i]) for i in (0, 2))
    print(
        f"switches of {LANES} greenlets with {POLLERS} pollers every {period} s, {'a processor of its own' if apart else 'processors shared'}: "
        f"{by_clock:.1f} % of those with none by the clock, {by_processor:.1f} % by the program's processor time; {len(looks)} looks"
    )


def greenlets():
    (plain,), (theirs,), (ours,) = run("none"), run("scope_profiler"), run("scoped_lane")
    theirs, ours = theirs - plain, ours - plain
    print(f"a switch of greenlets adds: scope_profiler {theirs:.0f} ns, scoped_lane {ours:.0f} ns, {theirs / ours:.1f} times less")
    for apart in (False, True)[: len(PROCESSORS)]:
        for period in (1.0, 0.1):
            pollers(apart, period)


def functions():
    mode = ["-m", "scoped_lane", "run"]
    passing = [*mode, "--include", "nothing"]
    (plain,), (recorded,), (passed,) = run("none call"), run("scoped_lane call", mode), run("scoped_lane call", passing)
    turns = [run("scoped_lane whole", passing)[0] / run("none whole")[0] for _ in range(9)]
    how = "sys.monitoring" if hasattr(sys, "monitoring") else "sys.setprofile"
    print(f"a call of a function that is not edited adds, by {how}: {recorded - plain:.0f} ns; one that is not chosen {passed - plain:.1f} ns")
    print(f"a program of which nothing is chosen takes {100 * (statistics.median(turns) - 1):+.1f} % longer, the median of {len(turns)}")


def main():
    sys.path.insert(0, str(BUILD / "python"))
    if all(importlib.util.find_spec(name) for name in ("greenlet", "scope_profiler")):
        greenlets()
    functions()


if __name__ == "__main__":
    side(sys.argv[1]) if len(sys.argv) > 1 else main()
