"""Tasks by the hundred thousand (with SL_LONG by the million), a thousand alive at once: bounded memory, dense indices, no row missing;
and with the daemon frozen meanwhile, what is missing is counted."""

import json
import os
import re
import signal
import subprocess

import h5py
import numpy as np
from conftest import wait_until
from runfile import RunFile

TASKS = 1_000_000 if os.environ.get("SL_LONG") else 200_000
ALIVE = 1000
INSIDE = 30_000
KEPT = 10_000  # that the live tables keep
ROWS = 65_536  # that a segment may hold before the daemon has taken them
ROW_BYTES = 768


class Many:
    def __init__(self, service, pause_ns, tasks=TASKS, alive=ALIVE, **env):
        self.service = service
        self.program = service.start(service.api("many_tasks"), tasks, alive, pause_ns, stdin=subprocess.PIPE, **env)

    def says(self, text):
        wait_until(lambda: text in self.program.stdout_text or self.program.poll() is not None, 300, f"it says {text}")
        assert text in self.program.stdout_text, self.program.stderr_text

    def goes_on(self):
        self.program.stdin.write(b"\n")
        self.program.stdin.flush()

    def row(self):
        rows = self.service.rows("processes")
        return rows[0] if rows else None

    def drained(self):
        def settled():
            row = self.row()
            return row and row["produced"] and row["produced"] == row["stored"] + row["lost"] and row

        return wait_until(settled, 60, "produced = stored + lost")

    def segment_bytes(self):
        (segment,) = self.service.segments()
        return segment.stat().st_size

    def ends(self):
        self.program.stdin.close()
        self.program.ends()
        return self.service.run_file(120)


def memory_kb(pid, field):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(field + ":"))


def task_table(path):
    with h5py.File(path) as file:
        return {
            name: data.asstr()[()] if h5py.check_string_dtype(data.dtype) else data[()] for name, data in file["task_table"].items()
        }


def test_very_many_tasks_cost_bounded_memory_and_leave_a_row_each(service):
    many = Many(service, 4000)
    many.says("half")
    half = memory_kb(service.daemon.pid, "RssAnon"), memory_kb(many.program.pid, "RssAnon"), many.segment_bytes()
    many.goes_on()
    many.says("calls")
    end = memory_kb(service.daemon.pid, "RssAnon"), memory_kb(many.program.pid, "RssAnon"), many.segment_bytes()
    assert end[0] < 1.2 * half[0] + 4096 and end[1] < half[1] + 1024, (half, end)
    assert end[2] < 64 << 20, "the segment's rows are used again"

    row = many.drained()
    assert (row["tasks"], row["produced"]) == (TASKS, 3 * TASKS)
    wait_until(lambda: many.row()["tasks_folded"] == TASKS - KEPT, what="all but the newest are folded")
    listed = service.rows("tasks")
    indices = [task["index"] for task in listed]
    assert len(indices) == KEPT and indices == sorted(set(indices))
    if not row["lost"]:  # where a ring was full, so that the end of a task was not told, its row came late and stays a round longer
        assert indices == list(range(TASKS - KEPT, TASKS)), "the newest are kept"
    assert all(task["state"] == "done" and task["steps"] == 2 for task in listed)
    assert service.query("/v1/tasks?limit=1")["trust"]["tasks_folded"] == TASKS - KEPT
    said = service.run(service.lane, "tasks").stderr_text
    assert f"{TASKS - KEPT} finished tasks are not listed any more" in said

    path = many.ends()
    table = task_table(path)
    assert np.array_equal(table["index"], np.arange(TASKS))
    assert (table["steps"] == 2).all() and (table["done_ns"] > table["created_ns"]).all()
    assert all(name == f"task {index}" for index, name in enumerate(table["name"]))
    assert (table["running_ns"] + table["suspended_ns"] <= table["done_ns"] - table["created_ns"]).all()
    file = RunFile(path)
    (process,) = file.table("processes")
    with h5py.File(path) as h5:
        per_task = np.bincount(h5["events/task_ids"][()], minlength=TASKS)
    # on a busy machine a ring may fill up: that costs calls, which are counted, but no row
    assert per_task.max() == 3 and per_task.sum() == process["stored"] == 3 * TASKS - process["lost"]
    assert {loss["reason"] for loss in file.table("loss")} <= {"ring full"} and process["lost"] < TASKS // 10


def test_thirty_thousand_tasks_at_once_in_one_region_are_thirty_thousand_lanes(service):
    tasks = 2 * INSIDE
    assert tasks < ROWS, "each has a row, however late the daemon comes"
    many = Many(service, 4000, tasks, INSIDE)
    many.says("half")
    many.drained()

    def all_inside():
        found = service.rows("tasks?state=suspended")
        return len(found) >= INSIDE and found

    inside = wait_until(all_inside, what="all tasks are known")
    assert len(inside) == INSIDE and all(task["stack"] == ["life"] for task in inside)
    first = inside[0]["index"]
    assert [task["index"] for task in inside] == list(range(first, first + INSIDE))
    (group,) = (row for row in service.rows("where") if row["stack"] == ["life"])
    assert group["lanes"] == INSIDE
    half = memory_kb(service.daemon.pid, "RssAnon")
    many.goes_on()
    many.says("calls")
    assert memory_kb(service.daemon.pid, "RssAnon") < 1.2 * half + 4096
    assert many.segment_bytes() < (ROWS * ROW_BYTES) + (8 << 20)
    row = many.drained()
    path = many.ends()
    report = json.loads(service.command("report", "--json", path))
    assert report["remarks"] == [], "every lane nests"
    regions = {region["name"]: region for region in report["regions"]}
    assert report["calls"] == row["stored"] == 3 * tasks - row["lost"]
    assert regions["life"]["total_ns"] > regions["part"]["total_ns"] > 0
    (group,) = report["task_groups"]
    assert (group["tasks"], group["done"], group["steps"]) == (tasks, tasks, 2 * tasks)
    assert {loss["reason"] for loss in RunFile(path).table("loss")} <= {"ring full"}


def test_while_the_daemon_is_frozen_what_is_missing_is_counted_by_reason(service):
    many = Many(service, 20000 if os.environ.get("SL_LONG") else 3000)  # half a million tasks: frozen for 10 s
    many.says("half")
    many.drained()
    service.daemon.send_signal(signal.SIGSTOP)
    many.goes_on()
    many.says("calls")
    assert many.segment_bytes() < (ROWS * ROW_BYTES) + (8 << 20), "bounded, although nobody takes rows"
    service.daemon.send_signal(signal.SIGCONT)
    row = many.drained()
    by_reason = {loss["reason"]: loss["count"] for loss in service.rows("loss")}
    assert set(by_reason) == {"ring full", "no row"} and sum(by_reason.values()) == row["lost"]
    assert row["produced"] == 3 * TASKS
    assert service.query("/v1/status")["trust"]["lost_by_reason"] == by_reason

    path = many.ends()
    table = task_table(path)
    assert np.array_equal(table["index"], np.arange(TASKS)), "placeholders keep the indices dense"
    missing = table["name"] == "(lost)"
    assert by_reason["no row"] == 3 * missing.sum() > 0, "each call of a task without a row"
    assert missing.sum() >= TASKS // 2 - ROWS
    assert not missing[: TASKS // 2].any(), "none of those from before"
    present = np.flatnonzero(~missing)
    assert (table["steps"][present] == 2).all() and (table["done_ns"][present] > 0).all()
    assert all(table["name"][index] == f"task {index}" for index in present[:: len(present) // 1000])
    file = RunFile(path)
    (process,) = file.table("processes")
    assert process["stored"] + process["lost"] == process["produced"] == 3 * TASKS
    assert {loss["reason"]: loss["count"] for loss in file.table("loss")} == by_reason
    assert re.search(rf"{process['lost']:,} calls lost", service.command("report", path))
