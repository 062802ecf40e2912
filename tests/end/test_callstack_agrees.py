"""The reading library and scope-profiler agree: on every call of every reference file, on tables and sums; and the report
says what is wrong with files that are no good."""

import csv
import json
import math

import h5py
import numpy as np
import pytest
import scope_profiler
from scope_profiler.call_stack import build_call_arrays

from conftest import ROOT

REFERENCES = sorted((ROOT / "tests" / "reference").glob("*.h5"))
SECOND = 1e9

pytestmark = pytest.mark.parametrize("path", REFERENCES, ids=lambda path: path.stem)


def table(place, path, name):
    """Rows of one of the report's tables as dicts of texts."""
    text = place.command("report", "--table", name, "--tsv", path)
    return list(csv.DictReader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE))


def their_calls(run, rank):
    arrays = build_call_arrays(run.get_regions(), rank)
    paths = []
    for i in range(len(arrays)):
        name, parent = arrays.names[arrays.region_index[i]], int(arrays.parent[i])
        paths.append(name if parent < 0 else f"{paths[parent]} > {name}")
        data, index = run[name][rank], int(arrays.call_index[i])
        tracked = arrays.lane.size > 0
        lane = int(arrays.lane[i]) if tracked else -1
        yield {
            "rank": rank,
            "call_id": i,
            "region": name,
            "call_index": index,
            "lane": lane,
            "label": run.lane_label(lane, rank) if tracked else "",
            "start_ns": arrays.start_ns[i],
            "end_ns": arrays.end_ns[i],
            "depth": arrays.depth[i],
            "parent": "" if parent < 0 else parent,
            "self_ns": arrays.exclusive_ns[i],
            "await_ns": 0 if data.await_times_ns is None else data.await_times_ns[index],
            "path": paths[-1],
        }


def test_every_call_has_the_same_place_in_the_stack(place, path):
    run = scope_profiler.read_h5(path)
    theirs = [
        {key: str(value) for key, value in call.items()} for rank in range(run.num_ranks) for call in their_calls(run, rank)
    ]
    assert table(place, path, "calls") == theirs


def test_call_ids_in_the_file_say_the_same_parents(place, path):
    with h5py.File(path) as file:
        if "call_ids" not in file["events"] or not (file["events/call_ids"][()] >= 0).any():
            pytest.skip("the file has none")
    run = scope_profiler.read_h5(path)
    for rank in range(run.num_ranks):
        stated = {
            (region.name, index): (int(data.call_ids[index]), int(data.parent_ids[index]))
            for region in run
            if (data := region.regions.get(rank)) is not None
            for index in range(data.num_calls)
        }
        ours = [row for row in table(place, path, "calls") if row["rank"] == str(rank)]
        ids = [stated[row["region"], int(row["call_index"])] for row in ours]
        for row, (_, parent) in zip(ours, ids):
            assert parent == (ids[int(row["parent"])][0] if row["parent"] else -1), row


def test_regions_have_the_same_sums(place, path):
    run = scope_profiler.read_h5(path)
    ours = {row["name"]: row for row in table(place, path, "regions")}
    assert set(ours) == {region.name for region in run}
    for region in run:
        row, per_rank = ours[region.name], [region[rank] for rank in region.ranks]
        assert int(row["calls"]) == sum(data.num_calls for data in per_rank)
        assert int(row["total_ns"]) == pytest.approx(SECOND * sum(data.total_duration for data in per_rank), abs=1)
        assert int(row["self_ns"]) == pytest.approx(SECOND * sum(data.exclusive_duration for data in per_rank), abs=1)
        assert int(row["min_ns"]) == pytest.approx(SECOND * min(data.min_duration for data in per_rank), abs=1)
        assert int(row["max_ns"]) == pytest.approx(SECOND * max(data.max_duration for data in per_rank), abs=1)


def test_threads_and_tasks_are_the_same(place, path):
    def ns(seconds):
        return "" if seconds is None else str(round(seconds * SECOND))

    run = scope_profiler.read_h5(path)
    ours = table(place, path, "threads")
    theirs = [thread for rank in sorted(run.threads) for thread in run.threads[rank]]
    assert len(ours) == len(theirs)
    summaries = {(rank, row["index"]): row for rank in run.threads for row in run.thread_summary(rank)}
    for row, thread in zip(ours, theirs):
        summary = summaries[thread.rank, thread.index]
        assert (int(row["rank"]), int(row["index"]), row["name"]) == (thread.rank, thread.index, thread.name)
        assert (int(row["ident"]), int(row["native_id"])) == (thread.ident, thread.native_id)
        assert (row["state"] == "alive", row["daemon"] == "true") == (thread.alive, thread.daemon)
        assert (row["start_ns"], row["end_ns"]) == (ns(thread.start_time), ns(thread.end_time))
        assert row["cpu_ns"] == ns(thread.cpu_time)
        assert int(row["calls"]) == summary["num_calls"]
        assert int(row["region_ns"]) == pytest.approx(SECOND * summary["region_time"], abs=1)
    ours = table(place, path, "tasks")
    theirs = [task for rank in sorted(run.tasks) for task in run.tasks[rank]]
    assert len(ours) == len(theirs)
    for row, task in zip(ours, theirs):
        assert (int(row["rank"]), int(row["index"]), row["kind"]) == (task.rank, task.index, task.kind)
        assert (row["name"], row["coro_name"], int(row["thread_index"])) == (task.name, task.coro_name, task.thread_index)
        assert (row["state"] == "done", int(row["steps"])) == (task.done, task.steps)
        assert (row["created_ns"], row["done_ns"], row["wall_ns"]) == tuple(
            map(ns, (task.created_time, task.done_time, task.wall_time))
        )
        assert (row["running_ns"], row["suspended_ns"]) == (ns(task.running_time), ns(task.awaiting_time))


def test_the_report_is_the_same_in_all_its_forms(place, path):
    whole = json.loads(place.command("report", "--json", path))
    assert whole["schema"] == "scoped-lane/report/1"
    assert whole["calls"] == sum(row["calls"] for row in whole["regions"])
    assert whole["remarks"] == []
    text = place.command("report", path)
    for row in whole["regions"] + whole["threads"] + whole["task_groups"]:
        assert row["name"] in text
    assert sum(group["tasks"] for group in whole["task_groups"]) == len(table(place, path, "tasks"))
    for row in table(place, path, "regions"):
        assert math.isclose(float(row["mean_ns"]), int(row["total_ns"]) / int(row["calls"]), rel_tol=1e-8)


def test_a_rank_alone_is_that_part_of_the_whole(place, path):
    run = scope_profiler.read_h5(path)
    alone = [json.loads(place.command("report", "--json", "--rank", rank, path)) for rank in range(run.num_ranks)]
    whole = json.loads(place.command("report", "--json", path))
    assert sum(part["calls"] for part in alone) == whole["calls"]
    assert [row for part in alone for row in part["threads"]] == whole["threads"]


def test_a_file_cut_off_or_damaged_is_refused_in_words(place, path):
    whole = path.read_bytes()
    cut = place.path / "cut.h5"
    for length in np.linspace(0, len(whole) - 1, 12).astype(int):
        cut.write_bytes(whole[:length])
        done = place.run(place.lane, "report", cut, status=1)
        assert done.stdout_text == ""
        assert f"cannot open {cut}: not a run file: it is " in done.stderr_text
    with h5py.File(path) as file:  # a text's place in its heap, which HDF5 follows without looking
        place_of_text = file["region_table/names"].id.get_offset() + 12
    damaged = place.path / "damaged.h5"
    damaged.write_bytes(whole[:place_of_text] + b"\xff\xff\0\0" + whole[place_of_text + 4 :])
    done = place.run(place.lane, "report", damaged, status=1)
    assert "damaged" in done.stderr_text and str(damaged) in done.stderr_text
