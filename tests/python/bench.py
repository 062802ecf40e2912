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


def one(function, count):
    begun = time.perf_counter_ns()
    function(count)
    taken = time.perf_counter_ns() - begun
    time.sleep(0.001)  # the daemon drains
    return taken / count


def best(function, count):
    return min(one(function, count) for _ in range(ROUNDS))


def added(hooks, function, count):
    """What `function` takes longer with the profiler's hooks in than without, in turn."""
    put_in, take_out = hooks
    least = {True: float("inf"), False: float("inf")}
    for i in range(2 * ROUNDS):
        (put_in if i % 2 else take_out)()
        least[bool(i % 2)] = min(least[bool(i % 2)], one(function, count))
    put_in()
    return least[True] - least[False]


def nothing():
    pass


def hooks_of(sp):
    """How to put them in, how to take them out."""
    if sp.__name__ == "scoped_lane":
        from scoped_lane import hooks, manager

        return lambda: hooks.use(manager.RECORDING, True), lambda: hooks.leave(manager.RECORDING)
    tracker = sp.ProfileManager.get_config().tracker
    return tracker.install, tracker.uninstall


def measures(sp, on):
    """{what: ns} of one profiler."""
    region, profiled = sp.region, sp.profile("profiled")(nothing)

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

    def plain_calls(count):
        for _ in range(count):
            nothing()

    def ids(count):
        begin, end, number = sp.begin, sp.end, region("name").id
        for _ in range(count):
            begin(number)
            end(number)

    def in_loop(function):
        def run(count):
            loop = asyncio.new_event_loop()
            loop.run_until_complete(function(count))
            loop.close()

        return run

    async def steps(count):
        for _ in range(count):
            await asyncio.sleep(0)

    async def noop():
        pass

    async def tasks(count):
        for _ in range(count):
            await asyncio.create_task(noop())

    async def inside(count):
        begun = time.perf_counter_ns()
        by_name(count)
        found.append((time.perf_counter_ns() - begun) / count)

    def threads(count):
        for _ in range(count):
            thread = threading.Thread(target=nothing)
            thread.start()
            thread.join()

    empty, result, found = best(loop, 500), {}, []
    result["with region(name)"] = best(by_name, 500) - empty
    result["with a region kept"] = best(kept, 500) - empty
    best(in_loop(inside), 500)
    result["with region(name), in a task"] = min(found) - empty
    result["decorated call"] = best(calls, 500) - best(plain_calls, 500)
    if hasattr(sp, "begin"):
        result["begin + end"] = best(ids, 500) - empty
    if on:
        hooks = hooks_of(sp)
        result["asyncio step"] = added(hooks, in_loop(steps), 500)
        result["task: create, run, finish"] = added(hooks, in_loop(tasks), 200)
        result["thread: start, join"] = added(hooks, threads, 20)
    return result


def side(name, on):
    """One profiler's figures, in this process."""
    sp = importlib.import_module(name)
    if not on:
        return measures(sp, on)
    with sp.session(track_threads=True, track_async=True, verbose=False, output=None):
        return measures(sp, on)


def other(*words, **env):
    out = subprocess.run([sys.executable, __file__, *words], env=os.environ | env, capture_output=True, text=True, check=True)
    return {what: float(ns) for what, ns in (line.rsplit("\t", 1) for line in out.stdout.splitlines())}


def main():
    rows = [("on", other("scoped_lane", "on"), other("scope_profiler", "on"))]
    rows.append(("off", other("scoped_lane", "off", SCOPED_LANE="off"), other("scope_profiler", "off")))
    print(f"{'ns added':36}{'scope_profiler':>16}{'scoped_lane':>14}{'ratio':>8}")
    for mode, ours, theirs in rows:
        for what, mine in ours.items():
            its = theirs.get(what)
            if its is None:
                print(f"{mode + ': ' + what:36}{'-':>16}{mine:14.1f}{'-':>8}")
            else:
                print(f"{mode + ': ' + what:36}{its:16.0f}{mine:14.1f}{its / mine if mine > 0 else float('inf'):8.1f}")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        for what, ns in side(sys.argv[1], sys.argv[2] == "on").items():
            print(what, ns, sep="\t")
    else:
        main()
