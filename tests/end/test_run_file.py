"""Run files as the module tests write them, judged by the real scope-profiler: both schemas, with and without lanes."""

import os
import subprocess

import h5py
import pytest
import scope_profiler

from conftest import BUILD
from runfile import accept

pytestmark = pytest.mark.beside

NAMES = ["empty", "packed", "tasks2", "tasks3", "threads2", "untracked2", "untracked3"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    directory = tmp_path_factory.mktemp("files")
    writer = BUILD / "tests" / "unit" / "test_runwrite"
    if not writer.exists():
        pytest.skip(f"{writer} has not been built")
    done = subprocess.run(
        [writer, "--filter", "files/*", "-j1"],
        env=os.environ | {"SL_RUN_FILES": str(directory)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(path.stem for path in directory.glob("*.h5")) == NAMES
    return directory


# Others are accepted where programs are run: schema 2 with threads in test_mpi_run.py.
@pytest.mark.parametrize("name", ["empty", "tasks3", "untracked2"])
def test_scope_profiler_accepts_files_of_every_kind(files, name):
    accept(files / f"{name}.h5", drawing=name == "tasks3")


def test_scope_profiler_reads_a_compressed_file(files):
    run = scope_profiler.read_h5(files / "packed.h5")
    assert run["tick"][0].num_calls == 20_000
    with h5py.File(files / "packed.h5") as file:
        column = file["events/durations"]
        assert (column.compression, column.compression_opts, column.shuffle) == ("gzip", 4, True)
    assert run["tick"][0].durations_ns.tolist() == [i % 30 for i in range(20_000)]


def test_lane_columns_are_narrow_and_read_as_if_they_were_not(files):
    with h5py.File(files / "tasks3.h5") as file:
        assert [file["events"][name].dtype.itemsize for name in ("thread_ids", "task_ids", "await_ns")] == [1, 1, 2]
    run = scope_profiler.read_h5(files / "tasks3.h5")
    for rank in range(4):
        fetch = run["fetch"][rank]
        assert fetch.task_ids.tolist() == [i % 5 for i in range(30)]
        assert fetch.thread_ids.tolist() == [(i % 5 + i) % 3 for i in range(30)]
        assert fetch.await_times_ns.tolist() == [300] * 30
        assert run["compute"][rank].task_ids.tolist() == [-1] * 36


def test_tables_are_relative_to_the_start_and_their_text_is_sound(files):
    run = scope_profiler.read_h5(files / "tasks2.h5")
    for rank in range(4):
        assert [thread.name for thread in run.threads[rank]] == ["main", "wor\ufffdker", "wor\ufffdker"]
        assert [thread.start_time for thread in run.threads[rank]] == pytest.approx([0, 1e-9, 2e-9], abs=1e-15)
        assert [thread.alive for thread in run.threads[rank]] == [True, False, False]
        assert [thread.daemon for thread in run.threads[rank]] == [False, False, True]
        assert [task.name for task in run.tasks[rank]] == ["", *["job\ufffd"] * 4]
        assert [task.done for task in run.tasks[rank]] == [False, True, True, True, True]
        assert {task.created_time for task in run.tasks[rank]} == {0.0}  # one before the start: not -1, which says unknown
