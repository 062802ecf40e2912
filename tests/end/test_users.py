"""A daemon of root serves all users: each sees what is theirs, and what lies in their directories is made with their rights."""

import json
import os
import shutil
import subprocess
import time

import pytest
from conftest import BUILD, wait_until
from test_restart import end, waiting_pairs

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root serves other users")
NOBODY = 65534


class Other:
    """Another user, with a directory that holds the programs."""

    def __init__(self, place):
        self.place = place
        place.rundir.chmod(0o755)
        self.home = place.rundir / "home"
        self.home.mkdir()
        shutil.copy(BUILD / "lib" / "libscoped_lane.so.0", self.home)
        shutil.copy(place.api("still"), self.home)
        shutil.chown(self.home, NOBODY, NOBODY)

    def start_still(self):
        out = self.place.path / "still.out"
        with open(out, "wb") as said:
            program = subprocess.Popen(
                [self.home / "still"], stdin=subprocess.PIPE, stdout=said, cwd=self.home, user=NOBODY, group=NOBODY, extra_groups=[],
                env=self.place.env | {"LD_LIBRARY_PATH": str(self.home)},
            )
        wait_until(lambda: out.read_text() == "still 1\n", what="the other user's program is recorded")
        return program

    def asks(self, path, *words):
        """(status, body) of what curl gets as that user."""
        done = subprocess.run(
            ["curl", "-s", "-w", "\n%{http_code}", "--unix-socket", self.place.rundir / "query.sock", *words, f"http://localhost{path}"],
            capture_output=True, text=True, user=NOBODY, group=NOBODY, extra_groups=[], cwd="/", timeout=30,
        )
        body, status = done.stdout.rsplit("\n", 1)
        return int(status), body

    def rows(self, table):
        return json.loads(self.asks(f"/v1/{table}")[1])["rows"]


@pytest.fixture
def other(place):
    other = Other(place)
    place.daemon = place.serve("--output", other.home, "--stuck-after", "1", "--stuck-command", "true")
    return other


def finish(place, program, other):
    program.stdin.close()
    program.wait(30)
    wait_until(lambda: [r for r in place.rows("runs") if r["uid"] == NOBODY and r["state"] == "published"], what="the run is over")
    (path,) = other.home.glob("still-*.h5")
    assert path.stat().st_uid == NOBODY


def test_a_user_sees_their_own_and_nothing_else(place, other):
    mine = waiting_pairs(place, 10, "root's")
    theirs = other.start_still()
    wait_until(lambda: len(place.rows("processes")) == 2, what="both are recorded")
    for table in ("processes", "threads", "lanes", "stuck?after=0"):
        rows = other.rows(table)
        assert rows and {row["pid"] for row in rows} == {theirs.pid}, table
    assert "root's" not in other.asks("/v1/regions")[1] and "root's" in json.dumps(place.rows("regions"))
    metrics, all_metrics = other.asks("/metrics")[1], place.ask("/metrics")[1]
    assert "root's" not in metrics and 'region="work"' in metrics and "root's" in all_metrics
    (root_run,) = [row["run"] for row in place.rows("runs") if row["uid"] == 0]
    status, followed = other.asks("/v1/follow", "--max-time", "1")
    assert root_run not in followed and str(theirs.pid) in followed and status == 200
    told = {row["key"]: row["value"] for row in other.rows("config")}
    assert told["stuck-after"] == 1 and told["stuck-command"] is None and told["output"] is None
    assert other.asks(f"/v1/finish?run={root_run}", "-X", "POST")[0] == 404
    assert [row["state"] for row in place.rows("runs") if row["uid"] == 0] == ["recording"]
    end(mine)
    finish(place, theirs, other)


def test_a_roll_call_is_written_as_its_user_would_and_follows_no_link_of_theirs(place, other):
    victim = place.path / "victim"
    victim.write_text("root's own")
    theirs = other.start_still()
    (run,) = wait_until(lambda: place.rows("runs"), what="its run is known")
    stem, now = run["file"][:-3], time.time()
    planted = [f"{stem}.stuck-{time.strftime('%Y%m%dT%H%M%S', time.localtime(now + i))}.json" for i in range(120)]
    for path in planted:
        os.symlink(victim, path)
    wait_until(lambda: "cannot write the roll call" in place.daemon.stderr_text, what="the planted link is refused")
    assert victim.read_text() == "root's own" and all(os.path.islink(path) for path in planted)
    for path in planted:
        os.unlink(path)
    theirs.stdin.write(b"\n")
    theirs.stdin.flush()  # a lane goes on, and is stuck once more
    (path,) = wait_until(lambda: list(other.home.glob("*.stuck-*.json")), what="the roll call is written")
    wait_until(lambda: path.read_text().endswith("\n"), what="all of it")
    assert path.stat().st_uid == NOBODY and json.loads(path.read_text())["run"] == run["run"]
    finish(place, theirs, other)
