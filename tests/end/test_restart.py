"""A daemon is killed in mid run: the programs do not notice, the next one goes on, and every call is in the file once."""

import os
import signal

from conftest import wait_until
from runfile import RunFile, accept


def waiting_pairs(place, calls, region):
    """A program that has made its calls and waits to be told to end."""
    pairs = place.start(place.api("pairs"), "-n", calls, "-w", region, stdin=-1)
    wait_until(lambda: pairs.stdout_text.endswith("\n"), what="pairs has made its calls")
    return pairs


def end(pairs):
    pairs.stdin.close()
    pairs.ends()


def test_a_service_that_was_killed_goes_on_where_the_spool_ends(service):
    pairs = waiting_pairs(service, 5000, "before")
    wait_until(lambda: sum(row["stored"] for row in service.rows("processes")) == 5000, what="5,000 calls are in the spool")
    service.daemon.kill()
    service.daemon.wait()
    late = waiting_pairs(service, 0, "nothing")  # meanwhile no daemon: it runs on unrecorded
    second = service.serve()
    row = wait_until(lambda: [r for r in service.rows("processes") if r["pid"] == pairs.pid], what="the process is there again")[0]
    assert row["state"] in ("live", "deaf")  # it does nothing, and so has not come back by itself
    assert (row["stored"], row["lost"]) == (5000, 0)
    end(pairs)
    end(late)
    assert RunFile(service.run_file()).calls("before", 0) == 5000
    assert second.poll() is None


def test_calls_made_while_no_daemon_was_there_are_in_the_file(service):
    slow = service.start("sh", "-c", f"exec {service.api('pairs')} -n 300 -w work", stdin=-1)
    wait_until(lambda: service.rows("processes"), what="the process is known")
    os.kill(service.daemon.pid, signal.SIGSTOP)
    wait_until(lambda: slow.stdout_text.endswith("\n"), what="it has made its calls")
    service.daemon.kill()
    service.daemon.wait()
    end(slow)  # it ends while nobody is there: its segment stays
    assert service.segments()
    service.serve()
    file = RunFile(service.run_file())
    assert file.calls("work", 0) == 300
    wait_until(lambda: not service.segments(), what="the segment is taken away")


def test_run_starts_its_private_daemon_again_and_its_file_is_whole(place):
    run = place.start(place.lane, "run", "-o", "run.h5", "--", place.api("pairs"), "-n", 700, "-w", "work", stdin=-1)
    wait_until(lambda: "700" in run.stdout_text, what="the calls are made")
    daemons = place.processes("scoped-laned")
    assert len(daemons) == 1
    os.kill(daemons[0], signal.SIGKILL)
    run.stdin.close()
    run.ends()
    assert RunFile(place.path / "run.h5").calls("work", 0) == 700
    assert "none lost" in run.stderr_text
    accept(place.path / "run.h5")


def test_the_file_of_a_run_that_ended_while_it_was_converted_is_made_by_the_next_daemon(service):
    service.run(service.api("pairs"), "-n", 40, "work")
    service.daemon.kill()  # before the second of grace is over: nothing is published yet
    service.daemon.wait()
    assert not list(service.output.glob("*.h5"))
    service.serve()
    assert RunFile(service.run_file()).calls("work", 0) == 40
    wait_until(lambda: not list(service.output.glob("*.spool")), what="the spool is gone")


def test_what_a_damaged_spool_has_lost_is_said_and_counted(service):
    pairs = waiting_pairs(service, 5000, "work")
    wait_until(lambda: sum(row["stored"] for row in service.rows("processes")) == 5000, what="5,000 calls are in the spool")
    service.daemon.kill()
    service.daemon.wait()
    (spool,) = service.output.glob("*.spool")
    whole = spool.read_bytes()
    at = len(whole.rstrip(b"\0")) // 2
    spool.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    second = service.serve()
    wait_until(lambda: service.rows("processes"), what="the process is there again")
    end(pairs)
    file = RunFile(service.run_file())
    (row,) = file.table("processes")
    assert "torn" in second.stderr_text
    assert row["produced"] == 5000 == row["stored"] + row["lost"] and row["lost"] > 0
    assert file.calls("work") == row["stored"]


def test_a_client_that_says_hello_twice_is_one_client(service):
    """The second connection of a segment takes the first one's place; neither end harms the daemon."""
    import array
    import socket
    import struct

    pairs = waiting_pairs(service, 3, "work")
    path = service.segments()[0]
    with open(path, "r+b") as segment:
        hello = struct.pack("<6I160s256s", 0x6F6C6C68, 1, 440, pairs.pid, 0, 0, str(path).encode(), b"")
        sockets = []
        for _ in range(3):
            client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            client.settimeout(10)
            client.connect(str(service.rundir / "register.sock"))
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [segment.fileno()]))
            client.sendmsg([hello], [rights])
            assert struct.unpack("<4I", client.recv(64))[2] == 0
            sockets.append(client)
        for client in sockets:
            client.close()
    assert len(service.rows("processes")) == 1
    end(pairs)
    assert RunFile(service.run_file()).calls("work", 0) == 3
    assert service.daemon.poll() is None
