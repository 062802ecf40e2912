"""A program is killed at each of its testpoints, and the file says what it had done: every call once, at most one in flight per
thread, open what was open. All of them at one service, some at a time."""

import contextlib
import itertools
import os
import random
import signal
import threading
import time

import pytest
from conftest import wait_until
from runfile import RunFile
from scenes import agrees, replay
from testpoints import CLIENT, a_corner, all_at_once, at_testpoint, count_hits, points_of, result_of

pytestmark = [pytest.mark.beside, pytest.mark.timeout(900)]
POINTS = points_of(CLIENT)

# What reaches them, the first of these that does so.
PLAYS = {
    "calls": ["plain", "names", "deep", "crossing", "unmatched", "jump", "handlers"],
    "lanes": ["tasks", "moving", "threads"],
    "rows": ["recycling"],
    "no ring": ["no_ring"],
    "full ring": ["names", "full"],
    "tables": ["tables"],
    "void": ["handlers"],
    "threads": ["-t", "3", "plain", "crossing", "tasks", "moving", "threads", "handlers"],
}
KILLS = ["first", "later", "in threads"]


def published(corner, key, pid):
    """The file of a run whose only process has ended; None when it never registered."""
    wait_until(lambda: not [p for p in corner.segments() if p.name.split(".")[2] == str(pid)], what="its segment is gone")
    rows = corner.rows(f"runs?run={key}")
    if not rows:
        return None
    row = wait_until(lambda: [r for r in corner.rows(f"runs?run={key}") if r["state"] in ("published", "failed")], what="a file")[0]
    assert row["state"] == "published", row
    return row["file"]


@pytest.fixture(scope="module")
def corner(tmp_path_factory):
    with a_corner(tmp_path_factory.mktemp("client")) as corner:
        corner.daemon = corner.serve()
        yield corner


@pytest.fixture(scope="module")
def stage(tmp_path_factory, corner):
    """A play's name -> where it is played, and its environment. One that fills its ring stops the daemon while it does so, and gets one
    for itself."""
    lock = threading.Lock()
    with a_corner(tmp_path_factory.mktemp("stopped")) as other:
        other.daemon = other.serve()
        other.tallies = corner.tallies
        other.env["SL_TALLY"] = str(corner.tallies)

        @contextlib.contextmanager
        def stage(name):
            if name != "full ring":
                yield corner, {}
                return
            with lock:
                yield other, {"SCOPED_LANE_RING": "16K", "SL_STOP": other.daemon.pid}

        yield stage


@pytest.fixture(scope="module")
def reached(stage):
    """{name of a play: {testpoint: hits}}"""

    def count(name):
        with stage(name) as (place, env):
            return count_hits(place, CLIENT, place.api("scenes"), *PLAYS[name], **env)

    return {name: result_of(counts, name) for counts in [all_at_once(count, list(PLAYS))] for name in PLAYS}


def plan(reached, point, kill):
    """(play, number of the hit), None when there is no such kill."""
    plays = [name for name in PLAYS if reached[name][point]]
    assert plays, f"no scene comes to {point}: tests/api/scenes.c needs one that does"
    if kill == "first":
        return plays[0], 1
    name = plays[0] if kill == "later" else "threads"
    hits = reached[name][point]
    return (name, random.Random(point + kill).randint(2, hits)) if hits > 1 else None


def killed(place, env, case, name, hit):
    """(pid, the file) of a play that is killed at the hit-th time it comes to a testpoint, or the last time it does. How often that is
    depends on time, of the daemon's answer too, which comes after a short play's end where the machine is busy."""
    point, kill = case
    deadline = time.monotonic() + 60
    for attempt in itertools.count():
        key = f"{point}-{kill}-{hit}-{attempt}".replace(" ", "-")
        words = [place.api("scenes"), *PLAYS[name]]
        killer = at_testpoint(place, CLIENT, POINTS[point], *words, hit=hit, SCOPED_LANE_RUN=key, **env)
        killer.program.ends(status=None)
        os.kill(place.daemon.pid, signal.SIGCONT)
        if killer.hit:
            break
        assert time.monotonic() < deadline, f"{name} did not come to {point}, the last of {attempt + 1} times"
        hit = max(hit // 2, 1)
    pid = killer.hit[0]
    place.pids.add(pid)
    return pid, published(place, key, pid)


@pytest.fixture(scope="module")
def kills(stage, reached):
    """{(testpoint, which kill): (pid, the file) or None}"""

    def one(case):
        planned = plan(reached, *case)
        if not planned:
            return None
        name, hit = planned
        with stage(name) as (place, env):
            return killed(place, env, case, name, hit)

    cases = [(point, kill) for point in POINTS for kill in KILLS]
    return all_at_once(one, cases)


@pytest.mark.parametrize("kill", KILLS)
@pytest.mark.parametrize("point", POINTS)
def test_killed_at(corner, kills, point, kill):
    result = result_of(kills, (point, kill))
    if result is None:
        pytest.skip("there is no such hit")
    pid, path = result
    said = replay(corner.tallies / f"{pid}.log") if (corner.tallies / f"{pid}.log").exists() else None
    if path is None:
        assert said.ended == 0, f"{said.ended} calls were made, and there is no file"
        return
    file = RunFile(path)
    row = next(row for row in file.table("processes") if row["pid"] == pid)
    assert row["state"] in ("killed", "vanished"), row
    if row["rank"] < 0:  # no calls: the file has no lanes of it
        assert said.ended <= row["lost"], row
        return
    agrees([file], said)


def test_killed_behind_a_void_call(corner):
    """It was begun, and the append that would have counted it as lost never came: it is in flight."""
    pid, path = killed(corner, {}, ("enter_depth", "behind a void call"), "void", 2)
    file = RunFile(path)
    assert [row["count"] for row in file.table("loss") if row["reason"] == "in flight"] == [1]
    agrees([file], replay(corner.tallies / f"{pid}.log"))


def test_nothing_is_left(corner, kills):
    assert all(kills)
    wait_until(lambda: not corner.leftovers(), what=f"nothing is left, not {corner.leftovers()}")
    assert corner.daemon.poll() is None
