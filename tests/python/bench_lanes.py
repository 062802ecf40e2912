"""What lanes of greenlets and functions that are not edited cost, beside scope-profiler and with clients that look on.

    .venv/bin/python tests/python/bench_lanes.py        # after make and make python; on a quiet machine
"""

import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("SL_BUILD", ROOT / "obj" / "release")).resolve()
POLLERS = 16


def switching(seconds=2.0):
    """The best of ns per switch, and switches per second over all."""
    from greenlet import getcurrent, greenlet

    def other():
        parent = getcurrent().parent
        while True:
            parent.switch()

    one = greenlet(other)
    one.switch()
    best, count, started = float("inf"), 0, time.perf_counter()
    while (begun := time.perf_counter()) - started < seconds:
        for _ in range(5000):
            one.switch()
        best = min(best, (time.perf_counter() - begun) / 10000 * 1e9)
        count += 10000
    return best, count / (time.perf_counter() - started)


def calling(seconds=1.0):
    """The best of ns per call of a function."""

    def function():
        pass

    best, started = float("inf"), time.perf_counter()
    while (begun := time.perf_counter()) - started < seconds:
        for _ in range(10000):
            function()
        best = min(best, (time.perf_counter() - begun) / 10000 * 1e9)
    return best, 1e9 / best


def side(what):
    module, _, how = what.partition(" ")
    if module == "scope_profiler":
        import scope_profiler

        scope_profiler.setup(track_async=True, track_threads=True, deactivate_file_output=True)
    elif module == "scoped_lane":
        import scoped_lane

        assert scoped_lane.is_recording()
    print(*(calling() if "call" in how else switching()))


def run(what, before=(), python=(sys.executable,)):
    with tempfile.TemporaryDirectory(prefix="sl-", dir="/tmp") as place:
        env = os.environ | {"PYTHONPATH": str(BUILD / "python"), "SCOPED_LANE_RUNDIR": place}
        recorded = [BUILD / "bin" / "scoped-lane", "run", "-o", Path(place) / "run.h5", "--"] if "scoped_lane" in what else []
        process = subprocess.Popen([*recorded, *python, *before, __file__, what], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        ended = threading.Event()
        clients = [threading.Thread(target=poll, args=(place, ended)) for _ in range(POLLERS if "polled" in what else 0)]
        for client in clients:
            client.start()
        out = process.communicate()[0]
        ended.set()
        for client in clients:
            client.join()
        return [float(word) for word in out.split()]


def poll(place, ended):
    words = [BUILD / "bin" / "scoped-lane", "tasks", "--json", "--rundir", place]
    while not ended.is_set():
        subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        ended.wait(0.1)


def main():
    plain = run("none")[0]
    theirs, ours = run("scope_profiler")[0] - plain, run("scoped_lane")[0] - plain
    print(f"a switch of greenlets adds: scope_profiler {theirs:.0f} ns, scoped_lane {ours:.0f} ns, {theirs / ours:.1f} times less")
    alone, polled = run("scoped_lane"), run("scoped_lane polled")
    print(
        f"switches/s with {POLLERS} pollers: {100 * polled[1] / alone[1]:.1f} % of those with none, "
        f"{100 * alone[0] / polled[0]:.1f} % where the pollers leave the processor to it"
    )
    plain = run("none call")[0]
    mode = ["-m", "scoped_lane", "run"]
    recorded, passed = run("scoped_lane call", mode)[0], run("scoped_lane call", [*mode, "--include", "nothing"])[0]
    version = ".".join(map(str, sys.version_info[:2]))
    print(f"a call of a function that is not edited adds, in {version}: {recorded - plain:.0f} ns; one that is not chosen {passed - plain:.1f} ns")


if __name__ == "__main__":
    side(sys.argv[1]) if len(sys.argv) > 1 else main()
