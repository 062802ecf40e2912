"""Many threads and many processes over time: rings and memory follow how many there are at once, and nothing is missing."""

import collections
import os
import socket
import struct

import h5py
import numpy as np
import pytest
from conftest import wait_until
from fullspeed import LONG, finish, published
from runfile import RunFile
from spoolfile import KeptSpool

NO_RING = 0xFFFFFFFF
ROOM = 4 << 10  # KiB; shared memory counts for the daemon only once it has touched it


def resident(pid):
    """KiB of a process's own memory, and of shared memory; not of files, which the kernel may take back."""
    with open(f"/proc/{pid}/status") as status:
        sizes = dict(line.split(":")[:2] for line in status)
    return int(sizes["RssAnon"].split()[0]), int(sizes["RssShmem"].split()[0])


def live(service, program):
    rows = service.rows(f"processes?pid={program.pid}")
    return rows[0] if rows else collections.Counter()


def attributed(path, threads):
    """Fails unless every thread has its row, and each of its calls names that row."""
    with h5py.File(path) as file:
        names = file["thread_table/name"].asstr()[()]
        calls = np.bincount(file["events/thread_ids"][()], minlength=len(names))
        ends = file["thread_table/end_ns"][()]
    number = np.array([int(name[1:]) for name in names])
    assert sorted(number) == list(range(threads))
    assert (calls == 1 + number % 7).all()
    assert (ends > 0).all()


@pytest.mark.parametrize("threads, at_once", [(100_000, 64), (20_000, 2_000)])
def test_short_threads_take_no_more_rings_and_memory_than_there_are_at_once(service, threads, at_once):
    program = service.start(service.api("churn"), "-n", threads, "-a", at_once, "-w", stdin=-1)
    kept = KeptSpool(service)
    wait_until(kept.found, what="the spool is there")
    wait_until(lambda: live(service, program)["threads"] > threads / 4, 120, "a quarter of the threads have begun")
    before = [resident(pid) for pid in (program.pid, service.daemon.pid)]
    wait_until(lambda: program.stdout_text.endswith("\n"), 240, "all threads have ended")
    made = sum(1 + i % 7 for i in range(threads))
    assert program.stdout_text.split() == [str(threads), str(made)]
    row = wait_until(lambda: (row := live(service, program))["stored"] == made and row, what="every call is stored")
    assert (row["threads"], row["produced"], row["lost"]) == (threads, made, 0)
    after = [resident(pid) for pid in (program.pid, service.daemon.pid)]
    if at_once < 1000:  # else the stacks of so many threads come and go
        for (own_before, shared_before), (own, shared) in zip(before, after):
            assert own <= own_before + ROOM and shared <= shared_before + 3 * ROOM, (before, after)
    finish(program)
    attributed(published(service, row["run"]), threads)
    rings = {ring for _, ring in kept.read().ledgers if ring != NO_RING}
    assert len(rings) <= at_once + 2


@pytest.mark.parametrize("processes", [10_000 if LONG else 1_000])
def test_no_process_of_a_few_milliseconds_is_missing(service, processes):
    script = 'seq "$1" | xargs -P 16 -n 1 sh -c \'exec "$0" -n $(($1 % 9 + 1)) work >/dev/null\' "$2"'
    service.run("sh", "-c", script, "sh", processes, service.api("pairs"), SCOPED_LANE_RUN="many", deadline=600)
    (run,) = service.rows("runs")
    file = RunFile(published(service, run["run"]))
    rows = file.table("processes")
    assert len(rows) == processes
    assert all(row["state"] == "ended" and row["lost"] == 0 and row["produced"] == row["stored"] for row in rows)
    assert sorted(row["stored"] for row in rows) == sorted(i % 9 + 1 for i in range(1, processes + 1))
    with h5py.File(file.path) as h5:
        assert h5["rank_region_index/event_counts"][()].sum() == sum(i % 9 + 1 for i in range(1, processes + 1))
    wait_until(lambda: not service.segments(), what="the segments are taken away")


def test_a_hello_that_comes_when_all_is_over_makes_no_second_process(service):
    """The scan may have found the segment meanwhile: the descriptor in the hello is that of a process long accounted for."""
    pairs = service.start(service.api("pairs"), "-n", 5, "-w", "work", stdin=-1, SCOPED_LANE_RUN="one")
    wait_until(lambda: live(service, pairs)["stored"] == 5, what="its calls are stored")
    (segment,) = service.segments()
    descriptor = os.open(segment, os.O_RDWR)
    finish(pairs)
    wait_until(lambda: not segment.exists(), what="the segment is taken away")
    abi = struct.unpack_from("<I", os.pread(descriptor, 16, 0), 8)[0]
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.settimeout(10)
        client.connect(str(service.rundir / "register.sock"))
        hello = struct.pack("<6I160s256s", 0x6F6C6C68, abi, 440, pairs.pid, 0, 0, str(segment).encode(), b"run:one")
        socket.send_fds(client, [hello], [descriptor])
        client.recv(64)  # the welcome, whatever it says
    os.close(descriptor)
    (row,) = service.rows("processes")
    assert (row["pid"], row["produced"], row["stored"], row["lost"]) == (pairs.pid, 5, 5, 0)
    assert len(RunFile(published(service, row["run"])).table("processes")) == 1
