"""Where it runs: all ranks at once with a daemon that the first of them starts, and systems that allow little."""

import contextlib
import os
import subprocess
from pathlib import Path

import numpy as np
from conftest import BUILD, ROOT, wait_until
from fullspeed import finish, published
from runfile import RunFile

RANKS = 48


def test_of_48_ranks_that_start_at_once_the_first_starts_the_daemon_and_all_are_in_its_file(place):
    daemons = set()

    def look():
        for pid in place.processes():
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
                if os.path.basename(words[0]) == "scoped-laned" and "--convert" not in words and "--ready-fd" in words:
                    daemons.add(pid)

    def rank(number):
        launcher = {"PMIX_NAMESPACE": f"job-{place.mark}", "OMPI_COMM_WORLD_SIZE": RANKS, "OMPI_COMM_WORLD_RANK": number}
        return place.start(place.lane, "run", "-o", "run.h5", "--", place.api("pairs"), "-n", 10 + number, "work", **launcher)

    late = RANKS - 1
    ranks = [rank(number) for number in range(late)]
    wait_until(lambda: sum("\n" in each.stdout_text for each in ranks) == late, 120, "all have made their calls")
    look()
    ranks.append(rank(late))
    for each in ranks:
        each.ends(0, deadline=120)
    file = RunFile(place.path / "run.h5")
    assert file.ranks == list(range(RANKS))
    assert [file.calls("work", number) for number in range(RANKS)] == [10 + number for number in range(RANKS)]
    assert len(daemons) == 1, daemons
    assert sum("calls of 48 processes, none lost" in each.stderr_text for each in ranks) == 1


def test_without_the_right_to_trace_and_any_other_all_works(place):
    """Capabilities are taken away from both sides, as in a container; what we know of a process is what its user may know."""
    bare = ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all", "--no-new-privs"]
    words = [place.laned, "--rundir", place.rundir, "--output", place.output]
    daemon = place.start(*bare, *words)
    wait_until(lambda: "ready" in daemon.stderr_text, what="the daemon is ready")
    assert "CapEff:\t0000000000000000" in Path(f"/proc/{daemon.pid}/status").read_text()
    program = place.start(*bare, place.api("pairs"), "-n", 5000, "-o", "left open", "-w", "work", stdin=subprocess.PIPE)
    wait_until(lambda: [row["stored"] for row in place.rows("processes")] == [5000], what="its calls are stored")
    (thread,) = place.rows("threads")
    assert (thread["stack"], thread["native_id"]) == (["left open"], program.pid)
    wait_until(lambda: place.rows("threads")[0]["cpu_ns"] > 0, what="its processor time is sampled")
    (run,) = place.rows("runs")
    finish(program)
    file = RunFile(published(place, run["run"]))
    (process,) = file.table("processes")
    assert (file.calls("work", 0), process["state"], process["program"]) == (5000, "ended", str(place.api("pairs")))


TEAM = r"""
#include <omp.h>
#include <scoped_lane.h>

int main(void)
{
    sl_region_t outer = sl_region("outer"), loop = sl_region("loop");
    sl_enter(outer);
    for (int round = 0; round < 3; round++)
#pragma omp parallel num_threads(8)
    {
        sl_enter(loop);
#pragma omp barrier
        sl_exit(loop);
    }
    sl_exit(outer);
    return 0;
}
"""


LINKED = ["-I", ROOT, "-I", ROOT / "client", "-L", BUILD / "lib", f"-Wl,-rpath,{BUILD}/lib", "-lscoped_lane"]


def test_a_team_of_eight_openmp_threads_is_eight_lanes_of_a_thread_each(place):
    (place.path / "team.c").write_text(TEAM)
    place.run("cc", "-fopenmp", "-o", "team", "team.c", *LINKED)
    place.run(place.lane, "run", "--require-complete", "-o", "run.h5", "--", place.path / "team")
    file = RunFile(place.path / "run.h5")
    assert len(file.threads(0)) == 8
    loop = file.run.get_region("loop")[0]
    assert sorted(np.bincount(loop.thread_ids)) == [3] * 8
    assert file.calls("outer", 0) == 1 and file.table("crossing") == []


LEAKS = """
#include <scoped_lane.h>
#include <stdlib.h>

static void *volatile lost;

int main(void)
{
    sl_tracker_t tracker = sl_tracker_create();
    sl_tracker_install(tracker);
    for (int i = 0; i < 3; i++) {
        SL_SCOPE("allocates");
        lost = malloc(100);
        sl_task_t task = sl_task_create("task", "task", "work");
        sl_task_finish(task);
    }
    lost = NULL;
    return 0;
}
"""


def test_valgrind_looks_for_leaks_as_fast_as_ever_and_finds_the_program_s_own(place):
    """It reads all that may be read; most of what the library maps has no memory."""
    (place.path / "leaks.c").write_text(LEAKS)
    place.run("cc", "-g", "-o", "leaks", "leaks.c", *LINKED)
    words = ["valgrind", "--leak-check=full", "--errors-for-leak-kinds=all", "--error-exitcode=9", place.path / "leaks"]
    for run in ([place.lane, "run", "-o", "run.h5", "--"], []):
        done = place.run(*run, *words, status=9)
        assert "definitely lost: 300 bytes in 3 blocks" in done.stderr_text, done.stderr_text
        assert "ERROR SUMMARY: 1 errors" in done.stderr_text, done.stderr_text
    assert RunFile(place.path / "run.h5").calls("allocates", 0) == 3
