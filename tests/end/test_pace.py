"""L52: ranks that are slower than the others, told while they run; no collective, nothing in the programs."""

import contextlib
import os

import pytest
from conftest import wait_until
from test_where import end

SLOW_MS, MS = 65, 50


def solvers(place, lengths):
    return {rank: place.start(place.api("solver"), length, stdin=-1, OMPI_COMM_WORLD_RANK=rank, SCOPED_LANE_RUN="solvers")
            for rank, length in enumerate(lengths)}


@contextlib.contextmanager
def by_themselves(place, lengths):
    programs = solvers(place, lengths)
    yield
    end(programs)


@contextlib.contextmanager
def by_mpirun(place, lengths):
    """Their input is a pipe that all of them read: mpirun would give it to rank 0 alone."""
    pipe = place.path / "input"
    os.mkfifo(pipe)
    writer = os.open(pipe, os.O_RDWR)
    words = 'eval exec "$0" "\\${$((OMPI_COMM_WORLD_RANK + 1))}" <input'
    job = place.start(*place.mpirun(len(lengths), "sh", "-c", words, place.api("solver"), *lengths))
    yield
    os.close(writer)
    job.ends(deadline=60)


def rows_of(place, region="solve"):
    return {row["rank"]: row for row in place.rows(f"regions?ranks&region={region}")}


def judged(place, ranks):
    rows = rows_of(place)
    return len(rows) == ranks and all(row["score"] is not None for row in rows.values()) and rows


def flagged(rows, field="chronic"):
    return [rank for rank, row in sorted(rows.items()) if row[field]]


def rank_5_is_told(service):
    rows = wait_until(lambda: (rows := judged(service, 8)) and flagged(rows) == flagged(rows, "outlier") == [5] and rows, what="rank 5 is chronic")
    assert rows[5]["score"] > 3.5 and rows[5]["outlier_share"] > 0.5
    assert flagged(rows_of(service, "step")) == [5], "so is the region around it"
    lines = service.command("regions", "--ranks", "--region", "solve", "--tsv").splitlines()
    told = {row["rank"]: row for row in (dict(zip(lines[0].split("\t"), line.split("\t"))) for line in lines[1:])}
    assert told["5"]["chronic"] != told["2"]["chronic"]
    assert "CHRONIC" in service.command("regions", "--ranks")
    assert "score" not in service.rows("regions?region=solve")[0], "of all ranks together there is none"


@pytest.mark.parametrize("started", [by_themselves, by_mpirun])
def test_one_of_8_ranks_that_is_slower_by_a_third_is_told_as_chronic(service, started):
    with started(service, [SLOW_MS if rank == 5 else MS for rank in range(8)]):
        rank_5_is_told(service)
    wait_until(lambda: service.rows("runs")[0]["state"] == "published", what="the run is over")
    assert flagged(rows_of(service)) == [5], "what was found stays"


def test_of_8_equal_ranks_none_is_told(service):
    programs = solvers(service, [MS] * 8)
    wait_until(lambda: judged(service, 8), what="all are judged")
    until = min(row["calls"] for row in rows_of(service).values()) + 5 * 1000 // MS

    def nobody_is_chronic():
        rows = rows_of(service)
        assert not flagged(rows), rows
        return min(row["calls"] for row in rows.values()) >= until

    wait_until(nobody_is_chronic, what="five more intervals have gone by")
    wait_until(lambda: (rows := judged(service, 8)) and not flagged(rows, "outlier"), what="nobody is an outlier")
    end(programs)


@pytest.mark.parametrize("ranks", [1, 2])
def test_without_others_there_is_nothing_to_compare(service, ranks):
    programs = solvers(service, [10 * (1 + rank) for rank in range(ranks)])
    wait_until(lambda: len(rows := rows_of(service)) == ranks and min(row["calls"] for row in rows.values()) > 120, what="calls are made")
    assert all(row[field] is None for row in rows_of(service).values() for field in ("score", "outlier", "outlier_share", "chronic"))
    end(programs)
