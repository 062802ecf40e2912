"""A run file as scope-profiler's own API reads it, and the tables of ours beside."""

import collections
import functools
import os
import subprocess
from pathlib import Path

import h5py
import scope_profiler

ACCEPT = Path(__file__).resolve().parents[1] / "reference" / "accept.sh"
VENV = Path(__file__).resolve().parents[2] / ".venv" / "bin"


def accept(path, drawing=False):
    """Fails unless the real scope-profiler takes the file, in all its commands; with its plots, most of a minute, on request."""
    env = os.environ | {"PATH": f"{VENV}:{os.environ['PATH']}"}
    if not drawing:
        env["PYTHONPATH"] = str(ACCEPT.parent / "undrawn")
    done = subprocess.run([ACCEPT, "-s", path], capture_output=True, text=True, env=env, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr


class RunFile:
    def __init__(self, path):
        self.path = path

    @functools.cached_property
    def run(self):
        return scope_profiler.read_h5(self.path)

    @property
    def ranks(self):
        return sorted({rank for region in self.run for rank in region.ranks if region[rank].num_calls})

    @functools.cached_property
    def counts(self):
        """[(rank, region, calls)], from the index alone: a reader of every call takes gigabytes for a flood."""
        with h5py.File(self.path) as file:
            names = file["region_table/names"].asstr()[()]
            index = [file[f"rank_region_index/{column}"][()].tolist() for column in ("ranks", "region_ids", "event_counts")]
        return [(rank, names[region], calls) for rank, region, calls in zip(*index)]

    def calls(self, region, rank=None):
        """Calls of a region on one rank, or on all."""
        return sum(calls for r, name, calls in self.counts if name == region and rank in (None, r))

    def all_calls(self, rank=None):
        return sum(calls for r, _, calls in self.counts if rank in (None, r))

    def threads(self, rank):
        return self.run.threads.get(rank, [])

    def by_thread(self, rank):
        """{(thread name, region): (calls, total ns)}"""
        found = {}
        for region in self.run:
            data = region.regions.get(rank)
            if data is None:
                continue
            for thread in self.threads(rank):
                mine = data.thread_ids == thread.index
                if mine.any():
                    key = (thread.name, region.name)
                    assert key not in found, f"two threads called {thread.name} on rank {rank}"
                    found[key] = (int(mine.sum()), int(data.durations_ns[mine].sum()))
        return found

    def call_paths(self, rank):
        """Counter of (lane label, call path)."""
        return collections.Counter(
            (self.run.lane_label(call["lane"], rank), call["call_path"]) for call in self.run.call_stack(rank=rank)
        )

    def table(self, name):
        """Rows of /scoped_lane/<name> as dicts; texts are str."""
        with h5py.File(self.path) as file:
            columns = {
                key: data.asstr()[()].tolist() if h5py.check_string_dtype(data.dtype) else data[()].tolist()
                for key, data in file[f"scoped_lane/{name}"].items()
            }
        return [dict(zip(columns, row)) for row in zip(*columns.values())]

    def open_stacks(self, rank):
        """{thread name: open regions, outermost first} of the bare threads of a rank."""
        names = {-2 - thread.index: thread.name for thread in self.threads(rank)}
        stacks = collections.defaultdict(list)
        for row in sorted(self.table("open_calls"), key=lambda row: row["start_ns"]):
            if row["rank"] == rank:
                stacks[names[row["lane"]]].append(row["region"])
        return dict(stacks)


def agrees(file, rank, tally):
    """Fails unless the file holds exactly the calls that the program counted, thread by thread, in times that lie between
    the program's inner and outer ones; within 1 %, for the two clocks are not one."""
    found = file.by_thread(rank)
    counted = {(thread.name, region): count for thread in tally.threads for region, count in thread.counts.items()}
    assert {key: calls for key, (calls, _) in found.items()} == {key: count.calls for key, count in counted.items()}
    for key, (_, total) in found.items():
        inner, outer = counted[key].inner_ns, counted[key].outer_ns
        assert 0.99 * inner <= total <= 1.01 * outer, f"rank {rank}, {key}: {total} ns is not in {inner}..{outer}"
