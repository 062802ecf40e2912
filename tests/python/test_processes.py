"""Processes that Python programs start, in each way there is: one run file with all of them, each call once."""

import collections
import sys

import pytest
from conftest import HERE, PYTHON, RunFile, wait_until
from runfile import accept

POOLS = """
import concurrent.futures, multiprocessing, os, subprocess, sys, time
import scoped_lane as sl

def job(seconds=0.0):
    with sl.region("job"):
        time.sleep(seconds)
    return os.getpid()

def forks(depth):
    if depth and not (pid := os.fork()):
        job()
        forks(depth - 1)
        os._exit(0)
    elif depth:
        os.waitpid(pid, 0)

def spawns(depth):
    job()
    if depth > 1:
        subprocess.run([sys.executable, __file__, "spawns", str(depth - 1)], check=True)

def starts(method, depth):
    job()
    if depth > 1:
        process = multiprocessing.get_context(method).Process(target=starts, args=(method, depth - 1))
        process.start()
        process.join()

if __name__ == "__main__":
    how, count = sys.argv[1], int(sys.argv[2])
    if how == "spawns":
        spawns(count)
        sys.exit()
    with sl.region("parent"):
        with sl.region("before"):
            pass
        if how == "os.fork":
            forks(count)
        elif how == "subprocess":
            subprocess.run([sys.executable, __file__, "spawns", str(count)], check=True)
        elif how.startswith("chain"):
            starts(how.split()[1], count)
        elif how.startswith("executor"):
            context = multiprocessing.get_context(how.split()[1])
            with concurrent.futures.ProcessPoolExecutor(count, mp_context=context) as pool:
                print(len(set(pool.map(job, [0.01] * 5 * count))))
        else:
            with multiprocessing.get_context(how).Pool(count) as pool:
                print(len(set(pool.map(job, [0.01] * 5 * count, chunksize=1))))
                pool.close()
                pool.join()
"""
FORKS = HERE / "scripts" / "forks.py"
METHODS = ["fork", "spawn", "forkserver"]


def once(file, jobs):
    """Every call of the program is there, the parent's once; each process has a rank of its own. Returns the processes with calls."""
    assert {name: file.calls(name) for name in ("parent", "before", "job")} == {"parent": 1, "before": 1, "job": jobs}
    rows = file.table("processes")
    assert all(row["lost"] == row["crossing"] == row["unmatched"] == 0 and row["produced"] == row["stored"] for row in rows)
    assert file.table("open_calls") == []
    rows = [row for row in rows if row["produced"]]  # the server of forks has none
    assert sorted(row["rank"] for row in rows) == list(range(len(rows))) == file.ranks and len({row["pid"] for row in rows}) == len(rows)
    return rows


@pytest.mark.parametrize("how", METHODS + [f"executor {method}" for method in METHODS])
def test_pools_are_in_one_file_with_their_parent(scripts, how):  # 79
    file = scripts.record(POOLS, how, "3")
    parent, *workers = once(file, 15)
    assert len(workers) >= int(file.said) and all(row["start_ns"] > parent["start_ns"] for row in workers)
    assert {row["parent_pid"] for row in workers} == {parent["pid"]}  # the server of forks records nothing, and is left out


@pytest.mark.parametrize("how", ["os.fork", "subprocess", "chain fork", "chain spawn", "chain forkserver"])
def test_generations_are_linked_and_nothing_is_in_two_of_them(scripts, how):  # L37
    calls = 3 if how.startswith("chain") else 2
    env = {"SCOPED_LANE_FORK": "follow"} if how == "os.fork" else {}
    rows = once(scripts.record(POOLS, how, str(calls), **env), calls)
    assert len(rows) == 3
    assert [row["parent_pid"] for row in rows[1:]] == [row["pid"] for row in rows[:-1]]


def test_a_fork_that_is_not_followed_records_nothing_in_the_child(scripts):
    file = scripts.record(POOLS, "os.fork", "2")
    assert {name: file.calls(name) for name in ("parent", "before", "job")} == {"parent": 1, "before": 1, "job": 0}
    assert len(file.table("processes")) == 1


needs_original = pytest.mark.skipif(PYTHON != sys.executable, reason="scope-profiler is not there for the other interpreter")


@needs_original
@pytest.mark.parametrize("follow", [None, "follow"])
def test_on_purpose_a_fork_repeats_nothing(scripts, follow):  # 76, 77
    file = scripts.record(FORKS, "scoped_lane", SCOPED_LANE_FORK=follow)
    mine = {"child's": 2} if follow else {}
    assert {name: file.calls(name) for _, name, _ in file.counts} == {"scope_profiler.session": 1, "before": 1, "after": 1} | mine
    assert {rank for rank, name, _ in file.counts if name == "child's"} == ({1} if follow else set())
    assert "'before'" in scripts.run(FORKS, "scope_profiler", python=sys.executable), "theirs is told once more by the child"


@needs_original
def test_a_fork_s_child_that_begins_a_session_is_recorded_as_with_the_original(scripts):  # 78
    def child(file, rank):
        names = {thread.index: thread.name for thread in file.threads(rank)}
        ids = file.run["child's"][rank].thread_ids
        return {name: calls for r, name, calls in file.counts if r == rank}, names, sorted(ids.tolist())

    ours = scripts.record(FORKS, "scoped_lane", "session")
    its_own = child(RunFile(scripts.path / "child.h5"), 1)
    parent, forked = ours.table("processes")
    assert child(ours, 1) == its_own and forked["parent_pid"] == parent["pid"]
    assert {name: ours.calls(name) for _, name, _ in ours.counts} == {"scope_profiler.session": 2, "before": 1, "after": 1, "child's": 2}
    scripts.run(FORKS, "scope_profiler", "session", python=sys.executable)
    assert its_own == child(RunFile(scripts.path / "child.h5"), 0)
    assert its_own == ({"child's": 2, "scope_profiler.session": 1}, {0: "MainThread", 1: "child-0", 2: "child-1"}, [1, 2])


def test_a_worker_s_own_fork_is_not_followed_and_without_a_daemon_all_goes_as_ever(scripts):
    code = """
        import multiprocessing, os
        import scoped_lane as sl

        def work():
            with sl.region("worker"):
                pid = os.fork()
                if not pid:
                    with sl.region("fork of a worker"):
                        os._exit(0)
                os.waitpid(pid, 0)

        if __name__ == "__main__":
            process = multiprocessing.get_context("fork").Process(target=work)
            process.start()
            process.join()
            assert process.exitcode == 0
            with sl.region("parent"):
                pass
        """
    file = scripts.record(code)
    assert {name: file.calls(name) for name in ("worker", "parent", "fork of a worker")} == {"worker": 1, "parent": 1, "fork of a worker": 0}
    assert len(file.table("processes")) == 2
    scripts.run(code)


def test_workers_killed_inside_regions_leave_theirs(scripts):  # L32
    file = scripts.record(
        """
        import multiprocessing, time
        import scoped_lane as sl

        def work(ready):
            for _ in range(100):
                with sl.region("done"):
                    pass
            with sl.region("outer"):
                with sl.region("inner"):
                    ready.set()
                    time.sleep(100)

        if __name__ == "__main__":
            context = multiprocessing.get_context("fork")
            events = [context.Event() for _ in range(3)]
            workers = [context.Process(target=work, args=(event,)) for event in events]
            for worker in workers:
                worker.start()
            for event in events:
                event.wait()
            for worker in workers:
                worker.kill()
                worker.join()
            with sl.region("parent"):
                pass
        """
    )
    killed = [row for row in file.table("processes") if row["rank"] and row["produced"]]
    assert len(killed) == 3 and file.calls("done") == 300 and file.calls("parent") == 1
    opened = collections.Counter((row["rank"], row["region"]) for row in file.table("open_calls"))
    assert opened == {(row["rank"], region): 1 for row in killed for region in ("outer", "inner")}


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_an_executor_killed_inside_regions_leave_theirs(scripts, method):  # L32
    file = scripts.record(
        """
        import concurrent.futures, multiprocessing, os, signal, sys, time
        import scoped_lane as sl

        def begin(counter):
            global inside
            inside = counter

        def work():
            with sl.region("done"):
                pass
            with sl.region("work"):
                inside.release()
                time.sleep(100)

        if __name__ == "__main__":
            context = multiprocessing.get_context(sys.argv[1])
            inside = context.Semaphore(0)
            with concurrent.futures.ProcessPoolExecutor(3, mp_context=context, initializer=begin, initargs=(inside,)) as pool:
                futures = [pool.submit(work) for _ in range(3)]
                for _ in futures:
                    inside.acquire()
                for worker in multiprocessing.active_children():
                    os.kill(worker.pid, signal.SIGKILL)
                assert all(isinstance(future.exception(), concurrent.futures.process.BrokenProcessPool) for future in futures)
        """,
        method,
    )
    assert file.calls("done") == 3
    assert collections.Counter(row["region"] for row in file.table("open_calls")) == {"work": 3} and len({row["rank"] for row in file.table("open_calls")}) == 3


def test_one_that_leaves_at_once_has_its_calls_its_open_ones_and_its_status(scripts):  # L33
    file = scripts.record(
        """
        import os
        import scoped_lane as sl
        with sl.region("done"):
            pass
        while os.getpid() not in (row["pid"] for row in sl.live.processes()):
            pass  # the status of one that was never there for the daemon cannot be had
        with sl.region("open"):
            os._exit(3)
        """,
        status=3,
    )
    (process,) = file.table("processes")
    assert file.calls("done") == 1 and [row["region"] for row in file.table("open_calls")] == ["open"]
    assert (process["state"], process["exit_status"]) == ("vanished", 3)


def test_nobody_waits_for_a_child_that_lives_on_and_what_comes_late_is_in_a_file_of_its_own(scripts):  # L35
    file = scripts.record(
        """
        import os, subprocess, sys, time
        import scoped_lane as sl
        if len(sys.argv) > 1:
            with sl.region("early"):
                pass
            print("there", flush=True)
            while not os.path.exists("go"):
                time.sleep(0.01)
            with sl.region("late"):
                pass
        else:
            child = subprocess.Popen([sys.executable, __file__, "child"], stdout=subprocess.PIPE, start_new_session=True)
            assert child.stdout.readline() == b"there\\n"
            with sl.region("parent"):
                pass
        """
    )
    assert {name: file.calls(name) for _, name, _ in file.counts} == {"early": 1, "parent": 1}
    parent, child = file.table("processes")
    assert child["parent_pid"] == parent["pid"] and (parent["state"], child["state"]) == ("ended", "live")
    (scripts.path / "go").touch()
    late = scripts.path / "run-2.h5"
    wait_until(late.exists)
    assert {name: calls for _, name, calls in RunFile(late).counts} == {"late": 1}


def test_forks_while_other_threads_register_whatever_there_is_work_and_repeat_nothing(scripts):  # 116
    file = scripts.record(
        """
        import asyncio, itertools, os, signal, threading
        import scoped_lane as sl
        stop = False

        def names():
            for i in itertools.count():
                with sl.region(f"name {i % 20000}"):
                    pass
                if stop:
                    return

        def threads():
            while not stop:
                thread = threading.Thread(target=os.getpid)
                thread.start()
                thread.join()

        def tasks():
            async def main():
                while not stop:
                    await asyncio.create_task(asyncio.sleep(0))
            asyncio.run(main())

        def record(name):
            with sl.region(name):
                pass

        def forks():
            for _ in range(20):
                with sl.region("around"):
                    pid = os.fork()
                    if not pid:
                        signal.alarm(20)  # of whoever waits for what nobody gives back
                        record("child")
                        thread = threading.Thread(target=record, args=("thread",))
                        thread.start()
                        thread.join()
                        async def main():
                            record("task")
                        asyncio.run(main())
                        os._exit(0)
                    assert os.waitpid(pid, 0)[1] == 0

        others = [threading.Thread(target=target) for target in (names, threads, tasks)]
        for other in others:
            other.start()
        forks()
        worker = threading.Thread(target=forks)
        worker.start()
        worker.join()
        stop = True
        for other in others:
            other.join()
        """,
        SCOPED_LANE_FORK="follow",
        SCOPED_LANE_RING="64K",
    )
    assert [file.calls(name) for name in ("around", "child", "thread", "task")] == [40] * 4 and file.calls("around", 0) == 40
    children = [row for row in file.table("processes") if row["rank"]]
    assert [(row["produced"], row["lost"], row["unmatched"], row["crossing"]) for row in children] == [(3, 0, 0, 0)] * 40
    assert file.table("open_calls") == []


def test_a_pool_of_64_is_in_one_file_that_the_original_reads(scripts):
    file = scripts.record(
        """
        import multiprocessing
        import scoped_lane as sl

        def begin(barrier):
            with sl.region("begin"):
                barrier.wait()  # each of them is there

        def job(n):
            with sl.region("job"):
                return n

        if __name__ == "__main__":
            context = multiprocessing.get_context("fork")
            barrier = context.Barrier(65)
            with context.Pool(64, initializer=begin, initargs=(barrier,)) as pool:
                begin(barrier)
                assert pool.map(job, range(640), chunksize=1) == list(range(640))
                pool.close()
                pool.join()
        """,
        SCOPED_LANE_RING="16K",
    )
    rows = file.table("processes")
    assert sorted(row["rank"] for row in rows) == list(range(65)) == file.ranks and len({row["pid"] for row in rows}) == 65
    assert all((row["lost"], row["unmatched"], row["produced"]) == (0, 0, row["stored"]) for row in rows)
    assert {file.calls("begin", rank) for rank in range(65)} == {1} and file.calls("job") == 640
    accept(file.path)


def test_the_trackers_and_hooks_of_a_spawned_child_are_its_own(scripts):
    file = scripts.record(
        """
        import asyncio, multiprocessing, threading
        import scoped_lane as sl

        async def main():
            with sl.region("task"):
                await asyncio.sleep(0.001)

        def work(name):
            thread = threading.Thread(target=lambda: asyncio.run(main()), name=name)
            thread.start()
            thread.join()

        if __name__ == "__main__":
            for method in ("spawn", "fork"):
                process = multiprocessing.get_context(method).Process(target=work, args=(method,))
                process.start()
                process.join()
            work("own")
        """
    )
    assert file.calls("task") == 3
    names = {thread.name for rank in file.ranks for thread in file.threads(rank)}
    assert names - {"MainThread"} == {"spawn", "fork", "own"}  # the main one is there where it recorded something itself
    for rank in file.ranks:
        (row,) = [task for task in file.run.tasks[rank] if task.coro_name == "main"]
        assert row.done and row.steps == 2
