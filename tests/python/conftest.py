"""What the tests of the Python module stand on: that of tests/end, the built module, and scripts run with a daemon."""

import importlib.util
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
END = HERE.parent / "end"
sys.path.insert(0, str(END))
_spec = importlib.util.spec_from_file_location("end_conftest", END / "conftest.py")
end_conftest = importlib.util.module_from_spec(_spec)
sys.modules["end_conftest"] = end_conftest
_spec.loader.exec_module(end_conftest)

from end_conftest import BUILD, a_place, wait_until  # noqa: E402

MODULE = BUILD / "python"
PYTHON = os.environ.get("SL_PYTHON", sys.executable)  # what runs the scripts; the module has to be built for it
VERSION = tuple(json.loads(subprocess.check_output([PYTHON, "-c", "import sys; print(list(sys.version_info[:2]))"])))


def installed(module):
    """Whether what runs the scripts has it."""
    return subprocess.run([PYTHON, "-c", f"import {module}"], stderr=subprocess.DEVNULL).returncode == 0


sys.path.insert(0, str(MODULE))
os.environ["SCOPED_LANE"] = "off"  # here; scripts have an environment of their own

from runfile import RunFile  # noqa: E402


class Scripts:
    """Runs Python programs in a place, with and without a daemon."""

    def __init__(self, place):
        self.place = place
        self.path = place.path
        self.python = PYTHON
        self.env = {"PYTHONPATH": str(MODULE), "SCOPED_LANE": None, "PYTHONDONTWRITEBYTECODE": "1"}

    def write(self, code, name="script.py"):
        path = self.path / name
        path.write_text(textwrap.dedent(code))
        return path

    def run(self, code, *words, status=0, python=None, **env):
        """Runs it as it is; returns what it printed."""
        script = code if isinstance(code, Path) else self.write(code)
        return self.place.run(python or self.python, script, *words, status=status, **self.env | env).stdout_text

    def record(self, code, *words, status=0, output="run.h5", **env):
        """Runs it under `scoped-lane run`; returns the run file, with what it printed as `said`."""
        script = code if isinstance(code, Path) else self.write(code)
        command = [self.place.lane, "run", "-o", output, "--", self.python, script, *words]
        done = self.place.run(*command, status=status, **self.env | env)
        file = RunFile(self.path / output)
        file.said = done.stdout_text
        file.complaints = done.stderr_text
        return file


@pytest.fixture
def place(tmp_path):
    with a_place(tmp_path) as place:
        yield place


@pytest.fixture
def scripts(place):
    return Scripts(place)


@pytest.fixture
def service(place):
    place.daemon = place.serve()
    return place


@pytest.fixture
def sl():
    """The module, in this process, with nothing of an earlier test."""
    import scoped_lane

    scoped_lane.reset()
    yield scoped_lane
    scoped_lane.reset()


__all__ = ["BUILD", "HERE", "MODULE", "PYTHON", "VERSION", "RunFile", "Scripts", "installed", "wait_until"]
