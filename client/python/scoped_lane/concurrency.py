"""Threads and tasks as tables: ConcurrencyTracker, its rows, and the rows of a run file.

The names, arguments and fields are those of ``scope_profiler.concurrency``, so that code written for it runs after changing the
import. The tables are kept by the library (sl_tracker(3)); rows that a tracker hands out are read from there each time
they are looked at.
"""

import array
import weakref
from time import perf_counter_ns, thread_time_ns

from scoped_lane import _core, hooks

NO_TASK = -1  #: the task of a call outside any task
UNKNOWN = -1  #: an end that has not come
CPU_SAMPLE_MASK = 0xFF  #: a live thread's CPU time is read again after so many further calls


class _Row:
    """A row of a tracker's table, or one that stands alone (`_table` is None): a dict of its fields either way."""

    __slots__ = ("_table", "_fields", "__weakref__")

    def _now(self):
        if self._table is not None:
            fresh = self._table(self._fields["index"])
            if fresh is not None:  # else the tracker is empty by now: what was last known
                self._fields.update(fresh)
        return self._fields

    @classmethod
    def _of(cls, table, index):
        row = cls.__new__(cls)
        row._table = table
        row._fields = {"index": index}
        row._now()
        return row


def _field(name, doc):
    def read(self):
        return self._now()[name]

    def write(self, value):
        self._fields[name] = value

    return property(read, write, doc=doc)


class ThreadRecord(_Row):
    """A thread, as a tracker knows it."""

    __slots__ = ()

    def __init__(self, index, thread):
        self._table = None
        self._fields = {
            "index": index,
            "ident": int(thread.ident or 0),
            "native_id": int(getattr(thread, "native_id", None) or 0),
            "name": str(thread.name),
            "daemon": bool(thread.daemon),
            "start_ns": perf_counter_ns(),
            "end_ns": UNKNOWN,
            "cpu_ns": thread_time_ns(),
            "task": None,
        }

    index = _field("index", "From 0, in the order in which the tracker learned of them.")
    ident = _field("ident", "As threading.get_ident() gives it.")
    native_id = _field("native_id", "The kernel's.")
    name = _field("name", "The latest.")
    daemon = _field("daemon", "Whether nobody waits for its end.")
    start_ns = _field("start_ns", "When the tracker learned of it.")
    end_ns = _field("end_ns", "UNKNOWN while it lives.")
    cpu_ns = _field("cpu_ns", "CPU time since it began.")
    task = _field("task", "The TaskRecord of the task that it runs, or None.")

    @property
    def alive(self):
        """Whether it has not ended."""
        return self.end_ns == UNKNOWN

    def sample_cpu(self):
        """Reads the CPU time, on the thread itself. A tracker's rows are always read afresh."""
        if self._table is None:
            self._fields["cpu_ns"] = max(self._fields["cpu_ns"], thread_time_ns())

    def __repr__(self):
        state = "alive" if self.alive else "finished"
        return f"ThreadRecord(index={self.index}, name={self.name!r}, ident={self.ident}, {state})"


class TaskRecord(_Row):
    """A task, and how its time splits into running and waiting."""

    __slots__ = ()

    def __init__(self, index, kind, name, coro_name, thread_index):
        self._table = None
        self._fields = {
            "index": index,
            "kind": kind,
            "name": name,
            "coro_name": coro_name,
            "thread_index": thread_index,
            "created_ns": perf_counter_ns(),
            "done_ns": UNKNOWN,
            "steps": 0,
            "running_ns": 0,
            "suspended_ns": 0,
            "step_started_ns": 0,
            "last_step_end_ns": 0,
        }

    index = _field("index", "From 0, in the order of creation.")
    kind = _field("kind", '"task", "greenlet", …')
    name = _field("name", "The latest.")
    coro_name = _field("coro_name", "The coroutine's qualified name.")
    thread_index = _field("thread_index", "The thread of the latest step, before any its creator's.")
    created_ns = _field("created_ns", "When it was made.")
    done_ns = _field("done_ns", "When it ended; UNKNOWN before.")
    steps = _field("steps", "How often it was resumed.")
    running_ns = _field("running_ns", "Time in steps; one in progress counts.")
    suspended_ns = _field("suspended_ns", "Time between steps.")
    step_started_ns = _field("step_started_ns", "Of the latest step; 0 before any.")
    last_step_end_ns = _field("last_step_end_ns", "Of the latest step that has ended; 0 before any.")

    @property
    def done(self):
        """Whether it has ended."""
        return self.done_ns != UNKNOWN

    # For rows that stand alone; a tracker's are stepped by the library.

    def enter_step(self):
        """Begins a step; returns the time."""
        row, now = self._fields, perf_counter_ns()
        if row["last_step_end_ns"]:
            row["suspended_ns"] += now - row["last_step_end_ns"]
        row["steps"] += 1
        row["step_started_ns"] = now
        return now

    def leave_step(self):
        """Ends the step."""
        row, now = self._fields, perf_counter_ns()
        row["running_ns"] += now - row["step_started_ns"]
        row["last_step_end_ns"] = now

    def finish(self):
        """Ends the task; the first time counts."""
        if self._fields["done_ns"] == UNKNOWN:
            self._fields["done_ns"] = perf_counter_ns()

    def __repr__(self):
        return f"TaskRecord(index={self.index}, kind={self.kind!r}, name={self.name!r}, steps={self.steps})"


_THREAD_FIELDS = ("index", "ident", "native_id", "name", "daemon", "start_ns", "end_ns", "cpu_ns")
_TASK_FIELDS = (
    "index",
    "kind",
    "name",
    "coro_name",
    "thread_index",
    "created_ns",
    "done_ns",
    "steps",
    "running_ns",
    "suspended_ns",
    "step_started_ns",
    "last_step_end_ns",
)
_NUMBERS = {
    "threads": ("index", "ident", "native_id", "start_ns", "end_ns", "cpu_ns"),
    "tasks": ("index", "thread_index", "created_ns", "done_ns", "steps", "running_ns", "suspended_ns"),
}


def _numpy():
    try:
        import numpy
    except ImportError:
        return None
    return numpy


def _column(data, code):
    """An array of numbers from their bytes."""
    numpy = _numpy()
    if numpy is not None:
        return numpy.frombuffer(data, dtype=numpy.int8 if code == "b" else numpy.int64).copy()
    return array.array(code, data)


class ConcurrencyTracker:
    """A registry of threads and, where asked for, tasks, with numbers of its own.

    There may be several, installed and uninstalled in any order. A tracker needs no daemon. What it knows is not in the run
    file, which has tables of its own.
    """

    def __init__(self, track_async=False):
        self.track_async = bool(track_async)
        self._core = _core.Tracker()
        self._has_tasks = self.track_async
        self._threads = weakref.WeakValueDictionary()
        self._tasks = weakref.WeakValueDictionary()
        self._user = object()  # who wants the hooks; not the tracker itself, which may be dropped while it is installed
        weakref.finalize(self, hooks.leave, self._user).atexit = False

    # -- life

    def install(self):
        """From here on it learns of threads and tasks. May be called again to no effect."""
        self._core.install()
        hooks.use(self._user, self.track_async, weakref.WeakMethod(self._stand_down))

    def uninstall(self):
        """It learns of no more; what was put in is taken out as it was found. May be called again to no effect."""
        hooks.leave(self._user)
        self._core.uninstall()

    def instrument_loop(self, loop):
        """Learns of tasks although it was not asked to; of every loop's, for they are told apart where they are made."""
        self._has_tasks = True
        self._core.install()
        hooks.use(self._user, True, weakref.WeakMethod(self._stand_down))

    def _stand_down(self):
        """In the child of a fork: empty."""
        self._threads = weakref.WeakValueDictionary()
        self._tasks = weakref.WeakValueDictionary()

    # -- rows

    def _thread_row(self, index):
        row = self._core.thread(index)
        if row is None:
            return None
        fields = dict(zip(_THREAD_FIELDS, row))
        fields["daemon"] = bool(fields["daemon"])
        fields["task"] = self._task(row[-1]) if self._has_tasks and row[-1] != NO_TASK else None
        return fields

    def _task_row(self, index):
        row = self._core.task(index)
        return None if row is None else dict(zip(_TASK_FIELDS, row))

    def _thread(self, index):
        record = self._threads.get(index)
        if record is None:
            record = self._threads.setdefault(index, ThreadRecord._of(self._thread_row, index))
        return record

    def _task(self, index):
        record = self._tasks.get(index)
        if record is None:
            record = self._tasks.setdefault(index, TaskRecord._of(self._task_row, index))
        return record

    def current_thread(self):
        """The calling thread's record; the tracker learns of it, installed or not."""
        return self._thread(self._core.current_thread())

    @property
    def threads(self):
        """Every thread it knows, in the order of registration."""
        return [self._thread(index) for index in range(self._core.counts()[0])]

    @property
    def tasks(self):
        """Every task it knows, in the order of creation."""
        return [self._task(index) for index in range(self._core.counts()[1])] if self._has_tasks else []

    def snapshot(self, origin_ns=0):
        """Both tables as columns, the times less `origin_ns`, unknown ones left alone."""
        tables = self._core.snapshot(int(origin_ns))
        if not self._has_tasks:
            tables["tasks"] = {name: type(column)() for name, column in tables["tasks"].items()}
        for table, numbers in _NUMBERS.items():
            for name in numbers:
                tables[table][name] = _column(tables[table][name], "q")
        tables["threads"]["daemon"] = _column(tables["threads"]["daemon"], "b")
        return tables


def lane_ids(thread_ids, task_ids):
    """The lane of each call: its task where it ran in one, else -2 - its thread, -1 where that is not known."""
    numpy = _numpy()
    if numpy is not None:
        threads = numpy.asarray(thread_ids, dtype=numpy.int64)
        lanes = numpy.where(threads < 0, -1, -2 - threads)
        if task_ids is None:
            return lanes
        tasks = numpy.asarray(task_ids, dtype=numpy.int64)
        return numpy.where(tasks >= 0, tasks, lanes)
    lanes = [-1 if thread < 0 else -2 - thread for thread in thread_ids]
    if task_ids is not None:
        lanes = [task if task >= 0 else lane for task, lane in zip(task_ids, lanes)]
    return array.array("q", lanes)


def _seconds(ns):
    return float(ns) / 1e9


def _seconds_or_none(ns):
    return None if int(ns) == UNKNOWN else _seconds(ns)


class ThreadInfo:
    """A row of a run's thread table; times in seconds from the start of the run."""

    __slots__ = ("cpu_time", "daemon", "end_time", "ident", "index", "name", "native_id", "rank", "start_time")

    def __init__(self, index, rank, name, ident, native_id, daemon, start_ns, end_ns, cpu_ns):
        self.index, self.rank, self.name = int(index), int(rank), str(name)
        self.ident, self.native_id, self.daemon = int(ident), int(native_id), bool(daemon)
        self.start_time, self.end_time, self.cpu_time = _seconds(start_ns), _seconds_or_none(end_ns), _seconds(cpu_ns)

    @property
    def alive(self):
        """Whether it had not ended."""
        return self.end_time is None

    @property
    def wall_time(self):
        """From start to end; None while alive."""
        return None if self.end_time is None else self.end_time - self.start_time

    def __repr__(self):
        return (
            f"ThreadInfo(rank={self.rank}, index={self.index}, name={self.name!r}, "
            f"cpu_time={self.cpu_time:.6f}s, alive={self.alive})"
        )


class TaskInfo:
    """A row of a run's task table; times in seconds from the start of the run."""

    __slots__ = (
        "awaiting_time",
        "coro_name",
        "created_time",
        "done_time",
        "index",
        "kind",
        "name",
        "rank",
        "running_time",
        "steps",
        "thread_index",
    )

    def __init__(
        self, index, rank, kind, name, coro_name, thread_index, created_ns, done_ns, steps, running_ns, suspended_ns
    ):
        self.index, self.rank, self.thread_index, self.steps = int(index), int(rank), int(thread_index), int(steps)
        self.kind, self.name, self.coro_name = str(kind), str(name), str(coro_name)
        self.created_time, self.done_time = _seconds(created_ns), _seconds_or_none(done_ns)
        self.running_time, self.awaiting_time = _seconds(running_ns), _seconds(suspended_ns)

    @property
    def done(self):
        """Whether it had ended."""
        return self.done_time is not None

    @property
    def wall_time(self):
        """From creation to end; None before."""
        return None if self.done_time is None else self.done_time - self.created_time

    def __repr__(self):
        return (
            f"TaskInfo(rank={self.rank}, index={self.index}, kind={self.kind!r}, name={self.name!r}, "
            f"running_time={self.running_time:.6f}s, awaiting_time={self.awaiting_time:.6f}s)"
        )


_THREAD_COLUMNS = ("name", "ident", "native_id", "daemon", "start_ns", "end_ns", "cpu_ns")
_TASK_COLUMNS = (
    "kind",
    "name",
    "coro_name",
    "thread_index",
    "created_ns",
    "done_ns",
    "steps",
    "running_ns",
    "suspended_ns",
)


def _infos(make, rank, table, names):
    """One object a row; texts may be bytes, as HDF5 readers give them."""

    def plain(value):
        return value.decode() if isinstance(value, bytes) else value

    columns = [table[name] for name in names] if table else []
    return [
        make(index, rank, *(plain(column[row]) for column in columns))
        for row, index in enumerate(table["index"] if table else ())
    ]


def lane_tables_from_columns(rank, tables):
    """Lists of ThreadInfo and TaskInfo from columns, as snapshot() gives them and run files store them."""
    return (
        _infos(ThreadInfo, rank, tables.get("threads") or {}, _THREAD_COLUMNS),
        _infos(TaskInfo, rank, tables.get("tasks") or {}, _TASK_COLUMNS),
    )


__all__ = [
    "CPU_SAMPLE_MASK",
    "NO_TASK",
    "UNKNOWN",
    "ConcurrencyTracker",
    "TaskInfo",
    "TaskRecord",
    "ThreadInfo",
    "ThreadRecord",
    "lane_ids",
    "lane_tables_from_columns",
]

