"""What the end-to-end tests stand on: built programs, a directory and a runtime directory of their own for each test,
a service in it, waiting for conditions, and a look for leftovers afterwards.

Every process a test starts through `place` carries the test's mark in its environment; at the end whatever still runs
with it is killed, and a segment left in /dev/shm by a process of the test fails the test.
"""

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("SL_BUILD", ROOT / "obj" / "release")).resolve()
SHM = Path("/dev/shm")
MARK = "SL_TEST_MARK"
DEADLINE = 30.0


def wait_until(condition, deadline=DEADLINE, what=None):
    """Returns the first true value of condition(); fails the test when there is none within `deadline` seconds."""
    end = time.monotonic() + deadline
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            pytest.fail(f"not within {deadline} s: {what or getattr(condition, '__name__', condition)} (last: {value!r})")
        time.sleep(0.01)


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout=DEADLINE):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.path))


class Program(subprocess.Popen):
    """A program that a test started; what it says goes to files, so that no pipe can fill up."""

    def __init__(self, place, words, stdin=subprocess.DEVNULL, env=None, session=False):
        place.count += 1
        self.words = [str(word) for word in words]
        self.out = place.path / f"{place.count}.{Path(self.words[0]).name}.out"
        self.err = self.out.with_suffix(".err")
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            super().__init__(
                self.words, stdin=stdin, stdout=out, stderr=err, cwd=place.path, env=env or place.env, start_new_session=session
            )

    @property
    def stdout_text(self):
        return self.out.read_text(errors="replace")

    @property
    def stderr_text(self):
        return self.err.read_text(errors="replace")

    def ends(self, status=0, deadline=120):
        """Waits for its end; fails the test when the exit status is another one (status None: any). Returns itself."""
        try:
            self.wait(deadline)
        except subprocess.TimeoutExpired:
            pytest.fail(f"still running after {deadline} s: {' '.join(self.words)}\n{self.stderr_text}")
        assert status is None or self.returncode == status, (
            f"{' '.join(self.words)}: exit status {self.returncode}\n{self.stdout_text}\n{self.stderr_text}"
        )
        return self


class Place:
    """A test's own corner: `path` to work in, `rundir` for sockets, `output` for run files, `env` for its processes."""

    def __init__(self, path):
        self.path = path
        self.output = path / "runs"
        self.output.mkdir()
        self.tallies = path / "tallies"
        self.tallies.mkdir()
        self.rundir = Path(tempfile.mkdtemp(prefix="sl-", dir="/tmp"))  # short: a socket path has 107 bytes
        self.mark = uuid.uuid4().hex
        self.born = time.time()
        self.count = 0
        self.env = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("SCOPED_LANE", "OMPI_", "PMIX_", "PMI_", "SLURM_", "MAKE", "MFLAGS", "XDG_RUNTIME_DIR"))
        }
        self.env |= {MARK: self.mark, "SCOPED_LANE_RUNDIR": str(self.rundir), "SL_TALLY": str(self.tallies)}

    # -- programs

    def start(self, *words, stdin=subprocess.DEVNULL, **env):
        """Starts a program in `path`; keywords are added to its environment, None takes a variable away."""
        merged = {k: str(v) for k, v in (self.env | env).items() if v is not None}
        return Program(self, words, stdin, merged)

    def run(self, *words, status=0, deadline=120, **env):
        return self.start(*words, **env).ends(status, deadline)

    @property
    def laned(self):
        return BUILD / "bin" / "scoped-laned"

    @property
    def lane(self):
        return BUILD / "bin" / "scoped-lane"

    def api(self, name):
        return BUILD / "tests" / "api" / name

    def example(self, name):
        return BUILD / "examples" / name

    def tallied(self, name):
        return BUILD / "tests" / "tallied" / name

    def mpirun(self, ranks, *words):
        """The words of an mpirun that works for root and on few cores."""
        return ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", ranks, *words]

    def command(self, *words, status=0, **env):
        """Runs a scoped-lane subcommand and returns what it printed."""
        return self.run(self.lane, *words, status=status, **env).stdout_text

    # -- the service

    def serve(self, *options, session=True, **env):
        """Starts scoped-laned here and waits until it says that it is ready. Beside ranks of MPI that run on and on it needs session=False:
        they yield all the time, and Linux 6.18 then keeps other sessions from the processor for seconds (doctor says so too)."""
        words = [self.laned, "--rundir", self.rundir, "--output", self.output, *options]
        env = {name: str(value) for name, value in (self.env | env).items()}
        daemon = Program(self, words, env=env, session=session)  # as services have: the kernel is fair to sessions first

        def ready():
            assert daemon.poll() is None, f"scoped-laned ended with {daemon.returncode}: {daemon.stderr_text}"
            return "ready" in daemon.stderr_text

        wait_until(ready, what="scoped-laned says it is ready")
        return daemon

    def ask(self, path, method="GET"):
        """(status, body) of a request over query.sock."""
        connection = UnixConnection(self.rundir / "query.sock")
        try:
            connection.request(method, path)
            reply = connection.getresponse()
            return reply.status, reply.read().decode()
        finally:
            connection.close()

    def query(self, path):
        """The reply to GET `path`, parsed; the test fails unless it is a 200."""
        status, body = self.ask(path)
        assert status == 200, f"GET {path}: {status} {body}"
        return json.loads(body)

    def rows(self, table):
        """All rows of /v1/<table>, over its pages."""
        rows, separator, cursor = [], "&" if "?" in table else "?", None
        while True:
            reply = self.query(f"/v1/{table}" + (f"{separator}cursor={cursor}" if cursor is not None else ""))
            rows += reply["rows"]
            cursor = reply["cursor"]
            if cursor is None:
                return rows

    def run_files(self, count=1, deadline=DEADLINE):
        """The files in the output directory once there are `count` of them; fails when there are more."""
        found = wait_until(
            lambda: len(files := sorted(self.output.glob("[!.]*.h5"))) >= count and files,
            deadline,
            f"{count} run file(s) in {self.output}",
        )
        assert len(found) == count, f"more run files than {count}: {found}"
        return found

    def run_file(self, deadline=DEADLINE):
        return self.run_files(1, deadline)[0]

    # -- the end

    def processes(self, program=None):
        """Pids of everything that still runs with this test's mark; of a program: its file's name."""
        mark, found = f"{MARK}={self.mark}".encode(), []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    marked = mark in (entry / "environ").read_bytes().split(b"\0")
                    if marked and (program is None or os.path.basename(os.readlink(entry / "exe")) == program):
                        found.append(int(entry.name))
                except OSError:
                    pass
        return found

    def segments(self, directory=SHM):
        """Segments made since this test began, by processes that have ended or carry its mark."""
        found, alive = [], {str(pid) for pid in self.processes()}
        for path in directory.glob(f"scoped-lane.{os.getuid()}.*"):
            try:
                owner = path.name.split(".")[2]
                with open(path, "rb") as segment:
                    place = segment.read(512)[368:480].split(b"\0")[0].decode()  # docs/format.md: which daemon it is meant for
                ours = place == str(self.rundir) or place.startswith(f"{self.rundir}/")
                if ours and (owner in alive or not os.path.exists(f"/proc/{owner}")):
                    found.append(path)
            except FileNotFoundError:
                pass
        return found

    def end_processes(self, chosen, patience=15.0):
        """Asks those processes to end, then makes them."""
        pids = [pid for pid in self.processes() if chosen(pid)]
        for number in (signal.SIGCONT, signal.SIGTERM, signal.SIGKILL):
            for pid in pids:
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    pass
            end = time.monotonic() + (0 if number == signal.SIGCONT else patience)
            while time.monotonic() < end and set(pids) & set(self.processes()):
                time.sleep(0.02)

    def finish(self):
        """Ends what still runs, the daemons last, so that they can take the others' segments away. Returns what is left."""

        def is_daemon(pid):
            try:
                return os.path.basename(os.readlink(f"/proc/{pid}/exe")) == "scoped-laned"
            except OSError:
                return False

        self.end_processes(lambda pid: not is_daemon(pid), 5)
        self.end_processes(lambda pid: True)
        shutil.rmtree(self.rundir, ignore_errors=True)
        end = time.monotonic() + 5
        while (left := self.segments()) and time.monotonic() < end:
            time.sleep(0.02)
        for path in left:
            path.unlink(missing_ok=True)
        return [path.name for path in left]


@contextlib.contextmanager
def a_place(path):
    place = Place(path)
    try:
        yield place
    finally:
        left = place.finish()
    assert not left, f"segments left in /dev/shm: {left}"


@pytest.fixture
def place(tmp_path):
    with a_place(tmp_path) as place:
        yield place


@pytest.fixture
def service(place):
    """A place with a scoped-laned in it, as `place.daemon`."""
    place.daemon = place.serve()
    return place
