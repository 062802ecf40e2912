"""What a thread costs, counted where the count repeats: bench.py measures."""

import collections
import re

THREADS = """
    import sys
    import threading
    import scoped_lane as sl

    for _ in range(int(sys.argv[1])):
        thread = threading.Thread(target=sl.profile(lambda: None))
        thread.start()
        thread.join()
"""


def system_calls(scripts, threads, *before, **env):
    """{name: how many} of a program that has one thread after another."""
    trace, script = scripts.path / f"{threads}.trace", scripts.write(THREADS)
    scripts.place.run(*before, "strace", "-f", "-qq", "-o", trace, scripts.python, script, threads, **scripts.env | env)
    return collections.Counter(re.findall(r"^\d+ +(\w+)\(", trace.read_text(), re.M))


def test_a_thread_whose_ring_comes_from_the_pool_costs_six_system_calls(scripts):
    """Signals blocked and unblocked at its start and at its end, its number, its processor time; its name and flag cost none."""
    run = scripts.place.lane, "run", "-o", "threads.h5", "--"
    cost = system_calls(scripts, 300, *run) - system_calls(scripts, 100, *run)
    off = system_calls(scripts, 300, SCOPED_LANE="off") - system_calls(scripts, 100, SCOPED_LANE="off")
    own = {name: round((count - off[name]) / 200, 1) for name, count in cost.items()}
    calls = "rt_sigprocmask", "gettid", "clock_gettime", "prctl", "newfstatat", "fstat", "recvmsg", "sched_yield"
    assert {name: own[name] for name in calls if own.get(name)} == {"rt_sigprocmask": 4, "gettid": 1, "clock_gettime": 1}
