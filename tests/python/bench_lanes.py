"""What lanes of greenlets and functions that are not edited cost, beside scope-profiler and with clients that look on.

    .venv/bin/python tests/python/bench_lanes.py        # after make and make python; on a quiet machine
"""

import functools
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


def looked_at(seconds=64.0):
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


def poll(place, period, phase, looking, looks, is_over):
    """A client that stays, and asks again and again while it is to."""
    from scoped_lane import live

    daemon = functools.cache(live.Daemon)
    while not is_over():
        if not looking.wait(0.1):
            continue
        time.sleep(phase)  # clients know nothing of each other
        while looking.is_set() and not is_over():
            for path in Path(place).glob("run-*"):
                try:
                    looks.append(len(daemon(path).tasks(limit=LANES)))
                except (ConnectionError, ValueError):
                    pass
            time.sleep(period)


def rates(turns, tenths):
    """For each turn whether clients looked, switches per second of the clock, and of the program's processor time."""
    for first, last, on, _ in turns:
        inside = [tenth for tenth in tenths if first <= tenth[0] and tenth[1] <= last]
        switches = sum(count for _, _, count, _ in inside)
        if switches:
            yield on, switches / sum(end - begun for begun, end, _, _ in inside), switches / sum(taken for *_, taken in inside)


def pollers(apart, period):
    """The same program with clients and without, in turns of a look of each client at least: one with is compared with those before and
    after it, since the machine is faster in one half minute than in the next."""
    turns, looks, looking = [], [], threading.Event()

    def look(place, is_over):
        phases = [period * i / POLLERS for i in range(POLLERS)]
        clients = [threading.Thread(target=poll, args=(place, period, phase, looking, looks, is_over)) for phase in phases]
        for client in clients:
            client.start()
        while not is_over():
            (looking.clear if looking.is_set() else looking.set)()
            time.sleep(0.2)  # for what is under way
            begun, taken = time.perf_counter(), time.process_time()
            time.sleep(max(period, 0.3))
            turns.append((begun, time.perf_counter(), looking.is_set(), time.process_time() - taken))
        for client in clients:
            client.join()

    os.sched_setaffinity(0, set(PROCESSORS[1:] if apart else PROCESSORS))  # the daemon's too, and the clients'
    numbers = iter(run(f"scoped_lane looked at {' '.join(map(str, PROCESSORS[:1] if apart else PROCESSORS))}", look=look))
    os.sched_setaffinity(0, set(PROCESSORS))
    found = list(rates(turns, list(zip(*[numbers] * 4))))
    shares = [
        [200 * with_them[i] / (before[i] + after[i]) for before, with_them, after in zip(found, found[1:], found[2:]) if with_them[0]]
        for i in (1, 2)
    ]
    looked = [(last - first, taken) for first, last, on, taken in turns if on]
    of_processor = sum(taken for _, taken in looked) / sum(length for length, _ in looked)
    told = [f"{half:.1f} % ({low:.1f} to {high:.1f})" for low, half, high in map(statistics.quantiles, shares)]
    print(
        f"switches of {LANES} greenlets with {POLLERS} pollers every {period} s, {'a processor of its own' if apart else 'processors shared'}: "
        f"{told[0]} of those with none by the clock, {told[1]} by the program's processor time, medians (and quarters) of {len(shares[0])} turns; "
        f"{len(looks)} looks, for which the clients took {of_processor:.2f} processors"
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
