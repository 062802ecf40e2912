"""doctor: why nothing is recorded, each cause made for real."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from conftest import BUILD, ROOT, wait_until
from test_pause import Told, process
from test_starved import in_shm_of

pytestmark = pytest.mark.beside

NOBODY = 65534
root_only = pytest.mark.skipif(os.getuid() != 0, reason="needs a second user")


def examine(place, *words, status=None, **env):
    """{check: [(severity, found, advice)]}; the exit status says whether something stops recording."""
    run = place.run(place.lane, "doctor", "--json", *words, status=status, **env)
    reply = json.loads(run.stdout_text)
    assert reply["schema"] == "scoped-lane/doctor/1"
    rows = {}
    for row in reply["rows"]:
        rows.setdefault(row["check"], []).append((row["severity"], row["found"], row["advice"]))
    stops = any(severity == "STOPS" for found in rows.values() for severity, _, _ in found)
    assert run.returncode == (1 if stops else 0)
    return rows


def stopped_by(rows):
    return [check for check, found in rows.items() if any(severity == "STOPS" for severity, _, _ in found)]


# ---- the machine


def test_of_a_machine_with_a_daemon_it_says_what_is_there(service):
    rows = examine(service)
    assert {"clock source", "shared memory", "daemon", "open files", "wake-up"} <= set(rows)
    assert stopped_by(rows) == []
    assert rows["daemon"] == [("ok", f"{service.rundir}: process {service.daemon.pid} of user {os.getuid()} listens", None)]
    source = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource").read_text().strip()
    assert source in rows["clock source"][0][1]
    ((severity, found, advice),) = rows["sessions"]
    grouped = "sched_autogroup_enabled" in (advice or "")
    autogroup, release = Path("/proc/sys/kernel/sched_autogroup_enabled"), os.uname().release
    is_on = autogroup.exists() and autogroup.read_text().strip() == "1"
    starves = is_on and tuple(map(int, re.findall(r"\d+", release)[:2])) >= (6, 18)
    assert release in found and (severity, grouped) == (("slow", True) if starves else ("ok", False))
    text = service.command("doctor")
    assert text.splitlines()[0].split() == ["LOOKED", "AT", "FOUND", "TO", "DO"]
    assert service.query("/v1/status")["rows"][0]["refused"] == 0, "to be looked at is no refusal"


def test_shared_memory_that_is_missing_full_or_on_a_disk_is_told(place):
    rows = examine(place, SCOPED_LANE_SHM_DIR=place.path / "missing")
    assert stopped_by(rows) == ["shared memory"] and "No such file" in rows["shared memory"][0][1]
    rows = examine(place, SCOPED_LANE_SHM_DIR="/proc")
    assert stopped_by(rows) == ["shared memory"]
    run = place.run(*in_shm_of("32k", place.lane, "doctor", "--json"), status=1)
    row = next(row for row in json.loads(run.stdout_text)["rows"] if row["check"] == "shared memory")
    assert row["severity"] == "STOPS" and "32.0 KiB of 32.0 KiB are free" in row["found"]
    if os.stat("/").st_dev != os.stat("/dev/shm").st_dev:
        rows = examine(place, SCOPED_LANE_SHM_DIR=ROOT)
        assert any("disk" in found for _, found, _ in rows["shared memory"])


def test_runtime_directories_that_are_no_good_are_told(place):
    rows = examine(place)
    assert all(severity == "note" for severity, _, _ in rows["daemon"]) and "none listens" in rows["daemon"][-1][1]
    daemon = place.serve()
    daemon.send_signal(signal.SIGKILL)
    daemon.wait()
    found = examine(place)["daemon"][0]
    assert "Connection refused" in found[1] and "salvage" in found[2]
    os.chmod(place.rundir, 0o777)
    assert "written by others (mode 777)" in examine(place)["runtime directory"][0][1]
    rows = examine(place, SCOPED_LANE_RUNDIR="/tmp/" + "x" * 100)
    assert stopped_by(rows) == ["runtime directory"] and "107" in rows["runtime directory"][0][1]


def test_few_open_files_and_leftovers_are_told(place):
    run = place.run("sh", "-c", f"ulimit -n 64; exec {place.lane} doctor --json", status=None)
    rows = {row["check"]: row for row in json.loads(run.stdout_text)["rows"]}
    assert rows["open files"]["severity"] == "slow" and "64 at most" in rows["open files"]["found"]

    daemon = place.serve()
    told = Told(place)
    told.do("calls work 1")
    wait_until(lambda: process(place, told.program.pid), what="it is known")
    for program in (daemon, told.program):
        program.kill()
        program.wait()
    assert "leftovers" in examine(place)
    place.command("salvage")


# ---- a process


def test_of_a_process_that_is_recorded_it_says_so(service):
    told = Told(service)
    told.do("calls work 12")
    wait_until(lambda: process(service, told.program.pid), what="it is known")
    rows = examine(service, "--pid", told.program.pid, status=0)
    assert rows["daemon"][0][1] == f"process {service.daemon.pid}, in {service.rundir}"
    assert rows["calls"] == [("ok", "12 have ended", None)]
    service.command("pause", "--pid", told.program.pid)
    assert stopped_by(examine(service, "--pid", told.program.pid)) == ["paused"]
    told.ends()


def test_a_daemon_that_stands_still_or_has_gone_is_told(service):
    told = Told(service, SCOPED_LANE_RING="16K")
    told.do("calls work 1")
    wait_until(lambda: process(service, told.program.pid), what="it is known")
    service.daemon.send_signal(signal.SIGSTOP)
    told.do("calls work 1000")
    rows = examine(service, "--pid", told.program.pid)
    assert stopped_by(rows) == ["rings"] and any("were lost" in found for _, found, _ in rows["calls"])
    service.daemon.kill()
    service.daemon.wait()
    assert "daemon" in stopped_by(examine(service, "--pid", told.program.pid))
    told.ends()
    service.serve()


def test_a_program_that_is_switched_off_or_was_there_before_the_daemon_is_told(place):
    off, early = Told(place, SCOPED_LANE="off"), Told(place)
    for told in (off, early):
        told.do("calls work 1")
    assert stopped_by(examine(place, "--pid", off.program.pid)) == ["switched off"]
    rows = examine(place, "--pid", early.program.pid)
    assert stopped_by(rows) == ["daemon"] and str(place.rundir) in rows["runtime directory" if "runtime directory" in rows else "daemon"][0][1]
    place.serve()
    rows = examine(place, "--pid", early.program.pid)
    assert stopped_by(rows) == ["start"] and "sl_attach" in rows["start"][0][2]
    off.ends()
    early.ends()


def test_a_program_without_the_library_is_told(service):
    sleeping = service.start("sleep", 1000)
    wait_until(lambda: os.readlink(f"/proc/{sleeping.pid}/exe").endswith("sleep"), what="it is sleep")
    rows = examine(service, "--pid", sleeping.pid)
    assert stopped_by(rows) == ["library"] and "sleep uses no libscoped_lane" in rows["library"][0][1]
    sleeping.kill()
    sleeping.wait()
    assert stopped_by(examine(service, "--pid", sleeping.pid)) == ["process"]
    service.run(service.lane, "doctor", "--pid", 0, status=2)


def test_a_process_that_found_no_room_is_told(service):
    words = in_shm_of("32k", "sh", "-c", f"head -c 32k /dev/zero >/dev/shm/full; exec {service.api('told')}")
    other = Told(service, SCOPED_LANE_RUN="job")
    other.do("calls work 1")
    wait_until(lambda: process(service, other.program.pid), what="another one of its run is known")
    program = service.start(*words, stdin=-1, SCOPED_LANE_RUN="job")
    program.stdin.write(b"calls work 1\n")
    program.stdin.flush()
    wait_until(lambda: "done 1" in program.stdout_text, what="it has made a call")
    rows = examine(service, "--pid", program.pid)
    assert "shared memory" in stopped_by(rows) and "is full" in rows["shared memory"][0][1]
    assert "container" in rows and "No space left" in rows["told"][0][1]
    program.stdin.close()
    program.ends()
    other.ends()


@root_only
def test_a_runtime_directory_of_another_user_is_told(service):
    os.chown(service.rundir, NOBODY, NOBODY)
    rows = examine(service)
    assert rows["runtime directory"][0][1] == f"{service.rundir} belongs to user {NOBODY}, and is not trusted"
    os.chown(service.rundir, 0, 0)
    assert rows.keys() > {"daemon"} and "none listens" in rows["daemon"][-1][1]


FORKING = """
import ctypes, os, signal, sys
library = ctypes.CDLL(sys.argv[1])
library.sl_enter(library.sl_region(b"here"))
child = os.fork()
if child == 0:
    library.sl_enter(library.sl_region(b"in the child"))
    signal.pause()
print(child, flush=True)
sys.stdin.read()
os.kill(child, signal.SIGKILL)
"""


def test_a_child_that_does_not_follow_is_told(service):
    parent = service.start(sys.executable, "-c", FORKING, BUILD / "lib" / "libscoped_lane.so", stdin=-1)
    child = int(wait_until(lambda: parent.stdout_text.strip(), what="its child"))
    rows = examine(service, "--pid", child)
    assert stopped_by(rows) == ["fork"] and f"child of process {parent.pid}" in rows["fork"][0][1]
    assert stopped_by(examine(service, "--pid", parent.pid)) == []
    parent.stdin.close()
    parent.ends()


def test_another_version_is_told(service):
    told = Told(service)
    told.do("calls work 1")
    wait_until(lambda: process(service, told.program.pid), what="it is known")
    (path,) = Path("/dev/shm").glob(f"scoped-lane.*.{told.program.pid}.*")
    with open(path, "r+b") as segment:
        segment.seek(8)
        segment.write((99).to_bytes(4, "little"))
    rows = examine(service, "--pid", told.program.pid)
    assert stopped_by(rows) == ["segment"] and "99" in rows["segment"][0][1] and "this version" in rows["segment"][0][2]
    told.ends()


@root_only
def test_setuid_and_other_users_are_told(place):
    corner = Path(tempfile.mkdtemp(prefix="sl-", dir="/tmp"))
    try:
        corner.chmod(0o755)
        told, lane = corner / "told", corner / "scoped-lane"
        words = ["cc", "-static", "-I", ROOT, "-I", ROOT / "client", ROOT / "tests/api/told.c", BUILD / "lib/libscoped_lane.a", "-o", told]
        subprocess.run(words, check=True)
        shutil.copy(place.lane, lane)
        told.chmod(0o4755)
        with subprocess.Popen([told], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, user=NOBODY, env=place.env) as program:
            try:
                rows = examine(place, "--pid", program.pid)
                assert stopped_by(rows) == ["setuid"] and "itself" in rows["library"][0][1]
                words = [lane, "doctor", "--json", "--pid", str(program.pid)]
                asked = subprocess.run(words, user=NOBODY, env=place.env, cwd="/", capture_output=True, text=True)
                assert asked.returncode == 1 and "cannot be looked into" in asked.stdout
            finally:
                program.kill()
    finally:
        shutil.rmtree(corner)
