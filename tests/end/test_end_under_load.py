"""The daemon is told to end while programs record as fast as they can: what was published before is in its files, in time; what comes
later stays in the rings for the next daemon, or is counted there."""

import signal
import subprocess
import time

from conftest import wait_until
from load import Books, Load

THREADS = 2
IN_TIME = 30.0


def start_load(place, pause):
    program = place.start(place.api("load"), "-t", THREADS, "-p", pause, stdin=subprocess.PIPE)
    path = place.tallies / f"{program.pid}.load"
    wait_until(lambda: path.exists() and path.stat().st_size and Load(path).done > 20_000, what="the program is under way")
    return program, path


def end_daemon(place, path):
    """Reads the program's counters, then tells the daemon to end: how many calls were published before, at the least."""
    before = Load(path)
    place.daemon.send_signal(signal.SIGTERM)
    begun = time.monotonic()
    place.daemon.ends(0, deadline=IN_TIME)
    assert time.monotonic() - begun < IN_TIME
    return before.done


def test_what_was_published_before_sigterm_is_in_the_file_and_the_rest_is_for_the_next_daemon(service):
    program, path = start_load(service, 0)
    published = end_daemon(service, path)
    first = Books(service.run_files())
    (row,) = first.rows[program.pid]
    assert row["produced"] >= published, f"{published} calls were published, {row['produced']} are told"
    assert row["stored"] + row["lost"] == row["produced"] and first.calls[program.pid] == row["stored"]

    wait_until(lambda: Load(path).done > 2 * published, what="rings are full and calls are lost while no daemon is there")
    service.daemon = service.serve()
    wait_until(lambda: service.rows("processes"), what="the next daemon has found it")
    program.stdin.close()
    program.ends()
    both = service.run_files(2)
    wait_until(lambda: not service.segments(), what="its segment is gone")
    made = Load(path)
    books = Books(both)
    books.agree(made)
    assert sum(row["produced"] for row in books.rows[program.pid]) == made.done


def test_at_a_pace_that_people_have_the_end_loses_nothing(service):
    program, path = start_load(service, 1000)
    published = end_daemon(service, path)
    service.daemon = service.serve()
    wait_until(lambda: service.rows("processes"), what="the next daemon has found it")
    assert Books(service.run_files()).rows[program.pid][0]["stored"] >= published
    program.stdin.close()
    program.ends()
    books, made = Books(service.run_files(2)), Load(path)
    books.agree(made)
    assert books.calls[program.pid] == made.done, books.rows[program.pid]


def test_a_finish_under_load_parts_the_calls_between_two_files(service):
    program, path = start_load(service, 200)
    for part in (1, 2):
        (run,) = [row["run"] for row in service.rows("runs") if row["state"] == "recording"]
        status, reply = service.ask(f"/v1/finish?run={run}", "POST")
        assert status == 200, reply
        service.run_files(part)
    program.stdin.close()
    program.ends()
    books, made = Books(service.run_files(3)), Load(path)
    books.agree(made)
    assert sum(row["produced"] for row in books.rows[program.pid]) == made.done
