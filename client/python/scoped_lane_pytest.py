"""pytest --scoped-lane: a region around each test, named by its node id, with setup, call and teardown inside; the run file is kept.

Where a daemon is there already (`scoped-lane run -- pytest --scoped-lane`, a service) the run is its run. Else a scoped-laned of our own
records, and the file is written when the session ends. The package itself is imported only then: it looks for its daemon at once.
"""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

import pytest

PATIENCE_S = 30
HDF5 = b"\x89HDF\r\n\x1a\n"


def pytest_addoption(parser):
    group = parser.getgroup("scoped-lane", "regions, threads and tasks by scoped-lane")
    group.addoption("--scoped-lane", action="store_true", default=False, help="record a region for each test, and keep the run file")
    group.addoption(
        "--scoped-lane-output",
        metavar="FILE",
        help="the run file (default: scoped-lane.h5; where a daemon is there already, the one that it writes)",
    )


class Recording:
    """What a session records, and the daemon that it started, if it did."""

    def __init__(self, output):
        self.output = os.path.abspath(output) if output else None
        self.daemon = self.directory = None
        self.said = ""

    def begin(self, is_worker):
        """Returns the package, attached. It reads its environment once, so the daemon has to be there before it is imported."""
        if "scoped_lane" not in sys.modules and not is_worker and not any(map(_listens, _places())):
            self._start_daemon()
        import scoped_lane

        if not scoped_lane.attach() and not is_worker:
            self.end()
            raise pytest.UsageError(
                "--scoped-lane: this process is not recorded: SCOPED_LANE=off, or scoped_lane was imported before the plugin and found no "
                "daemon (say -p scoped_lane_pytest)"
            )
        return scoped_lane

    def _start_daemon(self):
        program = shutil.which("scoped-laned")
        if program is None:
            raise pytest.UsageError("--scoped-lane: no daemon listens, and there is no scoped-laned in PATH to start one")
        self.output = self.output or os.path.abspath("scoped-lane.h5")
        if os.path.exists(self.output):
            with open(self.output, "rb") as file:
                if file.read(len(HDF5)) != HDF5:
                    raise pytest.UsageError(f"--scoped-lane: {self.output} is no run file, and is left alone")
        self.directory = tempfile.mkdtemp(prefix="scoped-lane-pytest-", dir="/tmp")  # short: a socket's path has 107 bytes
        words = [program, "--rundir", self.directory, "--output", self.directory]
        with open(os.path.join(self.directory, "said"), "w") as said:
            self.daemon = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True)
        os.environ["SCOPED_LANE_RUNDIR"] = self.directory
        end = time.monotonic() + PATIENCE_S
        while not os.path.exists(os.path.join(self.directory, "register.sock")):
            if self.daemon.poll() is not None or time.monotonic() > end:
                with open(os.path.join(self.directory, "said")) as said:
                    problem = said.read().strip()
                self.end()
                raise pytest.UsageError(f"--scoped-lane: scoped-laned does not start: {problem}")
            time.sleep(0.005)

    def keep(self):
        """Writes the file, where we are the one who does."""
        if self.output is None:
            return
        from scoped_lane import files

        try:
            files._snapshot(self.output)
            self.said = f"run file: {self.output}"
        except Exception as problem:  # the tests have passed or failed all the same
            self.said = f"{self.output} cannot be written: {problem}"

    def end(self):
        if self.daemon is not None:
            self.daemon.terminate()
            try:
                self.daemon.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.daemon.kill()
                self.daemon.wait()
            self.daemon = None
        if self.directory is not None:
            shutil.rmtree(self.directory, ignore_errors=True)
            self.directory = None


def _places():
    named = os.environ.get("SCOPED_LANE_RUNDIR")
    if named:
        return [named]
    found = [os.environ["XDG_RUNTIME_DIR"] + "/scoped-lane"] if os.environ.get("XDG_RUNTIME_DIR") else []
    return found + ["/run/scoped-lane", f"/tmp/scoped-lane-{os.geteuid()}"]


def _listens(place):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        try:
            probe.connect(os.path.join(place, "register.sock"))
        except OSError:
            return False
    return True


class Regions:
    """The hooks of a session that is recorded."""

    def __init__(self, recording, is_worker):
        self._recording, self._is_worker = recording, is_worker
        self._sl = recording.begin(is_worker)
        self._phases = {name: self._sl.region(name) for name in ("setup", "call", "teardown")}

    def _region(self, item):
        from scoped_lane import manager

        return manager._named(item.nodeid, None, lambda: (str(item.location[0]), (item.location[1] or 0) + 1))

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item):
        with self._region(item):
            yield

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_setup(self):
        with self._phases["setup"]:
            yield

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_call(self):
        with self._phases["call"]:
            yield

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self):
        with self._phases["teardown"]:
            yield

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self):
        if not self._is_worker:
            self._recording.keep()

    def pytest_terminal_summary(self, terminalreporter):
        if self._recording.said:
            terminalreporter.write_line(f"scoped-lane: {self._recording.said}")

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self):
        self._recording.end()


def _begin(config, options):
    if getattr(options, "scoped_lane", False) and not config.pluginmanager.has_plugin("scoped-lane-regions"):
        is_worker = hasattr(config, "workerinput")  # of pytest-xdist: its controller has the daemon
        config.pluginmanager.register(Regions(Recording(options.scoped_lane_output), is_worker), "scoped-lane-regions")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config):
    _begin(early_config, early_config.known_args_namespace)  # before a conftest.py imports the package


def pytest_configure(config):
    _begin(config, config.option)
