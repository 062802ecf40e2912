"""MPI calls as regions, in programs that know nothing of us: scoped-lane run --mpi, or linked to the library for it."""

import os
import signal
import subprocess
import time

import pytest
from conftest import BUILD, wait_until
from runfile import RunFile

RANKS = 4
LIBRARY = "libscoped_lane_mpi.so"


def program(name):
    return BUILD / "tests" / "mpi" / name


def counted(text):
    """{region: calls} as the program says it."""
    lines = [line.split() for line in text.splitlines() if line.startswith("MPI_")]
    return {name: int(count) for name, count in lines}


def agrees(file, counts):
    """Each rank has exactly these calls."""
    assert file.ranks == list(range(RANKS))
    assert set(file.run.region_names) == set(counts)
    for rank in range(RANKS):
        assert {name: file.calls(name, rank) for name in counts} == counts


def test_each_call_is_a_region_and_counts_once(place):
    run = place.run(place.lane, "run", "--mpi", "-o", "calls.h5", "--", *place.mpirun(RANKS, program("calls"), "-n", 25))
    counts = counted(run.stdout_text)
    assert counts["MPI_Allreduce"] == 25 and len(counts) == 15
    agrees(RunFile(place.path / "calls.h5"), counts)


def test_within_a_launcher_the_ranks_share_a_file(place):
    run = place.run(*place.mpirun(RANKS, place.lane, "run", "--mpi", "-o", "calls.h5", program("calls"), "-n", 5))
    agrees(RunFile(place.path / "calls.h5"), counted(run.stdout_text))


def test_a_program_that_is_linked_to_it_needs_nothing_else(place):
    linked = place.path / "linked"
    source = BUILD.parents[1] / "tests" / "mpi" / "calls.c"
    subprocess.run(
        ["mpicc", source, f"-L{BUILD}/lib", f"-Wl,-rpath,{BUILD}/lib", "-lscoped_lane_mpi", "-lscoped_lane", "-o", linked], check=True
    )
    run = place.run(place.lane, "run", "-o", "calls.h5", "--", *place.mpirun(RANKS, linked, "-n", 5))
    agrees(RunFile(place.path / "calls.h5"), counted(run.stdout_text))


@pytest.mark.parametrize("name", ["use_f08", "use_mpi"])
def test_fortran_calls_count_once_and_mpi_in_place_stays_what_it_is(place, name):
    run = place.run(place.lane, "run", "--mpi", "-o", "fortran.h5", "--", *place.mpirun(RANKS, program(name)))
    assert "done" in run.stdout_text  # it compares each sum itself, and has gone on after MPI_Finalize
    agrees(
        RunFile(place.path / "fortran.h5"),
        {"MPI_Init": 1, "MPI_Finalize": 1, "MPI_File_open": 1, "MPI_File_close": 1}
        | {"MPI_Allreduce": 20, "MPI_Ibarrier": 20, "MPI_Wait": 20},
    )


def test_the_rank_that_waits_elsewhere_is_named_first_while_they_hang(place):
    run = place.start(place.lane, "run", "--mpi", "--", *place.mpirun(RANKS, program("calls"), "hang"))

    def all_wait():
        text = place.run(place.lane, "where", "--json", status=None).stdout_text
        return "MPI_Recv" in text and '"0,2-3"' in text

    wait_until(all_wait, what="all ranks wait")
    began = time.monotonic()
    lines = place.command("where").splitlines()
    assert time.monotonic() - began < 10
    assert [line.split()[0] for line in lines] == ["RANKS", "1", "0,2-3"]
    assert lines[1].endswith("MPI_Recv") and lines[2].endswith("MPI_Barrier")
    run.send_signal(signal.SIGTERM)
    run.ends(status=None)


@pytest.mark.parametrize("scene, alone", [("skip", "1"), ("teardown", "0")])
def test_a_rank_that_does_not_come_to_the_collective_is_named_first_though_it_is_in_no_call(place, scene, alone):
    run = place.start(place.lane, "run", "--mpi", "--", *place.mpirun(RANKS, program("calls"), scene))
    others = {"1": "0,2-3", "0": "1-3"}[alone]

    def all_wait():
        lines = place.run(place.lane, "where", status=None).stdout_text.splitlines()
        where = [(line.split()[0], line.endswith("(in no region)"), line.endswith("MPI_Barrier")) for line in lines[1:]]
        return where == [(alone, True, False), (others, False, True)]  # a rank may be long in MPI_Init

    wait_until(all_wait, what="three ranks wait for one that is in no call, which is named first")
    run.send_signal(signal.SIGTERM)
    run.ends(status=None)


def test_the_communication_of_a_program_that_never_ends_is_seen_while_it_goes_on(service):
    run = service.start(service.lane, "run", "--mpi", "--", *service.mpirun(RANKS, program("calls"), "on"))

    def all_kinds():
        rows = {row["name"]: row for row in service.rows("regions")}
        return "MPI_Barrier" in rows and rows["MPI_Barrier"]["calls"] > 100 and rows

    first = wait_until(all_kinds, what="a hundred barriers")
    assert {"MPI_Sendrecv", "MPI_Waitall", "MPI_Allreduce", "MPI_Wait"} <= set(first)
    assert all(row["total_ns"] > 0 for row in first.values())
    wait_until(lambda: all_kinds()["MPI_Barrier"]["calls"] > first["MPI_Barrier"]["calls"], what="further barriers")
    assert all(row["lost"] == 0 for row in service.rows("processes"))
    run.send_signal(signal.SIGTERM)
    run.ends(status=None)


def test_without_a_daemon_the_program_runs_as_ever(place):
    run = place.run(*place.mpirun(RANKS, program("calls"), "-n", 5), LD_PRELOAD=BUILD / "lib" / LIBRARY)
    assert counted(run.stdout_text)["MPI_Allreduce"] == 5


def test_programs_without_mpi_are_not_touched(place):
    run = place.run(place.lane, "run", "--mpi", "--", "sh", "-c", "cat /proc/self/maps; echo ran", LD_BIND_NOW=1)
    assert "ran" in run.stdout_text and LIBRARY in run.stdout_text and "libmpi." not in run.stdout_text
    assert "nothing was recorded" in run.stderr_text


PLUGIN = """
#include <mpi.h>
int plugin(int times)
{
    MPI_Init(0, 0);
    for (int i = 0; i < times; i++)
        MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
"""
HOST = """
#include <dlfcn.h>
int main(int count, char **words)
{
    void *library = dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
    int (*plugin)(int) = library ? (int (*)(int))dlsym(library, "plugin") : 0;
    return plugin ? plugin(7) : 3;
}
"""


def test_an_mpi_that_only_a_plugin_has_loaded_is_found(place):
    (place.path / "plugin.c").write_text(PLUGIN)
    (place.path / "host.c").write_text(HOST)
    subprocess.run(["mpicc", "-shared", "-fPIC", "plugin.c", "-o", "plugin.so"], cwd=place.path, check=True)
    subprocess.run(["cc", "host.c", "-o", "host", "-ldl"], cwd=place.path, check=True)
    place.run(place.lane, "run", "--mpi", "-o", "plugin.h5", "--", *place.mpirun(RANKS, "./host", os.path.abspath(place.path / "plugin.so")))
    agrees(RunFile(place.path / "plugin.h5"), {"MPI_Init": 1, "MPI_Barrier": 7, "MPI_Finalize": 1})
