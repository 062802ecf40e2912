"""The converter is killed at 100 random moments. The name of the run file is the file of before, or the new one, whole, or nothing is
there, and the next conversion makes it; then nothing is left beside it."""

import os
import random
import signal
import time

import pytest
from conftest import wait_until
from fullspeed import finish, published
from runfile import RunFile
from spoolfile import KeptSpool
from torture import children

pytestmark = pytest.mark.beside

KILLS = 100
CALLS = 100_000


@pytest.fixture
def spool(service):
    """The spool of a run of CALLS calls, whole."""
    program = service.start(service.api("pairs"), "-n", CALLS, "-w", "work", stdin=-1, SCOPED_LANE_RING="4M")
    kept = KeptSpool(service)
    wait_until(kept.found, what="the spool is there")
    wait_until(lambda: sum(row["stored"] for row in service.rows("processes")) == CALLS, what="every call is stored")
    (run,) = service.rows("runs")
    finish(program)
    published(service, run["run"])
    return kept.path


@pytest.fixture
def old_file(place):
    """The bytes of another run's file."""
    place.run(place.lane, "run", "-o", "old.h5", "--", place.api("pairs"), "-n", 5, "old")
    return (place.path / "old.h5").read_bytes()


@pytest.mark.parametrize("before", ["an older file", "nothing"])
def test_the_name_is_the_old_file_the_new_one_or_nothing(place, spool, old_file, before):
    directory = place.path / before
    directory.mkdir()
    output, number = directory / "run.h5", random.Random(before)
    words = [place.laned, "--convert", spool, "--to", output, "--parent", os.getpid()]

    def convert():
        begun = time.monotonic()
        place.run(*words)
        return time.monotonic() - begun

    takes = convert()
    seen, kills = set(), 0
    while kills < KILLS / 2:
        if before == "nothing":
            output.unlink(missing_ok=True)
        else:
            output.write_bytes(old_file)
        converter = place.start(*words)
        time.sleep(number.uniform(0, takes))
        converter.kill()
        if converter.wait() == 0:  # it was quicker this time
            continue
        kills += 1
        if not output.exists():
            seen.add("nothing")
        elif (data := output.read_bytes()) == old_file:
            seen.add("an older file")
        else:
            assert len(data) > CALLS * 8
            assert RunFile(output).calls("work", 0) == CALLS
            seen.add("the new file")
    assert before in seen <= {before, "the new file"}
    convert()
    assert RunFile(output).calls("work", 0) == CALLS
    assert list(directory.iterdir()) == [output], "what the killed ones left is gone"


@pytest.mark.parametrize("kills, state", [(1, "published"), (3, "failed")])
def test_a_daemon_whose_converter_is_killed_makes_the_file_once_more(service, kills, state):
    program = service.start(service.api("pairs"), "-n", CALLS, "-w", "work", stdin=-1, SCOPED_LANE_RING="4M")
    wait_until(lambda: sum(row["stored"] for row in service.rows("processes")) == CALLS, what="every call is stored")
    finish(program)
    killed = []
    while len(killed) < kills:
        (pid,) = wait_until(lambda: [pid for pid in children(service.daemon.pid) if pid not in killed], what="a converter is at work")
        os.kill(pid, signal.SIGKILL)
        killed.append(pid)
    row = wait_until(lambda: [row for row in service.rows("runs") if row["state"] == state], what=f"the run is {state}")[0]
    assert service.daemon.stderr_text.count("ended by signal 9") == kills
    if state == "failed":
        assert "is kept" in row["problem"] and not os.path.exists(row["file"])
        service.daemon.terminate()
        service.daemon.ends()
        service.serve()  # which does what the one before could not
    wait_until(lambda: os.path.exists(row["file"]), what="the file is there")
    assert RunFile(row["file"]).calls("work", 0) == CALLS
