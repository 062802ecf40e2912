"""The roll call: what every lane of every rank is in now, the odd ones first."""

import os
import signal

from conftest import wait_until


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
        found = service.rows("where")
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
    wait_until(lambda: len(service.rows("where")) == 2, what="both are in their regions")
    os.kill(programs[0].pid, signal.SIGKILL)
    rows = wait_until(lambda: [r for r in service.rows("where") if r["state"] in ("killed", "vanished")], what="its end is known")
    assert [(r["stack"], r["ranks"]) for r in rows] == [(["deep"], "0")]
    end(programs)


def test_regions_counts_calls_that_are_open_up_to_now(service):
    programs = ranks_in(service, {0: "long", 1: "long"})
    wait_until(lambda: sum(row["lanes"] for row in service.rows("where")) == 2, what="both are in their regions")
    row = next(row for row in service.rows("regions") if row["name"] == "long")
    assert (row["calls"], row["open"], row["min_ns"]) == (0, 2, None)
    assert 0 < row["self_ns"] == row["total_ns"] and 1 <= row["imbalance"] <= 2
    later = next(row for row in service.rows("regions") if row["name"] == "long")
    assert later["total_ns"] > row["total_ns"]
    end(programs)
