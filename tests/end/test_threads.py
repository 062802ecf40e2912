"""Threads: those that make no call of the library (scoped-lane run --all-threads), names that only the kernel is told, what a thread
costs in system calls, and how threads wait for one another."""

import collections
import os
import re
import shutil
import subprocess
import sys
import textwrap

from conftest import BUILD, wait_until
from runfile import RunFile, accept
from testpoints import CLIENT, at_testpoint, points_of

THREADS = "libscoped_lane_threads.so"
KINDS = {
    "idle": False,
    "named by the program": False,
    "threads": False,
    "born detached": True,
    "self-detached": True,
    "c11": False,
    "c11 detached": True,
}


def printed(program):
    """pid and {native id: name} as tests/api/threads.c prints them."""
    pid, *lines = program.stdout_text.splitlines()
    return int(pid), dict((int(number), name) for number, name in (line.split(" ", 1) for line in lines))


def test_every_thread_has_a_row_with_its_name_whether_it_is_a_daemon_and_its_exact_processor_time(place):
    run = place.run(place.lane, "run", "--all-threads", "-o", "threads.h5", "--", place.api("threads"))
    pid, printed_names = printed(run)
    file = RunFile(place.path / "threads.h5")
    main, *threads = file.threads(0)
    assert (main.name, main.native_id, main.daemon) == ("threads", pid, False)
    assert {thread.name: thread.daemon for thread in threads} == KINDS
    assert {thread.native_id: thread.name for thread in threads} == {
        number: "named by the program" if name == "recording" else name for number, name in printed_names.items()
    }
    for thread in threads:
        assert not thread.alive and thread.wall_time > 0 and thread.cpu_time > 0
        assert main.start_time <= thread.start_time < thread.end_time <= main.end_time + 1
    assert file.calls("main", 0) == file.calls("work", 0) == 1
    accept(file.path)


def test_a_thread_that_is_detached_at_once_is_a_daemon_and_one_with_its_ident_later_is_not(place):
    place.run(place.lane, "run", "--all-threads", "-o", "threads.h5", "--", place.api("threads"), "-r", 500)
    main, *threads = RunFile(place.path / "threads.h5").threads(0)
    flags = collections.Counter((thread.name, thread.daemon) for thread in threads)
    assert flags == {("detached", True): 500, ("joined", False): 500}
    assert len({thread.ident for thread in threads}) < 100, "idents were used again"


def test_without_the_option_only_threads_that_record_have_rows(place):
    place.run(place.lane, "run", "-o", "threads.h5", "--", place.api("threads"))
    assert [thread.name for thread in RunFile(place.path / "threads.h5").threads(0)] == ["threads", "named by the program"]


def test_threads_that_make_no_call_have_no_rings(service):
    """Two make calls, the first and one of the seven beside it."""
    threads = service.start(
        service.lane, "run", "--all-threads", "-o", "threads.h5", "--", service.api("threads"), "-w", stdin=-1, SCOPED_LANE_RING="4M"
    )
    wait_until(lambda: threads.stdout_text.count("\n") == 8, what="all threads are there")
    pid, _ = printed(threads)
    wait_until(lambda: len(service.rows(f"threads?pid={pid}")) == 8, what="they have rows")
    (segment,) = [path for path in service.segments() if path.name.split(".")[2] == str(pid)]
    assert 8 << 20 < segment.stat().st_blocks * 512 < 12 << 20, "two rings"
    threads.stdin.close()
    threads.ends()


def test_a_name_that_only_the_kernel_was_told_is_seen_while_the_thread_lives(service):
    threads = service.start(
        service.lane, "run", "--all-threads", "-o", "threads.h5", "--", service.api("threads"), "-w", stdin=-1
    )
    wait_until(lambda: threads.stdout_text.count("\n") == 8, what="all threads are there")
    pid, _ = printed(threads)

    def names():
        return {row["name"]: row["daemon"] for row in service.rows(f"threads?pid={pid}") if row["native_id"] != pid}

    wait_until(lambda: names() == KINDS, what="the names of /proc are the rows' names")
    assert {row["state"] for row in service.rows(f"threads?pid={pid}")} == {"live"}
    threads.stdin.write(b"1 of the kernel\n0 new \xff name\n")
    threads.stdin.flush()
    wait_until(lambda: "new \ufffd name" in names(), what="a renamed thread has its new name")
    assert "named by the program" in names(), "a name the program gave is better"
    threads.stdin.close()
    threads.ends()
    named = {thread.name for thread in RunFile(service.path / "threads.h5").threads(0)}
    assert {"new \ufffd name", "named by the program"} <= named


def test_a_program_that_does_not_use_the_library_is_left_alone(place):
    script = "import threading; t = threading.Thread(target=lambda: print('ran')); t.start(); t.join()"
    run = place.run(place.lane, "run", "--all-threads", "--", sys.executable, "-c", script)
    assert run.stdout_text == "ran\n"
    assert "nothing was recorded" in run.stderr_text


def test_a_library_that_is_loaded_later_finds_the_threads_started_after_that(place):
    script = textwrap.dedent(
        f"""
        import ctypes, threading

        def start():
            thread = threading.Thread(target=lambda: None)
            thread.start()
            thread.join()

        start()
        library = ctypes.CDLL({str(BUILD / "lib" / "libscoped_lane.so.0")!r})
        for _ in range(3):
            start()
        library.sl_enter(library.sl_region(b"here"))
        library.sl_exit(library.sl_region(b"here"))
        """
    )
    place.run(place.lane, "run", "--all-threads", "-o", "late.h5", "--", sys.executable, "-c", script)
    file = RunFile(place.path / "late.h5")
    assert len(file.threads(0)) == 4, "the main thread and three"
    assert file.calls("here", 0) == 1


def test_threads_of_a_fork_child_are_found_too_when_forks_are_followed(place):
    script = textwrap.dedent(
        f"""
        import ctypes, os, threading

        library = ctypes.CDLL({str(BUILD / "lib" / "libscoped_lane.so.0")!r})

        def record():
            library.sl_enter(library.sl_region(b"here"))
            library.sl_exit(library.sl_region(b"here"))

        def start(count):
            threads = [threading.Thread(target=lambda: None) for _ in range(count)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        record()
        start(2)
        child = os.fork()
        record()
        start(5)
        if child:
            os.waitpid(child, 0)
        """
    )
    env = {"SCOPED_LANE_FORK": "follow"}
    place.run(place.lane, "run", "--all-threads", "-o", "fork.h5", "--", sys.executable, "-c", script, **env)
    file = RunFile(place.path / "fork.h5")
    assert sorted(len(file.threads(rank)) for rank in file.ranks) == [6, 8]


def test_what_was_to_be_loaded_before_stays_so(place):
    other = place.path / "other.so"
    shutil.copy(BUILD / "lib" / THREADS, other)
    run = place.run(place.lane, "run", "--all-threads", "--", "sh", "-c", "echo $LD_PRELOAD", LD_PRELOAD=other)
    first, second = run.stdout_text.strip().split(":")
    assert os.path.samefile(first, BUILD / "lib" / THREADS)
    assert second == str(other)


def test_a_missing_library_is_said_and_nothing_is_run(place):
    (place.path / "bin").mkdir()
    copy = place.path / "bin" / "scoped-lane"
    shutil.copy(place.lane, copy)
    run = place.run(copy, "run", "--all-threads", "--", "touch", "ran", status=1)
    assert f"lib/{THREADS}" in run.stderr_text
    assert not (place.path / "ran").exists()


def system_calls(place, threads, *before, **env):
    """{name: how many} of a program that has one thread after another, each of which names itself and makes calls."""
    trace = place.path / f"{threads}.trace"
    place.run(*before, "strace", "-f", "-qq", "-o", trace, place.api("churn"), "-n", threads, "-a", 1, **env)
    return collections.Counter(re.findall(r"^\d+ +(\w+)\(", trace.read_text(), re.M))


def test_a_thread_whose_ring_comes_from_the_pool_costs_six_system_calls(place):
    """Signals blocked and unblocked at its start and at its end, its number, its processor time; others come once a second at most."""
    run = place.lane, "run", "-o", "churn.h5", "--"
    cost = system_calls(place, 300, *run) - system_calls(place, 100, *run)
    off = system_calls(place, 300, SCOPED_LANE="off") - system_calls(place, 100, SCOPED_LANE="off")
    own = {name: round((count - off[name]) / 200, 1) for name, count in cost.items()}
    own.pop("futex", None)  # whether somebody waits for the end of a thread is chance
    assert {name: count for name, count in own.items() if count} == {"rt_sigprocmask": 4, "gettid": 1, "clock_gettime": 1}


def test_a_thread_that_waits_for_another_one_to_be_registered_sleeps(place):
    """One that only yielded its processor would, with real-time priority, keep the one that it waits for from running."""
    words = [place.lane, "run", "-o", "two.h5", "--", place.api("churn"), "-n", 2, "-a", 2]
    stopper = at_testpoint(place, CLIENT, points_of(CLIENT)["slot_made"], *words, follow=True, stop=True, stdin=subprocess.PIPE)
    pid, stopped = wait_until(lambda: stopper.hit, what="a thread stands still while it is registered")

    def others():
        return [int(tid) for tid in os.listdir(f"/proc/{pid}/task") if int(tid) not in (pid, stopped)]

    def is_asleep(tid):
        with open(f"/proc/{pid}/task/{tid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] == "S"

    wait_until(lambda: [tid for tid in others() if is_asleep(tid)], what="the other one sleeps")
    stopper.program.stdin.write(b"go on\n")
    stopper.program.stdin.flush()
    stopper.program.ends()
    assert RunFile(place.path / "two.h5").calls("work", 0) == 3
