"""Reads what programs counted themselves: the files of tests/tally.h. The two change together."""

from dataclasses import dataclass, field

import numpy as np

REGIONS, THREADS, DEPTH, NAME = 32, 64, 32, 64

COUNT = np.dtype([("calls", "u8"), ("outer_ns", "u8"), ("inner_ns", "u8")])
THREAD = np.dtype(
    [("name", f"S{NAME}"), ("native_id", "u8"), ("depth", "u8"), ("stack", "u8", DEPTH), ("counts", COUNT, REGIONS)]
)
TALLY = np.dtype(
    [("pid", "u8"), ("rank", "i8"), ("threads", "u8"), ("names", f"S{NAME}", REGIONS), ("thread", THREAD, THREADS)]
)


@dataclass
class Count:
    calls: int
    outer_ns: int  # from before sl_enter to after sl_exit
    inner_ns: int  # from after sl_enter to before sl_exit


@dataclass
class Thread:
    name: str
    native_id: int
    stack: list  # names of the regions that were open, outermost first
    counts: dict = field(default_factory=dict)  # region name -> Count


@dataclass
class Tally:
    pid: int
    rank: int
    threads: list

    def calls(self, region=None):
        """Completed calls of one region, or of all."""
        return sum(c.calls for t in self.threads for name, c in t.counts.items() if region in (None, name))


def read(path):
    data = np.frombuffer(path.read_bytes(), TALLY, 1)[0]
    names = [name.decode() for name in data["names"]]
    threads = []
    for row in data["thread"][: data["threads"]]:
        thread = Thread(
            row["name"].decode(), int(row["native_id"]), [names[r] for r in row["stack"][: row["depth"]].tolist()]
        )
        for name, count in zip(names, row["counts"].tolist()):
            if count[0]:
                thread.counts[name] = Count(*count)
        threads.append(thread)
    return Tally(int(data["pid"]), int(data["rank"]), threads)


def read_all(directory):
    """Tallies by rank (by pid where there is no launcher)."""
    whole = [path for path in directory.glob("*.tally") if path.stat().st_size == TALLY.itemsize]
    tallies = [tally for tally in map(read, whole) if tally.pid]  # the others are being made
    by = {t.rank if t.rank >= 0 else t.pid: t for t in tallies}
    assert len(by) == len(tallies), "two tallies of one rank"
    return by
