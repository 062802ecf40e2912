"""The roll call: what every lane of every rank is in now, the odd ones first."""

import json
import os
import signal

from conftest import wait_until
from test_pause import Told


def ranks_in(place, regions):
    """One process for each rank, in its region, all of one run. {rank: Program}"""
    return {
        rank: place.start(place.api("pairs"), "-n", 1, "-r", rank, "-o", region, "-w", "step", stdin=-1, SCOPED_LANE_RUN="hang")
        for rank, region in regions.items()
    }


def end(programs):
    for program in programs.values():
        program.stdin.close()
    for program in programs.values():
        program.ends(status=None)


def test_the_rank_that_skipped_the_collective_is_named_first(service):
    programs = ranks_in(service, {0: "allreduce", 1: "migrate", 2: "allreduce", 3: "allreduce"})

    def four_lanes():
        found = [row for row in service.rows("where") if row["stack"]]
        return sum(row["lanes"] for row in found) == 4 and found

    rows = wait_until(four_lanes, what="four lanes are in regions")
    assert [(r["stack"], r["ranks"], r["rank_count"], r["lanes"]) for r in rows] == [
        (["migrate"], "1", 1, 1),
        (["allreduce"], "0,2-3", 3, 3),
    ]
    assert all(0 <= r["youngest_ns"] <= r["oldest_ns"] for r in rows)
    text = service.command("where")
    assert text.index("migrate") < text.index("allreduce") and "0,2-3" in text
    end(programs)


def test_lanes_lists_each_thread_with_what_it_is_in(service):
    programs = ranks_in(service, {5: "wait here"})
    lanes = wait_until(lambda: [r for r in service.rows("lanes") if r["stack"]], what="the lane is in its region")
    assert len(lanes) == 1
    lane = lanes[0]
    assert (lane["rank"], lane["lane"], lane["thread_index"], lane["task_index"]) == (5, -2, 0, None)
    assert lane["stack"] == ["wait here"] and lane["since_ns"] <= service.query("/v1/lanes")["time_ns"]
    end(programs)


def test_what_the_lanes_of_a_killed_process_were_in_is_still_told(service):
    programs = ranks_in(service, {0: "deep", 1: "other"})
    wait_until(lambda: [row for row in service.rows("where") if row["stack"]][1:], what="both are in their regions")
    os.kill(programs[0].pid, signal.SIGKILL)
    rows = wait_until(lambda: [r for r in service.rows("where") if r["state"] in ("killed", "vanished")], what="its end is known")
    assert [(r["stack"], r["ranks"]) for r in rows] == [(["deep"], "0")]
    end(programs)


def test_regions_counts_calls_that_are_open_up_to_now(service):
    programs = ranks_in(service, {0: "long", 1: "long"})
    wait_until(lambda: [row["lanes"] for row in service.rows("where")] == [2], what="both are in their regions")
    row = next(row for row in service.rows("regions") if row["name"] == "long")
    assert (row["calls"], row["open"], row["min_ns"]) == (0, 2, None)
    assert 0 < row["self_ns"] == row["total_ns"] and 1 <= row["imbalance"] <= 2
    later = next(row for row in service.rows("regions") if row["name"] == "long")
    assert later["total_ns"] > row["total_ns"]
    end(programs)


def test_tasks_and_threads_are_told_apart_and_idle_lanes_are_one_group(service):
    told = Told(service, OMPI_COMM_WORLD_RANK=2)
    told.do("idle work 199", "hold db 50", "enter main")
    wait_until(lambda: len(service.rows("lanes")) == 250, what="all lanes are known")

    def stacks(*words):
        rows = json.loads(service.command("where", "--json", *words))["rows"]
        return [(row["stack"], row["lanes"], row["state"]) for row in rows]

    wait_until(lambda: stacks() == [(["main"], 1, "waiting"), (["db"], 50, "suspended")], what="its main thread is at rest")
    assert stacks("--tasks") == [(["db"], 50, "suspended")]
    assert stacks("--threads") == [(["main"], 1, "waiting")]
    wait_until(lambda: stacks("--threads", "--idle") == [(["main"], 1, "waiting"), ([], 199, "waiting")], what="all are at rest")
    assert len(stacks("--tasks", "--threads", "--idle")) == 3
    assert "(199 idle)" in service.command("where", "--idle") and "idle" not in service.command("where")
    assert {row["host"] for row in service.rows("where")} == {service.rows("status")[0]["host"]}
    assert service.ask("/v1/where?lanes=fibers")[0] == 400
    told.ends()


def test_what_the_lanes_of_a_run_were_in_that_was_killed_is_told_when_it_is_over(service):
    programs = ranks_in(service, {0: "deep", 1: "deep"})
    wait_until(lambda: [row["lanes"] for row in service.rows("where")] == [2], what="both are in their regions")
    for program in programs.values():
        os.kill(program.pid, signal.SIGKILL)
    wait_until(lambda: {row["state"] for row in service.rows("runs")} == {"published"}, what="the run is over")
    assert service.rows("where") == []
    (row,) = service.rows("where?run=hang&idle")
    assert (row["stack"], row["ranks"], row["lanes"]) == (["deep"], "0-1", 2)
    assert row["state"] in ("killed", "vanished")
    assert "deep" in service.command("where", "--run", "hang")
    end(programs)


def test_a_rank_that_is_in_no_region_is_not_missing(service):
    told = [Told(service, OMPI_COMM_WORLD_RANK=rank, SCOPED_LANE_RUN="hang") for rank in range(3)]
    for each in told:
        each.do("idle work 3", "calls work 1")
    for each in told[1:]:
        each.do("enter allreduce")

    def stacks(*words):
        rows = json.loads(service.command("where", "--json", *words))["rows"]
        return [(row["stack"], row["ranks"], row["lanes"]) for row in rows]

    wait_until(lambda: stacks() == [([], "0", 1), (["allreduce"], "1-2", 2)], what="two are in the collective")
    assert [line.split()[0] for line in service.command("where").splitlines()[1:]] == ["0", "1-2"]
    assert "(in no region)" in service.command("where")
    assert stacks("--tasks") == []
    wait_until(lambda: stacks("--idle") == [(["allreduce"], "1-2", 2), ([], "0-2", 10)], what="all threads are known")
    assert "(10 idle)" in service.command("where", "--idle")
    told[1].program.kill()
    told[1].program.wait()
    told[0].ends()
    told[2].ends()


def node(service, number):
    """A daemon as on another node, with a socket of its own."""
    rundir = service.path / f"node{number}"
    rundir.mkdir(mode=0o700)
    words = [service.laned, "--rundir", rundir, "--output", service.output]
    if os.getuid() == 0:
        words = ["unshare", "-u", "sh", "-c", f'hostname node{number} && exec "$@"', "sh", *words]
    service.start(*words)
    wait_until((rundir / "query.sock").exists, what=f"node {number} listens")
    return rundir


def test_several_nodes_make_one_roll_call(service):
    nodes = [node(service, number) for number in range(5)]
    sockets = [word for rundir in nodes for word in ("--socket", rundir / "query.sock")]
    told = []
    for rank in range(10):
        told.append(Told(service, OMPI_COMM_WORLD_RANK=rank, SCOPED_LANE_RUNDIR=nodes[rank // 2], SCOPED_LANE_RUN="job"))
        told[rank].do("enter step", "enter migrate" if rank == 3 else "enter allreduce")

    def rows(*words, status=0):
        return json.loads(service.command("where", "--json", *words, status=status))["rows"]

    wait_until(lambda: sum(row["lanes"] for row in rows(*sockets)) == 10 and len(rows(*sockets)) == 2, what="ten lanes")
    odd, others = rows(*sockets)
    assert (odd["stack"], odd["ranks"], odd["rank_count"], odd["lanes"]) == (["step", "migrate"], "3", 1, 1)
    assert (others["stack"], others["ranks"], others["rank_count"], others["lanes"]) == (["step", "allreduce"], "0-2,4-9", 9, 9)
    assert 0 <= others["youngest_ns"] <= others["oldest_ns"]
    if os.getuid() == 0:
        assert odd["host"] == "node1" and others["host"] == "5 hosts" and len(others["hosts"]) == 5
        assert {row["host"] for row in rows(*sockets[:4])} == {"node0,node1", "node1"}
        lines = service.command("where", *sockets).splitlines()
        assert lines[0].split()[:2] == ["HOST", "RANKS"] and lines[1].split()[:2] == ["node1", "3"]

    missing = service.run(service.lane, "where", *sockets, "--socket", service.path / "none.sock", status=1)
    assert "none.sock" in missing.stderr_text and "migrate" in missing.stdout_text
    assert "none.sock" in service.run(service.lane, "where", "--socket", service.path / "none.sock", status=1).stderr_text
    for each in told:
        each.ends()


def test_a_region_has_its_name_as_soon_as_somebody_is_in_it(service):
    """The daemon looks at an idle program four times a second; whoever asks in between is told no less."""
    told = Told(service)
    told.do("calls first 1")
    wait_until(lambda: service.rows("processes"), what="the program is recorded")
    for name in [f"region-{i}" for i in range(10)]:
        told.do(f"enter {name}")
        stacks = [row["stack"] for row in service.rows("where")]
        assert [stack[-1] for stack in stacks] == [name], stacks
    told.ends()


def test_groups_come_in_pages_the_smallest_first(service):
    told = Told(service)
    told.do(*[f"hold region{i} {i}" for i in range(1, 6)])
    wait_until(lambda: len(service.rows("lanes")) == 16, what="all lanes are known")
    whole = [(row["lanes"], row["stack"]) for row in service.rows("where")]
    assert whole == [(i, [f"region{i}"]) for i in range(1, 6)]
    rows, cursor = [], ""
    while cursor is not None:
        reply = service.query(f"/v1/where?limit=2{cursor and f'&cursor={cursor}'}")
        assert 1 <= len(reply["rows"]) <= 2
        rows += [(row["lanes"], row["stack"]) for row in reply["rows"]]
        cursor = reply["cursor"]
    assert rows == whole
    told.ends()
