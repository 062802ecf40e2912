"""Threads in rounds: what scope-profiler's own API and our report make of the file of a program whose every call is known."""

import csv

import pytest
import scope_profiler
from conftest import a_place, wait_until
from runfile import RunFile

THREADS, ROUNDS = 4, 3
SESSION = "scope_profiler.session"
WORKERS = [f"worker-{i}" for i in range(THREADS)]


@pytest.fixture(scope="module")
def rounds(tmp_path_factory):
    """The place, the file, a snapshot taken while main waited, and the live rows of threads at that time."""
    with a_place(tmp_path_factory.mktemp("rounds")) as place:
        place.daemon = place.serve()
        program = place.start(place.api("lanes"), "rounds", THREADS, ROUNDS, stdin=-1)
        wait_until(lambda: "waits" in program.stdout_text, what="all rounds are over")

        def stored():
            rows = place.rows("processes")
            return rows and rows[0]["stored"] == 2 * THREADS * ROUNDS

        wait_until(stored, what="the workers' calls are stored")
        wait_until(lambda: sum(row["state"] == "ended" for row in place.rows("threads")) == THREADS, what="the workers' ends are known")
        live = place.rows("threads")
        place.command("snapshot", "-o", "now.h5")
        program.stdin.close()
        program.ends()
        yield place, RunFile(place.run_file()), RunFile(place.path / "now.h5"), live


def report(place, file, table):
    text = place.command("report", "--tsv", "--table", table, file.path)
    return list(csv.DictReader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE))


def test_no_call_is_lost_or_doubled_and_each_is_its_threads(rounds):
    run = rounds[1].run
    indices = {thread.name: thread.index for thread in run.threads[0]}
    assert run[SESSION][0].thread_ids.tolist() == [indices["MainThread"]]
    for name in "outer", "inner":
        ids = run[name][0].thread_ids.tolist()
        assert sorted(ids) == sorted(ROUNDS * [indices[worker] for worker in WORKERS])


def test_each_thread_is_a_lane_and_no_inner_call_is_a_root(rounds):
    stack = rounds[1].run.call_stack(rank=0)
    assert {call["lane"] for call in stack} == {-2 - index for index in range(THREADS + 1)}
    for call in stack:
        parent = None if call["parent"] is None else stack[call["parent"]]
        if call["name"] != "inner":
            assert parent is None
        else:
            assert (parent["name"], parent["lane"]) == ("outer", call["lane"])
            assert parent["start"] <= call["start"] <= call["end"] <= parent["end"]


def test_self_time_of_the_outer_is_what_the_inner_leaves_though_threads_overlap(rounds):
    place, file, _, _ = rounds
    outer, inner = file.run["outer"][0], file.run["inner"][0]
    left = outer.total_duration - inner.total_duration
    assert outer.exclusive_duration == pytest.approx(left, rel=1e-9)
    ours = {row["name"]: int(row["self_ns"]) for row in report(place, file, "regions")}
    assert ours["outer"] == int(outer.durations_ns.sum() - inner.durations_ns.sum())
    assert ours["inner"] == inner.durations_ns.sum()


def test_threads_stand_in_the_order_of_their_registration(rounds):
    threads = rounds[1].run.threads[0]
    assert threads[0].name == "MainThread" and sorted(thread.name for thread in threads[1:]) == WORKERS
    assert [thread.index for thread in threads] == list(range(THREADS + 1))
    starts = [thread.start_time for thread in threads]
    assert starts == sorted(starts)
    assert len({thread.ident for thread in threads}) == len({thread.native_id for thread in threads}) == THREADS + 1
    assert all(thread.ident and thread.native_id for thread in threads)


def test_a_joined_thread_has_an_end_and_the_one_that_lives_has_none(rounds):
    _, file, now, _ = rounds
    main, *workers = now.run.threads[0]
    assert main.alive and main.end_time is None and main.wall_time is None
    for worker in workers:
        assert not worker.alive and worker.wall_time > 0 and worker.cpu_time > 0
    assert not any(thread.alive for thread in file.run.threads[0])


def test_a_call_that_is_open_at_a_snapshot_is_listed_there_and_counted_in_the_file(rounds):
    _, file, now, _ = rounds
    assert now.calls(SESSION) == 0 and now.calls("outer") == now.calls("inner") == THREADS * ROUNDS
    assert [(row["region"], row["lane"]) for row in now.table("open_calls")] == [(SESSION, -2)]
    assert file.calls(SESSION) == 1 and file.calls("outer") == THREADS * ROUNDS and file.table("open_calls") == []


def test_a_summary_of_threads_counts_nested_calls_and_the_time_of_the_outer_ones(rounds):
    place, file, _, _ = rounds
    run = file.run
    outer = run["outer"][0]
    theirs, ours = run.thread_summary(0), report(place, file, "threads")
    assert [row["name"] for row in theirs] == [row["name"] for row in ours] == [thread.name for thread in run.threads[0]]
    for their, our in zip(theirs[1:], ours[1:]):
        mine = outer.thread_ids == their["index"]
        assert their["num_calls"] == int(our["calls"]) == 2 * ROUNDS
        assert int(our["region_ns"]) == outer.durations_ns[mine].sum()
        assert their["region_time"] == pytest.approx(int(our["region_ns"]) / 1e9)
        assert 0 < int(our["region_ns"]) <= int(our["wall_ns"])
    assert theirs[0]["num_calls"] == int(ours[0]["calls"]) == 1
    assert run.thread_summary(7) == []
    assert place.command("report", "--tsv", "--table", "threads", "--rank", 7, file.path).count("\n") == 1


def test_the_slice_of_a_thread_is_its_part_of_a_region(rounds):
    outer = rounds[1].run["outer"][0]
    slices = [outer.for_thread(index) for index in range(1, THREADS + 1)]
    assert [part.num_calls for part in slices] == THREADS * [ROUNDS]
    assert sum(part.total_duration for part in slices) == pytest.approx(outer.total_duration)
    assert {part.source_file for part in slices} == {outer.source_file} and outer.source_file.endswith("lanes.c")


def test_rows_of_threads_are_in_the_file_as_they_were_live(rounds):
    _, file, _, live = rounds
    for row, thread in zip(live, file.run.threads[0]):
        assert (row["index"], row["name"], row["native_id"], row["daemon"]) == (thread.index, thread.name, thread.native_id, thread.daemon)
        assert int(row["ident"]) == thread.ident
        if row["index"]:
            assert row["cpu_exact"] and row["cpu_ns"] == round(thread.cpu_time * 1e9)


def test_a_reader_of_summaries_gets_the_same_numbers_and_the_threads(rounds):
    run = rounds[1].run
    short = scope_profiler.read_h5_summary(rounds[1].path, fallback=False)
    for thread, brief in zip(run.threads[0], short.threads[0], strict=True):
        for key in ("index", "ident", "native_id", "name", "daemon", "start_time", "end_time", "cpu_time"):
            assert getattr(brief, key) == getattr(thread, key), key
    assert short.region_names == run.region_names
    for name in run.region_names:
        whole, brief = run[name][0], short[name][0]
        assert brief.num_calls == whole.num_calls
        for key in ("total", "min", "max", "first", "last", "average", "std", "exclusive"):
            assert getattr(brief, f"{key}_duration") == pytest.approx(getattr(whole, f"{key}_duration"), rel=1e-9, abs=1e-9), key
