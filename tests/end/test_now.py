"""What people ask of a program that runs on: who blocks the loop, what is everything waiting for, the trace of a service that will not
end for a day, and what each rank was in when nothing moves any more."""

import json
import os
import signal
import subprocess

import pytest
from conftest import wait_until
from load import Books, Load
from runfile import RunFile, accept
from test_metrics import metrics, value
from test_pause import Told
from test_stuck import alerts
from testpoints import CLIENT, at_testpoint, points_of


def the_task(place):
    (row,) = place.rows("tasks")
    return row


def test_a_handler_that_blocks_its_loop_now_and_then_is_told_by_its_longest_step(service):
    """L14"""
    told = Told(service)
    told.do(*["step handle 0"] * 300)
    wait_until(lambda: service.rows("tasks") and the_task(service)["steps"] == 300, what="the quick steps are seen")
    assert the_task(service)["longest_step_ns"] < 300e6
    told.program.stdin.write(b"step handle 100000\n")
    told.program.stdin.flush()
    row = wait_until(lambda: (row := the_task(service))["longest_step_ns"] >= 300e6 and row, what="the step that blocks is seen while it lasts")
    assert (row["name"], row["state"], row["stack"], row["steps"]) == ("handler", "running", ["handle"], 301)
    region = service.rows("regions?region=handle")[0]
    assert region["open"] == 1 and region["p50_ns"] < 100e6 and region["total_ns"] >= 300e6
    assert value(metrics(service), "scoped_lane_region_open_seconds", region="handle") >= 0.3
    text = service.command("tasks")
    assert "LONGEST STEP" in text and "handler" in text
    told.program.kill()

    told = Told(service)
    told.do(*["step slow 0"] * 20, "step slow 300", "step slow 300")
    (region,) = wait_until(lambda: [r for r in service.rows("regions?region=slow") if r["calls"] == 22], what="the calls are counted")
    assert region["p50_ns"] < 300e6 * 0.95 < region["p99_ns"], "now and then"
    row = next(row for row in service.rows("tasks") if row["pid"] == told.program.pid)
    assert row["state"] == "suspended" and row["longest_step_ns"] >= 300e6, "and when it is over"
    assert value(metrics(service), "scoped_lane_region_seconds_total", region="slow") >= 0.6
    told.ends()


def test_a_step_that_stands_in_its_end_counts_once(service):
    """The program is stopped where the step's time is told and the step is not closed yet."""
    stopper = at_testpoint(service, CLIENT, points_of(CLIENT)["step_running_told"], service.api("told"), stop=True, stdin=subprocess.PIPE)
    stopper.program.stdin.write(b"step handle 300\n")
    stopper.program.stdin.flush()
    wait_until(lambda: stopper.hit, what="it stands there")
    wait_until(lambda: service.rows("tasks"), what="the task is known")
    for _ in range(3):
        reply = service.query("/v1/tasks")
        (row,) = reply["rows"]
        assert 300e6 <= row["running_ns"] and row["running_ns"] + row["suspended_ns"] <= reply["time_ns"] - row["created_ns"]
    stopper.program.stdin.close()
    stopper.program.kill()


@pytest.mark.parametrize("hit, of", [(3, "suspended_ns"), (4, "running_ns")], ids=["a suspension's end", "a step's end"])
def test_no_time_is_told_that_a_change_under_way_takes_back(service, hit, of):
    """The program is stopped when it has read the clock and stored nothing yet, as one that is preempted there."""
    stopper = at_testpoint(service, CLIENT, points_of(CLIENT)["step_clock_read"], service.api("told"), hit=hit, stop=True, stdin=subprocess.PIPE)

    def tell(line):
        stopper.program.stdin.write(line)
        stopper.program.stdin.flush()

    tell(b"step handle 0\n")
    looks = [wait_until(lambda: service.rows("tasks"), what="the task is known")[0]]
    tell(b"step handle 100\n")
    until = looks[0]["since_ns"] + 500_000_000
    while (reply := service.query("/v1/tasks"))["time_ns"] < until:
        looks.append(reply["rows"][0])
    assert stopper.hit
    tell(b"go on\n")
    looks.append(wait_until(lambda: (row := the_task(service))["steps"] == 2 and row["state"] == "suspended" and row, what="it goes on"))
    assert all(one[of] <= other[of] for one, other in zip(looks, looks[1:])) and looks[-1][of] >= (100e6 if of == "running_ns" else 0)
    stopper.program.stdin.close()
    stopper.program.kill()


def test_fifty_tasks_in_a_region_are_listed_with_how_long_they_are_suspended(service):
    """L17"""
    told = Told(service)
    told.do("enter main", "hold db 50", "step quick 1")
    rows = wait_until(lambda: (rows := service.rows("lanes?state=suspended")) and len(rows) == 51 and rows, what="all are suspended")
    held = [row for row in rows if row["stack"] == ["db"]]
    assert len(held) == 50 and all(row["label"].startswith("held (holder) on ") for row in held)
    assert len({row["task_index"] for row in held}) == 50
    now_ns = service.query("/v1/lanes")["time_ns"]
    assert all(0 < now_ns - row["since_ns"] for row in held)
    told_by_command = json.loads(service.command("lanes", "--suspended", "--json"))["rows"]
    assert [(row["lane"], row["stack"]) for row in told_by_command] == [(row["lane"], row["stack"]) for row in rows]
    assert "only" not in service.command("lanes", "--suspended") and "--state" in service.run(
        service.lane, "lanes", "--suspended", "--state", "running", status=2).stderr_text
    first = {row["index"]: row["suspended_ns"] for row in service.rows("tasks") if row["name"] == "held"}
    wait_until(lambda: all(row["suspended_ns"] > first[row["index"]] + 1e6 for row in service.rows("tasks") if row["name"] == "held"),
               what="the suspension in progress counts up to now")
    lines = service.command("lanes", "--state", "suspended", "--tsv").splitlines()
    assert sum("\tdb" in line for line in lines) == 50
    told.ends()


def daemonised(place, *words):
    """A program in a session of its own, whose parent has gone. Returns its load's counts, once there are some."""
    place.run("setsid", "-f", "sh", "-c", 'exec "$@" </dev/zero >/dev/null 2>&1', "sh", *words)
    (path,) = wait_until(lambda: list(place.tallies.glob("*.load")), what="it runs")
    wait_until(lambda: path.stat().st_size and Load(path).done > 1000, what="it makes calls")
    return path


def test_a_daemon_that_runs_all_day_gives_its_trace_now_and_goes_on(service):
    """L34, L38"""
    path = daemonised(service, service.api("load"), "-t", 2, "-p", 2000)
    pid = Load(path).pid
    assert os.getsid(pid) != os.getsid(0)
    wait_until(lambda: service.rows("processes"), what="it is recorded")
    for number in range(3):
        before = Load(path).done
        service.command("snapshot", "-o", f"now{number}.h5")
        after = Load(path).begun
        file = RunFile(service.path / f"now{number}.h5")
        (row,) = file.table("processes")
        assert before <= row["produced"] <= after and row["state"] == "live" and file.table("loss") == [], (file.table("loss"), row)
        assert file.all_calls() == row["stored"] == row["produced"]
        wait_until(lambda: Load(path).done > after, what="it has not been stopped")
    accept(file.path)
    text = service.command("report", "now2.h5")
    assert "depth 0" in text and "depth 3" in text
    assert {row["name"] for row in service.rows("regions")} == {f"depth {i}" for i in range(4)} and "depth 3" in service.command("regions")
    (run,) = service.rows("runs")
    assert run["state"] == "recording"
    os.kill(pid, signal.SIGTERM)
    books = Books([service.run_file()])
    books.agree(Load(path))


def test_every_rank_is_in_the_roll_call_of_a_program_that_hangs(place):
    """L44: rank 0 has failed and blocks in its teardown, rank 1 waits for it in a collective."""
    place.serve("--stuck-after", "1")
    told = [Told(place, OMPI_COMM_WORLD_RANK=rank, SCOPED_LANE_RUN="hang") for rank in range(2)]
    told[0].do("enter teardown", "hold cleanup 1")
    told[1].do("enter step", "enter allreduce")
    (path,) = wait_until(lambda: alerts(place), what="the roll call is written")
    roll_call = wait_until(lambda: path.read_text().endswith("\n") and json.loads(path.read_text()), what="it is whole")
    found = {tuple(row["stack"]): row["ranks"] for row in roll_call["where"]}
    assert found == {("teardown",): "0", ("cleanup",): "0", ("step", "allreduce"): "1"}
    place.command("snapshot", "-o", "now.h5")
    file = RunFile(place.path / "now.h5")
    assert {(row["pid"], row["region"]) for row in file.table("open_calls")} == {
        (told[0].program.pid, "teardown"), (told[0].program.pid, "cleanup"), (told[1].program.pid, "step"), (told[1].program.pid, "allreduce"),
    }
    for each in told:
        each.ends()
