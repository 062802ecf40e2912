"""Descriptors that run out: the daemon's own, of which a socket for each program is too many, and the listen queue's."""

import os
import socket
import subprocess

import pytest
from conftest import wait_until
from fullspeed import finish
from runfile import RunFile

CLIENTS = 200


def test_with_64_descriptors_200_programs_are_recorded_and_status_says_how_many_lack_a_socket(place):
    daemon = place.start("prlimit", "--nofile=64", place.laned, "--rundir", place.rundir, "--output", place.output)
    wait_until(lambda: "ready" in daemon.stderr_text, what="the daemon is ready")
    programs = [
        place.start(place.api("pairs"), "-n", 10 + number, "-w", "work", stdin=subprocess.PIPE, SCOPED_LANE_RUN="all")
        for number in range(CLIENTS)
    ]
    wait_until(lambda: all("\n" in program.stdout_text for program in programs), 60, "all have made their calls")
    rows = wait_until(lambda: len(rows := place.rows("processes")) == CLIENTS and rows, 60, "all are known")
    assert {row["pid"] for row in rows} == {program.pid for program in programs}
    (status,) = place.rows("status")
    assert CLIENTS - 64 <= status["without_socket"] < CLIENTS, status
    assert f"{status['without_socket']}" in place.command("status")
    for program in programs:
        finish(program)
    processes = RunFile(place.run_file()).table("processes")
    assert sorted(row["stored"] for row in processes) == [10 + number for number in range(CLIENTS)]
    assert all((row["state"], row["lost"]) == ("ended", 0) for row in processes)


@pytest.mark.parametrize("says", [b"", b"hello"])
def test_ten_thousand_connects_that_come_to_nothing_cost_nothing(service, says):
    pairs = service.start(service.api("pairs"), "-n", 5, "-w", "work", stdin=subprocess.PIPE)
    wait_until(lambda: service.rows("processes"), what="a program is recorded")

    def descriptors():
        return len(os.listdir(f"/proc/{service.daemon.pid}/fd"))

    before = descriptors()
    for _ in range(10_000):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.connect(str(service.rundir / "register.sock"))
            if says:
                client.send(says)
    wait_until(lambda: descriptors() <= before + 1, what="their descriptors are closed")
    finish(pairs)
    assert RunFile(service.run_file()).calls("work", 0) == 5
    assert service.daemon.poll() is None
