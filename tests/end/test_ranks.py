"""Claims of ranks that collide, are out of range or missing: each time one valid file with every process in it."""

import shlex

import pytest
from runfile import RunFile, accept

pytestmark = pytest.mark.beside


class Shell:
    """A shell script of processes that each record `calls` calls of a region of their own."""

    def __init__(self, place):
        self.place, self.lines = place, []

    def process(self, region, calls, claim=None, by_launcher=True):
        words = [self.place.api("pairs"), "-n", calls, region]
        if claim is not None and by_launcher:
            words.insert(0, f"OMPI_COMM_WORLD_RANK={claim}")
        elif claim is not None:
            words[1:1] = ["-r", claim]
        self.lines.append(shlex.join(["env", *map(str, words)]))
        return self

    def record(self, at_once=False):
        script = " & ".join(self.lines) + " & wait" if at_once else " && ".join(self.lines)
        self.place.run(self.place.lane, "run", "-o", "ranks.h5", "--", "sh", "-c", script)
        assert [path.name for path in self.place.path.glob("*.h5")] == ["ranks.h5"]
        return RunFile(self.place.path / "ranks.h5")


@pytest.fixture
def shell(place):
    return Shell(place)


def regions(file):
    """{file rank: {region: calls}}"""
    return {
        rank: {name: calls for name in file.run.region_names if (calls := file.calls(name, rank))} for rank in file.ranks
    }


def test_of_two_processes_that_claim_a_rank_the_first_gets_it_and_the_other_follows_the_highest(shell):
    file = shell.process("first", 10, claim=0).process("second", 20, claim=0).process("third", 30, claim=5).record()
    assert regions(file) == {0: {"first": 10}, 5: {"third": 30}, 6: {"second": 20}}
    accept(file.path)


@pytest.mark.parametrize("by_launcher", [True, False], ids=["by the launcher's variable", "by sl_rank"])
def test_claims_of_70000_and_minus_3_become_ranks_after_the_others(shell, by_launcher):
    shell.process("high", 1, 70000, by_launcher).process("below", 2, -3, by_launcher).process("zero", 3, 0, by_launcher)
    file = shell.record()
    assert regions(file) == {0: {"zero": 3}, 1: {"high": 1}, 2: {"below": 2}}
    accept(file.path)


def test_unranked_processes_that_come_before_rank_0_leave_it_its_number(shell):
    file = shell.process("before", 4).process("before too", 5).process("rank", 6, claim=0).record()
    assert regions(file) == {0: {"rank": 6}, 1: {"before": 4}, 2: {"before too": 5}}
    accept(file.path)


def test_a_claim_goes_to_the_first_process_with_calls(shell):
    file = shell.process("none", 0, claim=0).process("some", 8, claim=0).record()
    assert regions(file) == {0: {"some": 8}}


def test_sixteen_processes_of_no_launcher_are_sixteen_ranks_of_one_file(shell):
    for number in range(16):
        shell.process(f"p{number}", 100 + number)
    file = shell.record(at_once=True)
    assert file.ranks == list(range(16))
    assert sorted(tuple(by.items()) for by in regions(file).values()) == sorted(((f"p{n}", 100 + n),) for n in range(16))
    accept(file.path)


def test_the_file_keeps_what_each_process_claimed(shell):
    file = shell.process("a", 1, claim=3).process("b", 2, claim=3).process("c", 3).record()
    claimed = {row["rank"]: row["claimed_rank"] for row in file.table("processes")}
    assert claimed[3] == claimed[4] == 3
    assert claimed[5] != 3


def test_a_second_run_of_the_service_overwrites_nothing(service):
    for calls in (1, 2):
        service.run(service.api("pairs"), "-n", calls, "work")
        service.run_files(calls)
    assert sorted(RunFile(path).calls("work", 0) for path in service.run_files(2)) == [1, 2]
