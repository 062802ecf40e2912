"""scoped-lane run --schema and --compress: the run file as it was asked for."""

import os
import signal

import h5py
import pytest
from conftest import wait_until
from runfile import RunFile, accept

pytestmark = pytest.mark.beside

CALLS = 9000  # columns below 64 KiB are not compressed


@pytest.mark.parametrize("compress", [False, True], ids=["plain", "compressed"])
@pytest.mark.parametrize("schema", [None, 2, 3])
def test_the_run_file_has_the_schema_and_the_filters_that_were_asked_for(place, schema, compress):
    options = (["--schema", schema] if schema else []) + (["--compress"] if compress else [])
    place.run(place.lane, "run", *options, "-o", "run.h5", "--", place.api("pairs"), "-n", CALLS, "work")
    with h5py.File(place.path / "run.h5") as file:
        assert file.attrs["scope_profiler_schema"] == (schema or 2)
        columns = file["events"]
        assert ("start_deltas" in columns) == (schema == 3)
        starts = columns["start_deltas" if schema == 3 else "start_times"]
        assert (starts.compression, starts.shuffle, starts.chunks is not None) == (
            ("gzip", True, True) if compress else (None, False, False)
        )
    assert RunFile(place.path / "run.h5").calls("work", 0) == CALLS
    if schema and (compress or schema == 3):
        accept(place.path / "run.h5")


def test_a_further_file_of_the_run_and_a_snapshot_are_written_alike(service):
    pairs = service.start(
        service.lane, "run", "--schema", 3, "--compress", "-o", "run.h5", "--", service.api("pairs"), "-n", CALLS, "-w", "work", stdin=-1
    )
    wait_until(lambda: [row["calls"] for row in service.rows("regions")] == [CALLS], what="all calls are there")
    service.command("snapshot", "-o", service.path / "snapshot.h5")
    service.command("finish")
    pairs.stdin.close()
    pairs.ends()
    for name in ("snapshot.h5", "run.h5"):
        with h5py.File(service.path / name) as file:
            assert file.attrs["scope_profiler_schema"] == 3
            assert file["events/start_deltas"].compression == "gzip"


def test_the_file_is_as_it_was_asked_for_when_its_daemon_was_killed_meanwhile(place):
    words = [place.lane, "run", "--schema", 3, "--compress", "-o", "run.h5", "--", place.api("pairs"), "-n", CALLS, "-w", "work"]
    run = place.start(*words, stdin=-1)
    wait_until(lambda: str(CALLS) in run.stdout_text, what="the calls are made")
    (daemon,) = place.processes("scoped-laned")
    os.kill(daemon, signal.SIGKILL)
    run.stdin.close()
    run.ends()
    with h5py.File(place.path / "run.h5") as file:
        assert file.attrs["scope_profiler_schema"] == 3
        assert file["events/start_deltas"].compression == "gzip"
    assert RunFile(place.path / "run.h5").calls("work", 0) == CALLS


@pytest.mark.parametrize("schema", ["1", "4", "0", "-2"])
def test_another_schema_is_misuse(place, schema):
    run = place.run(place.lane, "run", f"--schema={schema}", "--", "touch", "ran", status=2)
    assert "--schema is 2 or 3" in run.stderr_text
    assert not (place.path / "ran").exists()


def test_a_join_with_another_schema_is_refused(service):
    for query in ("schema=4", "schema=x", "compress=maybe"):
        status, body = service.ask(f"/v1/join?run=k&output={service.path}/run.h5&{query}", "POST")
        assert status == 400 and "schema" in body
