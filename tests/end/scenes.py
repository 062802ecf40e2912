"""What must be in the file of a program that plays tests/api/scenes.c, by the log that the program keeps of itself.

The log is replayed by the rules of design.md §2: per lane a list of calls in the order of their entry, each with what is known of
it. A thread that was killed has at most one operation that was begun and not done; what that one does may have happened or not."""

import collections
from dataclasses import dataclass, field

import numpy as np

ENTER, EXIT, NEXT, CUT, VOID, TASK, FINISH, RENAME, THREAD, UNSEEN = range(1, 11)
REGIONS, NAME, ENTRIES = 16, 32, 1 << 18
DEPTH = {True: 16 + 1024, False: 128 + 1024}  # of a task's lane, of a thread's

ENTRY = np.dtype([("op", "u4"), ("argument", "u4"), ("lane", "i4"), ("thread", "u4"), ("begun", "u4"), ("done", "u4")])
HEAD = np.dtype([("pid", "u8"), ("entries", "u8"), ("regions", f"S{NAME}", REGIONS)])


@dataclass
class Call:
    region: str
    state: str = "open"  # entering, open, too deep, leaving, closed, crossing, gone
    doubt: bool = False  # an operation that was under way may have changed that
    marks: int = 0
    found: bool = False  # it was being left, and is stored


@dataclass
class Replay:
    pid: int
    lanes: dict = field(default_factory=lambda: collections.defaultdict(list))  # (thread or None, task) -> [Call]
    ended: int = 0      # exits that were done, and void calls: the least that was produced
    under_way: int = 0  # operations begun and not done
    void: int = 0
    unmatched: int = 0
    threads: dict = field(default_factory=dict)  # tid -> name
    tasks: dict = field(default_factory=dict)    # index -> name
    finished: set = field(default_factory=set)
    unseen: set = field(default_factory=set)  # lanes


def read_log(path):
    data = path.read_bytes()
    head = np.frombuffer(data, HEAD, 1)[0]
    entries = np.frombuffer(data, ENTRY, int(head["entries"]), HEAD.itemsize)
    names = [name.decode() for name in head["regions"]]
    return int(head["pid"]), names, [entry for entry in entries.tolist() if entry[4]]


def replay(path):
    pid, names, entries = read_log(path)
    replay = Replay(pid)
    stacks = collections.defaultdict(list)
    for op, argument, task, tid, _, done in entries:
        lane = (None, task) if task >= 0 else (tid, -1)
        stack = stacks[lane]
        replay.under_way += not done
        if op in (ENTER, EXIT, NEXT, CUT):
            change(replay, lane, stack, op, names[argument] if op != CUT else argument, bool(done))
        elif op == VOID:
            replay.void += bool(done)
            replay.ended += bool(done)
        elif op == TASK and done:
            replay.tasks[task] = f"task-{argument}"
        elif op == RENAME and done:
            replay.tasks[task] = f"renamed-{task}-"
        elif op == RENAME:
            replay.tasks.pop(task, None)
        elif op == FINISH and done:
            replay.finished.add(task)
        elif op == THREAD and done:
            replay.threads[tid] = f"thread-{argument}-"
        elif op == THREAD:
            replay.threads.pop(tid, None)
        elif op == UNSEEN:
            replay.unseen.add(lane)
    return replay


def change(replay, lane, stack, op, what, done):
    if op == CUT:
        for call in stack[what:]:
            call.state, call.doubt = ("gone", False) if done else (call.state, True)
        del stack[what:]
        return
    if op in (EXIT, NEXT):
        close(replay, stack, what if op == EXIT else stack[-1].region if stack else None, done)
    if op in (ENTER, NEXT):
        call = Call(what, "open" if done else "entering", not done)
        if len(stack) >= DEPTH[lane[1] >= 0]:
            call.state, call.doubt = "too deep", False  # counted when it is left
        replay.lanes[lane].append(call)
        stack.append(call)


def close(replay, stack, region, done):
    at = next((i for i in reversed(range(len(stack))) if stack[i].region == region), None)
    if at is None:
        replay.unmatched += done
        return
    call, above = stack.pop(at), stack[at:]
    replay.ended += done
    crosses = any(a.state == "open" for a in above)
    call.state, call.doubt = ("crossing" if crosses else "closed", False) if done else ("leaving", True)
    for other in above:
        other.marks += 1
        if other.marks == 2:
            stack.remove(other)
            other.state, other.doubt = ("gone", False) if done else (other.state, True)


# ---- the file against it


class Stored:
    """What the files of a run say of one process: a file, or the parts that a finish or the daemon's end made of it."""

    def __init__(self, files, pid):
        self.rows, self.lost, self.in_flight = [], collections.Counter(), 0
        self.closed, self.crossing, self.open = (collections.defaultdict(list) for _ in range(3))
        self.threads, self.tasks = {}, {}
        for file in sorted(files, key=lambda file: self.row_of(file, pid)["end_ns"]):  # it ends in the last part
            self.rows.append(self.row_of(file, pid))
            self.add_losses(file, pid)
            self.add_calls(file, self.rows[-1]["rank"])
            self.add_open(file, pid, self.rows[-1]["rank"])
        for calls in (*self.closed.values(), *self.crossing.values(), *self.open.values()):
            calls.sort(key=lambda call: (call[0], -call[1]))
        if len(files) > 1:  # what was open when a part ended is in a later one too: there, or among the calls
            for lane, calls in self.open.items():
                ended = {start for start, _, _ in self.closed[lane] + self.crossing[lane]}
                self.open[lane] = sorted({call for call in calls if call[0] not in ended})

    def add_losses(self, file, pid):
        for loss in file.table("loss"):
            if loss["pid"] == pid and loss["reason"] == "in flight":
                assert loss["count"] <= 1 or loss["ring"] < 0, f"in flight: {loss}"
                self.in_flight += loss["count"]
            elif loss["pid"] == pid:
                self.lost[loss["reason"]] += loss["count"]

    def add_calls(self, file, rank):
        if rank < 0:  # it made no calls
            return
        native = {thread.index: thread.native_id for thread in file.threads(rank)}
        self.threads |= {thread.native_id: thread.name for thread in file.threads(rank)}
        self.tasks |= {task.index: task for task in file.run.tasks.get(rank, []) if task.name != "(lost)"}
        for region in file.run:
            data = region.regions.get(rank)
            if data is None or not data.num_calls:
                continue
            tasks = data.task_ids if data.task_ids is not None else np.full(data.num_calls, -1)
            columns = (data.start_times_ns, data.end_times_ns, data.thread_ids, tasks)
            for start, end, thread, task in zip(*(column.tolist() for column in columns)):
                self.closed[(None, task) if task >= 0 else (native[thread], -1)].append((start, end, region.name))
        for row in file.table("crossing"):
            if row["rank"] == rank:
                self.crossing[self.lane(row["lane"], native)].append((row["start_ns"], row["end_ns"], row["region"]))

    def add_open(self, file, pid, rank):
        if rank < 0:
            return
        native = {thread.index: thread.native_id for thread in file.threads(rank)}
        for row in file.table("open_calls"):
            if row["pid"] == pid:
                self.open[self.lane(row["lane"], native)].append((row["start_ns"], 0, row["region"]))

    @staticmethod
    def row_of(file, pid):
        rows = [row for row in file.table("processes") if row["pid"] == pid]
        assert len(rows) == 1, rows
        return rows[0]

    @staticmethod
    def lane(number, native):
        return (None, number) if number >= 0 else (native[-2 - number], -1)

    def total(self, column):
        return sum(row[column] for row in self.rows)


def nests(calls):
    """Fails unless the intervals of a lane are disjoint or within one another, and no two are the same."""
    stack = []
    for start, end, region in calls:
        assert start <= end, (start, end, region)
        while stack and stack[-1][1] <= start:
            stack.pop()
        assert not stack or end <= stack[-1][1], f"{region} {start}..{end} crosses {stack[-1]}"
        assert not stack or (start, end, region) != stack[-1], f"twice: {region} {start}..{end}"
        stack.append((start, end, region))


def is_part(stored, calls):
    """Do the stored calls follow one another in `calls`, in order of entry? Both are by region."""
    left = iter(calls)
    return all(any(call.region == region for call in left) for _, _, region in stored)


def missing(calls, state, stored, where):
    """How many of a lane's calls in that state are not stored; fails when one is stored that was not closed, or out of turn.
    A call that was being left may be stored: then it is marked as found."""
    certain = [call for call in calls if call.state == state]
    if len(stored) <= len(certain) and is_part(stored, certain):
        return len(certain) - len(stored)
    possible = [call for call in calls if call.state in (state, "leaving") and not call.found]
    assert len(stored) <= len(possible) and is_part(stored, possible), f"{where}: stored {stored}, closed {possible}"
    for call in possible:
        call.found = call.state == "leaving"
    return len(possible) - len(stored)


def agrees(files, replay):
    """Fails unless the files, in the order of their parts, are what the log allows."""
    stored = Stored(files, replay.pid)
    ledger_agrees(stored, replay)
    absent = 0
    for lane in set(stored.closed) | set(stored.crossing) | set(replay.lanes):
        calls = replay.lanes.get(lane, [])
        absent += missing(calls, "closed", stored.closed[lane], lane) + missing(calls, "crossing", stored.crossing[lane], lane)
        nests(stored.closed[lane])
    expected, lost = absent + replay.void, sum(stored.lost.values())
    assert expected <= lost <= expected + replay.under_way, f"{absent} calls are not there; lost: {dict(stored.lost)}"
    if all(row["rank"] < 0 for row in stored.rows):  # no call is stored: the file has no lanes of it
        return
    for lane in (set(stored.open) | set(replay.lanes)) - replay.unseen:
        is_open(lane, replay.lanes.get(lane, []), stored.open[lane])
    tables_agree(stored, replay)


def ledger_agrees(stored, replay):
    for row in stored.rows:
        assert row["produced"] == row["stored"] + row["lost"], row
    assert stored.total("lost") == sum(stored.lost.values()) + stored.in_flight, (stored.rows, stored.lost)
    assert stored.total("stored") == sum(map(len, stored.closed.values())) + sum(map(len, stored.crossing.values()))
    assert replay.ended <= stored.total("produced") <= replay.ended + replay.under_way, (replay.ended, replay.under_way, stored.rows)
    assert stored.in_flight <= replay.under_way
    assert 0 <= stored.total("unmatched") - replay.unmatched <= replay.under_way, (stored.rows, replay.unmatched)


def is_open(lane, calls, shown):
    starts = [start for start, _, _ in shown]
    assert len(set(starts)) == len(starts), f"{lane}: open twice: {shown}"
    maybe = [call for call in calls if (call.state == "open" or call.doubt) and not call.found]
    left = iter(maybe)
    for _, _, region in shown:
        for call in left:
            if call.region == region:
                break
            assert call.doubt, f"{lane}: {call} is not among the open calls {shown}"
        else:
            raise AssertionError(f"{lane}: {region} is shown as open; open are {maybe}")
    for call in left:
        assert call.doubt, f"{lane}: {call} is not among the open calls {shown}"


def tables_agree(stored, replay):
    for tid, name in replay.threads.items():
        assert stored.threads[tid].startswith(name), (stored.threads[tid], name)
    for index, name in replay.tasks.items():
        assert stored.tasks[index].name.startswith(name), (stored.tasks[index].name, name)
    for index in replay.finished:
        assert stored.tasks[index].done, stored.tasks[index]
