"""What a killed process had done is in the file: every call completed before the kill, and what was open then."""

import os
import signal

import tally
from conftest import wait_until
from runfile import RunFile, accept

RANKS = 4


def holds_all(file, rank, counted):
    """A killed rank: the program may not have counted the last call of a thread although it had been recorded. No more."""
    found = {key: calls for key, (calls, _) in file.by_thread(rank).items()}
    for thread in counted.threads:
        surplus = 0
        for region in thread.counts.keys() | {r for name, r in found if name == thread.name}:
            mine = thread.counts[region].calls if region in thread.counts else 0
            stored = found.get((thread.name, region), 0)
            assert stored >= mine, f"rank {rank}, {thread.name}, {region}: {mine} completed, {stored} stored"
            surplus += stored - mine
        assert surplus <= 1, f"rank {rank}, {thread.name}: {surplus} calls more than the program made"
        yield thread, surplus


def open_agrees(stored, thread, surplus):
    """The open calls of a killed thread: those it says itself, except the one that was being entered or left."""
    said = thread.stack
    if surplus:  # recorded as closed, not yet counted as that: the call that was on top; sl_next opens its sibling
        assert stored[: len(said) - 1] == said[:-1] and len(stored) <= len(said), (stored, said)
    else:  # sl_enter had returned, the program had not noted it yet; or sl_enter's own call was not yet whole
        assert stored[: len(said)] == said and len(stored) <= len(said) + 1, (stored, said)


def test_a_rank_killed_in_mid_run_is_whole_up_to_the_kill(place):
    place.daemon = place.serve(session=False)
    run = place.start(*place.mpirun(RANKS, place.tallied("heat"), "-n", 240, "-s", 10**7))

    def all_under_way():
        tallies = tally.read_all(place.tallies)
        return len(tallies) == RANKS and all(t.calls("step") > 100 for t in tallies.values()) and tallies

    victim = wait_until(all_under_way, what="100 steps on each rank")[2]
    os.kill(victim.pid, signal.SIGKILL)
    run.ends(status=None)
    assert run.returncode != 0
    file, counted = RunFile(place.run_file()), tally.read_all(place.tallies)
    assert counted[2].calls("step") > 100

    for rank in range(RANKS):  # mpirun ends the others, at any moment too
        open_stacks = file.open_stacks(rank)
        for thread, surplus in holds_all(file, rank, counted[rank]):
            open_agrees(open_stacks.get(thread.name, []), thread, surplus)
    # the session was open on every main thread, so it is not among the calls
    assert file.calls("scope_profiler.session") == 0
    assert all(file.open_stacks(rank)["main"][0] == "scope_profiler.session" for rank in range(RANKS))
    states = {row["rank"]: row["state"] for row in file.table("processes")}
    assert states[2] in ("killed", "vanished")
    accept(file.path)


def test_processes_beside_a_killed_one_are_exact(service):
    ranks = [
        service.start(
            service.api("pairs"), "-n", 5000, "-w", "work", stdin=-1, SCOPED_LANE_RUN="beside", OMPI_COMM_WORLD_RANK=rank
        )
        for rank in range(RANKS)
    ]
    for rank in ranks:
        wait_until(lambda: rank.stdout_text.endswith("\n"), what="pairs has made its calls")
    ranks[2].kill()
    ranks[2].wait()
    for rank in ranks:
        rank.stdin.close()
    for rank in ranks[:2] + ranks[3:]:
        rank.ends()
    file = RunFile(service.run_file())
    assert [file.calls("work", rank) for rank in range(RANKS)] == [5000] * RANKS
    assert [row["state"] for row in sorted(file.table("processes"), key=lambda row: row["rank"])][0::3] == ["ended"] * 2


def test_what_was_open_at_the_kill_is_listed_by_name(service):
    pairs = service.start(service.api("pairs"), "-n", 7, "-o", "waits for ever", "-w", "work", stdin=-1)
    wait_until(lambda: pairs.stdout_text.endswith("\n"), what="pairs has made its calls")
    pairs.kill()
    pairs.wait()
    file = RunFile(service.run_file())
    assert file.calls("work", 0) == 7
    assert [(row["rank"], row["region"]) for row in file.table("open_calls")] == [(0, "waits for ever")]
    assert "waits for ever" not in file.run.region_names
    pairs.stdin.close()
