"""Pause and resume: what is recorded is exact on both sides, what was open when recording stopped closes properly, and the run file says
when that was."""

import json
import random
import time

from conftest import wait_until
from runfile import RunFile


class Told:
    """A program that does what it is told, line by line."""

    def __init__(self, place, **env):
        self.program = place.start(place.api("told"), stdin=-1, **env)
        self.lines = 0

    def do(self, *lines):
        for line in lines:
            self.program.stdin.write(f"{line}\n".encode())
        self.program.stdin.flush()
        self.lines += len(lines)
        wait_until(lambda: f"done {self.lines}\n" in self.program.stdout_text, what=f"{lines} are done")

    def ends(self):
        self.program.stdin.close()
        self.program.ends()


def process(place, pid):
    return next((row for row in place.rows("processes") if row["pid"] == pid), None)


def produced(place, pid, count):
    """Waits until the daemon knows of `count` calls; it must not know of more."""
    wait_until(lambda: process(place, pid)["produced"] >= count, what=f"{count} calls")
    assert process(place, pid)["produced"] == count


def test_calls_of_the_time_between_are_not_recorded_and_those_open_before_are(service):
    told = Told(service)
    told.do("enter outer", "calls work 100")
    pid = told.program.pid
    wait_until(lambda: process(service, pid), what="it is known")
    assert process(service, pid)["paused"] is False
    times = [time.monotonic_ns()]
    service.command("pause", "--pid", pid)
    times.append(time.monotonic_ns())
    assert process(service, pid)["paused"] is True and "PAUSED" in service.command("ps")

    service.command("pause", "--pid", pid)  # which it is already
    told.do("calls work 100", "enter late", "calls inner 5")
    lane = wait_until(lambda: [row for row in service.rows("lanes") if row["stack"] == ["outer", "late"]], what="the stack is seen")
    assert lane[0]["pid"] == pid
    assert {row["name"] for row in service.rows("regions")} == {"outer", "work"}, "what will be no call is not counted as one"
    told.do("exit late", "exit outer", "enter late", "enter late too")
    produced(service, pid, 101)

    times.append(time.monotonic_ns())
    service.command("resume", "--pid", pid)
    times.append(time.monotonic_ns())
    assert process(service, pid)["paused"] is False and "PAUSED" not in service.command("ps")
    told.do("calls inner 7", "exit late too", "next inner", "exit inner", "calls work 10")
    told.ends()
    file = RunFile(service.run_file())
    assert {name: file.calls(name) for name in file.run.region_names} == {"outer": 1, "work": 110, "inner": 8}
    row = process(service, pid)
    assert (row["produced"], row["stored"], row["lost"], row["unmatched"], row["crossing"]) == (119, 119, 0, 0, 0)
    regions = {row["name"]: row for row in service.rows("regions")}
    assert 0 <= regions["outer"]["self_ns"] <= regions["outer"]["total_ns"]
    (pause,) = file.table("pauses")
    assert pause["rank"] == 0 and times[0] <= pause["begin_ns"] <= times[1] and times[2] <= pause["end_ns"] <= times[3]
    (remark,) = json.loads(service.command("report", "--json", file.path))["remarks"]
    seconds = f"{(pause['end_ns'] - pause['begin_ns']) / 1e9:.3f}"
    assert remark == f"recording was paused: 1 pause of a process, {seconds} s in all; what was entered meanwhile is not in this file"
    assert "recording was paused" in service.run(service.lane, "report", file.path).stderr_text


def test_a_rank_is_paused_alone_and_a_run_with_those_that_come(service):
    run = {"SCOPED_LANE_RUN": "paused"}
    told = [Told(service, OMPI_COMM_WORLD_RANK=rank, **run) for rank in range(2)]
    for each in told:
        each.do("calls work 1")
    wait_until(lambda: len(service.rows("processes")) == 2, what="both are known")
    service.command("pause", "--rank", 1)
    for each in told:
        each.do("calls work 10")
    produced(service, told[0].program.pid, 11)
    produced(service, told[1].program.pid, 1)

    service.command("pause", "--run", "paused")
    told.append(Told(service, OMPI_COMM_WORLD_RANK=2, **run))
    told[2].do("enter outer")  # known now, and its first calls may come before the daemon
    pid = told[2].program.pid
    wait_until(lambda: (row := process(service, pid)) and row["paused"], what="the late one is paused")
    for each in told:
        each.do("calls work 10")
    produced(service, told[0].program.pid, 11)
    produced(service, pid, 0)
    service.command("resume", "--run", "paused")
    told[2].do("calls work 3")
    produced(service, pid, 3)
    for each in told:
        each.ends()
    file = RunFile(service.run_file())
    pauses = {row["rank"]: row for row in file.table("pauses")}
    assert len(pauses) == len(file.table("pauses")) == 3 and pauses[1]["begin_ns"] < pauses[0]["begin_ns"] < pauses[2]["begin_ns"]
    assert pauses[1]["end_ns"] > pauses[2]["begin_ns"], "the one pause of rank 1 goes on when its run is paused"
    for rank, words in ((None, "3 pauses of processes"), (0, "1 pause of a process")):
        (remark,) = json.loads(service.command("report", "--json", *([] if rank is None else ["--rank", rank]), file.path))["remarks"]
        assert f"recording was paused: {words}, " in remark


def test_it_stays_paused_under_the_next_daemon(service):
    told = Told(service)
    told.do("calls work 5")
    pid = told.program.pid
    wait_until(lambda: process(service, pid), what="it is known")
    service.command("pause", "--pid", pid)
    service.daemon.kill()
    service.daemon.wait()
    told.do("calls work 5")
    service.serve()
    wait_until(lambda: (row := process(service, pid)) and row["paused"], what="the next daemon knows")
    told.do("calls work 5")
    produced(service, pid, 5)
    service.command("resume", "--pid", pid)
    told.do("calls work 5")
    produced(service, pid, 10)
    told.ends()
    (pause,) = RunFile(service.run_file()).table("pauses")
    assert 0 < pause["begin_ns"] < pause["end_ns"]


def test_a_run_that_is_finished_goes_on_paused(service):
    run = {"SCOPED_LANE_RUN": "paused"}
    told = Told(service, **run)
    told.do("calls work 5")
    wait_until(lambda: process(service, told.program.pid), what="it is known")
    service.command("pause")
    service.command("finish")
    late = Told(service, **run)
    late.do("enter outer")
    wait_until(lambda: (row := process(service, late.program.pid)) and row["paused"], what="the late one is paused")
    told.do("calls work 5")
    service.command("resume")
    told.do("calls work 2")
    told.ends()
    late.ends()
    first, second = (RunFile(path) for path in service.run_files(2))
    assert {first.calls("work"), second.calls("work")} == {5, 2}
    if first.calls("work") == 2:
        first, second = second, first
    (until_its_end,) = first.table("pauses")
    assert until_its_end["end_ns"] == -1
    pauses = second.table("pauses")
    assert len(pauses) == 2 and all(until_its_end["begin_ns"] < pause["begin_ns"] < pause["end_ns"] for pause in pauses)
    assert "recording was paused: 1 pause of a process, " in service.run(service.lane, "report", first.path).stderr_text


def test_at_any_moment_the_ledger_holds_and_no_exit_goes_astray(service):
    told = service.start(service.api("told"), "-s", 3, stdin=-1)
    wait_until(lambda: (row := process(service, told.pid)) and row["produced"] > 1000, what="calls")
    chance = random.Random(6)
    for _ in range(40):
        for path in ("pause", "resume"):
            status, body = service.ask(f"/v1/{path}?pid={told.pid}", "POST")
            assert status == 200, body
            time.sleep(chance.random() / 200)  # nothing is waited for: any moment will do
    status, _ = service.ask(f"/v1/pause?pid={told.pid}", "POST")
    stood = None

    def stands():
        nonlocal stood
        before, stood = stood, process(service, told.pid)["produced"]
        time.sleep(0.1)
        return before == stood

    wait_until(stands, what="nothing more is recorded")
    service.ask(f"/v1/resume?pid={told.pid}", "POST")
    wait_until(lambda: process(service, told.pid)["produced"] > stood, what="calls again")
    told.stdin.close()
    told.ends()
    made = int(told.stdout_text)
    row = wait_until(lambda: (row := process(service, told.pid)) and row["state"] == "ended" and row, what="its end")
    assert stood < row["produced"] < made
    assert row["produced"] == row["stored"] + row["lost"]
    assert (row["unmatched"], row["abandoned"], row["crossing"]) == (0, 0, 0)


def test_whom_to_pause_has_to_be_said(service):
    for path in ("pause", "resume"):
        status, body = service.ask(f"/v1/{path}", "POST")
        assert status == 400 and "which processes?" in body
    assert service.ask("/v1/pause?state=live", "POST")[0] == 400
    told = Told(service)
    told.do("calls work 1")
    wait_until(lambda: process(service, told.program.pid), what="it is known")
    failed = service.run(service.lane, "pause", "--pid", 1, status=1)
    assert "no process of this description" in failed.stderr_text
    assert process(service, told.program.pid)["paused"] is False
    told.ends()
