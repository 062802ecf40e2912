"""Hostile askers: slow, silent, many, gone in the middle, or talking nonsense. Each gets a clear refusal or the end of its connection;
programs are recorded as ever, others are answered, and the daemon's memory does not grow."""

import json
import random
import socket
import struct

from conftest import wait_until
from load import Load
from test_metrics import metrics, value

PATHS = ["status", "runs", "processes", "threads", "tasks", "regions", "lanes", "where", "stuck", "loss", "clock", "config", "follow", "finish"]
LETTERS = "abcdefgh0123456789%&=?/.+-_~ \t\r\n\0\x7f\xff\"'<>{}"


def connect(place):
    asker = socket.socket(socket.AF_UNIX)
    asker.settimeout(30)
    asker.connect(str(place.rundir / "query.sock"))
    return asker


def send(asker, data):
    """As much as the daemon takes: one that has refused already takes nothing more."""
    try:
        asker.sendall(data)
    except (BrokenPipeError, ConnectionResetError):
        pass


def reply(asker):
    """All that comes up to the end of the connection."""
    data = b""
    try:
        while block := asker.recv(1 << 16):
            data += block
    except ConnectionResetError:
        pass
    asker.close()
    return data


def status(data):
    """The status of a reply; None where the connection just ended. An error has to be a JSON object that says why."""
    if not data:
        return None
    head, _, body = data.partition(b"\r\n\r\n")
    code = int(head.split()[1])
    assert head.startswith(b"HTTP/1.1 ") and 200 <= code < 600, head
    if code >= 400:
        assert b"application/json" not in head or json.loads(body)["error"], data
    return code


def get(path):
    return f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode("latin-1")


# -- each way of being hostile


def thousand_at_once(place):
    askers = [connect(place) for _ in range(1000)]
    for asker in askers:
        send(asker, get("/v1/status"))
    found = [status(reply(asker)) for asker in askers]
    assert {200, 503} <= set(found) <= {200, 503, None}, {code: found.count(code) for code in set(found)}


def half_open(place):
    """Some go at once, some stop sending in the middle and listen on, some are torn off with a reply under way."""
    listening = []
    for number in range(48):
        asker = connect(place)
        send(asker, get("/v1/threads")[: 1 + number % 40] if number % 4 else get("/v1/lanes"))
        if number % 4 == 1:
            asker.shutdown(socket.SHUT_WR)
            listening.append(asker)
            continue
        if number % 4 == 2:
            asker.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        asker.close()
    assert {status(reply(asker)) for asker in listening} <= {400, 408, 503, None}


def huge(place):
    for data in (
        get("/v1/runs?run=" + "x" * (1 << 20)), get("/" + "%41" * 100000), b"G" * (1 << 20), b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 100000,
        b"POST /v1/finish?run=x HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999999\r\n\r\n", b"\r\n" * 300000,
    ):
        asker = connect(place)
        send(asker, data)
        asker.shutdown(socket.SHUT_WR)
        assert status(reply(asker)) in (400, 408, 413, 414, 431, 503, None), data[:40]


def nonsense(place, chance):
    for _ in range(10):
        askers = [connect(place) for _ in range(12)]
        for asker in askers:
            text = "".join(chance.choices(LETTERS, k=chance.randrange(60)))
            path = f"/v1/{chance.choice(PATHS)}?{text}" if chance.random() < 0.7 else text
            if "follow" in path:  # it would not end
                path = "/v1/follow?no"
            send(asker, get(path) if chance.random() < 0.9 else path.encode("latin-1"))
            asker.shutdown(socket.SHUT_WR)
        for asker in askers:
            status(reply(asker))


def slow(place):
    """A letter now and then, on as many connections as leave the user some of their own."""
    askers = [connect(place) for _ in range(12)]
    answers, answered = {}, 0
    request = get("/v1/status?run=" + "s" * 4000)
    sent = 0

    def all_are_cut():
        nonlocal sent, answered
        for asker in askers:
            if asker in answers:
                continue
            send(asker, request[sent:sent + 1])
            asker.settimeout(0)
            try:
                answers[asker] = asker.recv(4096)
            except BlockingIOError:
                pass
            except ConnectionResetError:
                answers[asker] = b""
        sent += 1
        answered += place.ask("/v1/status")[0] == 200
        return len(answers) == len(askers)

    wait_until(all_are_cut, what="all are cut off")
    assert {status(data) for data in answers.values()} <= {408, None} and answered == sent, "meanwhile others are answered"
    for asker in askers:
        asker.close()


def test_hostile_askers_cost_themselves_alone(place):
    daemon = place.serve("--header-timeout", "1", "--idle-timeout", "2")
    load = place.start(place.api("load"), "-t", 2, "-p", 2000, stdin=-1)
    wait_until(lambda: place.rows("processes"), what="the program is recorded")
    chance = random.Random(4)

    def all_of_it():
        for way in (thousand_at_once, half_open, huge, lambda place: nonsense(place, chance), slow):
            way(place)
            wait_until(lambda: place.ask("/v1/status")[0] == 200, what="it answers again")
        wait_until(lambda: value(metrics(place), "scoped_laned_connections") == 1, what="their connections are gone")
        found = metrics(place)
        assert value(found, "scoped_laned_queued_bytes") == 0 and value(found, "scoped_laned_followers") == 0
        return value(found, "scoped_laned_resident_bytes")

    first = all_of_it()
    later = [all_of_it() for _ in range(2)]
    assert min(later) < first + (4 << 20), "memory grows"
    assert daemon.poll() is None
    (row,) = place.rows("processes")
    assert (row["state"], row["lost"], row["paused"]) == ("live", 0, False)
    load.stdin.close()
    load.ends()
    counted = Load(place.tallies / f"{load.pid}.load")
    (run,) = wait_until(lambda: [r for r in place.rows("runs") if r["state"] == "published"], what="the run is over")
    assert (run["produced"], run["stored"], run["lost"], run["part"]) == (counted.done, counted.done, 0, 1)


def test_runs_that_are_joined_and_never_come_are_bounded(place):
    place.serve()
    for number in range(100):
        assert place.ask(f"/v1/join?run=no{number}&output=/no/such/directory/x.h5", "POST")[0] == 409
    assert place.rows("runs") == [], "of a run that could not be made nothing is left"
    for number in range(256):
        assert place.ask(f"/v1/join?run=k{number}&output={place.output}/{number}.h5", "POST")[0] == 200
    code, body = place.ask(f"/v1/join?run=more&output={place.output}/more.h5", "POST")
    assert code == 409 and "256 runs" in json.loads(body)["error"]
    for number in range(256):
        assert place.ask(f"/v1/leave?run=k{number}", "POST")[0] == 200
    wait_until(lambda: len(place.rows("runs")) == 64, what="those that are over are forgotten")
    assert not list(place.output.iterdir())


def test_programs_that_flood_it_keep_nobody_waiting(service):
    programs = [service.start(service.api("told"), "-s", 2, stdin=-1) for _ in range(2)]
    wait_until(lambda: all(program.poll() is None for program in programs), what="they run")
    for _ in range(10):  # each has 30 s
        assert service.ask("/v1/status")[0] == 200
    rows = wait_until(lambda: len(rows := service.rows("processes")) == 2 and rows, what="both are known")
    assert {row["pid"] for row in rows} == {program.pid for program in programs}
    for program in programs:
        program.stdin.close()
    for program in programs:
        program.ends()
