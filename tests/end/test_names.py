"""Names in /dev/shm that are removed while they are in use, as logind does when a user logs out (RemoveIPC)."""

import subprocess

from conftest import wait_until
from fullspeed import finish, published
from runfile import RunFile

CALLS = 400_000


def test_a_segment_whose_name_is_removed_while_it_is_in_use_is_recorded_to_the_end(service):
    program = service.start(service.api("full_speed"), "-t", 2, "-n", CALLS, "-b", 100, "-p", 500, "-w", stdin=subprocess.PIPE)
    wait_until(lambda: service.rows("processes"), what="it is recorded")
    (segment,) = service.segments()
    segment.unlink()
    wait_until(lambda: program.stdout_text.count("\n") == 2, 60, "all calls are made")
    (run,) = service.rows("runs")
    finish(program)
    file = RunFile(published(service, run["run"]))
    (process,) = file.table("processes")
    assert (process["state"], process["produced"]) == ("ended", 2 * CALLS)
    assert process["produced"] == process["stored"] + process["lost"] and file.all_calls() == process["stored"]


def test_without_its_name_and_its_daemon_what_the_spool_has_is_the_file_and_the_loss_is_said(service):
    program = service.start(service.api("pairs"), "-n", 300, "-w", "work", stdin=subprocess.PIPE)
    wait_until(lambda: [row["stored"] for row in service.rows("processes")] == [300], what="all is stored")
    (segment,) = service.segments()
    segment.unlink()
    service.daemon.kill()
    service.daemon.wait()
    service.daemon = service.serve()
    wait_until(lambda: service.rows("processes"), what="the next daemon has the run")
    finish(program)
    file = RunFile(service.run_file())
    (process,) = file.table("processes")
    assert file.calls("work", 0) == 300 == process["stored"]
