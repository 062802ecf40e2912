"""First, do no harm: without a daemon, or with one that hangs, programs run and end as ever."""

import os
import signal
import statistics
import subprocess
import time

import tally
from conftest import wait_until
from runfile import RunFile, agrees

RANKS, STEPS = 4, 200


def heat(place, program):
    return place.mpirun(RANKS, program, "-n", 240, "-s", STEPS)


def test_output_and_exit_status_are_the_same_without_a_daemon_off_and_recorded(place):
    heat_program = place.example("heat")
    without = place.run(*heat(place, heat_program))
    off = place.run(*heat(place, heat_program), SCOPED_LANE="off")
    place.serve()
    recorded = place.run(*heat(place, heat_program))
    assert f"{STEPS} steps: residual" in without.stdout_text
    assert without.stdout_text == off.stdout_text == recorded.stdout_text
    assert without.stderr_text == off.stderr_text == recorded.stderr_text == ""
    assert RunFile(place.run_file()).calls("step") == RANKS * STEPS


def test_a_program_without_a_daemon_leaves_no_trace(place):
    pairs = place.start(place.api("pairs"), "-n", 1000, "-w", "work", stdin=-1)
    wait_until(lambda: pairs.stdout_text.endswith("\n"), what="pairs has made its calls")
    assert pairs.stdout_text.split()[2] == "0"  # sl_is_active()
    assert place.segments() == []
    assert list(place.rundir.iterdir()) == []
    open_files = {os.readlink(f"/proc/{pairs.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pairs.pid}/fd")}
    assert not [name for name in open_files if "scoped-lane" in name or name.startswith("socket:")]
    assert os.listdir(f"/proc/{pairs.pid}/task") == [str(pairs.pid)]
    pairs.stdin.close()
    pairs.ends()


def test_a_program_starts_no_more_than_a_millisecond_later_without_a_daemon(place):
    """The whole process, from start to end, with the library and its first call, beside the same switched off."""
    source = place.path / "bare.c"
    source.write_text("int main(void) { return 0; }\n")
    subprocess.run(["cc", "-O2", "-o", place.path / "bare", source], check=True)
    recording = place.env | {"SCOPED_LANE_RUNDIR": str(place.rundir)}
    words = [str(place.api("pairs")), "-n", "1", "work"]

    def once(command):
        begin = time.perf_counter()
        subprocess.run(command, env=recording, stdout=subprocess.DEVNULL, check=True)
        return time.perf_counter() - begin

    pairs = [(once([place.path / "bare"]), once(words)) for _ in range(60)]
    later = min(second for _, second in pairs) - min(first for first, _ in pairs)
    print(f"{later * 1e6:.0f} us later, median {statistics.median(b - a for a, b in pairs) * 1e6:.0f} us")
    assert later <= 0.001


def test_ranks_of_a_stopped_daemon_run_as_ever_and_are_recorded_once_it_goes_on(service):
    os.kill(service.daemon.pid, signal.SIGSTOP)
    run = service.run(*heat(service, service.tallied("heat")), deadline=60)
    assert f"{STEPS} steps: residual" in run.stdout_text and run.stderr_text == ""
    counted = tally.read_all(service.tallies)
    assert [counted[rank].calls("step") for rank in range(RANKS)] == [STEPS] * RANKS
    assert list(service.output.iterdir()) == []
    os.kill(service.daemon.pid, signal.SIGCONT)
    file = RunFile(service.run_file())
    for rank in range(RANKS):
        agrees(file, rank, counted[rank])
    wait_until(lambda: not service.segments(), what="the segments are taken away")


def test_a_runtime_directory_too_long_for_a_socket_is_said(place):
    run = place.run(place.lane, "ps", "--rundir", "/tmp/" + "x" * 100, status=1)
    assert "its socket path is too long" in run.stderr_text
