"""pytest --scoped-lane."""

import os
import sys

import pytest
from conftest import BUILD, PYTHON, RunFile

pytestmark = pytest.mark.skipif(PYTHON != sys.executable, reason="pytest is not there for the other interpreter")

TESTS = """
import pytest, scoped_lane as sl

@pytest.fixture
def prepared():
    with sl.region("preparing"):
        pass
    yield
    with sl.region("cleaning"):
        pass

@pytest.mark.parametrize("n", [1, 2])
def test_works(n, prepared):
    with sl.region("work"):
        assert n

class TestMore:
    def test_fails(self):
        with sl.region("failing"):
            assert False

@pytest.mark.skip
def test_skipped():
    pass
"""
EXPECTED = {"test_it.py::test_works[1]": 1, "test_it.py::test_works[2]": 1, "test_it.py::TestMore::test_fails": 1, "test_it.py::test_skipped": 1,
            "setup": 4, "call": 3, "teardown": 4, "preparing": 2, "cleaning": 2, "work": 2, "failing": 1}  # fmt: skip
PYTEST = ["-m", "pytest", "-p", "scoped_lane_pytest", "-p", "no:cacheprovider"]


@pytest.fixture
def session(scripts):
    scripts.write(TESTS, "test_it.py")
    (scripts.path / "pytest.ini").write_text("[pytest]\n")
    path = f"{BUILD / 'bin'}:{os.environ['PATH']}"

    def session(*words, before=(), status=1, **env):
        return scripts.place.run(*before, scripts.python, *PYTEST, *words, "test_it.py", status=status, **scripts.env | {"PATH": path} | env)

    return session


def counts(path):
    return {name: calls for _, name, calls in RunFile(path).counts}


def test_alone_it_starts_a_daemon_and_keeps_the_file(session, place):
    said = session("--scoped-lane", SCOPED_LANE_RUNDIR=None, XDG_RUNTIME_DIR=place.rundir)
    file = RunFile(place.path / "scoped-lane.h5")
    assert counts(file.path) == EXPECTED and f"scoped-lane: run file: {file.path}" in said.stdout_text
    paths = {path for lane, path in file.call_paths(0) if lane == "MainThread"}
    assert "test_it.py::test_works[1] > call > work" in paths and "test_it.py::test_works[1] > setup > preparing" in paths
    assert not list(place.processes())
    session("--scoped-lane", "--scoped-lane-output", "other.h5", SCOPED_LANE_RUNDIR=None, XDG_RUNTIME_DIR=place.rundir)
    assert counts(place.path / "other.h5") == EXPECTED


def test_a_conftest_that_imports_the_package_changes_nothing(session, place):
    (place.path / "conftest.py").write_text("import scoped_lane\n")
    session("--scoped-lane", SCOPED_LANE_RUNDIR=None, XDG_RUNTIME_DIR=place.rundir)
    assert counts(place.path / "scoped-lane.h5") == EXPECTED


def test_under_scoped_lane_run_and_beside_a_service_it_is_in_their_run(session, place):
    said = session("--scoped-lane", before=[place.lane, "run", "-o", "run.h5", "--"])
    assert counts(place.path / "run.h5") == EXPECTED and "scoped-lane: run file" not in said.stdout_text
    place.daemon = place.serve()
    session("--scoped-lane")
    assert counts(place.run_file()) == EXPECTED
    assert not (place.path / "scoped-lane.h5").exists()


def test_without_the_option_nothing_happens_and_what_cannot_be_is_said(session, place):
    said = session()
    assert "scoped-lane" not in said.stdout_text and not (place.path / "scoped-lane.h5").exists()
    alone = {"SCOPED_LANE_RUNDIR": None, "XDG_RUNTIME_DIR": place.rundir}
    (place.path / "scoped-lane.h5").write_text("mine")
    assert "is no run file" in session("--scoped-lane", status=4, **alone).stderr_text
    assert (place.path / "scoped-lane.h5").read_text() == "mine"
    assert "no scoped-laned in PATH" in session("--scoped-lane", status=4, PATH="/usr/bin:/bin", **alone).stderr_text
    (place.path / "scoped-lane.h5").unlink()
    assert "is not recorded" in session("--scoped-lane", status=4, SCOPED_LANE="off", **alone).stderr_text
    assert not list(place.processes())
