"""scoped_lane.live asks the daemons; scoped_lane.open reads run files."""

import concurrent.futures
import contextlib
import json
import os
import pickle
import socket
import subprocess
import sys

import h5py
import pytest
from conftest import PYTHON, RunFile, installed, wait_until

WAITS = """
import asyncio, sys, time
import scoped_lane as sl

async def waits(n):
    with sl.region("db"):
        await asyncio.sleep(1000)

async def blocks():
    await asyncio.sleep(0.01)
    with sl.region("blocking"):
        time.sleep(1000)

async def main():
    await asyncio.gather(*(waits(n) for n in range(int(sys.argv[1]))), blocks())

sl.end(sl.region("never begun").id)
with sl.region("started"):
    pass
with sl.region("everything"):
    asyncio.run(main())
"""

# A lane that blocks its loop for two seconds, again and again, and one that waits meanwhile.
BLOCKS = {
    "task": """
import asyncio, time
import scoped_lane as sl

async def blocks():
    while True:
        with sl.region("blocking"):
            time.sleep(2)
        await asyncio.sleep(0)

async def waits():
    with sl.region("waiting"):
        await asyncio.sleep(1000)

async def main():
    await asyncio.gather(waits(), blocks())

asyncio.run(main())
""",
    "greenlet": """
import threading, time
import gevent
import scoped_lane as sl

def blocks():
    while True:
        with sl.region("blocking"):
            time.sleep(2)
        gevent.sleep(0)

def waits():
    with sl.region("waiting"):
        gevent.sleep(1000)

threading.Thread(target=threading.Event().wait, daemon=True).start()
gevent.get_hub().start_periodic_monitoring_thread()
gevent.joinall([gevent.spawn(waits), gevent.spawn(blocks)])
""",
}
needs_greenlet = pytest.mark.skipif(not installed("gevent"), reason="gevent is not installed")


@pytest.fixture
def live(sl, place, monkeypatch):
    monkeypatch.setenv("SCOPED_LANE_RUNDIR", str(place.rundir))
    return sl.live


def test_rows_are_dicts_with_what_the_reply_said_of_itself(live, sl, scripts, service):  # L17
    program = service.start(scripts.python, scripts.write(WAITS), "50", **scripts.env)
    blocked = wait_until(lambda: [row for row in live.tasks(pid=program.pid) if row["stack"] == ["blocking"]])
    assert [(row["state"], row["coro_name"]) for row in blocked] == [("running", "blocks")]
    rows = live.lanes(state="suspended")
    assert len([row for row in rows if row["stack"] == ["db"]]) == 50
    assert rows.trust["lost"] == 0 and rows.time_ns > 0 and rows.generation is not None
    assert {row["pid"] for row in live.processes()} == {program.pid}
    groups = {tuple(row["stack"]): row["lanes"] for row in live.where()}
    assert groups[("db",)] == 50 and groups[("blocking",)] == 1
    regions = {row["name"]: row["open"] for row in live.Daemon(service.rundir).regions()}
    assert regions == {"db": 50, "blocking": 1, "everything": 1, "started": 0}
    for table, fields in live.TABLES.items():
        rows = getattr(live, table)()
        assert isinstance(rows, list) and all(list(row) == fields.split() for row in rows), table
        assert rows or table == "loss"  # which has its turn below
    path = live.Daemon(service.rundir).snapshot(scripts.path / "now.h5")
    assert sl.open(path)["started"][0].num_calls == 1
    program.kill()
    program.wait()
    wait_until(lambda: all(row["state"] not in ("live", "deaf") for row in live.processes()))
    with pytest.raises(ValueError, match="which run"):
        live.Daemon(service.rundir).finish()


@pytest.mark.parametrize("kind", ["task", pytest.param("greenlet", marks=needs_greenlet)])
def test_the_lane_that_blocks_its_loop_is_named_within_a_second_while_it_does(scripts, service, kind):  # L23, L24
    program = service.start(scripts.python, scripts.write(BLOCKS[kind]), **scripts.env)

    def named():
        rows = json.loads(service.command("stuck", "--after", "0.5", "--json"))["rows"]
        return [row for row in rows if row["region"] == "blocking" and row["quiet_ns"] < 1e9] and rows

    # In one of its two seconds at the latest, on a machine that has much else to do; in each it is the row that says since when.
    rows = {row["region"]: row for row in wait_until(named, 60)}
    blocks, waits = rows["blocking"], rows["waiting"]
    assert set(rows) == {"blocking", "waiting"}, "no thread, no hub, nobody who only monitors"
    assert (blocks["state"], blocks["stack"], waits["state"], waits["stack"]) == ("running", ["blocking"], "suspended", ["waiting"])
    tasks = {row["index"]: row for row in service.rows("tasks")}
    found = tasks[blocks["task_index"]]
    assert (found["kind"], found["coro_name"], blocks["pid"]) == (kind, "blocks", program.pid) and found["name"] in blocks["label"]
    assert found["longest_step_ns"] >= 0.5e9, "the one in progress counts"
    wait_until(lambda: {tuple(row["stack"]): row["lanes"] for row in service.rows("where")} == {("blocking",): 1, ("waiting",): 1})
    ends = lambda region: [line for line in service.command("top").splitlines() if line.rstrip().endswith(region)]  # noqa: E731
    wait_until(lambda: all(len(ends(region)) == 1 for region in rows), what="both are in top, with their regions")
    program.kill()
    program.wait()


@needs_greenlet
def test_a_thousand_greenlets_that_switch_are_each_told_truly_to_many_who_look(scripts, service):  # L27
    program = service.start(
        scripts.python,
        scripts.write(
            """
import os
import scoped_lane as sl
from greenlet import getcurrent, greenlet

def works():
    while not over:
        with sl.region("inside"):
            getcurrent().parent.switch()

ones, over, rounds = [greenlet(works) for _ in range(1000)], False, 1
for one in ones:
    one.switch()
print("all", flush=True)
while not os.path.exists("stop"):
    rounds += 1
    for one in ones:
        one.switch()
over = True
for one in ones:
    one.switch()
print(rounds)
"""
        ),
        **scripts.env,
    )
    wait_until(lambda: program.stdout_text == "all\n")
    known = wait_until(lambda: len(rows := service.rows("tasks?kind=greenlet")) == 1000 and rows)

    def look():
        before = known
        for _ in range(5):
            rows = service.rows("tasks?kind=greenlet")
            assert [row["index"] for row in rows] == [row["index"] for row in known]
            for row, earlier in zip(rows, before):
                assert row["steps"] >= earlier["steps"] and row["running_ns"] >= earlier["running_ns"]
                assert row["moving"] or row["stack"] in (["inside"], []) and row["state"] in ("running", "suspended")
                assert row["stack"] or row["moving"] or row["state"] == "running", "one that is suspended is inside"
            before = rows
        wait_until(lambda: service.rows("tasks?kind=greenlet")[500]["steps"] > before[500]["steps"], what="it goes on")

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for looking in [pool.submit(look) for _ in range(8)]:
            looking.result()
    (scripts.path / "stop").touch()
    program.ends()
    rounds = int(program.stdout_text.split()[1])
    file = RunFile(service.run_file())
    (process,) = file.table("processes")
    assert (process["produced"], process["unmatched"], process["crossing"]) == (1000 * rounds, 0, 0)
    assert process["stored"] + process["lost"] == process["produced"] and file.calls("inside") == process["stored"]
    with h5py.File(file.path) as h5:
        assert set(h5["task_table/steps"][()].tolist()) == {rounds + 1}


def test_top_has_busy_threads_first_and_idle_pool_threads_in_one_line(scripts, service):  # L07
    program = service.start(
        scripts.python,
        scripts.write(
            """
import concurrent.futures, threading
import scoped_lane as sl
condition = threading.Condition()

def waits():
    with condition:
        condition.wait()

def burns():
    with sl.region("busy"):
        while True:
            pass

with concurrent.futures.ThreadPoolExecutor(200) as pool:
    for _ in range(200):
        pool.submit(waits)
    threading.Thread(target=burns, name="burner").start()
"""
        ),
        **scripts.env,
    )

    def shown():
        lines = service.command("top").splitlines()
        lanes = [line for line in lines if "burner" in line or "idle" in line]
        is_burner = lanes and "burner" in lanes[0] and "running" in lanes[0] and lanes[0].rstrip().endswith("busy")
        return len(lanes) == 2 and is_burner and "200 idle" in lanes[1]

    wait_until(shown, what="the busy one first, and the idle ones in one line")
    program.kill()
    program.wait()


def test_long_tables_come_over_their_pages(live, scripts, service):
    program = service.start(
        scripts.python,
        scripts.write(
            """
import time
import scoped_lane as sl
for i in range(3000):
    with sl.region(f"region {i}"):
        pass
time.sleep(1000)
"""
        ),
        **scripts.env,
    )
    wait_until(lambda: len(live.regions()) == 3000)
    assert len({row["name"] for row in live.rows("regions", limit=100)}) == 3000
    program.kill()
    program.wait()


def test_private_daemons_are_found_too(live, scripts, place):
    program = place.start(place.lane, "run", "-o", "run.h5", "--", scripts.python, scripts.write(WAITS), "2", **scripts.env)

    def seen():
        try:
            return len([row for row in live.tasks() if row["stack"] == ["db"]]) == 2
        except ConnectionError:
            return False

    wait_until(seen)
    (daemon,) = live.daemons()
    assert daemon.rundir != str(place.rundir) and str(place.rundir) in daemon.rundir
    place.end_processes(lambda pid: pid != program.pid and b"script.py" in open(f"/proc/{pid}/cmdline", "rb").read())
    program.ends(status=None)


@pytest.fixture
def opened(sl, monkeypatch):
    """One for each connection that this process has opened."""
    from scoped_lane import files

    found, connect = [], files._Connection.connect
    monkeypatch.setattr(files._Connection, "connect", lambda self: found.append(1) or connect(self))
    return found


def test_who_asks_again_keeps_the_connection(live, service, opened):  # L27
    daemon = live.Daemon(service.rundir)
    for _ in range(10):
        assert daemon.status()[0]["pid"] == service.daemon.pid
    assert len(opened) == 1
    for _ in range(10):
        live.status()
    assert len(opened) == 2
    again = pickle.loads(pickle.dumps(daemon))
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert len({row["pid"] for rows in pool.map(lambda _: again.status(), range(200)) for row in rows}) == 1
    assert len(opened) <= 2 + 8


def test_a_connection_that_was_closed_meanwhile_is_opened_again(live, service, opened):
    first = live.Daemon(service.rundir)
    first.status()
    service.end_processes(lambda pid: pid == service.daemon.pid)
    with pytest.raises(ConnectionError, match="no scoped-laned answers"):
        first.status()
    service.daemon = service.serve("--idle-timeout", "1")
    assert first.status()[0]["pid"] == service.daemon.pid
    wait_until(lambda: live.Daemon(service.rundir).status()[0]["connections"] == 1, what="it was idle for too long")
    first.status()
    many = [live.Daemon(service.rundir) for _ in range(40)]
    for daemon in many + many:
        assert daemon.status()[0]["pid"] == service.daemon.pid, "one user may have 16"


def test_the_child_of_a_fork_asks_over_a_connection_of_its_own(live, service, opened):
    daemon = live.Daemon(service.rundir)
    daemon.status()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            for _ in range(100):
                daemon.status()
            os._exit(len(opened) - 2)
        os._exit(100)
    for _ in range(100):
        daemon.status()
    assert os.waitpid(child, 0)[1] == 0 and len(opened) == 1


def test_a_refused_connection_is_told_why(live, place, monkeypatch):
    from scoped_lane import files

    place.daemon = place.serve("--header-timeout", "60")

    def connect_and_wait(self, connect=files._Connection.connect):
        connect(self)
        wait_until(lambda: not self.is_quiet(), what="refused before it is asked")

    monkeypatch.setattr(files._Connection, "connect", connect_and_wait)
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            silent = stack.enter_context(socket.socket(socket.AF_UNIX))
            silent.connect(str(place.rundir / "query.sock"))
        for _ in range(5):
            with pytest.raises(ValueError, match="too many connections of this user"):
                live.Daemon(place.rundir).status()


def test_who_asks_leaves_nothing_to_complain_of(service, scripts):
    words = "import sys; from scoped_lane import live; daemon = live.Daemon(sys.argv[1]); print(len(daemon.status()), len(live.status()))"
    done = service.run(PYTHON, "-X", "dev", "-W", "error", "-c", words, service.rundir, **scripts.env | {"SCOPED_LANE_RUNDIR": service.rundir})
    assert (done.stdout_text, done.stderr_text) == ("1 1\n", "")


def test_what_cannot_be_had_is_said(live, sl, tmp_path, monkeypatch):
    with pytest.raises(ConnectionError, match="no scoped-laned listens"):
        live.tasks()
    with pytest.raises(ConnectionError, match="no scoped-laned answers"):
        live.Daemon(tmp_path).tasks()
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pandas"):
        live.Rows([], {}).frame()
    monkeypatch.setitem(sys.modules, "scope_profiler", None)
    with pytest.raises(ImportError, match="scope-profiler"):
        sl.open("run.h5")
    with pytest.raises(AttributeError):
        sl.nothing_of_that_name
    assert "open" not in sl.__all__


PANDAS = """
array = lambda values, dtype: (dtype, values)

class DataFrame(dict):
    def __len__(self):
        return len(self["pid"])
"""


@pytest.mark.parametrize("pandas", ["stands in", pytest.param("real", marks=pytest.mark.skipif(not installed("pandas"), reason="pandas is not installed"))])
def test_a_frame_has_a_row_for_each_and_whole_numbers_stay_whole(service, scripts, pandas):
    if pandas == "stands in":
        (scripts.path / "pandas.py").write_text(PANDAS)
    said = service.run(
        PYTHON,
        scripts.write(
            """
import asyncio, sys
import scoped_lane as sl
from scoped_lane import live
def whole(column):
    kind, values = column if sys.argv[1] == "stands in" else (str(column.dtype), column.tolist())
    return kind, [isinstance(value, int) for value in values]
async def main():
    await asyncio.create_task(asyncio.sleep(0))
    while [row["done_ns"] is None for row in live.tasks()] != [True, False]:
        await asyncio.sleep(0.001)
    frame = live.tasks().frame()
    print(type(frame).__name__, len(frame), list(frame["coro_name"]), whole(frame["done_ns"]), [type(stack) for stack in frame["stack"]])
    print(len(live.Rows([], {}).frame()) if sys.argv[1] == "real" else 0)
    print(list(live.tasks(kind="none such").frame()) == list(live.tasks().frame()) == list(live.tasks()[0]))
with sl.region("mine"):
    asyncio.run(main())
deep = sl.region("deep").id
for act in (sl.begin, sl.end):
    for _ in range(10000):
        act(deep)
while not (lost := live.loss()):
    pass
print(list(lost[0]) == live.TABLES["loss"].split(), lost[0]["reason"])
"""
        ),
        pandas,
        **scripts.env,
    )
    assert said.stdout_text == f"DataFrame 2 ['main', 'sleep'] ('Int64', [False, True]) {[list] * 2}\n0\nTrue\nTrue too deep\n"


SERVES = """
import asyncio, sys, time
import scoped_lane as sl

async def handler(n):
    await asyncio.sleep(0)
    if n % 20 == 7:
        time.sleep(0.3)
    await asyncio.sleep(0)

async def main():
    for n in range(100):
        await asyncio.gather(handler(n))
    print("waits", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)

with sl.region("serve"):
    asyncio.run(main())
"""


def test_a_handler_that_calls_what_blocks_now_and_then_is_seen_while_it_serves(live, scripts, service):  # L14
    program = service.start(scripts.python, scripts.write(SERVES), stdin=subprocess.PIPE, **scripts.env)
    wait_until(lambda: "waits" in program.stdout_text)

    def slow():
        return [row for row in live.tasks(pid=program.pid) if row["coro_name"] == "handler" and row["longest_step_ns"] >= 3e8]

    wait_until(lambda: len(slow()) == 5, what="the five that block are known")
    under, steps = 0, 0

    def told():
        nonlocal under, steps
        lines = [line.split(" ") for line in service.ask("/metrics")[1].splitlines() if 'kind="task"' in line]
        under = sum(float(line[-1]) for line in lines if line[0].startswith("scoped_lane_task_step_seconds_bucket") and 'le="0.25"' in line[0])
        steps = sum(float(line[-1]) for line in lines if line[0].startswith("scoped_lane_task_step_seconds_count"))
        longest = [float(line[-1]) for line in lines if line[0].startswith("scoped_lane_task_longest_step_seconds")]
        return steps >= 300 and longest and longest[0] >= 0.3

    wait_until(told)
    assert steps - under >= 5
    program.stdin.close()
    program.ends()
