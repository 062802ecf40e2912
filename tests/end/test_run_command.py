"""scoped-lane run: a command runs as it would without, and leaves a run file."""

import os
import re
import signal
from pathlib import Path

import pytest
from conftest import wait_until
from runfile import RunFile

pytestmark = pytest.mark.beside

CAP_SYS_NICE = 23


def test_run_passes_the_exit_status_on(place):
    place.run(place.lane, "run", "--", "sh", "-c", "exit 3", status=3)


def test_run_of_a_command_that_a_signal_ended_ends_as_a_shell_would(place):
    place.run(place.lane, "run", "--", "sh", "-c", "kill -TERM $$", status=128 + signal.SIGTERM)


def test_run_leaves_the_command_its_input_and_output(place):
    (place.path / "in").write_text("hello\n")
    with open(place.path / "in") as stdin:
        run = place.start(place.lane, "run", "--", "cat", stdin=stdin).ends()
    assert run.stdout_text == "hello\n"


@pytest.mark.parametrize("number, state", [(None, "ended"), (signal.SIGKILL, "killed")])
def test_run_tells_the_daemon_how_its_command_ended_where_it_was_too_late_to_see(service, number, state):
    """It is held up while the command runs, and finds what that has left."""
    script = 'kill -STOP $DAEMON && exec "$@"'
    words = ["sh", "-c", script, "sh", service.api("pairs"), "-n", 5, "-w", "work"]
    run = service.start(service.lane, "run", "-o", "run.h5", "--", *words, stdin=-1, DAEMON=service.daemon.pid)
    wait_until(lambda: run.stdout_text.endswith("\n"), what="pairs has made its calls")
    (pid,) = service.processes("pairs")
    if number:
        os.kill(pid, number)
    run.stdin.close()
    wait_until(lambda: not os.path.exists(f"/proc/{pid}"), what="it has ended")
    service.daemon.send_signal(signal.SIGCONT)
    run.ends(status=128 + number if number else 0)
    (row,) = RunFile(service.path / "run.h5").table("processes")
    assert (row["pid"], row["state"], row["exit_status"], row["stored"]) == (pid, state, -number if number else 0, 5)


@pytest.mark.parametrize("may", [True, False], ids=["may raise priorities", "may not"])
def test_the_recorder_is_ahead_of_the_command_and_ctrl_c_does_not_reach_it(place, may):
    """By its priority, which what it starts has not; else by a session of its own."""
    capabilities = int(re.search(r"CapEff:\s*(\w+)", Path("/proc/self/status").read_text())[1], 16)
    may_here = bool(capabilities >> CAP_SYS_NICE & 1)
    if may and not may_here:
        pytest.skip("priorities may not be raised here")
    limits = ["setpriv", "--bounding-set=-sys_nice"] if may_here and not may else []
    words = [place.lane, "run", "-o", "run.h5", "--", place.api("pairs"), "-n", 5, "-w", "work"]
    run = place.start(*limits, *words, stdin=-1)
    wait_until(lambda: run.stdout_text.endswith("\n"), what="pairs has made its calls")
    (recorder,) = place.processes("scoped-laned")
    assert os.getpgid(recorder) == recorder != os.getpgid(run.pid)
    ahead = os.getpriority(os.PRIO_PROCESS, run.pid) - os.getpriority(os.PRIO_PROCESS, recorder)
    falls_back = bool(os.sched_getscheduler(recorder) & os.SCHED_RESET_ON_FORK)
    shares_session = os.getsid(recorder) == os.getsid(run.pid)
    assert (ahead, falls_back, shares_session) == ((10, True, True) if may else (0, False, False))
    run.stdin.close()
    run.ends()
    assert RunFile(place.path / "run.h5").calls("work", 0) == 5


def test_run_without_a_name_makes_scoped_lane_h5_and_says_where(place):
    run = place.run(place.lane, "run", place.api("pairs"), "-n", 12, "work")
    assert RunFile(place.path / "scoped-lane.h5").calls("work", 0) == 12
    assert "scoped-lane.h5" in run.stderr_text
    assert run.stdout_text.split()[1:] == ["12", "1"]


def test_run_replaces_the_file_of_an_earlier_run(place):
    for calls in (3, 4):
        place.run(place.lane, "run", "-o", "run.h5", "--", place.api("pairs"), "-n", calls, "work")
        assert RunFile(place.path / "run.h5").calls("work", 0) == calls


def test_run_uses_the_service_where_one_listens(service):
    service.run(service.lane, "run", "-o", "run.h5", "--", service.api("pairs"), "-n", 5, "work")
    assert RunFile(service.path / "run.h5").calls("work", 0) == 5
    assert [row["pid"] for row in service.rows("processes")]
    assert list(service.output.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_service_publishes_what_it_has_when_it_is_asked_to_end(service, number):
    pairs = service.start(service.api("pairs"), "-n", 9, "-w", "work", stdin=-1)
    wait_until(lambda: pairs.stdout_text.endswith("\n"), what="pairs has made its calls")
    service.daemon.send_signal(number)
    service.daemon.ends(0, deadline=30)
    assert RunFile(service.run_file()).calls("work", 0) == 9
    assert not os.path.exists(service.rundir / "query.sock")
    pairs.stdin.close()
    pairs.ends()


def test_what_is_missing_is_an_exit_status_where_all_is_required(place):
    def run(*words, status, **env):
        return place.run(place.lane, "run", "--require-complete", "--", *words, status=status, **env).stderr_text

    many = [place.api("pairs"), "-n", 300_000, "work"]
    assert "none lost" in run(place.api("pairs"), "-n", 100, "work", status=0)
    assert "LOST" in run(*many, status=1, SCOPED_LANE_RING="16K")  # room for 512 calls
    assert "LOST" in place.run(place.lane, "run", "--", *many, status=0, SCOPED_LANE_RING="16K").stderr_text
    assert "1 process(es) recorded nothing" in run(*many, status=1, SCOPED_LANE_SHM_DIR=place.path / "not there")
    assert "nothing was recorded" in run("true", status=1)
    run("sh", "-c", "exit 3", status=1)
