"""Names and times of regions: quantiles out of the daemon's buckets, against the calls themselves in the run file."""

import math
import subprocess

import numpy as np
import pytest
from conftest import wait_until
from runfile import RunFile
from test_pause import Told
from test_where import end
from testpoints import DAEMON, at_testpoint, points_of


def busy_ranks(place, calls):
    """A process for each rank that has made its calls of "work", all of one run."""
    programs = {
        rank: place.start(place.api("pairs"), "-n", count, "-r", rank, "-w", "work", stdin=-1, SCOPED_LANE_RUN="ranks")
        for rank, count in calls.items()
    }
    wait_until(lambda: sum(row["stored"] for row in place.rows("processes")) == sum(calls.values()), what="all calls are stored")
    return programs


def nearest_rank(lengths, share):
    return int(np.sort(lengths)[math.ceil(share * len(lengths)) - 1])


def is_near(told, truth):
    assert told == pytest.approx(truth, rel=0.05, abs=2), (told, truth)  # a file's ends are rounded to whole ns, each


def test_quantiles_of_each_rank_and_of_all_are_those_of_the_calls(service):
    calls = {0: 20000, 1: 500, 2: 1}
    programs = busy_ranks(service, calls)
    (all_ranks,) = service.rows("regions?region=work")
    each = {row["rank"]: row for row in service.rows("regions?ranks&region=work")}
    one = service.rows("regions?region=work&rank=1")[0]
    end(programs)
    file = RunFile(service.run_file())
    lengths = {rank: data.durations_ns for rank, data in file.run.get_region("work").regions.items()}
    assert {rank: row["calls"] for rank, row in each.items()} == calls and all_ranks["calls"] == sum(calls.values())
    assert (all_ranks["rank"], one["rank"]) == (None, 1)
    for row, truth in [(all_ranks, np.concatenate(list(lengths.values()))), (one, lengths[1])] + [
        (each[rank], lengths[rank]) for rank in calls
    ]:
        is_near(row["p50_ns"], nearest_rank(truth, 0.5))
        is_near(row["p99_ns"], nearest_rank(truth, 0.99))
        assert row["min_ns"] <= row["p50_ns"] <= row["p99_ns"] <= row["max_ns"]
    totals = [int(length.sum()) for length in lengths.values()]
    assert all_ranks["imbalance"] == pytest.approx(max(totals) / (sum(totals) / len(totals)), rel=0.01)


def test_a_region_without_finished_calls_has_no_quantiles(service):
    programs = {0: service.start(service.api("pairs"), "-n", 1, "-r", 0, "-o", "open", "-w", "work", stdin=-1)}
    row = wait_until(lambda: service.rows("regions?region=open"), what="the call is open")[0]
    assert (row["calls"], row["open"], row["p50_ns"], row["p99_ns"]) == (0, 1, None, None)
    end(programs)


def test_quantiles_outlive_a_killed_daemon(service):
    programs = busy_ranks(service, {0: 3000})
    (before,) = service.rows("regions?region=work")
    service.daemon.kill()
    service.daemon.wait()
    service.serve()
    rows = wait_until(lambda: service.rows("regions?region=work"), what="the region is there again")
    assert (rows[0]["calls"], rows[0]["p50_ns"]) == (3000, pytest.approx(before["p50_ns"], rel=0.05, abs=2))
    end(programs)


def test_the_command_shows_a_row_for_each_rank(service):
    programs = busy_ranks(service, {0: 10, 1: 20})
    lines = service.command("regions", "--ranks", "--tsv").splitlines()
    rows = [dict(zip(lines[0].split("\t"), line.split("\t"))) for line in lines[1:]]
    assert sorted((row["rank"], row["calls"]) for row in rows if row["name"] == "work") == [("0", "10"), ("1", "20")]
    assert "P99" in service.command("regions")
    end(programs)


def test_a_call_has_its_regions_name_though_its_table_grew_while_the_daemon_came_by(place):
    """The daemon stands still after it has looked at the names, before it looks at the rings."""
    words = [place.laned, "--rundir", place.rundir, "--output", place.output]
    stopper = at_testpoint(place, DAEMON, points_of(DAEMON)["strings_put"], *words, hit=6, stop=True, stdin=subprocess.PIPE)
    wait_until(lambda: "ready" in stopper.program.stderr_text, what="the daemon is ready")
    told = Told(place)
    told.do("calls first 1")
    wait_until(lambda: stopper.hit, what="it has looked at the names")
    told.do(*[f"calls {'x' * 50}{i} 1" for i in range(5000)])
    stopper.program.stdin.write(b"go on\n")
    stopper.program.stdin.flush()
    told.ends()
    file = RunFile(place.run_file())
    assert "(other)" not in file.run.region_names and file.all_calls() == 5001
