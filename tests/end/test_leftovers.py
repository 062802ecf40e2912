"""Jobs that are killed together with their daemons leave segments; what a user may leave is bounded, and all else goes on."""

import contextlib
import os
import signal
import subprocess
from pathlib import Path

import pytest
from conftest import wait_until

pytestmark = pytest.mark.beside


@pytest.fixture
def shm(place):
    """A /dev/shm of its own for what is started by place.inside(*words); its path, seen from here."""
    try:
        subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/dev/shm"], check=True, capture_output=True)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no mount namespace here: {error.stderr.decode().strip()}")
    script = "mount -t tmpfs -o size=64m none /dev/shm && echo there && exec cat"
    holder = place.start("unshare", "-m", "sh", "-c", script, stdin=subprocess.PIPE)
    wait_until(lambda: "there" in holder.stdout_text, what="the namespace is there")
    place.inside = lambda *words: ("nsenter", "-t", holder.pid, "-m", f"--wd={place.path}", *words)
    yield Path(f"/proc/{holder.pid}/root/dev/shm")
    holder.stdin.close()
    holder.ends(None)


def segments(shm):
    return sorted(path.name for path in shm.glob("scoped-lane.*"))


def pid_of(name):
    return int(name.split(".")[2])


def a_killed_job(place, shm, number):
    """`scoped-lane run` with its daemon and its program, all killed; the segment that is left."""
    before = set(segments(shm))
    words = [place.lane, "run", "-o", f"{number}.h5", "--", place.api("pairs"), "-n", 100, "-w", "work"]
    job = place.start(*place.inside(*words), stdin=subprocess.PIPE)
    wait_until(lambda: " 100 " in job.stdout_text, what="its calls are made")
    for pid in place.processes():
        with contextlib.suppress(OSError):
            if os.path.basename(os.readlink(f"/proc/{pid}/exe")) in ("scoped-lane", "scoped-laned", "pairs"):
                os.kill(pid, signal.SIGKILL)
    job.ends(None)
    (name,) = set(segments(shm)) - before
    wait_until(lambda: not os.path.exists(f"/proc/{pid_of(name)}"), what="its program is gone")
    return name


def test_the_oldest_leftovers_go_where_a_user_has_more_of_them_than_the_quota(place, shm):
    left = [a_killed_job(place, shm, number) for number in range(5)]
    assert segments(shm) == sorted(left), "within the usual quota all is kept"
    bytes_each = (shm / left[0]).stat().st_blocks * 512
    other = place.rundir / "service"
    words = [place.laned, "--rundir", other, "--output", place.output, "--quota", bytes_each * 2 + 100]
    daemon = place.start(*place.inside(*words))
    wait_until(lambda: len(segments(shm)) <= 2, what="the oldest are gone")
    assert segments(shm) == sorted(left[3:])
    assert "removed 3 segments" in daemon.stderr_text
    alive = place.start(*place.inside(place.api("pairs"), "-n", 7, "-w", "work"), stdin=subprocess.PIPE, SCOPED_LANE_RUNDIR=other)
    wait_until(lambda: " 7 " in alive.stdout_text, what="a program is recorded as ever")
    assert len(segments(shm)) == 3
    alive.stdin.close()
    alive.ends()
    daemon.terminate()
    daemon.ends(0)
    place.run(*place.inside(place.lane, "salvage"))
    assert segments(shm) == []
    assert len(list(place.path.glob("?.h5"))) == 5, "each has its run file"


def test_a_quota_that_is_no_size_is_misuse(place):
    assert "quota" in place.run(place.laned, "--quota", "much", status=2).stderr_text
