"""What is asked of the daemon over its query socket, and files.

Nothing here raises into the program but what it asked for itself (a configuration that cannot be read).
"""

import contextlib
import http.client
import importlib
import json
import os
import select
import socket
import tempfile
import time
import urllib.parse
import warnings

PATIENCE_S = 30
ADOPTION_S = 5  # a daemon that is busy takes a process up a little later


class _Connection(http.client.HTTPConnection):
    sock = None

    def __init__(self, path):
        super().__init__("localhost", timeout=PATIENCE_S)
        self._path = path

    def __del__(self):
        sock, self.sock = self.sock, None
        if sock:
            sock.close()

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)

    def is_quiet(self):
        """Nothing came behind the reply: no end, and no words about one."""
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        return not poll.poll(0)

    def reply(self, method, target):
        """(status, text); ConnectionError where it was closed for want of a request."""
        with contextlib.suppress(BrokenPipeError):  # who refuses a connection has said why before it is asked
            self.request(method, target)
        reply = self.getresponse()
        text = reply.read()
        if reply.status == http.client.REQUEST_TIMEOUT:
            raise ConnectionError(text.decode(errors="replace").strip())
        return reply.status, text


class Line:
    """To the daemon of a runtime directory. Its connections stay open for the next question: opening and closing one wakes the daemon
    once or twice more, each time in the way of what runs there. Any threads may ask, and the child of a fork: over one of their own."""

    def __init__(self, place):
        self._place, self._idle, self._pid = place, [], os.getpid()

    def __reduce__(self):
        return Line, (self._place,)

    def _take(self):
        if self._pid != os.getpid():
            self._idle, self._pid = [], os.getpid()
        with contextlib.suppress(IndexError):  # another thread may take the last one
            while True:
                connection = self._idle.pop()
                if connection.is_quiet():
                    return connection
        return None

    def _reply(self, connection, method, target):
        status, text = connection.reply(method, target)
        if connection.sock:
            self._idle.append(connection)
        if status != 200:
            raise ValueError(text.decode(errors="replace").strip())
        return json.loads(text)

    def ask(self, path, method="GET", **parameters):
        """The parsed reply of the daemon; OSError, ValueError where there is none."""
        target = f"{path}?{urllib.parse.urlencode(parameters)}"
        idle = self._take() if method == "GET" else None  # what is not to be done twice gets a connection that is surely open
        if idle:
            with contextlib.suppress(ConnectionError, http.client.HTTPException):
                return self._reply(idle, method, target)
        return self._reply(_Connection(os.path.join(self._place, "query.sock")), method, target)


def places():
    """The runtime directories where a daemon may listen, as the library looks for them."""
    named = os.environ.get("SCOPED_LANE_RUNDIR")
    if named:
        return [os.path.abspath(named)]
    found = [os.environ["XDG_RUNTIME_DIR"] + "/scoped-lane"] if os.environ.get("XDG_RUNTIME_DIR") else []
    return found + ["/run/scoped-lane", f"/tmp/scoped-lane-{os.geteuid()}"]


def ask(place, path, method="GET", **parameters):
    """One question; nothing stays open."""
    return Line(place).ask(path, method, **parameters)


def own_run():
    """(runtime directory, run) of this process, None where no daemon has it."""
    for place in places():
        try:
            rows = ask(place, "/v1/processes", pid=os.getpid())["rows"]
        except (OSError, ValueError, http.client.HTTPException):
            continue
        if rows:
            return place, rows[-1]["run"]
    return None


def _snapshot(path):
    end = time.monotonic() + ADOPTION_S
    while (found := own_run()) is None and time.monotonic() < end:
        time.sleep(0.02)
    if found is None:
        raise ValueError("no daemon has this process")
    place, run = found
    ask(place, "/v1/snapshot", "POST", run=run, output=os.path.abspath(path))


def _publish(path, label):
    """The file under its name when all is in it, the label too where h5py can put it there."""
    try:
        h5py = importlib.import_module("h5py") if label else None
    except ImportError:
        h5py = None
    if h5py is None:
        _snapshot(path)
        return
    part = os.path.join(os.path.dirname(os.path.abspath(path)), f".{os.path.basename(path)}.{os.getpid()}")
    try:
        _snapshot(part)
        with h5py.File(part, "r+") as file:
            file.require_group("metadata").attrs["label"] = str(label)
        os.replace(part, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)


def _read(path):
    try:
        import scope_profiler
    except ImportError:
        return None
    return scope_profiler.read_h5(path)


def read(path):
    """A run file, as scope_profiler's reader gives it; ImportError where that is not installed."""
    try:
        from scope_profiler import read_h5
    except ImportError:
        raise ImportError("reading run files takes scope-profiler: pip install scope-profiler") from None
    return read_h5(path)


def write(path, label, return_results):
    """Writes what is recorded so far to `path` (None: nowhere); returns it where asked for."""
    if path is None and not return_results:
        return None
    try:
        if path is not None:
            _publish(path, label)
            return _read(path) if return_results else None
        with tempfile.TemporaryDirectory() as directory:
            _snapshot(os.path.join(directory, "run.h5"))
            return _read(os.path.join(directory, "run.h5"))
    except Exception as problem:  # the program is not to fail for what it did not do
        warnings.warn(f"scoped_lane: {path or 'the results'} cannot be written: {problem}", stacklevel=3)
        return None


def read_toml(path):
    """The table [profiling] of a TOML file."""
    try:
        import tomllib
    except ImportError:
        raise RuntimeError("reading TOML takes Python 3.11") from None
    with open(path, "rb") as file:
        return tomllib.load(file).get("profiling", {})
