"""What recording costs, ours and scope-profiler's side by side: `scoped-lane run -- python tests/python/bench.py`.

A figure is the median of many short rounds of what is measured less the same without it, the one right after the other, since
machines that are shared change their speed from one second to the next. The two profilers' programs run in turn, and the table has
the median of theirs, of ours, and our least. Nothing is asserted here; a ratio is theirs to ours. Rounds are short so that the rings
never fill.
"""

import asyncio
import importlib
import os
import statistics
import subprocess
import sys
import threading
import time

ROUNDS = int(os.environ.get("SL_BENCH_ROUNDS", 60))
TURNS = int(os.environ.get("SL_BENCH_TURNS", 5))


def one(function, count):
    begun = time.perf_counter_ns()
    function(count)
    return (time.perf_counter_ns() - begun) / count


def added(function, without, count):
    """ns that a turn of `function` takes longer than one of `without`."""
    differences = []
    for _ in range(ROUNDS):
        differences.append(-one(without, count) + one(function, count))
        time.sleep(0.001)  # the daemon drains
    return statistics.median(differences)


def added_by(hooks, function, count):
    """What `function` takes longer with the profiler's hooks in than without."""
    put_in, take_out = hooks
    differences = []
    for _ in range(ROUNDS):
        take_out()
        function(1)  # what the interpreter learns anew after such a change is not what is measured
        without = one(function, count)
        put_in()
        function(1)
        differences.append(one(function, count) - without)
        time.sleep(0.001)
    return statistics.median(differences)


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
        in_task.append(added(by_name, loop, count))

    def threads(count):
        for _ in range(count):
            thread = threading.Thread(target=nothing)
            thread.start()
            thread.join()

    in_task = []
    in_loop(inside)(500)
    result = {
        "with region(name)": added(by_name, loop, 500),
        "with a region kept": added(kept, loop, 500),
        "with region(name), in a task": in_task[0],
        "decorated call": added(calls, plain_calls, 500),
    }
    if hasattr(sp, "begin"):
        result["begin + end"] = added(ids, loop, 500)
    if on:
        hooks = hooks_of(sp)
        result["asyncio step"] = added_by(hooks, in_loop(steps), 500)
        result["task: create, run, finish"] = added_by(hooks, in_loop(tasks), 200)
        result["thread: start, join"] = added_by(hooks, threads, 20)
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
    modes = {"on": {}, "off": {"SCOPED_LANE": "off"}}
    print(f"{'ns added, medians of ' + str(TURNS):36}{'scope_profiler':>16}{'scoped_lane':>14}{'least':>8}{'ratio':>8}")
    for mode, env in modes.items():
        turns = [(other("scoped_lane", mode, **env), other("scope_profiler", mode)) for _ in range(TURNS)]
        for what in turns[0][0]:
            mine = [ours[what] for ours, _ in turns]
            median = statistics.median(mine)
            its = statistics.median(theirs.get(what, float("nan")) for _, theirs in turns)
            print(f"{mode + ': ' + what:36}{its:16.0f}{median:14.1f}{min(mine):8.1f}{its / max(median, 1):8.1f}")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        for what, ns in side(sys.argv[1], sys.argv[2] == "on").items():
            print(what, ns, sep="\t")
    else:
        main()
