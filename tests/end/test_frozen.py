"""A daemon that is stopped for a while: the program never waits for it, what did not fit is counted, and recording goes on. A program
that is stopped costs the others nothing."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

from conftest import UnixConnection, wait_until
from fullspeed import LONG, finish, published, settled, workers
from load import Books, Load
from runfile import RunFile
from testpoints import DAEMON, at_testpoint, points_of

RATE = 10**6
BEFORE, FROZEN, AFTER = (2, 60, 5) if LONG else (1, 4, 2)  # s


def test_a_program_at_full_pace_does_not_feel_a_daemon_that_is_stopped_and_is_recorded_again_after_it(service, capsys):
    pairs = (BEFORE + FROZEN + AFTER) * RATE
    begun = time.monotonic()
    program = service.start(
        service.api("full_speed"), "-t", 1, "-n", pairs, "-b", 1000, "-p", 1000, "-m", "-w", stdin=-1
    )

    def live():
        rows = service.rows(f"processes?pid={program.pid}")
        return rows[0] if rows else {"produced": 0, "stored": 0, "lost": 0}

    wait_until(lambda: live()["stored"] > BEFORE * RATE / 2, what="it is recorded")
    os.kill(service.daemon.pid, signal.SIGSTOP)
    stopped = time.monotonic()
    wait_until(lambda: time.monotonic() - begun > BEFORE + FROZEN, BEFORE + FROZEN + 1, what="the time is over")
    os.kill(service.daemon.pid, signal.SIGCONT)
    frozen = time.monotonic() - stopped

    again = wait_until(lambda: (row := live())["lost"] and row, what="the live row tells of the loss")
    wait_until(lambda: live()["stored"] > again["stored"] + RATE / 2, what="it is recorded again")
    (made,) = workers(program, 1)
    row = wait_until(lambda: settled(service, program, pairs), what="the live row accounts for every call")
    with capsys.disabled():
        print(f" frozen {frozen:.1f} s: {row['lost']} lost, slowest pair {made.slowest_ns / 1e3:.0f} us, {made.preempted} preempted ", end="")
    assert made.calls == pairs
    assert made.given_up == 0, "a pair waited for something"
    assert made.slowest_ns < 50e6
    assert row["lost"] < frozen * RATE * 1.1 + 10**5, "lost although the daemon ran"
    finish(program)
    file = RunFile(service.run_file(deadline=120))
    (process,) = file.table("processes")
    assert (process["produced"], process["stored"], process["lost"]) == (pairs, row["stored"], row["lost"])
    assert {(loss["reason"], loss["count"]) for loss in file.table("loss")} == {("ring full", row["lost"])}


def test_a_daemon_that_finds_many_full_rings_answers_between_two_of_them_and_its_tables_agree(place):
    daemon = place.serve()
    program = place.start(place.api("told"), "-s", 16, stdin=-1, SCOPED_LANE_RING="8M")
    wait_until(lambda: len(place.rows(f"threads?pid={program.pid}")) >= 16, what="its threads are known")
    daemon.send_signal(signal.SIGSTOP)
    used = lambda: sum(map(int, Path(f"/proc/{program.pid}/stat").read_text().rpartition(")")[2].split()[11:13]))
    enough = used() + 2 * os.sysconf("SC_CLK_TCK")
    wait_until(lambda: used() > enough, what="its rings are full")
    program.send_signal(signal.SIGSTOP)
    asker = UnixConnection(place.rundir / "query.sock")
    asker.request("GET", f"/v1/processes?pid={program.pid}")
    daemon.send_signal(signal.SIGCONT)
    (row,) = json.loads(asker.getresponse().read())["rows"]
    asker.close()
    assert row["produced"] - row["stored"] - row["lost"] > (8 << 20) // 32, "all was drained before anything was answered"
    again = lambda: place.rows(f"processes?pid={program.pid}")[0]
    row = wait_until(lambda: (row := again())["produced"] - row["stored"] - row["lost"] <= 16 and row, what="all is drained")
    program.kill()
    program.wait()
    (process,) = RunFile(place.run_file()).table("processes")
    assert process["produced"] == process["stored"] + process["lost"] == row["produced"]


def test_a_program_that_is_stopped_costs_nobody_anything(service):
    """It is stopped at a random moment of full load, three times; in the end it is killed like that."""
    frozen = service.start(service.api("load"), "-t", 3, stdin=subprocess.PIPE, SCOPED_LANE_RUN="frozen")
    path = service.tallies / f"{frozen.pid}.load"
    for calls in (300, 600, 900):
        wait_until(lambda: path.exists() and Load(path).done > calls * 100, what="it is under way")
        frozen.send_signal(signal.SIGSTOP)
        other = service.start(service.api("pairs"), "-n", calls, "-w", "work", stdin=subprocess.PIPE, SCOPED_LANE_RUN=f"with-{calls}")
        wait_until(lambda: [row["stored"] for row in service.rows(f"processes?pid={other.pid}")] == [calls], what="another is recorded")
        finish(other)
        assert RunFile(published(service, f"with-{calls}")).calls("work", 0) == calls
        assert {row["state"] for row in service.rows(f"processes?pid={frozen.pid}")} == {"live"}
        if calls < 900:
            frozen.send_signal(signal.SIGCONT)
    frozen.kill()
    frozen.wait()
    Books([published(service, "frozen")]).agree(Load(path))


def test_a_daemon_that_stood_still_while_it_sampled_sees_ends_as_soon_as_it_goes_on(place):
    """Sampling takes its share of a core and no more; the time in which the daemon did not run is no part of that."""
    words = [place.laned, "--rundir", place.rundir, "--output", place.output]
    stopper = at_testpoint(place, DAEMON, points_of(DAEMON)["samples_put"], *words, stop=True, stdin=subprocess.PIPE)
    wait_until(lambda: "ready" in stopper.program.stderr_text, what="the daemon is ready")
    pairs = place.start(place.api("pairs"), "-n", 5, "-w", "work", stdin=subprocess.PIPE)
    wait_until(lambda: stopper.hit, what="it has sampled, and stands still")
    begun = time.monotonic()
    wait_until(lambda: time.monotonic() - begun > 1, what="a second is over")
    stopper.program.stdin.write(b"go on\n")
    stopper.program.stdin.flush()
    finish(pairs)
    assert RunFile(place.run_file()).calls("work", 0) == 5
