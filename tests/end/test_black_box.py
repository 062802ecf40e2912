"""What a process was doing when it died: live, in the roll call, in the file and in the report."""

import json
import signal
import subprocess
import time

import pytest
from conftest import wait_until
from fullspeed import finish, published
from runfile import RunFile


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_a_process_that_died_shows_its_end_its_last_event_and_what_was_open(service, how):
    """Two ranks of one run; one dies in a region, the other goes on."""

    def rank(number, region):
        words = [service.api("pairs"), "-n", 10, "-o", region, "-w", "work"]
        pairs = service.start(*words, stdin=subprocess.PIPE, SCOPED_LANE_RUN="both", OMPI_COMM_WORLD_RANK=number)
        wait_until(lambda: "\n" in pairs.stdout_text, what="it has made its calls")
        return pairs

    one, other = rank(0, "gather"), rank(1, "scatter")

    def events():
        return [row["last_event_ns"] for row in service.rows("processes") if row["last_event_ns"]]

    wait_until(lambda: len(events()) == 2, what="both are known")
    begun = min(events())
    other.send_signal(how)
    assert other.wait() == -how
    died = time.monotonic_ns()

    def dead():
        return [row for row in service.rows("processes") if row["rank"] == 1 and row["state"] not in ("live", "deaf")]

    stacks = {(0, ("gather",)), (1, ("scatter",))}
    wait_until(dead, what="its end is noted")
    assert {(lane["rank"], tuple(lane["stack"])) for lane in service.rows("lanes")} == stacks, "before its exit status is known"
    wait_until(lambda: len(service.segments()) == 1, what="all of it is taken in")
    (row,) = dead()
    assert row["state"] in ("killed", "vanished")
    assert row["exit_status"] == (-how if row["state"] == "killed" else None)
    assert begun <= row["last_event_ns"] <= died
    assert (row["produced"], row["stored"], row["lost"]) == (10, 10, 0)
    assert {(lane["rank"], tuple(lane["stack"])) for lane in service.rows("lanes")} == stacks
    groups = {group["ranks"]: (group["stack"], group["state"]) for group in service.rows("where")}
    assert groups["1"] == (["scatter"], row["state"])
    assert groups["0"][0] == ["gather"]
    assert "scatter" in service.command("where") and row["state"] in service.command("ps")

    finish(one)
    path = published(service, "both")
    (found,) = [each for each in RunFile(path).table("processes") if each["rank"] == 1]
    assert found["state"] == row["state"]
    assert abs(found["last_event_ns"] - row["last_event_ns"]) < 1000  # by other anchors
    assert (found["has_exit"], found["exit_status"]) == ((1, -how) if row["state"] == "killed" else (0, 0))
    opened = {(call["rank"], call["region"]): call["start_ns"] for call in RunFile(path).table("open_calls")}
    assert opened[1, "scatter"] <= found["last_event_ns"]
    told = json.loads(service.command("report", "--json", path))
    assert [(call["rank"], call["region"]) for call in told["open_calls"] if call["rank"] == 1] == [(1, "scatter")]
    assert "scatter" in service.command("report", path)
