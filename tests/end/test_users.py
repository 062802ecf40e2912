"""A daemon of root's and a second user: who sees what, whose files they are, and what a user can do to root's."""

import json
import os
import re
import shutil
import signal
import stat
import struct
import subprocess
import tempfile
import time
import zlib
from pathlib import Path

import pytest
import spoolfile
from conftest import BUILD, Program, wait_until
from runfile import RunFile

pytestmark = [pytest.mark.beside, pytest.mark.skipif(os.getuid() != 0, reason="needs root, and a second user")]

UID = 54321  # nobody's
TABLES = ["runs", "processes", "threads", "tasks", "regions", "regions?ranks", "lanes", "where", "where?idle", "stuck?after=0", "loss",
          "unmatched"]


class User:
    """The second user, with a directory of their own that both can reach, and the programs in it."""

    def __init__(self, place):
        self.place = place
        self.gid, self.groups = UID, ["--clear-groups"]
        self.corner = Path(tempfile.mkdtemp(prefix="sl-user-", dir="/tmp"))
        self.corner.chmod(0o755)
        for path in (place.api("told"), BUILD / "lib/libscoped_lane.so.0", place.lane):
            shutil.copy(path, self.corner)
        self.home = self.corner / "home"
        self.home.mkdir(mode=0o755)
        os.chown(self.home, UID, UID)

    def words(self, *words):
        return ["setpriv", f"--reuid={UID}", f"--regid={self.gid}", *self.groups, "env", "-C", self.home, *words]

    def told(self, **env):
        """tests/api/told, in a region of its own, with a task in another."""
        told = self.place.start(*self.words(self.corner / "told"), stdin=-1, LD_LIBRARY_PATH=self.corner, **env)
        told.stdin.write(b"calls users 100\nenter users-own\nhold users-task 1\n")
        told.stdin.flush()
        wait_until(lambda: "done 3\n" in told.stdout_text, what="the user's program is in its region")
        return told

    def ask(self, path, method="GET"):
        """(status, body) of a request that the user makes."""
        words = self.words("curl", "-s", "-X", method, "-w", "\n%{http_code}", "--max-time", 20, "--unix-socket",
                           self.place.rundir / "query.sock", f"http://localhost{path}")
        done = self.place.run(*words)
        body, _, code = done.stdout_text.rpartition("\n")
        return int(code), body

    def rows(self, table):
        code, body = self.ask(f"/v1/{table}")
        assert code == 200, body
        return json.loads(body)["rows"]


@pytest.fixture
def user(place, request):
    """A second user; and in `place` a daemon of root's that serves all, with options of the test's, and a program of root's own in a
    region."""
    user = User(place)
    place.rundir.chmod(0o755)
    try:
        place.daemon = serve(place, *getattr(request, "param", []))
        place.told = place.start(place.api("told"), stdin=-1)
        place.told.stdin.write(b"calls roots 50\nenter roots-own\nhold roots-task 1\n")
        place.told.stdin.flush()
        wait_until(lambda: "done 3\n" in place.told.stdout_text, what="root's program is in its region")
        yield user
    finally:
        place.finish()
        shutil.rmtree(user.corner)


def serve(place, *options):
    """Without --output: files go to where the programs run."""
    daemon = Program(place, [place.laned, "--rundir", place.rundir, *options], env=place.env, session=True)
    wait_until(lambda: "ready" in daemon.stderr_text, what="scoped-laned is ready")
    return daemon


def end(program):
    program.stdin.close()
    program.ends()


def known(place, count):
    """Waits until the daemon has taken in so many processes' calls."""
    wait_until(lambda: len([row for row in place.rows("processes") if row["stored"]]) == count, what=f"{count} processes are known")
    wait_until(lambda: len(place.rows("tasks")) == count, what="their tasks too")


def runs_by_uid(place):
    return {row["uid"]: row for row in place.rows("runs")}


def is_published(place):
    row = wait_until(lambda: (row := runs_by_uid(place)[UID])["state"] in ("published", "failed") and row, what="the user's run is over")
    assert row["state"] == "published", row["problem"]
    return row


def test_a_user_sees_and_changes_only_what_is_theirs(user, place):
    told = user.told()
    known(place, 2)
    assert set(runs_by_uid(place)) == {0, UID}
    roots = runs_by_uid(place)[0]["run"]
    for table in TABLES:
        mine, all_rows = user.rows(table), place.rows(table)
        assert "users" in json.dumps(mine) or table in ("loss", "unmatched", "runs", "processes", "tasks", "threads"), table
        assert roots not in json.dumps(mine) and "roots" not in json.dumps(mine), (table, mine)
        assert {row["run"] for row in mine} <= {row["run"] for row in all_rows}
        if table not in ("loss", "unmatched"):
            assert mine and len(all_rows) > len(mine), table
    assert roots not in user.ask("/metrics")[1] and "users-own" in user.ask("/metrics")[1] and "roots-own" in place.ask("/metrics")[1]
    assert user.rows(f"threads?run={roots}") == [] and user.rows(f"lanes?pid={place.told.pid}") == []
    status = user.rows("status")[0]
    assert status["output"] is None and status["last_refusal"] is None and str(place.path) not in json.dumps(user.rows("config"))

    for path in (f"finish?run={roots}", f"leave?run={roots}", f"snapshot?run={roots}&output={user.home}/x.h5"):
        assert user.ask(f"/v1/{path}", "POST")[0] == 404, path
    assert json.loads(user.ask(f"/v1/pause?pid={place.told.pid}", "POST")[1])["rows"] == []
    assert user.ask(f"/v1/join?run=mine&output={place.path}/x.h5", "POST")[0] == 409 and not list(place.path.glob("x.h5*"))
    root_row = next(row for row in place.rows("processes") if row["pid"] == place.told.pid)
    assert (root_row["state"], root_row["paused"], runs_by_uid(place)[0]["state"]) == ("live", False, "recording")

    follow = subprocess.Popen([str(w) for w in user.words("curl", "-sN", "--unix-socket", place.rundir / "query.sock", "http://localhost/v1/follow")],
                              stdout=subprocess.PIPE, env=place.env)
    assert "hello" in follow.stdout.readline().decode()
    end(place.told)
    wait_until(lambda: runs_by_uid(place)[0]["state"] == "published", what="root's run is over")
    end(told)
    is_published(place)
    follow.kill()
    heard = follow.stdout.read().decode()
    follow.wait()
    assert roots not in heard and runs_by_uid(place)[UID]["run"] in heard


OBSERVERS = 54322  # no group's
MANY = ",".join(map(str, range(60000, 60100)))


@pytest.mark.parametrize("user", [["--observers-group", OBSERVERS]], indirect=True, ids=["a group"])
@pytest.mark.parametrize("gid, groups, observes",
                         [(UID, None, False), (OBSERVERS, None, True), (UID, OBSERVERS, True), (UID, f"{MANY},{OBSERVERS}", True),
                          (UID, OBSERVERS + 1, False)],
                         ids=["no member", "by its own group", "by a further one", "by the last of many", "of another group"])
def test_observers_see_all_and_change_what_is_theirs(user, place, gid, groups, observes):
    told = user.told()
    known(place, 2)
    user.gid, user.groups = gid, [f"--groups={groups}" if groups else "--clear-groups"]
    roots, mine = (runs_by_uid(place)[uid]["run"] for uid in (0, UID))
    for table in ("runs", "processes", "threads", "tasks", "regions", "lanes", "where"):
        assert {row["run"] for row in user.rows(table)} == ({roots, mine} if observes else {mine}), table
    assert ("roots-own" in user.ask("/metrics")[1]) == observes
    config = {row["key"]: row["value"] for row in user.rows("config")}
    assert config["observers-group"] == (str(OBSERVERS) if observes else None)
    follow = place.run(*user.words("curl", "-sN", "--max-time", 1, "--unix-socket", place.rundir / "query.sock", "http://localhost/v1/follow"),
                       status=28)
    assert (roots in follow.stdout_text, mine in follow.stdout_text) == (observes, True)

    for path in (f"finish?run={roots}", f"leave?run={roots}", f"snapshot?run={roots}&output={user.home}/x.h5"):
        assert user.ask(f"/v1/{path}", "POST")[0] == 404, path
    for chosen in (f"pid={place.told.pid}", f"run={roots}"):
        assert json.loads(user.ask(f"/v1/pause?{chosen}", "POST")[1])["rows"] == []
    paused = {row["pid"]: row["paused"] for row in place.rows("processes")}
    assert paused == {place.told.pid: False, told.pid: False} and runs_by_uid(place)[0]["state"] == "recording"
    assert json.loads(user.ask(f"/v1/pause?pid={told.pid}", "POST")[1])["rows"][0]["paused"]
    end(told)


def test_observers_are_named_in_the_configuration_which_may_change(user, place):
    told = user.told()
    known(place, 2)
    place.daemon.kill()
    place.daemon.wait()
    configuration = place.path / "laned.conf"
    configuration.write_text("")
    place.daemon = serve(place, "--config", configuration)
    known(place, 2)
    user.groups = ["--groups=4"]  # adm, on Debian
    seen = lambda: len({row["run"] for row in user.rows("processes")})
    assert seen() == 1
    for text, count in (("observers-group = adm\n", 2), ("observers-group = 5\n", 1), ("observers-group = 4\n", 2), ("", 1)):
        configuration.write_text(text)
        place.daemon.send_signal(signal.SIGHUP)
        wait_until(lambda: seen() == count, what=f"with {text!r} {count} run(s) are seen")
    configuration.write_text("observers-group = no-such-group\n")
    place.daemon.send_signal(signal.SIGHUP)
    wait_until(lambda: "there is no such group; going on" in place.daemon.stderr_text, what="the mistake is said")
    done = place.run(place.laned, "--rundir", place.path / "other", "--observers-group", "no-such-group", status=1)
    assert "no-such-group" in done.stderr_text
    end(told)


def test_the_files_of_a_users_run_are_the_users(user, place):
    told = user.told()
    known(place, 2)
    (spool,) = user.home.glob("*.spool")
    assert (spool.stat().st_uid, spool.stat().st_gid, stat.S_IMODE(spool.stat().st_mode)) == (UID, UID, 0o600)
    run = runs_by_uid(place)[UID]["run"]
    assert user.ask(f"/v1/snapshot?run={run}&output={user.home}/now.h5", "POST")[0] == 200
    code, body = user.ask(f"/v1/snapshot?run={run}&output={place.path}/now.h5", "POST")
    assert code == 409 and "Permission denied" in body
    assert user.ask(f"/v1/snapshot?run={run}&output={place.rundir}/now.h5", "POST")[0] == 409
    end(told)
    is_published(place)
    files = sorted(user.home.iterdir())
    assert len(files) == 2 and all((path.stat().st_uid, path.stat().st_gid) == (UID, UID) for path in files), files
    assert all(RunFile(path).calls("users") == 100 for path in files)


def test_links_that_a_user_plants_change_nothing_of_roots(user, place):
    keep = place.path / "keep"
    keep.mkdir()
    victims = {name: keep / name for name in ("file", "snapshot")}
    for victim in victims.values():
        victim.write_text("root's\n")
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_uid) for path in victims.values()}
    told = user.told()
    known(place, 2)
    row = runs_by_uid(place)[UID]
    (user.home / "now.h5").symlink_to(victims["snapshot"])
    Path(row["file"]).symlink_to(victims["file"])
    assert user.ask(f"/v1/snapshot?run={row['run']}&output={user.home}/now.h5", "POST")[0] in (200, 409)
    end(told)
    wait_until(lambda: runs_by_uid(place)[UID]["state"] in ("published", "failed"), what="the user's run is over")
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_uid) for path in victims.values()} == before

    told = user.told()  # a directory that becomes root's meanwhile
    known(place, 3)
    row = next(row for row in place.rows("runs") if row["uid"] == UID and row["state"] == "recording")
    user.home.rename(user.corner / "moved")
    user.home.symlink_to(keep)
    end(told)
    wait_until(lambda: next(r for r in place.rows("runs") if r["run"] == row["run"])["state"] == "failed", what="its file cannot be written")
    assert sorted(path.name for path in keep.iterdir()) == sorted(victims)
    (spool,) = (user.corner / "moved").glob("*.spool")
    assert spool.stat().st_size > 100 * 32, "what was recorded is kept"


def test_a_spool_that_its_user_cuts_or_swaps_harms_nobody_else(user, place):
    told = user.told()
    known(place, 2)
    (spool,) = user.home.glob("*.spool")
    os.truncate(spool, 100)
    told.stdin.write(b"calls users 100000\n")
    told.stdin.flush()
    place.told.stdin.write(b"calls roots 1000\n")
    place.told.stdin.flush()
    wait_until(lambda: any(r["produced"] == 1050 == r["stored"] for r in place.rows("processes")), what="root's calls are stored")
    place.daemon.kill()
    place.daemon.wait()
    victim = place.path / "roots"
    victim.write_bytes(b"root's\n" * 100)
    spool.unlink()
    spool.symlink_to(victim)
    again = serve(place)
    wait_until(lambda: any(r["produced"] == 1050 == r["stored"] for r in place.rows("processes")), what="root's run goes on")
    assert victim.read_bytes() == b"root's\n" * 100
    end(told)
    end(place.told)
    wait_until(lambda: any(r["uid"] == 0 and r["state"] == "published" for r in place.rows("runs")), what="root's run is over")
    assert again.poll() is None and victim.read_bytes() == b"root's\n" * 100


def test_a_user_who_writes_roots_key_into_their_spool_gets_none_of_roots_calls(user, place):
    told = user.told()
    known(place, 2)
    (spool,) = user.home.glob("*.spool")
    key = next(row["key"] for row in place.rows("runs") if row["uid"] == 0)
    place.daemon.kill()
    place.daemon.wait()
    told.kill()
    told.wait()
    rewrite_key(spool, key)
    again = serve(place)
    end(place.told)
    (row,) = wait_until(lambda: [r for r in place.rows("runs") if r["key"] == key and r["state"] in ("published", "failed")], what="root's run is over")
    assert (row["uid"], row["state"], row["stored"]) == (0, "published", 50)
    assert f"cannot read the spool {spool}" in again.stderr_text


def rewrite_key(spool, key):
    """As the spool's owner can: another key in its first frame, and the checksum that belongs to it."""
    data = spool.read_bytes()
    frames = list(spoolfile.frames(data))
    kind, payload = frames[0]
    mine = re.search(rb"%d:[a-z]+:[0-9a-f]+" % UID, payload)[0]
    assert len(mine) - len(str(UID)) == len(key) - 1, (mine, key)
    changed = payload.replace(mine, key.encode().ljust(len(mine), b"0"))
    head = data[64 + 4:64 + 12]
    spool.write_bytes(data[:64 + 12] + struct.pack("<I", zlib.crc32(changed, zlib.crc32(head))) + changed + data[64 + 16 + len(payload):])


def test_where_a_user_may_not_write_their_files_go_to_a_directory_of_theirs(user, place):
    user.home.chmod(0o555)
    os.chown(user.home, 0, 0)
    told = user.told()
    known(place, 2)
    end(told)
    row = is_published(place)
    assert row["lost"] == 0
    path = Path(row["file"])
    assert path.parent == place.rundir / "runs" / str(UID)
    assert (path.stat().st_uid, path.parent.stat().st_uid, stat.S_IMODE(path.parent.stat().st_mode)) == (UID, UID, 0o700)
    assert (place.rundir / "runs").stat().st_uid == 0 and RunFile(path).calls("users") == 100


@pytest.mark.parametrize("user", [["--stuck-after", 1]], indirect=True, ids=["stuck after a second"])
def test_a_roll_call_is_written_as_its_user_would_and_follows_no_link_of_theirs(user, place):
    victim = place.path / "victim"
    victim.write_text("root's own")
    told = user.told()
    run = wait_until(lambda: runs_by_uid(place).get(UID), what="the user's run is known")
    stem, now = run["file"][:-3], time.time()
    planted = [f"{stem}.stuck-{time.strftime('%Y%m%dT%H%M%S', time.localtime(now + i))}.json" for i in range(120)]
    for path in planted:
        os.symlink(victim, path)
    refused = f"cannot write the roll call {stem}"
    wait_until(lambda: refused in place.daemon.stderr_text, what="the planted link is refused")
    assert victim.read_text() == "root's own" and all(os.path.islink(path) for path in planted)
    for path in planted:
        os.unlink(path)
    told.stdin.write(b"calls users 1\n")
    told.stdin.flush()  # its lane goes on, and is stuck once more
    (path,) = wait_until(lambda: list(user.home.glob("*.stuck-*.json")), what="the roll call is written")
    wait_until(lambda: path.read_text().endswith("\n"), what="all of it")
    assert path.stat().st_uid == UID and json.loads(path.read_text())["run"] == run["run"]
    end(told)
    is_published(place)
