"""The daemon as a service: its configuration read again, the words a service manager hears, the sockets it gives."""

import contextlib
import os
import re
import signal
import socket

import pytest
from conftest import Program, wait_until
from runfile import RunFile
from test_restart import end, waiting_pairs


def config(place):
    return {row["key"]: row["value"] for row in place.rows("config")}


def write_config(place, text):
    path = place.path / "laned.conf"
    path.write_text(text)
    return path


def reload(daemon, *words):
    """Sends SIGHUP and waits until it has said all the words since."""
    before = len(daemon.stderr_text)
    daemon.send_signal(signal.SIGHUP)
    return wait_until(lambda: (text := daemon.stderr_text[before:]) and all(word in text for word in words) and text, what=f"it says {words}")


# -- the configuration


def test_every_option_is_a_key_and_the_command_line_wins(place):
    (place.path / "there").mkdir()
    path = write_config(
        place,
        f"# a comment\noutput = {place.path}/there\nspool = {place.path}\nspool-limit = 2G\nquota = 3G\nstuck-after = 0.5\nstuck-factor=3\n"
        "stuck-command = echo a > b ; c\nmetrics-series = 200\nconnections = 9\nconnections-per-user = 8\nheader-size = 4K\n"
        "reply-size = 128K\npage-rows = 700\nqueued-size = 2M\nheader-timeout = 1\nidle-timeout = 2\nwrite-timeout = 3\n"
        "query-turn = 0.02\nobservers-group = adm\nverbose = yes\nrundir = /nowhere\n",
    )
    place.serve("--config", path)
    assert config(place) == {
        "rundir": str(place.rundir), "output": str(place.output), "spool": str(place.path), "spool-limit": 2 << 30, "quota": 3 << 30, "stuck-after": 0.5,
        "stuck-factor": 3, "stuck-command": "echo a > b", "metrics-series": 200, "connections": 9, "connections-per-user": 8,
        "header-size": 4096, "reply-size": 128 << 10, "page-rows": 700, "queued-size": 2 << 20, "header-timeout": 1.0, "idle-timeout": 2.0,
        "write-timeout": 3.0, "query-turn": 0.02, "observers-group": "adm", "verbose": True,
    }


def test_sighup_reads_the_file_again(place):
    path = write_config(place, "stuck-after = 5\nconnections = 10\nverbose = no\n")
    daemon = place.serve("--config", path)
    (place.path / "other").mkdir()
    write_config(place, f"stuck-after = 0.25\nconnections = 20\nspool = {place.path}/other\noutput = {place.path}/other\n")
    said = reload(daemon, "again")
    assert "connections" in said and "started again" in said and "stuck-after" not in said
    now = config(place)
    assert (now["stuck-after"], now["connections"]) == (0.25, 10)
    assert now["output"] == str(place.output), "the command line still wins"
    pairs = waiting_pairs(place, 10, "work")
    wait_until(lambda: list((place.path / "other").glob("*.spool")), what="the next run's spool lies where the file says")
    write_config(place, "")
    reload(daemon, "again")
    assert (config(place)["stuck-after"], config(place)["spool"]) == (30.0, None), "what the file says no more is as it is by default"
    end(pairs)
    assert RunFile(place.run_file()).calls("work", 0) == 10


@pytest.mark.parametrize(
    "text, why",
    [("wings = 2\n", 'no setting "wings"'), ("stuck-after = soon\n", "soon"), ("spool = /no/such\n", "/no/such"), ("[part]\na = b\n", "section"),
     ("what\n", "line 2"), ("stuck-command = " + "x " * 200, "line 2.*more than 198"), (None, "No such file")],
    ids=["key", "value", "directory", "section", "line", "long", "missing"],
)
def test_a_file_with_a_mistake_changes_nothing_and_is_said(place, text, why):
    path = write_config(place, "stuck-after = 5\n")
    daemon = place.serve("--config", path)
    path.unlink()
    if text is not None:
        write_config(place, "stuck-after = 7\n" + text)
    assert re.search(why, reload(daemon, "as they were"))
    assert config(place)["stuck-after"] == 5.0 and daemon.poll() is None


def test_without_a_file_there_is_nothing_to_read_again(service):
    reload(service.daemon, "no configuration file")
    assert service.daemon.poll() is None


# -- the service manager


@contextlib.contextmanager
def notify_socket(place):
    """A fake of the service manager's: next_words() gives what it hears, blocking."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(place.rundir / "notify"))
        manager.settimeout(30)

        def hears(word):
            while word not in (lines := manager.recv(4096).decode().splitlines()):
                pass
            return lines

        yield hears


def test_a_service_manager_hears_ready_reloading_alive_and_stopping(place):
    path = write_config(place, "stuck-after = 5\n")
    with notify_socket(place) as hears:
        daemon = place.serve("--config", path, NOTIFY_SOCKET=place.rundir / "notify", WATCHDOG_USEC="30000000")
        assert f"STATUS={place.rundir}" in hears("READY=1")
        hears("WATCHDOG=1")
        daemon.send_signal(signal.SIGHUP)
        assert any(line.startswith("MONOTONIC_USEC=") for line in hears("RELOADING=1"))
        hears("READY=1")
        daemon.send_signal(signal.SIGTERM)
        hears("STOPPING=1")
        daemon.ends()


def test_the_private_daemon_of_a_command_tells_no_service_manager(place):
    with notify_socket(place) as hears:
        place.run(place.lane, "run", "-o", "run.h5", "--", place.api("pairs"), "-n", 5, "work", NOTIFY_SOCKET=place.rundir / "notify")
        other = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        other.sendto(b"nobody else", str(place.rundir / "notify"))
        assert hears("nobody else") == ["nobody else"]


def given(place, kind, path):
    listening = socket.socket(socket.AF_UNIX, kind)
    listening.bind(str(path))
    listening.listen(8)
    return listening


def serve_with(place, sockets, *options):
    """A daemon that has the sockets as descriptors 3, 4 …, as systemd passes them."""
    moves = " ".join(f"{3 + i}<&{listening.fileno()}" for i, listening in enumerate(sockets))
    for listening in sockets:
        os.set_inheritable(listening.fileno(), True)
    words = ["bash", "-c", f'LISTEN_PID=$$ LISTEN_FDS={len(sockets)} exec "$@" {moves}', "bash", place.laned, "--rundir", place.rundir,
             "--output", place.output, *options]
    place.count += 1
    return words


class Given(Program):
    """A Program that inherits descriptors."""

    def __init__(self, place, words, sockets):
        self.words = [str(word) for word in words]
        self.out = place.path / f"{place.count}.given.out"
        self.err = self.out.with_suffix(".err")
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            super(Program, self).__init__(
                self.words, stdout=out, stderr=err, cwd=place.path, env=place.env, pass_fds=[s.fileno() for s in sockets]
            )


def test_sockets_of_a_service_manager_are_served_and_left_to_it(place):
    sockets = [given(place, socket.SOCK_STREAM, place.rundir / "query.sock"),
               given(place, socket.SOCK_SEQPACKET, place.rundir / "register.sock")]
    inodes = [os.stat(place.rundir / name).st_ino for name in ("query.sock", "register.sock")]
    early = place.start(place.api("pairs"), "-n", 7, "-w", "early", stdin=-1)  # before there is a daemon: the socket is
    wait_until(lambda: early.stdout_text.endswith(" 1\n"), what="it records although no daemon runs yet")
    daemon = Given(place, serve_with(place, sockets), sockets)
    wait_until(lambda: "ready" in daemon.stderr_text, what="it is ready")
    wait_until(lambda: sum(row["stored"] for row in place.rows("processes")) == 7, what="the early calls are stored")
    assert place.query("/v1/status")["rows"][0]["without_socket"] == 0
    end(early)
    place.run_file()
    daemon.send_signal(signal.SIGTERM)
    daemon.ends()
    assert [os.stat(place.rundir / name).st_ino for name in ("query.sock", "register.sock")] == inodes, "they are the manager's"
    again = Given(place, serve_with(place, sockets), sockets)
    wait_until(lambda: "ready" in again.stderr_text, what="the next one is ready")
    assert place.query("/v1/status")["rows"][0]["pid"] == again.pid
    for listening in sockets:
        listening.close()


def test_a_socket_that_lies_elsewhere_is_refused(place):
    sockets = [given(place, socket.SOCK_STREAM, place.rundir / "ask.sock")]
    daemon = Given(place, serve_with(place, sockets), sockets)
    daemon.ends(status=1)
    assert "descriptor 3" in daemon.stderr_text and "query.sock" in daemon.stderr_text
    sockets[0].close()
