"""/v1/follow: a line for each change of state. Whoever reads slowly loses lines and knows how many; nobody else notices."""

import json
import os
import signal
import socket
import subprocess
import threading

from conftest import wait_until
from still import end, start_still
from test_metrics import metrics, value


class Follower:
    """Reads /v1/follow on a thread of its own, as curl gets it."""

    def __init__(self, place, query=""):
        self.curl = subprocess.Popen(
            ["curl", "-sfN", "--unix-socket", place.rundir / "query.sock", f"http://localhost/v1/follow{query}"],
            stdout=subprocess.PIPE, env=place.env,
        )
        self.lines = []
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()
        wait_until(lambda: self.lines, what="the follower has heard hello")

    def read(self):
        for line in self.curl.stdout:
            self.lines.append(json.loads(line))

    def heard(self, **members):
        return [line for line in list(self.lines) if all(line.get(name) == value for name, value in members.items())]

    def hears(self, **members):
        return wait_until(lambda: self.heard(**members), what=f"the follower hears {members}")[0]

    def ends(self):
        """The exit status, once the daemon has closed the stream."""
        self.thread.join(30)
        return self.curl.wait(30)


def many_tasks(place, count):
    program = place.start(place.api("many_tasks"), count, 5, stdin=-1)
    program.stdin.write(b"go on\n")
    program.stdin.close()
    return program.ends()


def test_a_run_is_told_from_its_beginning_to_its_file(service):
    follower = Follower(service)
    assert follower.lines[0]["event"] == "hello" and follower.lines[0]["schema"] == "scoped-lane/follow/1"
    program = start_still(service)
    run = follower.hears(event="run", state="recording")
    process = follower.hears(event="process", state="live")
    assert (process["run"], process["pid"], process["rank"]) == (run["run"], program.pid, None)
    assert follower.hears(event="thread", name="computes", state="live")["pid"] == program.pid
    end(program)
    assert follower.hears(event="process", state="ended")["pid"] == program.pid
    assert follower.hears(event="thread", name="works", state="ended")
    published = follower.hears(event="run", state="published")
    assert published["file"] == str(service.run_file()) and published["problem"] is None
    assert [line["state"] for line in follower.heard(event="run")] == ["recording", "converting", "published"]
    times = [line["time_ns"] for line in follower.lines]
    assert times == sorted(times) and not follower.heard(event="task") and not follower.heard(event="lost")
    service.daemon.send_signal(signal.SIGTERM)
    service.daemon.wait(60)
    assert follower.ends() == 0, "the stream has a proper end"


def test_who_comes_later_hears_how_things_stand_and_tasks_are_told_when_asked_for(service):
    program = start_still(service)
    follower, other = Follower(service, "?tasks"), Follower(service, "?run=nobodys")
    assert follower.hears(event="run", initial=True)["state"] == "recording"
    assert follower.hears(event="process", initial=True)["pid"] == program.pid
    tasks = many_tasks(service, 50)
    follower.hears(event="run", state="published")
    begun, done = follower.heard(event="task", state="live"), follower.heard(event="task", state="done")
    assert len({line["index"] for line in begun + done}) == 50 and len(done) == 50 and {line["pid"] for line in done} == {tasks.pid}
    os.kill(program.pid, signal.SIGKILL)
    wait_until(lambda: follower.heard(event="process", pid=program.pid, state="killed") or
               follower.heard(event="process", pid=program.pid, state="vanished"), what="the kill is told")
    program.ends(status=None)
    assert [line["event"] for line in other.lines] == ["hello"]
    follower.curl.kill()
    other.curl.kill()
    wait_until(lambda: value(metrics(service), "scoped_laned_followers") == 0, what="the followers have gone")


def connect(place, receive_bytes=None):
    """A reader that has asked to follow, and does not read."""
    reader = socket.socket(socket.AF_UNIX)
    if receive_bytes:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    reader.connect(str(place.rundir / "query.sock"))
    reader.sendall(b"GET /v1/follow?tasks HTTP/1.1\r\nHost: x\r\n\r\n")
    wait_until(lambda: value(metrics(place), "scoped_laned_followers"), what="it follows")
    return reader


def read_all(reader):
    """The events of a chunked stream, up to its end or until nothing comes any more."""
    data = b""
    reader.settimeout(2)
    try:
        while block := reader.recv(1 << 16):
            data += block
    except (TimeoutError, ConnectionError):
        pass
    text, body = data.split(b"\r\n\r\n", 1)[1], b""
    while b"\r\n" in text:
        size, text = text.split(b"\r\n", 1)
        body, text = body + text[: int(size, 16)], text[int(size, 16) + 2:]
    return [json.loads(line) for line in body.split(b"\n")[:-1]]


TASKS = 6000


def make_tasks(place):
    program = many_tasks(place, TASKS)
    wait_until(lambda: [r for r in place.rows("runs") if r["state"] == "published"], what="the run is over")
    (row,) = [row for row in place.rows("processes") if row["pid"] == program.pid]
    assert row["lost"] == 0 and row["produced"] == row["stored"] == 3 * TASKS, "the drain has not waited for anybody"


def test_a_rank_or_a_process_alone_is_followed(service):
    start = lambda rank: service.start(service.api("loop"), "task", 0, stdin=-1, OMPI_COMM_WORLD_RANK=rank, SCOPED_LANE_RUN="ranks")
    old = start(3)
    wait_until(lambda: service.rows("processes"), what="the first is known")
    all_, rank, process = Follower(service, "?tasks"), Follower(service, "?rank=4&tasks"), Follower(service, f"?pid={old.pid}")
    assert process.hears(event="process", initial=True)["pid"] == old.pid and rank.hears(event="run", initial=True)["state"] == "recording"
    programs = [start(4), start(5)]
    for program in programs:
        all_.hears(event="task", pid=program.pid)
    for program in [old, *programs]:
        program.stdin.close()
        program.ends()
    for follower in (all_, rank, process):
        follower.hears(event="run", state="published")
    of_ranks = lambda follower: {line["rank"] for line in follower.lines if "rank" in line}
    assert (of_ranks(all_), of_ranks(rank), of_ranks(process)) == ({3, 4, 5}, {4}, {3})
    own = lambda follower, pid: [line for line in follower.lines if line.get("pid") == pid and not line.get("initial")]
    assert own(rank, programs[0].pid) == own(all_, programs[0].pid) and len(own(rank, programs[0].pid)) > 3
    assert {line["event"] for line in own(process, old.pid)} == {"process", "thread"}
    status, body = service.ask("/v1/follow?rank=first")
    assert status == 400 and "whole number" in body
    assert value(metrics(service), "scoped_laned_followers") == 3, "one that was refused is none"


def test_a_slow_reader_loses_lines_and_is_told_how_many(place):
    place.serve("--reply-size", "64K", "--write-timeout", "3600")
    follower, reader = Follower(place, "?tasks"), connect(place)
    make_tasks(place)
    follower.hears(event="run", state="published")
    lost = value(metrics(place), "scoped_laned_follow_lines_lost_total")
    assert lost > 0
    events = read_all(reader)
    told = sum(line["lines"] for line in events if line["event"] == "lost")
    missed_by_curl = sum(line["lines"] for line in follower.heard(event="lost"))
    assert told + missed_by_curl == lost and told > 0
    kept = [line for line in events if line["event"] != "lost"]
    all_lines = [line for line in follower.lines if line["event"] != "lost"]
    if not missed_by_curl:
        assert len(kept) + told == len(all_lines)
    reader.close()


def test_a_reader_that_takes_nothing_is_dropped(place):
    place.serve("--reply-size", "64K", "--write-timeout", "1")
    reader = connect(place)

    def dropped():
        many_tasks(place, 500)  # until the kernel takes no more for the reader either
        return value(metrics(place), "scoped_laned_followers") == 0

    wait_until(dropped, what="it was dropped")
    reader.close()
