"""One round of torture: programs under load, a service or `scoped-lane run`, kills at random moments; then everything is let come to
its end, and the books have to balance. The seed decides what happens, though not to the microsecond when."""

import collections
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import time

from conftest import SHM, wait_until
from load import Books, Load
from testpoints import a_corner

PATIENCE = 60.0
Outcome = collections.namedtuple("Outcome", ["calls", "kills"])


class Round:
    def __init__(self, corner, seed):
        self.corner, self.random = corner, random.Random(seed)
        self.apps, self.story = [], []
        self.kills = 0
        self.daemon = None

    def note(self, *words):
        self.story.append(" ".join(map(str, words)))

    # -- what happens

    def serve(self):
        self.daemon = self.corner.serve()

    def start_app(self):
        words = [self.corner.api("load"), "-t", self.random.randint(1, 3), "-p", self.random.choice([200, 500, 1000])]
        environment = {"SCOPED_LANE_RING": self.random.choice(["16K", "64K", "1M"])}
        self.note("starts", *words[1:], environment)
        app = self.corner.start(*words, stdin=subprocess.PIPE, **environment)
        self.apps.append(app)
        wait_until(lambda: list(SHM.glob(f"scoped-lane.*.{app.pid}.*")), what="the program is registered")

    def live(self):
        return [app for app in self.apps if app.poll() is None]

    def kill_app(self):
        if self.live():
            app = self.random.choice(self.live())
            self.note("kills program", app.pid)
            self.kill(app.pid)
            app.wait()

    def kill_daemon(self):
        self.note("kills the daemon")
        self.kill(self.daemon.pid)
        self.daemon.wait()

    def end_daemon(self):
        self.note("ends the daemon")
        self.daemon.terminate()
        self.daemon.ends(0, deadline=PATIENCE)

    def kill_both(self):
        for kill in self.random.sample([self.kill_app, self.kill_daemon], 2):
            kill()

    def kill_converter(self):
        """Where one is at work; its daemon keeps the spool, and the next one finishes it."""
        for pid in children(self.daemon.pid):
            self.note("kills the converter")
            self.kill(pid)

    def kill(self, pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            self.kills += 1

    def kill_all(self, program):
        self.note("kills", program)
        for pid in self.corner.processes():
            if program_of(pid) == program:
                self.kill(pid)

    def pause(self, longest):
        time.sleep(self.random.uniform(0, longest))

    # -- the round

    def play(self):
        if self.random.random() < 0.25:
            self.play_by_run()
        else:
            self.play_by_service()

    def play_by_run(self):
        """One command; `scoped-lane run` looks after its daemon. What a killed converter leaves, salvage makes a file of."""
        words = ["-t", self.random.randint(1, 3), "-p", self.random.choice([200, 500, 1000])]
        file = self.corner.output / "run.h5"
        run = self.corner.start(self.corner.lane, "run", "-o", file, "--", self.corner.api("load"), *words, stdin=subprocess.PIPE)
        self.note("run", *words)
        wait_until(lambda: list(self.corner.tallies.glob("*.load")) and self.corner.segments(), PATIENCE, "the program is registered")
        for _ in range(self.random.randint(1, 3)):
            self.pause(0.6)
            self.kill_all(self.random.choice(["scoped-laned", "scoped-laned", "load"]))
        run.stdin.close()
        if self.random.random() < 0.5:
            self.pause(0.1)
            self.kill_all("scoped-laned")
        run.ends(None, deadline=PATIENCE)
        deadline = time.monotonic() + 5
        while self.corner.leftovers() and program_running(self.corner, "scoped-laned") and time.monotonic() < deadline:
            time.sleep(0.05)  # it removes its directory when it ends
        if run.returncode == 1:
            self.note("salvage")
            self.corner.command("salvage")
        else:
            assert "calls of 1 process" in run.stderr_text, run.stderr_text
        left = self.corner.leftovers()  # by a daemon that was killed after all was done
        explained = {row["path"] for row in json.loads(self.corner.command("gc", "-n", "--json"))} if left else set()
        assert set(left) <= explained, (left, explained, run.stderr_text)
        for path in left:
            shutil.rmtree(path)

    def play_by_service(self):
        self.serve()
        for _ in range(self.random.randint(1, 3)):
            self.start_app()
        for _ in range(self.random.randint(1, 4)):
            self.pause(0.4)
            event = self.random.choice(
                [self.kill_app, self.kill_daemon, self.kill_daemon, self.kill_both, self.end_daemon, self.kill_converter]
            )
            event()
            if self.daemon.poll() is not None:
                self.pause(0.3)
                self.serve()
            if self.random.random() < 0.3:
                self.start_app()
        self.pause(0.3)
        self.end()

    def end(self):
        for app in self.live():
            app.stdin.close()
        for app in self.apps:
            app.wait(PATIENCE)
        deadline = time.monotonic() + PATIENCE
        while left := self.corner.leftovers():
            if "is kept" in self.daemon.stderr_text:  # a converter was killed
                self.end_daemon()
                self.serve()
            assert time.monotonic() < deadline, f"left after {PATIENCE} s: {left}\n{self.daemon.stderr_text}"
            time.sleep(0.05)
        self.end_daemon()
        assert not self.corner.leftovers(), self.corner.leftovers()

    def check(self):
        books = Books(self.corner.output.glob("*.h5"))
        for path in self.corner.tallies.glob("*.load"):
            load = Load(path)
            assert load.pid in books.rows or load.begun == 0, f"nothing is known of {load.pid}"
            if load.pid in books.rows:
                books.agree(load)
        return Outcome(sum(books.calls.values()), self.kills)


def program_of(pid):
    with contextlib.suppress(OSError):
        return os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    return ""


def program_running(corner, name):
    return any(program_of(pid) == name for pid in corner.processes())


def children(pid):
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(word) for word in file.read().split()]
    return []


def play(directory, seed):
    """Plays the round of a seed; its Outcome. What went wrong is raised with the story."""
    with a_corner(directory) as corner:
        round = Round(corner, seed)
        try:
            round.play()
            return round.check()
        except BaseException as error:
            heard = "\n".join(f"{path.name}:\n{path.read_text()}" for path in sorted(directory.glob("*.scoped-lane*.err")))
            raise AssertionError(f"seed {seed}: {'; '.join(round.story)}: {error}\n{heard}") from error
