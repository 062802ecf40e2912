"""What cannot be done is said: what was tried, on what, and why it failed; exit status 1 or 2; and nothing is lost."""

import os
import re
import shutil
import socket
import struct
import subprocess

import h5py
import pytest
from conftest import ROOT, SHM, wait_until
from runfile import RunFile

pytestmark = pytest.mark.beside

REFERENCE = ROOT / "tests" / "reference" / "threads.h5"


def refused(program, *words):
    """It ended with 1 or 2, with one line or a few on stderr that hold all the words, and nothing on stdout."""
    assert program.returncode in (1, 2), (program.returncode, program.stderr_text)
    for word in words:
        assert re.search(word, program.stderr_text, re.I), f"{word!r} is not in {program.stderr_text!r}"
    assert program.stdout_text == ""
    assert len(program.stderr_text.splitlines()) <= 4, program.stderr_text
    return program.returncode


# -- the command line


def test_an_unknown_subcommand_is_named(place):
    assert refused(place.run(place.lane, "fly", status=None), "fly") == 2


def test_an_unknown_option_is_named(place):
    assert refused(place.run(place.lane, "ps", "--wings", status=None), "wings") == 2
    assert refused(place.run(place.laned, "--wings", status=None), "wings") == 2


def test_run_without_a_command_is_misuse(place):
    assert refused(place.run(place.lane, "run", status=None), "run") == 2


def test_a_command_that_does_not_exist_is_named(place):
    run = place.run(place.lane, "run", "--", "./no-such-program", status=None)
    assert run.returncode in (1, 2, 126, 127)
    assert "no-such-program" in run.stderr_text and "No such file" in run.stderr_text


def test_asking_where_no_daemon_is_says_where_was_looked(place):
    assert refused(place.run(place.lane, "ps", status=None), str(place.rundir)) == 1


def test_an_unknown_key_of_the_configuration_is_named_with_its_file(place):
    (place.path / "laned.ini").write_text("wings = 2\n")
    refused(place.run(place.laned, "--config", "laned.ini", "--rundir", place.rundir, status=None), "wings", "laned.ini")


# -- output


def test_output_that_cannot_be_written_is_refused_before_the_program_starts(place):
    words = ["--", "touch", "started"]
    refused(
        place.run(place.lane, "run", "-o", "no/such/dir/run.h5", *words, status=None),
        "no/such/dir/run.h5|no/such/dir",
        "No such file or directory",
    )
    (place.path / "directory").mkdir()
    refused(place.run(place.lane, "run", "-o", "directory", *words, status=None), "directory", "is a directory")
    assert not (place.path / "started").exists()


@pytest.mark.parametrize("text", [b"my notes, not a run\n", b"\x89HDF\r\n\x1a\n but cut", b""], ids=["text", "broken", "empty"])
def test_run_does_not_overwrite_a_file_that_is_not_a_run(place, text):
    notes = place.path / "notes.h5"
    notes.write_bytes(text)
    run = place.run(place.lane, "run", "-o", "notes.h5", "--", "touch", "started", status=None)
    refused(run, "notes.h5", "not a run")
    assert notes.read_bytes() == text
    assert not (place.path / "started").exists()


def test_run_does_not_overwrite_or_crash_on_a_damaged_run(place):
    damaged = bytearray(REFERENCE.read_bytes())
    damaged[2838] ^= 0xFF  # HDF5 1.10 follows it to nowhere
    (place.path / "damaged.h5").write_bytes(damaged)
    run = place.run(place.lane, "run", "-o", "damaged.h5", "--", "touch", "started", status=None)
    refused(run, "damaged.h5", "damaged|not a run")
    assert not (place.path / "started").exists()
    assert (place.path / "damaged.h5").read_bytes() == damaged


def test_output_that_becomes_unwritable_meanwhile_is_said_and_what_was_recorded_is_kept(place):
    (place.path / "out").mkdir()
    script = f"{place.api('pairs')} -n 77 work && mv out gone"
    run = place.run(place.lane, "run", "-o", "out/run.h5", "--", "sh", "-c", script, status=None)
    assert run.returncode == 1
    assert "out/run.h5" in run.stderr_text and "No such file or directory" in run.stderr_text
    assert [path for path in (place.path / "gone").iterdir() if path.stat().st_size > 77 * 32], "neither file nor spool"


# -- run files


@pytest.mark.parametrize("name", ["missing", "text", "empty", "directory", "truncated", "other HDF5"])
def test_report_says_why_a_file_is_not_a_run(place, name):
    path = place.path / "x.h5"
    match name:
        case "text":
            path.write_text("hello\n")
        case "empty":
            path.touch()
        case "directory":
            path.mkdir()
        case "truncated":
            path.write_bytes(REFERENCE.read_bytes()[:-2000])
        case "other HDF5":
            h5py.File(path, "w").close()
    why = {"missing": "No such file", "directory": "is a directory|not a"}.get(name, "not|truncated|cut|schema")
    assert refused(place.run(place.lane, "report", "x.h5", status=None), "x.h5", why) == 1


def test_report_reads_what_scope_profiler_wrote(place):
    shutil.copy(REFERENCE, place.path)
    text = place.command("report", "threads.h5")
    assert "outer" in text and "alpha" in text


# -- the daemon


def test_a_second_daemon_is_refused_and_the_first_goes_on(service):
    second = service.run(service.laned, "--rundir", service.rundir, "--output", service.output, status=None)
    assert refused(second, str(service.rundir)) == 1
    assert service.daemon.poll() is None
    service.run(service.api("pairs"), "-n", 3, "work")
    assert RunFile(service.run_file()).calls("work", 0) == 3


def test_a_daemon_takes_over_the_sockets_of_a_killed_one(service):
    service.daemon.kill()
    service.daemon.wait()
    assert (service.rundir / "query.sock").exists()
    service.serve()
    assert service.query("/v1/status")["schema"].startswith("scoped-lane/status/")


def test_what_lies_where_a_socket_should_be_is_left_alone(place):
    (place.rundir / "query.sock").write_text("mine\n")
    daemon = place.run(place.laned, "--rundir", place.rundir, "--output", place.output, status=None)
    refused(daemon, "query.sock")
    assert (place.rundir / "query.sock").read_text() == "mine\n"


def test_a_socket_path_that_is_too_long_is_refused_not_cut(place):
    long = place.path / ("d" * 120)
    for make in (False, True):
        if make:
            long.mkdir()
        refused(place.run(place.laned, "--rundir", long, "--output", place.output, status=None), "too long", "107")
    assert not list(place.path.glob("ddd*/*"))
    assert not [path for path in place.path.iterdir() if path.is_socket()]


def test_a_path_that_just_fits_is_used_whole(place):
    room = 107 - len(str(place.rundir)) - 1 - len("/register.sock")
    place.rundir = place.rundir / ("d" * room)
    place.env["SCOPED_LANE_RUNDIR"] = str(place.rundir)
    place.serve()
    assert len(str(place.rundir / "register.sock")) == 107
    place.run(place.api("pairs"), "-n", 3, "work")
    assert RunFile(place.run_file()).calls("work", 0) == 3


# -- what the machine has not


def full_shm(place, *words):
    """The words run where /dev/shm has no page left: in a mount namespace of their own."""
    try:
        subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/dev/shm"], check=True, capture_output=True)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no mount namespace here: {error.stderr.decode().strip()}")
    script = 'mount -t tmpfs -o size=16k none /dev/shm && ! cat /dev/zero >/dev/shm/filler 2>/dev/null && exec "$@"'
    return place.run("unshare", "-m", "sh", "-c", script, "sh", *words, status=None)


def test_on_a_full_dev_shm_the_program_goes_on_and_the_reason_is_said(place):
    run = full_shm(place, place.lane, "run", "-o", "run.h5", "--", place.api("pairs"), "-n", 5, "work")
    assert run.stdout_text.split()[1:] == ["5", "0"]
    assert re.search("/dev/shm", run.stderr_text) and re.search("no space|full", run.stderr_text, re.I), run.stderr_text


def test_an_mpi_program_runs_through_on_a_full_dev_shm(service):
    alone = service.run(*service.mpirun(2, service.example("heat"), "-n", 60, "-s", 20), SCOPED_LANE="off")
    full = full_shm(service, *service.mpirun(2, "--mca", "btl", "self,tcp", service.example("heat"), "-n", 60, "-s", 20))
    assert full.returncode == 0, full.stderr_text
    assert full.stdout_text == alone.stdout_text


def test_a_client_of_another_abi_is_refused_by_both_numbers_and_its_program_goes_on(service):
    tree = service.path / "other"
    shutil.copytree(ROOT / "proto", tree / "proto")
    shutil.copytree(ROOT / "client", tree / "client")
    header = tree / "proto" / "segment.h"
    text, found = re.subn(r"(#define SL_ABI_VERSION\s+)(\d+)", lambda m: m[1] + str(int(m[2]) + 76), header.read_text())
    assert found == 1
    header.write_text(text)
    ours = int(re.search(r"#define SL_ABI_VERSION\s+(\d+)", text)[1]) - 76
    subprocess.run(
        ["cc", "-std=gnu11", "-D_GNU_SOURCE", '-DSL_VERSION="other"', "-O1", "-fPIC", "-shared", "-fvisibility=hidden"]
        + ["-I", tree, "-I", tree / "client", "-Wl,-soname,libscoped_lane.so.0", "-o", tree / "libscoped_lane.so.0"]
        + [*(tree / "client").glob("*.c"), "-lpthread"],
        check=True,
    )
    program = service.run(service.api("pairs"), "-n", 1000, "work", LD_LIBRARY_PATH=tree)
    assert program.stdout_text.split()[1] == "1000" and program.stderr_text == ""

    def both_numbers():
        return {str(ours), str(ours + 76)} <= set(re.findall(r"\d+", service.daemon.stderr_text))

    wait_until(both_numbers, what="the daemon names both ABI versions")
    service.run(service.api("pairs"), "-n", 3, "work")  # and serves its own kind as ever
    assert RunFile(service.run_file()).calls("work", 0) == 3


def test_a_hello_of_another_abi_is_answered_with_the_daemons_own(service):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.settimeout(10)
        client.connect(str(service.rundir / "register.sock"))
        client.send(struct.pack("<4I160s", 0x6F6C6C68, 77, 176, 1, b""))
        magic, abi, status, pid = struct.unpack("<4I", client.recv(64))
    assert (magic, status, pid) == (0x6D6F6377, 1, service.daemon.pid)
    assert abi != 77
    wait_until(lambda: re.search(r"\b77\b", service.daemon.stderr_text), what="the daemon says what it refused")


def test_what_a_refused_client_handed_over_is_taken_away_where_it_died_before_it_heard_of_it(service):
    segment = SHM / f"scoped-lane.{os.getuid()}.{os.getpid()}.0.refused"
    other = SHM / f"not-{segment.name}"
    for path in (other, segment):
        path.write_bytes(bytes(4096))
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client, open(path) as handed:
            client.connect(str(service.rundir / "register.sock"))
            socket.send_fds(client, [struct.pack("<4I160s", 0x6F6C6C68, 78, 176, 1, b"")], [handed.fileno()])
    try:
        wait_until(lambda: not segment.exists(), what="the segment is gone")
        assert other.exists()
    finally:
        for path in (other, segment):
            path.unlink(missing_ok=True)
