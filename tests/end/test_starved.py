"""Memory and disks that run out: programs go on unharmed, and the ledger says exactly what is missing and why."""

import contextlib
import subprocess

import pytest
from conftest import wait_until
from fullspeed import finish, published, settled
from runfile import RunFile
from spoolfile import KeptSpool


def in_shm_of(size, *words):
    """The words of a command that sees a /dev/shm of its own, of that size."""
    try:
        subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/dev/shm"], check=True, capture_output=True)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no mount namespace here: {error.stderr.decode().strip()}")
    return ["unshare", "-m", "sh", "-c", f'mount -t tmpfs -o size={size} none /dev/shm && exec "$@"', "sh", *words]


@contextlib.contextmanager
def disk_of(size, path):
    """A file system of that size at `path`; yields a function that makes it another size."""
    path.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", path], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no file system of its own here: {done.stderr.strip()}")
    try:
        yield lambda size: subprocess.run(["mount", "-o", f"remount,size={size}", path], check=True)
    finally:
        subprocess.run(["umount", "-l", path], check=True)


def reasons(file, pid=None):
    found = {}
    for row in file.table("loss"):
        if pid in (None, row["pid"]):
            found[row["reason"]] = found.get(row["reason"], 0) + row["count"]
    return found


# -- /dev/shm


@pytest.mark.parametrize("size, threads", [("64k", 8), ("1m", 60)])
def test_in_a_small_dev_shm_threads_without_a_ring_are_counted_to_the_call(place, size, threads):
    """All threads are alive at once for 0.2 s, so that none can take another's ring."""
    words = [place.api("full_speed"), "-t", threads, "-n", 2000, "-b", 100, "-p", 10000]
    alone = place.run(*words, SCOPED_LANE="off")
    run = place.run(*in_shm_of(size, place.lane, "run", "-o", "run.h5", "--", *words))
    made = [line.split(":")[:2] for line in run.stdout_text.splitlines()]
    assert made == [line.split(":")[:2] for line in alone.stdout_text.splitlines()]
    file = RunFile(place.path / "run.h5")
    (process,) = file.table("processes")
    assert process["produced"] == 2000 * threads == process["stored"] + process["lost"]
    assert process["stored"] == file.all_calls() > 0
    lost = reasons(file)
    assert lost["no ring"] > 0 and lost["no ring"] % 2000 == 0, lost
    assert sum(lost.values()) == process["lost"] and lost.keys() <= {"no ring", "ring full"}


def test_64_ranks_of_8_threads_all_fit_a_dev_shm_of_64_mib(place):
    ranks, threads, calls = 64, 8, 200
    script = 'exec 3<&0; for rank in $(seq 0 63); do OMPI_COMM_WORLD_RANK=$rank "$@" <&3 & done; wait'
    words = [place.api("full_speed"), "-t", threads, "-n", calls, "-b", 10, "-p", 10000, "-w"]
    run = place.start(
        *in_shm_of("64m", place.lane, "run", "-o", "run.h5", "--", "sh", "-c", script, "sh", *words), stdin=-1
    )
    wait_until(lambda: run.stdout_text.count("\n") == ranks * threads, 120, "every rank has made its calls")
    run.stdin.close()
    run.ends()
    file = RunFile(place.path / "run.h5")
    assert file.table("loss") == []
    assert file.ranks == list(range(ranks))
    assert all(file.all_calls(rank) == threads * calls for rank in range(ranks))
    assert all(len(file.threads(rank)) == threads for rank in range(ranks))


# -- the disk under the spool


def live(service, program):
    rows = service.rows(f"processes?pid={program.pid}")
    return rows[0] if rows else {"produced": 0, "stored": 0, "lost": 0}


def test_a_disk_that_fills_up_under_the_spool_costs_what_the_rings_cannot_hold_until_it_is_freed(place):
    calls = 1_000_000
    with disk_of("4m", place.path / "spool") as resize:
        place.serve("--spool", place.path / "spool", "--spool-limit", "1G")
        program = place.start(
            place.api("full_speed"), "-t", 2, "-n", calls, "-b", 100, "-p", 500, "-w", stdin=-1
        )
        full = wait_until(lambda: (row := live(place, program))["lost"] > 0 and row, what="the disk is full")
        assert full["stored"] * 32 < (4 << 20) + (256 << 10)  # what is in the spool, and a flush that waits for room
        resize("256m")
        wait_until(lambda: live(place, program)["stored"] > full["stored"] + calls / 10, what="recording goes on")
        wait_until(lambda: program.stdout_text.count("\n") == 2, 120, "all calls are made")
        row = wait_until(lambda: settled(place, program, 2 * calls), what="the live row accounts for every call")
        finish(program)
        path = published(place, row["run"])
        file = RunFile(path)
        (process,) = file.table("processes")
        assert (process["produced"], process["stored"], process["lost"]) == (2 * calls, row["stored"], row["lost"])
        assert file.all_calls() == row["stored"]
        assert reasons(file) == {"ring full": row["lost"]}


def test_a_disk_that_stays_full_is_said_and_the_spool_kept(place):
    with disk_of("2m", place.path / "out"):
        run = place.start(
            place.lane, "run", "-o", "out/run.h5", "--", place.api("full_speed"), "-t", 2, "-n", 200_000, "-b", 100, "-p", 500
        )
        run.ends(status=1)
        assert run.stdout_text.count("\n") == 2
        assert "out/run.h5" in run.stderr_text and "No space left on device" in run.stderr_text
        assert list((place.path / "out").glob("*.spool")) and not list((place.path / "out").glob("*.h5"))


def test_a_disk_that_is_full_when_the_file_is_written_keeps_the_old_file_and_the_spool(place):
    (place.path / "spools").mkdir()
    with disk_of("1m", place.path / "out") as resize:
        daemon = place.serve("--spool", place.path / "spools")
        place.run(place.lane, "run", "-o", "out/run.h5", "--", place.api("pairs"), "-n", 5, "old")
        old = (place.path / "out/run.h5").read_bytes()
        many = [place.api("full_speed"), "-t", 2, "-n", 50_000, "-b", 100, "-p", 1000]
        run = place.run(place.lane, "run", "-o", "out/run.h5", "--", *many, status=1)
        assert "out/run.h5" in run.stderr_text and "No space left on device" in run.stderr_text
        assert (place.path / "out/run.h5").read_bytes() == old
        assert list((place.path / "spools").glob("*.spool"))
        resize("64m")
        daemon.terminate()
        daemon.ends(0)
        place.serve("--spool", place.path / "spools")
        wait_until(lambda: not list((place.path / "spools").glob("*.spool")), what="the next daemon has made the file")
        file = RunFile(place.path / "out/run.h5")
        (process,) = file.table("processes")
        assert file.all_calls() == process["stored"] and process["produced"] == 100_000 == process["stored"] + process["lost"]
        assert [path.name for path in (place.path / "out").iterdir()] == ["run.h5"]


def test_beyond_the_spool_limit_calls_are_counted_and_tables_go_on(place):
    calls = 300_000
    place.serve("--spool-limit", "2M")
    program = place.start(place.api("full_speed"), "-t", 2, "-n", calls, "-b", 100, "-p", 500, "-w", stdin=-1)
    kept = KeptSpool(place)
    wait_until(kept.found, what="the spool is there")
    wait_until(lambda: program.stdout_text.count("\n") == 2, 120, "all calls are made")
    row = wait_until(lambda: settled(place, program, 2 * calls), what="the live row accounts for every call")
    assert 0 < row["stored"] * 32 < 2 << 20 < (row["stored"] + row["lost"]) * 32
    overrun = sum(loss["count"] for loss in place.rows("loss") if loss["reason"] == "ring full")  # on a busy machine
    assert sum(region["calls"] for region in place.rows("regions") if region["rank"] is None) == 2 * calls - overrun
    assert sum(thread["calls"] for thread in place.rows("threads")) == 2 * calls - overrun
    finish(program)
    path = published(place, row["run"])
    assert kept.read().drops < row["lost"] / 2000, "a spool that is full grows for what it has no room for"
    file = RunFile(path)
    assert file.all_calls() == row["stored"]
    assert reasons(file).pop("spool full") == row["lost"] - overrun > 0
    assert {thread.name for thread in file.threads(0)} >= {"speed 0", "speed 1"}
