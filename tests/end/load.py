"""What tests/api/load.c has counted of itself, and whether the files of its run agree."""

import collections

import h5py
import numpy as np

HEAD = np.dtype([("pid", "u8"), ("threads", "u8"), ("zero", "u8", 6)])
COUNTS = np.dtype([("begun", "u8"), ("done", "u8"), ("native_id", "u8"), ("zero", "u8", 5)])


class Load:
    def __init__(self, path):
        data = path.read_bytes()
        head = np.frombuffer(data, HEAD, 1)[0]
        counts = np.frombuffer(data, COUNTS, int(head["threads"]), HEAD.itemsize)
        self.pid = int(head["pid"])
        self.begun, self.done = int(counts["begun"].sum()), int(counts["done"].sum())
        self.under_way = self.begun - self.done


def table(file, name):
    columns = {
        key: data.asstr()[()].tolist() if h5py.check_string_dtype(data.dtype) else data[()].tolist()
        for key, data in file[f"scoped_lane/{name}"].items()
    }
    return [dict(zip(columns, row)) for row in zip(*columns.values())]


class Books:
    """What all files of a place say, by process."""

    def __init__(self, paths):
        self.rows = collections.defaultdict(list)
        self.in_flight = collections.Counter()
        self.calls = collections.Counter()
        for path in paths:
            with h5py.File(path) as file:
                self.add(file, path)

    def add(self, file, path):
        ranks = {}
        for row in table(file, "processes"):
            assert row["produced"] == row["stored"] + row["lost"], (path, row)
            self.rows[row["pid"]].append(row)
            ranks[row["rank"]] = row["pid"]
        for loss in table(file, "loss"):
            if loss["reason"] == "in flight":
                assert loss["count"] <= 1 or loss["ring"] < 0, loss
                self.in_flight[loss["pid"]] += loss["count"]
        for rank, calls in calls_by_rank(file).items():
            order = np.lexsort(calls)
            twice = np.logical_and.reduce([column[order][1:] == column[order][:-1] for column in calls])
            assert not twice.any(), f"{path}: {twice.sum()} calls are there twice"
            self.calls[ranks[rank]] += len(order)

    def agree(self, load):
        """Fails unless every call that the program counted is in the files or in their ledgers, once."""
        rows = self.rows[load.pid]
        produced, stored = sum(row["produced"] for row in rows), sum(row["stored"] for row in rows)
        assert load.done <= produced <= load.begun, f"{load.done}..{load.begun} exits, {produced} produced: {rows}"
        assert stored == self.calls[load.pid], f"{stored} stored, {self.calls[load.pid]} calls in the files"
        assert self.in_flight[load.pid] <= load.under_way, (self.in_flight, load.begun, load.done)


def calls_by_rank(file):
    """{rank: [threads, tasks, ends, starts, regions]} of the calls in /events."""
    events = file["events"]
    index = file["rank_region_index"]
    found = collections.defaultdict(list)
    columns = [events[name][()] for name in ("thread_ids", "task_ids", "end_times", "start_times") if name in events]
    rows = zip(*(index[name][()].tolist() for name in ("ranks", "region_ids", "event_offsets", "event_counts")))
    for rank, region, offset, count in rows:
        found[rank].append([column[offset : offset + count] for column in columns] + [np.full(count, region)])
    return {rank: [np.concatenate(parts) for parts in zip(*rows)] for rank, rows in found.items()}
