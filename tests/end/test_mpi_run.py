"""A real MPI run becomes one run file that scope-profiler opens and that says what the program itself counted."""

import re
import signal

import pytest
import tally
from conftest import ROOT, BUILD, a_place, wait_until
from runfile import RunFile, accept, agrees

RANKS, STEPS, WORKERS = 4, 300, 2


def heat(place, program, steps=STEPS):
    return place.mpirun(RANKS, program, "-n", 240, "-s", steps, "-t", WORKERS)


@pytest.fixture(scope="module")
def heat_run(tmp_path_factory):
    """One run of heat under a private daemon: its place, its file, and what it counted."""
    with a_place(tmp_path_factory.mktemp("heat")) as place:
        place.run(place.lane, "run", "-o", "heat.h5", "--", *heat(place, place.tallied("heat")))
        yield place, RunFile(place.path / "heat.h5"), tally.read_all(place.tallies)


def report_calls(text, region):
    """The calls column of a region's line in the report."""
    lines = text.splitlines()
    header = next(line for line in lines if line.startswith("REGION"))
    column = [word.lower() for word in header.split()].index("calls")
    line = next(line for line in lines if line.split() and line.split()[0] == region)
    return int(line.split()[column].replace(",", ""))


def test_the_demo_leaves_a_file_whose_step_count_is_ranks_times_steps(place):
    demo = place.run(ROOT / "docs" / "demo.sh", SL_BUILD=BUILD, STEPS=6000)
    assert RunFile(place.path / "heat.h5").calls("step") == RANKS * 6000
    report = place.command("report", "heat.h5")
    assert report_calls(report, "step") == RANKS * 6000
    assert report in demo.stdout_text


def test_run_inside_mpirun_leaves_one_file_with_the_same_counts(place):
    place.run(*place.mpirun(RANKS, place.lane, "run", place.tallied("heat"), "-n", 240, "-s", STEPS, "-t", WORKERS))
    files = list(place.path.glob("*.h5"))
    assert [path.name for path in files] == ["scoped-lane.h5"]
    file, counted = RunFile(files[0]), tally.read_all(place.tallies)
    assert file.ranks == list(range(RANKS))
    assert file.calls("step") == RANKS * STEPS
    for rank in range(RANKS):
        agrees(file, rank, counted[rank])


@pytest.mark.beside
def test_scope_profiler_accepts_the_file(heat_run):
    accept(heat_run[0].path / "heat.h5", drawing=True)


def test_the_file_has_the_calls_and_times_that_the_program_counted(heat_run):
    _, file, counted = heat_run
    assert file.ranks == list(range(RANKS)) == sorted(counted)
    assert file.calls("step") == RANKS * STEPS
    for rank in range(RANKS):
        agrees(file, rank, counted[rank])


def test_the_file_has_a_row_for_each_thread_under_its_name(heat_run):
    _, file, counted = heat_run
    for rank in range(RANKS):
        names = [thread.name for thread in file.threads(rank)]
        assert sorted(names) == ["main", "worker 1", "worker 2"] and names[0] == "main"
        assert sorted(names) == sorted(thread.name for thread in counted[rank].threads)
        assert {t.native_id for t in file.threads(rank)} == {t.native_id for t in counted[rank].threads}
        for thread in file.threads(rank):
            assert thread.end_time is not None and 0 < thread.cpu_time <= thread.wall_time * 1.01


def test_calls_nest_in_the_file_as_they_did_in_the_program(heat_run):
    _, file, _ = heat_run
    for rank in range(RANKS):
        root = "scope_profiler.session"
        lanes = {file.run.lane_label(-2 - thread.index, rank): thread.name for thread in file.threads(rank)}
        paths = {(lanes[label], path): calls for (label, path), calls in file.call_paths(rank).items()}
        assert paths == {
            ("main", root): 1,
            ("main", f"{root} > step"): STEPS,
            ("main", f"{root} > step > halo"): STEPS,
            ("main", f"{root} > step > compute"): STEPS,
            ("main", f"{root} > step > allreduce"): STEPS,
            ("worker 1", "compute"): STEPS,
            ("worker 2", "compute"): STEPS,
        }


def test_nothing_was_lost_and_each_process_says_so(heat_run):
    _, file, counted = heat_run
    assert sum(row["count"] for row in file.table("loss")) == 0
    rows = {row["rank"]: row for row in file.table("processes")}
    assert sorted(rows) == list(range(RANKS))
    assert {row["pid"] for row in rows.values()} == {t.pid for t in counted.values()}


def test_ps_and_threads_show_the_ranks_while_they_run(place):
    place.daemon = place.serve(session=False)
    run = place.start(*heat(place, place.tallied("heat"), steps=10**7))

    def all_ranks():
        rows = place.rows("processes")
        return len(rows) == RANKS and all(row["calls"] > 0 and row["threads"] == WORKERS + 1 for row in rows) and rows

    rows = wait_until(all_ranks, what="4 ranks with calls")
    assert {row["rank"] for row in rows} == set(range(RANKS))
    assert {row["state"] for row in rows} == {"live"}
    assert all(row["lost"] == 0 for row in rows)

    threads = place.rows("threads")
    assert len(threads) == RANKS * (WORKERS + 1)
    for rank in range(RANKS):
        mine = [row for row in threads if row["rank"] == rank]
        assert sorted(row["name"] for row in mine) == ["main", "worker 1", "worker 2"]
        assert all(row["state"] == "live" and row["end_ns"] is None and not row["cpu_exact"] for row in mine)
        main = next(row for row in mine if row["name"] == "main")
        assert main["stack"][0] == "scope_profiler.session"
        assert set(main["stack"]) <= {"scope_profiler.session", "step", "halo", "compute", "allreduce"}

    def cpu_seen():
        return all(row["cpu_ns"] > 0 for row in place.rows("threads"))

    wait_until(cpu_seen, what="a CPU time of each thread")
    ps = place.command("ps")
    assert all(re.search(rf"\b{counted.pid}\b", ps) for counted in tally.read_all(place.tallies).values())
    assert place.command("threads").count("worker 2") == RANKS

    run.send_signal(signal.SIGTERM)
    run.ends(status=None)
    wait_until(lambda: "live" not in {row["state"] for row in place.rows("processes")}, what="no rank is live")


def test_a_finished_run_is_published_by_the_service_in_one_file(service):
    service.run(*heat(service, service.tallied("heat")))
    file, counted = RunFile(service.run_file()), tally.read_all(service.tallies)
    for rank in range(RANKS):
        agrees(file, rank, counted[rank])
