"""The machine goes down: shared memory is gone with it, and what had reached the disk becomes the run file. What each lane had open is
there too, no older than five seconds and a sync."""

import struct
import subprocess
import zlib

import pytest
from conftest import wait_until
from runfile import RunFile, accept
from spoolfile import FRAME, HEADER, frames

pytestmark = pytest.mark.beside

RUN, OPEN = 1, 9


def has_open_calls(spool):
    return any(kind == OPEN and struct.unpack_from("<II", payload)[1] for kind, payload in frames(spool.read_bytes()))


def of_another_boot(data):
    """The same spool, as a machine that has been started anew since finds it."""
    (length,) = struct.unpack_from("<I", data, HEADER + 8)
    texts = data[HEADER + FRAME : HEADER + FRAME + length].split(b"\0")
    texts[3] = texts[3][::-1]
    payload = b"\0".join(texts)
    assert len(payload) == length
    head = data[HEADER + 4 : HEADER + 12]
    crc = struct.pack("<I", zlib.crc32(payload, zlib.crc32(head)))
    return data[: HEADER + 12] + crc + payload + data[HEADER + FRAME + length :]


def test_after_a_crash_of_the_machine_the_file_has_what_had_reached_the_disk_and_what_was_open(service):
    pairs = service.start(service.api("pairs"), "-n", 900, "-o", "waits for ever", "-w", "work", stdin=subprocess.PIPE)
    wait_until(lambda: "900" in pairs.stdout_text, what="its calls are made")
    (spool,) = wait_until(lambda: list(service.output.glob("*.spool")), what="the spool is there")
    wait_until(lambda: has_open_calls(spool), what="what is open is in the spool")
    on_disk = spool.read_bytes()
    service.daemon.kill()
    service.daemon.wait()
    pairs.kill()
    pairs.wait()
    for segment in service.segments():
        segment.unlink()
    spool.write_bytes(of_another_boot(on_disk))
    service.serve()
    file = RunFile(service.run_file())
    assert file.calls("work", 0) == 900
    assert [(row["rank"], row["region"]) for row in file.table("open_calls")] == [(0, "waits for ever")]
    (process,) = file.table("processes")
    assert process["state"] == "vanished" and process["produced"] == process["stored"] + process["lost"] == 900
    accept(file.path)
    wait_until(lambda: not list(service.output.glob("*.spool")), what="the spool is gone")
