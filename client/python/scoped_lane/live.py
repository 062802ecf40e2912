"""What the daemons know now, for notebooks and scripts: rows as lists of dicts, or a DataFrame where pandas is installed.

    from scoped_lane import live

    live.tasks(state="suspended")            # every daemon of this user that can be found
    live.where().frame()
    live.Daemon("/run/scoped-lane").regions(rank=0)

The fields are those of the replies in scoped-laned(8). Times are nanoseconds of time.perf_counter_ns(); what is not known is None.
"""

import http.client
import os

from scoped_lane import files

# Each listing with its fields, which a reply without rows does not tell.
TABLES = {
    "runs": "run key state file uid part processes live members unable unable_why produced stored lost progress problem",
    "processes": "run host rank file_rank pid parent_pid program state paused exit_status threads tasks calls produced stored lost unmatched "
    "unmatched_why crossing abandoned threads_folded tasks_folded last_event_ns",
    "threads": "run host rank file_rank pid index ident native_id name daemon start_ns end_ns cpu_ns cpu_exact cpu_share run_queue_ns switches "
    "calls lost state task_index stack since_ns moving",
    "tasks": "run host rank file_rank pid index kind name coro_name thread_index created_ns done_ns steps running_ns suspended_ns longest_step_ns "
    "bound state stack since_ns moving",
    "regions": "run rank name calls open total_ns self_ns min_ns max_ns mean_ns p50_ns p99_ns exact imbalance",
    "lanes": "run host rank file_rank pid lane label thread_index task_index state stack since_ns moving",
    "where": "run host stack lanes ranks rank_count youngest_ns oldest_ns state",
    "loss": "run host rank file_rank pid ring thread_index reason count",
    "unmatched": "run host rank file_rank pid region lane thread_index count first_ns last_ns entered_lane entered_thread_index entered_ns why",
    "status": "version pid host rundir output private started_ns clock clock_error_ns runs processes without_socket refused last_refusal stuck "
    "alerts pump_period_ms connections requests requests_cpu_ns",
}


class Rows(list):
    """Rows, dicts each. Of the reply: `time_ns`, `generation`, and `trust`, which says what is missing in them."""

    def __init__(self, rows, reply, table=None):
        super().__init__(rows)
        self._fields = TABLES.get(table, "").split()
        self.time_ns, self.generation, self.trust = reply.get("time_ns"), reply.get("generation"), reply.get("trust") or {}

    def frame(self):
        """The same as a pandas.DataFrame. Whole numbers that are not known everywhere stay whole numbers: Int64, with pandas.NA."""
        try:
            import pandas
        except ImportError:
            raise ImportError("frame() takes pandas, which is not installed; the rows are a list of dicts") from None
        names = dict.fromkeys(name for row in self for name in row) or self._fields
        columns = {name: [row.get(name) for row in self] for name in names}
        for name, values in columns.items():
            if {type(value) for value in values} == {int, type(None)}:
                columns[name] = pandas.array(values, dtype="Int64")
        return pandas.DataFrame(columns)


class Daemon:
    """The daemon of a runtime directory. ConnectionError where none listens; ValueError for what it does not answer."""

    def __init__(self, rundir):
        self.rundir = os.path.abspath(os.fspath(rundir))
        self._line = files.Line(self.rundir)

    def __repr__(self):
        return f"Daemon({self.rundir!r})"

    def _ask(self, path, method="GET", **parameters):
        given = {name: value for name, value in parameters.items() if value is not None}
        try:
            return self._line.ask(path, method, **given)
        except (OSError, http.client.HTTPException) as problem:
            raise ConnectionError(f"no scoped-laned answers in {self.rundir}: {problem}") from None

    def listens(self):
        """Whether one answers."""
        try:
            self._ask("/v1/status", limit=1)
        except (ConnectionError, ValueError):
            return False
        return True

    def rows(self, table, **filters):
        """All rows of a table, over its pages. Filters: run, rank, pid, thread, kind, region, state, idle."""
        rows, reply, cursor = [], None, None
        while reply is None or cursor is not None:
            page = self._ask(f"/v1/{table}", cursor=cursor, **filters)
            reply = reply or page
            rows += page["rows"]
            cursor = page["cursor"]
        return Rows(rows, reply, table)

    def snapshot(self, output, run=None):
        """Writes what is recorded so far of a run to a file, and returns its path; without `run` there has to be one only."""
        output = os.path.abspath(os.fspath(output))
        self._ask("/v1/snapshot", "POST", run=run or self._only_run(), output=output)
        return output

    def finish(self, run=None):
        """Ends the recording of a run; its file is written."""
        self._ask("/v1/finish", "POST", run=run or self._only_run())

    def _only_run(self):
        runs = sorted({row["run"] for row in self.rows("processes") if row["state"] in ("live", "deaf")})
        if len(runs) != 1:
            raise ValueError(f"which run? there are {len(runs)}: {', '.join(runs)}")
        return runs[0]


_found = {}  # by runtime directory: the next question goes over the same connection


def daemons():
    """Those that listen where they are looked for, private ones of `scoped-lane run` too."""
    global _found
    rundirs = []
    for place in files.places():
        try:
            private = sorted(entry.path for entry in os.scandir(place) if entry.name.startswith("run-") and entry.is_dir())
        except OSError:
            private = []
        rundirs += [*private, place]
    known = [_found.get(rundir) or Daemon(rundir) for rundir in rundirs]
    _found = {daemon.rundir: daemon for daemon in known if daemon.listens()}
    return list(_found.values())


def rows(table, **filters):
    """All rows of a table of every daemon that can be found. What they lost adds up."""
    replies = [daemon.rows(table, **filters) for daemon in daemons()]
    if not replies:
        raise ConnectionError(f"no scoped-laned listens in {', '.join(files.places())}")
    found = Rows([row for reply in replies for row in reply], {}, table)
    found.time_ns = max(reply.time_ns for reply in replies)
    if len(replies) == 1:
        found.generation, found.trust = replies[0].generation, replies[0].trust
    else:
        for reply in replies:
            for name, value in reply.trust.items():
                if isinstance(value, int):
                    found.trust[name] = found.trust.get(name, 0) + value
    return found


def _listing(table):
    def listing(**filters):
        return rows(table, **filters)

    def method(self, **filters):
        return self.rows(table, **filters)

    for function in (listing, method):
        function.__name__ = function.__qualname__ = table
        function.__doc__ = f"The rows of {table}; filters as of rows()."
    return listing, method


for _table in TABLES:
    globals()[_table], _method = _listing(_table)
    setattr(Daemon, _table, _method)
del _table, _method

__all__ = ["Daemon", "Rows", "TABLES", "daemons", "rows", *TABLES]
