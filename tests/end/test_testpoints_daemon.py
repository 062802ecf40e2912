"""The daemon, or its converter, is killed at each of its testpoints, in each of the ways a run can go. The next daemon goes on: every
call is in the file once, one run is one file, and nothing is left. Each case has a place of its own, some at a time."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
import zlib

import pytest
from conftest import DEADLINE
from runfile import RunFile
from scenes import agrees, replay
from testpoints import DAEMON, a_corner, all_at_once, at_testpoint, points_of, result_of

pytestmark = [pytest.mark.beside, pytest.mark.timeout(900)]
POINTS = points_of(DAEMON)
PLAYS = ["plain", "crossing", "tasks", "moving", "threads"]


class Story:
    """A service, armed or not, and a program that it records. Whatever waits here also starts the next daemon when one was killed."""

    def __init__(self, corner, addresses, hit):
        self.corner = corner
        self.addresses, self.hit = addresses, hit
        self.killer = self.daemon = self.app = None
        self.options = []

    # -- daemons

    def words(self):
        return [self.corner.laned, "--rundir", self.corner.rundir, "--output", self.corner.output, *self.options]

    def serve(self, armed=False):
        if armed:
            self.killer = at_testpoint(self.corner, DAEMON, self.addresses, *self.words(), hit=self.hit, follow=True)
            self.daemon = self.killer.program
        else:
            self.daemon = self.corner.start(*self.words())
        daemon = self.daemon
        self.wait(lambda: self.daemon is not daemon or self.answers(), "the daemon is ready")

    def answers(self):
        try:
            return "ready" in self.daemon.stderr_text and self.corner.query("/v1/status")
        except OSError:
            return False

    def has_sampled(self):
        """Only then does the daemon know what the kernel says of a thread; a program that is quicker than its period never is."""
        try:
            return self.answers() and any(row["state"] in ("running", "waiting") for row in self.corner.rows("lanes?idle"))
        except OSError:  # killed over it
            return False

    def asks_to_finish(self):
        try:
            rows = self.answers() and self.corner.rows("processes")
            if not rows:
                return False
            run = rows[0]["run"]
        except OSError:
            return False
        with contextlib.suppress(OSError):  # killed over it
            self.corner.ask(f"/v1/finish?run={run}", "POST")
        return True

    def mend(self):
        """A daemon was killed: the next one. A converter was killed: the daemon keeps the spool, and the next one makes the file."""
        if self.daemon.poll() is not None:
            assert self.killer and self.killer.hit, f"the daemon ended with {self.daemon.returncode}: {self.daemon.stderr_text}"
            self.serve()
        elif "the spool" in self.daemon.stderr_text and "is kept" in self.daemon.stderr_text:
            self.end_daemon()
            self.serve()

    def wait(self, condition, what):
        end = time.monotonic() + DEADLINE
        while not condition():
            assert time.monotonic() < end, f"not within {DEADLINE} s: {what}\n{self.daemon.stderr_text}"
            self.mend()
            time.sleep(0.02)

    def pids_of_daemons(self):
        return [pid for pid in self.corner.processes() if is_daemon(pid)]

    def signal_daemons(self, number):
        for pid in self.pids_of_daemons():
            with_patience(lambda: os.kill(pid, number))

    def end_daemon(self, number=signal.SIGTERM):
        daemon = self.daemon
        self.signal_daemons(number)
        daemon.ends(None, deadline=DEADLINE)

    # -- the program

    def play(self):
        self.app = self.corner.start(self.corner.api("scenes"), "-w", *PLAYS, stdin=subprocess.PIPE)
        self.wait(lambda: "done" in self.app.stdout_text, "the program has played")

    def end_app(self):
        self.app.stdin.close()
        self.wait(lambda: self.app.poll() is not None, "the program ends")
        assert self.app.returncode == 0

    # -- the outcome

    def files(self):
        return sorted((p for p in self.corner.output.glob("[!.]*.h5")), key=os.path.getmtime)

    def settles(self):
        self.wait(lambda: self.files() and not self.corner.leftovers(), f"a file and nothing else, not {self.corner.leftovers()}")
        daemon = self.daemon
        self.signal_daemons(signal.SIGTERM)  # also its end may be where it is killed
        daemon.ends(None, deadline=DEADLINE)
        if daemon.returncode != 0 and self.killer.hit:
            self.serve()
            self.end_daemon()
        assert not self.corner.leftovers(), self.corner.leftovers()
        return self.files()


def is_daemon(pid):
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe")) == "scoped-laned"
    except OSError:
        return False


def with_patience(action):
    try:
        action()
    except ProcessLookupError:
        pass


# ---- how a run can go


def recorded(story):
    story.serve(armed=True)
    story.play()
    story.wait(story.has_sampled, "the daemon has sampled the program")
    story.end_app()
    return story.settles()


def after_a_kill(story):
    story.serve()
    story.play()
    story.end_daemon(signal.SIGKILL)
    story.serve(armed=True)
    story.end_app()
    return story.settles()


def after_both_ended(story):
    story.serve()
    story.play()
    story.signal_daemons(signal.SIGSTOP)
    story.app.stdin.close()
    story.app.ends()
    story.end_daemon(signal.SIGKILL)
    story.serve(armed=True)
    return story.settles()


def across_an_end(story):
    story.serve(armed=True)
    story.play()
    story.wait(story.answers, "the daemon is there")
    story.end_daemon()
    story.serve()
    story.end_app()
    return story.settles()


def across_a_finish(story):
    story.serve(armed=True)
    story.play()
    story.wait(story.asks_to_finish, "the program is known, and its run is to finish")
    story.wait(lambda: story.files() or story.killer.hit, "the first part")
    story.end_app()
    return story.settles()


def beyond_the_limit(story):
    story.options = ["--spool-limit", "20K"]
    return recorded(story)


def by_run(story):
    """scoped-lane run starts the daemon, and the next one."""
    corner = story.corner
    words = [corner.lane, "run", "-o", corner.output / "run.h5", "--", corner.api("scenes"), "-w", *PLAYS]
    story.killer = at_testpoint(
        corner, DAEMON, story.addresses, *words, hit=story.hit, follow=True, stdin=subprocess.PIPE
    )
    story.daemon = story.killer.program
    end = time.monotonic() + DEADLINE
    while "done" not in story.killer.program.stdout_text:
        assert time.monotonic() < end and story.killer.program.poll() is None, story.killer.program.stderr_text
        time.sleep(0.02)
    story.killer.program.stdin.close()
    story.killer.program.ends(None, deadline=2 * DEADLINE)
    if story.killer.program.returncode != 0:  # its converter was killed
        assert "the spool" in story.killer.program.stderr_text, story.killer.program.stderr_text
        corner.command("salvage")
    else:
        assert "calls of 1 process" in story.killer.program.stderr_text, story.killer.program.stderr_text
    left = [p for p in corner.rundir.glob("*") if p.name not in ("spools", "lock")]
    explained = json.loads(corner.command("gc", "-n", "--json")) if left else []
    assert {str(path) for path in left} <= {row["path"] for row in explained}, (left, explained)
    for path in left:
        shutil.rmtree(path)
    assert not corner.leftovers(), corner.leftovers()
    return story.files()


WAYS = [recorded, after_a_kill, after_both_ended, across_an_end, across_a_finish, beyond_the_limit, by_run]


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    return tmp_path_factory.mktemp("daemon")


def tell(places, way, name, addresses, hit):
    """Plays the story; (killer, its files, the logs of its program)."""
    with a_corner(places / f"{way.__name__}-{name}-{hit}") as corner:
        story = Story(corner, addresses, hit)
        files = way(story)
        return story.killer, files, [replay(path) for path in corner.tallies.glob("*.log")]


def check(files, logs):
    assert len(logs) == 1
    agrees([RunFile(path) for path in files], logs[0])


@pytest.fixture(scope="module")
def reached(places):
    """{way: {testpoint: hits}}, and each way is right when nobody is killed."""

    def count(way):
        killer, files, logs = tell(places, way, "all", [a for all in POINTS.values() for a in all], 0)
        counts = killer.counts()
        return {name: sum(counts[a] for a in addresses) for name, addresses in POINTS.items()}, files, logs

    return all_at_once(count, WAYS, workers=4)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_nobody_is_killed(reached, way):
    _, files, logs = result_of(reached, way)
    check(files, logs)


def cases_of(reached):
    """Each testpoint in three of the ways that come to it, in all with SL_LONG."""
    cases = []
    for point in POINTS:
        ways = [way for way in WAYS if not isinstance(reached[way], BaseException) and reached[way][0][point]]
        if "SL_LONG" not in os.environ and len(ways) > 3:
            usual = [way for way in ways if way in (recorded, by_run)]
            others = [way for way in ways if way not in usual]
            ways = usual + [others[zlib.crc32(point.encode()) % len(others)]]
        cases += [(way, point) for way in ways]
    return cases


@pytest.fixture(scope="module")
def kills(places, reached):
    def one(case):
        way, point = case
        return tell(places, way, point, POINTS[point], 1)

    return all_at_once(one, cases_of(reached), workers=4)


@pytest.mark.parametrize("point", POINTS)
def test_every_testpoint_is_killed_at(kills, point):
    ends = [end for (_, at), end in kills.items() if at == point]
    assert any(not isinstance(end, BaseException) and end[0].hit for end in ends), f"no way comes to {point}"


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("point", POINTS)
def test_killed_at(kills, way, point):
    if (way, point) not in kills:
        pytest.skip("it does not come there, or is one of the ways for SL_LONG")
    killer, files, logs = result_of(kills, (way, point))
    if not killer.hit:
        pytest.skip("this time it did not come there")
    if way in (recorded, after_a_kill, after_both_ended, by_run):
        assert len(files) == 1, f"one run, {files}"
    check(files, logs)
