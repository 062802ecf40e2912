"""Lanes that move, calls that end elsewhere, rings that overflow, many threads: from the program to the run file and the live
tables. Cases L29, L30, L36, L42, L70, L74, L75."""

import collections
import json
import os
import re
import signal
import subprocess

import pytest
from conftest import BUILD, wait_until
from runfile import RunFile

TICK_NS = 1e9 / os.sysconf("SC_CLK_TCK")


class Deed:
    """A running tests/api/lanes; `waits` until it waits for the end of its input."""

    def __init__(self, service, *words, **env):
        self.service = service
        self.program = service.start(service.api("lanes"), *words, stdin=subprocess.PIPE, **env)

    def says(self, text):
        wait_until(lambda: text in self.program.stdout_text or self.program.poll() is not None, what=f"it says {text}")
        assert text in self.program.stdout_text, self.program.stderr_text

    def tell(self, text=b"\n"):
        self.program.stdin.write(text)
        self.program.stdin.flush()

    def ends(self, **options):
        self.program.stdin.close()
        self.program.ends(**options)
        return RunFile(self.service.run_file(120))

    def rows(self, table):
        return [row for row in self.service.rows(table) if row["pid"] == self.program.pid]

    def drained(self):
        """Its process row once nothing is on its way."""

        def settled():
            rows = self.rows("processes")
            return rows and rows[0]["produced"] and rows[0]["produced"] == rows[0]["stored"] + rows[0]["lost"] and rows[0]

        return wait_until(settled, what="produced = stored + lost")


def report(service, file):
    return json.loads(service.command("report", "--json", file.path))


def lanes_of(file):
    """{(lane label, call path): calls}"""
    return dict(file.call_paths(0))


# -- L29, L30: lanes that move


def test_a_call_left_on_another_thread_counts_once_and_its_lane_moves(service):
    file = Deed(service, "moved").ends()
    threads = {thread.name: thread.index for thread in file.threads(0)}
    work, inner = file.run.get_region("work")[0], file.run.get_region("inner")[0]
    assert work.num_calls == 1 and inner.num_calls == 2
    assert work.thread_ids.tolist() == [threads["two"]], "the thread that left it"
    assert inner.thread_ids.tolist() == [threads["one"], threads["two"]]
    (task,) = file.run.tasks[0]
    assert task.thread_index == threads["two"] and task.steps == 2 and task.done
    assert lanes_of(file) == {("job (work()) on two", "work"): 1, ("job (work()) on two", "work > inner"): 2}
    # what it waited for between the threads is the task's suspension, and in the call
    assert work.await_times_ns[0] == pytest.approx(task.awaiting_time * 1e9, abs=2)
    assert 0 < work.await_times_ns[0] < work.durations_ns[0]
    assert inner.await_times_ns.tolist() == [0, 0]
    assert file.table("unmatched") == [] and file.table("loss") == []


def test_an_exit_on_the_wrong_lane_is_named_with_its_lane_thread_and_enter(service):
    deed = Deed(service, "astray")
    deed.says("waits")
    wait_until(lambda: service.daemon.stderr_text.count("was left on") == 3, what="the daemon says so")
    rows = deed.rows("unmatched")
    assert len(rows) == 3
    threads = {row["name"]: row["index"] for row in deed.rows("threads")}
    one, two = threads["one"], threads["two"]
    expected = {
        "work": (1, -2 - one, f'"work" was left on thread {two} (two), but entered on thread {one} (one)'),
        "inner": (2, 0, f'"inner" was left on thread {two} (two), but entered on task 0 (job) on thread {one} (one)'),
        "never entered": (1, None, f'"never entered" was left on thread {two} (two), but is open on no lane'),
    }
    for row in rows:
        count, lane, why = expected[row["region"]]
        assert (row["count"], row["entered_lane"], row["why"]) == (count, lane, why)
        assert (row["lane"], row["thread_index"]) == (-2 - two, two)
        assert row["entered_thread_index"] == (one if lane is not None else None)
    assert deed.drained()["unmatched"] == 4
    ps = service.command("ps")
    assert "UNMATCHED" in ps and f'"work" was left on thread {two} (two), but entered on thread {one} (one)' in ps
    for _, _, why in expected.values():
        assert why in service.daemon.stderr_text

    file = deed.ends()
    table = {row["region"]: row for row in file.table("unmatched")}
    for region, (count, lane, why) in expected.items():
        assert (table[region]["count"], table[region]["entered_lane"]) == (count, -1 if lane is None else lane)
        assert table[region]["why"] == why and table[region]["thread"] == two
    assert file.table("processes")[0]["unmatched"] == 4
    assert sorted(row["region"] for row in file.table("open_calls")) == ["inner", "work"]
    text = service.command("report", file.path)
    assert "4 exits without an enter" in text and "Exits without an enter\n" in text
    assert all(why in text for _, _, why in expected.values())
    assert {row["region"]: row["count"] for row in report(service, file)["unmatched"]} == {"work": 1, "inner": 2, "never entered": 1}


def test_crossing_calls_are_counted_named_and_kept_from_those_that_nest(service):
    file = Deed(service, "crossing").ends()
    (process,) = file.table("processes")
    assert (process["crossing"], process["unmatched"], process["stored"]) == (3, 0, 7)
    assert [(row["region"], row["lane"], row["thread"]) for row in file.table("crossing")] == [("work", -2, 0)] * 3
    assert lanes_of(file) == {("lanes", "inner"): 3, ("lanes", "work"): 1}
    text = service.command("report", file.path)
    assert "3 crossing calls" in text and "Crossing calls\n" in text


# -- L36: a producer that is faster than its ring


def test_a_burst_loses_exactly_what_it_says_lane_by_lane_live_and_in_the_file(service):
    calls = 10_000_000 if os.environ.get("SL_LONG") else 2_000_000
    deed = Deed(service, "burst", calls, SCOPED_LANE_RING="64K")
    deed.says("ready")
    wait_until(lambda: {"one", "two"} <= {row["name"] for row in deed.rows("threads")})
    service.daemon.send_signal(signal.SIGSTOP)  # so that something is lost for certain
    deed.tell()
    deed.says("waits")
    service.daemon.send_signal(signal.SIGCONT)
    each = calls + 1  # and the region around them
    process = deed.drained()
    assert process["produced"] == 2 * each and process["lost"] > 2 * (calls - 2048)
    threads = {row["name"]: row for row in deed.rows("threads")}
    lost = {row["thread_index"]: row["count"] for row in deed.rows("loss")}
    for name in "one", "two":
        row = threads[name]
        assert row["calls"] + row["lost"] == each and lost[row["index"]] == row["lost"]
    regions = {row["name"]: row for row in service.rows("regions")}
    assert not regions["work"]["exact"], "totals are lower bounds"
    assert re.search(r"work +>", service.command("regions"))
    assert service.query("/v1/status")["trust"]["lost_by_reason"] == {"ring full": process["lost"]}

    file = deed.ends()
    (row,) = file.table("processes")
    assert row["produced"] == 2 * each == row["stored"] + row["lost"]
    assert row["stored"] == file.all_calls()
    in_file = {row["thread"]: row["count"] for row in file.table("loss")}
    assert in_file == lost
    stored = collections.Counter()
    for (name, _), (count, _) in file.by_thread(0).items():
        stored[name] += count
    for name in "one", "two":
        assert stored[name] + in_file[threads[name]["index"]] == each
    assert f"{row['lost']:,} calls lost" in service.command("report", file.path)
    assert not report(service, file)["regions"][0]["exact"]


# -- L42: fork without exec in an open region


@pytest.mark.parametrize("follow", [False, True])
def test_a_child_that_goes_on_in_its_parents_region_leaves_the_parents_call_alone(service, follow):
    deed = Deed(service, "fork", **({"SCOPED_LANE_FORK": "follow"} if follow else {}))
    deed.says("ready")
    wait_until(lambda: deed.rows("processes"))
    service.daemon.send_signal(signal.SIGSTOP)  # it hears of the child when both have ended
    deed.tell()
    deed.program.ends()
    service.daemon.send_signal(signal.SIGCONT)
    file = deed.ends()
    child, recording = map(int, re.search(r"child (\d+), recording (\d)", deed.program.stdout_text).groups())
    assert bool(recording) == follow
    rows = {row["pid"]: row for row in file.table("processes")}
    assert set(rows) == ({deed.program.pid, child} if follow else {deed.program.pid})
    parent = rows[deed.program.pid]
    assert (parent["stored"], parent["unmatched"], parent["lost"], parent["crossing"]) == (1, 0, 0, 0)
    assert file.calls("work") == 1, "the parent's own, once"
    assert file.table("open_calls") == []
    if follow:
        assert rows[child]["parent_pid"] == deed.program.pid
        assert (rows[child]["stored"], rows[child]["unmatched"], rows[child]["lost"]) == (3, 1, 0)
        (row,) = file.table("unmatched")
        assert row["pid"] == child and row["region"] == "work" and row["why"].endswith("is open on no lane")
        assert file.calls("inner", rows[child]["rank"]) == 3
    else:
        assert file.calls("inner") == 0


# -- L70: many threads


def test_two_thousand_threads_at_once_and_twenty_thousand_over_time(service):
    at_once, over_time = (2000, 20000) if os.environ.get("SL_LONG") else (1000, 4000)
    deed = Deed(service, "crowd", at_once, over_time)
    deed.says("waits")
    process = wait_until(lambda: (rows := deed.rows("processes")) and rows[0]["threads"] >= at_once and rows[0])
    assert process["threads"] == at_once
    wait_until(lambda: len(deed.rows("threads")) == at_once, what="a row for each thread")
    (segment,) = service.segments()
    size = segment.stat().st_size
    file = deed.ends(deadline=100)
    total = at_once + over_time
    rows = file.threads(0)
    assert [row.index for row in rows] == list(range(total))
    without_time = int(re.search(r"(\d+) without processor time", deed.program.stdout_text)[1])
    assert [row for row in rows if row.end_time is None or not row.cpu_time >= 0] == []
    assert sum(row.cpu_time == 0 for row in rows) <= without_time
    (process,) = file.table("processes")
    assert process["produced"] == 2 * total == process["stored"] + process["lost"]
    assert process["lost"] == sum(row["count"] for row in file.table("loss"))
    assert process["lost"] == 0, file.table("loss")
    assert file.calls("work") == file.calls("inner") == total
    assert size < 200 << 20
    # rings are handed on: no more of them than threads at once
    assert len({row["ring"] for row in service.rows("loss")}) <= at_once + 1


# -- L74: CPU time of each thread


def test_the_cpu_times_of_ten_threads_of_which_one_spins_add_up_to_the_process(service):
    deed = Deed(service, "spin")
    deed.says("waits")
    said = int(re.search(r"cpu (\d+) ns", deed.program.stdout_text)[1])

    def sampled():
        rows = deed.rows("threads")
        return len(rows) == 10 and abs(sum(row["cpu_ns"] for row in rows) - said) <= 2 * TICK_NS and rows

    rows = wait_until(sampled, 5, "the sum of the threads' CPU times is the process's")
    spinner = [row for row in rows if row["name"] == "spinner"]
    assert len(spinner) == 1 and spinner[0]["cpu_ns"] > 0.5 * said
    assert all(row["cpu_ns"] < TICK_NS for row in rows if row["name"] == "idler")
    file = deed.ends()
    said = int(re.search(r"cpu at the end (\d+) ns", deed.program.stdout_text)[1])
    assert sum(row.cpu_time for row in file.threads(0)) * 1e9 == pytest.approx(said, abs=2 * TICK_NS)


def test_a_detached_thread_that_the_exit_ends_has_its_calls_its_open_one_and_a_bound_of_its_cpu_time(service):
    file = Deed(service, "left", LD_PRELOAD=BUILD / "lib" / "libscoped_lane_threads.so").ends()
    (process,) = file.table("processes")
    assert (process["state"], process["lost"], process["unmatched"]) == ("ended", 0, 0)
    main, left = file.threads(0)
    assert left.name == "left behind" and left.daemon and not main.daemon
    assert not left.alive and left.end_time >= main.end_time, "it ended with its process"
    assert file.calls("inner") == 1 and file.calls("work") == 0
    assert [(row["lane"], row["stack"]) for row in file.table("open_calls")] == [(-2 - left.index, "work")]
    exact = {row["index"]: row["cpu_exact"] for row in file.table("threads")}
    assert exact == {main.index: 1, left.index: 0}
    assert [row["cpu_exact"] for row in report(service, file)["threads"]] == [True, False]


# -- L75: one region on five threads that nobody announced


def test_five_threads_in_one_region_are_five_lanes(service):
    file = Deed(service, "tag").ends()
    region = file.run.get_region("tag")[0]
    assert sorted(region.thread_ids.tolist()) == list(range(5))
    lanes = {call["lane"] for call in file.run.call_stack(rank=0)}
    assert lanes == {-2 - index for index in range(5)}
    assert file.calls("inner") == 5
    (process,) = file.table("processes")
    assert process["unmatched"] == process["crossing"] == 0
