"""What recording costs, ours and scope-profiler's side by side: `scoped-lane run -- python tests/python/bench.py`.

Each figure is the least of many short rounds, ours and theirs in turn, so that what the machine does meanwhile meets both. Nothing is
asserted here; a ratio is theirs to ours. Rounds are short so that the rings never fill.
"""

import asyncio
import importlib
import os
import subprocess
import sys
import threading
import time

ROUNDS = int(os.environ.get("SL_BENCH_ROUNDS", 60))


def best(function, count, rounds=ROUNDS):
    least = float("inf")
    for _ in range(rounds):
        begun = time.perf_counter_ns()
        function(count)
        least = min(least, time.perf_counter_ns() - begun)
        time.sleep(0.001)  # the daemon drains
    return least / count


def nothing():
    pass


def measures(sp):
    """{what: ns}, of one profiler (None: none)."""
    region = sp.region if sp else None
    profiled = sp.profile("profiled")(nothing) if sp else nothing

    def loop(count):
        for _ in range(count):
            pass

    def by_name(count):
        for _ in range(count):
            with region("name"):
                pass

    def kept(count):
        one = region("name")
        for _ in range(count):
            with one:
                pass

    def calls(count):
        for _ in range(count):
            profiled()

    def ids(count):
        begin, end, number = sp.begin, sp.end, region("name").id
        for _ in range(count):
            begin(number)
            end(number)

    async def steps(count):
        for _ in range(count):
            await asyncio.sleep(0)

    async def noop():
        pass

    async def tasks(count):
        for _ in range(count):
            await asyncio.create_task(noop())

    def threads(count):
        for _ in range(count):
            thread = threading.Thread(target=nothing)
            thread.start()
            thread.join()

    async def inside():
        return best(by_name, 500)

    runner = asyncio.new_event_loop()
    empty = best(loop, 500)
    found = {}
    if sp:
        found["with region(name)"] = best(by_name, 500) - empty
        found["with a region kept"] = best(kept, 500) - empty
        found["with region(name), in a task"] = runner.run_until_complete(inside()) - empty
        if hasattr(sp, "begin"):
            found["begin + end"] = best(ids, 500) - empty
    found["decorated call"] = best(calls, 500) - empty
    found["asyncio step"] = best(lambda count: runner.run_until_complete(steps(count)), 300)
    found["task: create, run, finish"] = best(lambda count: runner.run_until_complete(tasks(count)), 100)
    found["thread: start, join"] = best(threads, 20)
    runner.close()
    return found


def side(name, on):
    """One profiler's figures, in this process."""
    sp = importlib.import_module(name) if name else None
    if not on or not sp:
        return measures(sp)
    with sp.session(track_threads=True, track_async=True, verbose=False, output=None):
        return measures(sp)


def other(*words, **env):
    out = subprocess.run([sys.executable, __file__, *words], env=os.environ | env, capture_output=True, text=True, check=True)
    return {what: float(ns) for what, ns in (line.rsplit("\t", 1) for line in out.stdout.splitlines())}


def main():
    plain = other("", "off")
    rows = [("on", other("scoped_lane", "on"), other("scope_profiler", "on"))]
    rows.append(("off", other("scoped_lane", "off", SCOPED_LANE="off"), other("scope_profiler", "off")))
    print(f"{'ns added':36}{'scope_profiler':>16}{'scoped_lane':>14}{'ratio':>8}")
    for mode, ours, theirs in rows:
        for what, ns in ours.items():
            mine, its = ns - plain.get(what, 0), theirs.get(what, float("nan")) - plain.get(what, 0)
            print(f"{mode + ': ' + what:36}{its:16.0f}{mine:14.1f}{its / mine if mine > 0 else float('inf'):8.1f}")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        for what, ns in side(sys.argv[1], sys.argv[2] == "on").items():
            print(what, ns, sep="\t")
    else:
        main()
