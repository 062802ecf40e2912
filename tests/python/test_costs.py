"""What a thread costs, counted where the count repeats: bench.py measures."""

import collections
import re

from conftest import RunFile, wait_until

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


def test_threads_that_make_no_call_have_rows_and_no_rings(scripts, service):
    script = scripts.write(
        """
        import sys
        import threading
        import scoped_lane as sl

        one, all = threading.Event(), threading.Event()

        def wait():
            if threading.current_thread().name == "one":
                one.wait()
                with sl.region("late"):
                    all.wait()
            all.wait()

        threads = [threading.Thread(target=wait, name=name, daemon=True) for name in ["one"] + [f"silent {i}" for i in range(30)]]
        for thread in threads:
            thread.start()
        sys.stdin.readline()
        one.set()
        sys.stdin.readline()
        all.set()
        for thread in threads:
            thread.join()
        """
    )
    program = service.start(scripts.python, script, stdin=-1, **scripts.env)
    rows = lambda: {row["name"]: row for row in service.rows(f"threads?pid={program.pid}")}
    wait_until(lambda: len(rows()) == 31, what="all threads have rows")
    used = lambda: sum(path.stat().st_blocks * 512 for path in service.segments())
    assert used() < 1 << 20, "no ring"
    assert all(row["state"] != "ended" and row["daemon"] for row in rows().values())
    program.stdin.write(b"\n")
    program.stdin.flush()
    wait_until(lambda: rows()["one"]["stack"] == ["late"], what="the one that makes a call is seen in it")
    assert 1 << 20 < used() < 2 << 20, "one ring"
    program.stdin.close()
    program.ends()
    file = RunFile(service.run_file())
    assert file.calls("late", 0) == 1
    assert {thread.name for thread in file.threads(0)} == set(rows()) and len(file.threads(0)) == 31
