"""Fork and its family, exec, descriptors closed behind our back, and the ways a program begins and ends: each process image is
a process of its own, each call is recorded once, under the process that made it, and nothing of the program's is touched."""

import collections
import signal
import subprocess
import time

import pytest
from conftest import BUILD, wait_until
from runfile import RunFile

UNFOLLOWED = {"child", "child again", "grandchild", "daemon"}  # regions of children that record only when they are followed


class Forks:
    def __init__(self, service, scene, status=0, afterwards=lambda: None, **env):
        self.service, log = service, service.path / "log"
        self.files = service.path / "files"
        self.files.mkdir()
        env |= {"FORKS_LOG": log, "FORKS_FILES": self.files, "FORKS_PAIRS": service.api("pairs"), "SCOPED_LANE_RUN": "forks"}
        self.program = service.run(service.api("forks"), scene, status=status, **env)
        afterwards()
        wait_until(lambda: not service.segments(), what="all processes have ended and their segments are taken away")
        self.file = RunFile(service.run_file())
        self.made = collections.Counter()
        for line in log.read_text().splitlines():
            pid, rest = line.split(" ", 1)
            region, calls = rest.rsplit(" ", 1)
            self.made[int(pid), region] += int(calls)
        self.processes = sorted(self.file.table("processes"), key=lambda row: row["start_ns"])
        self.of = {row["rank"]: row["pid"] for row in self.processes}

    def recorded(self):
        """Counter of (pid, region): calls in the file."""
        found = collections.Counter()
        for region in self.file.run:
            for rank, data in region.regions.items():
                if data.num_calls:
                    found[self.of[rank], region.name] += data.num_calls
        return found

    def expects(self, *states, followed=True, executed=()):
        """The file holds what the processes made (the children only if followed), and nothing is lost."""
        expected = collections.Counter({key: n for key, n in self.made.items() if followed or key[1] not in UNFOLLOWED})
        found = self.recorded()
        for pid in executed:
            assert found.pop((pid, "executed")) == 7
        assert found == expected
        assert [row["state"] for row in self.processes] == list(states)
        assert all(row["lost"] == 0 and row["produced"] == row["stored"] for row in self.processes)
        return self

    def parents(self):
        """For each process the position of its parent among them, None when that is not recorded."""
        pids = [row["pid"] for row in self.processes]
        return [pids.index(row["parent_pid"]) if row["parent_pid"] in pids else None for row in self.processes]


ONE_CHILD = ["fork", "fork and _exit", "clone"]


@pytest.mark.parametrize("scene", ONE_CHILD + ["double fork", "many forks"])
def test_children_of_fork_record_nothing_and_leave_their_parents_calls_alone(service, scene):
    forks = Forks(service, scene).expects("ended", followed=False)
    assert forks.processes[0]["unmatched"] == 0


@pytest.mark.parametrize("scene", ONE_CHILD)
def test_a_followed_child_is_a_process_of_its_own_in_which_nothing_is_open(service, scene):
    forks = Forks(service, scene, SCOPED_LANE_FORK="follow")
    forks.expects("ended", "ended" if scene == "fork" else "vanished")
    assert forks.parents() == [None, 0]
    assert [row["unmatched"] for row in forks.processes] == [0, 1]  # it left a region that its parent had entered
    assert forks.file.table("open_calls") == []


def test_a_followed_grandchild_is_a_third_process(service):
    forks = Forks(service, "double fork", SCOPED_LANE_FORK="follow").expects("ended", "ended", "ended")
    assert forks.parents() == [None, 0, 1]


def test_followed_children_that_run_at_once_are_a_process_each(service):
    forks = Forks(service, "many forks", SCOPED_LANE_FORK="follow").expects(*["ended"] * 21)
    assert forks.parents() == [None] + [0] * 20


def test_a_vfork_child_records_as_the_thread_that_waits_for_it(service):
    Forks(service, "vfork").expects("ended")


@pytest.mark.parametrize("scene", ["posix_spawn", "vfork and exec"])
def test_a_program_that_is_spawned_is_a_process_of_its_own_in_the_same_run(service, scene):
    forks = Forks(service, scene)
    forks.expects("ended", "ended", executed=[forks.processes[1]["pid"]])
    assert forks.parents() == [None, 0]


def test_an_image_that_executes_another_ends_as_exec_with_what_it_held_open(service):
    forks = Forks(service, "exec")
    forks.expects("exec", "ended", executed=[forks.processes[1]["pid"]])
    assert forks.processes[0]["pid"] == forks.processes[1]["pid"]
    (open_call,) = forks.file.table("open_calls")
    assert (open_call["region"], open_call["rank"]) == ("held", forks.processes[0]["rank"])


def test_an_image_that_executes_another_ends_as_exec_also_where_both_are_over_when_a_scan_finds_them(place):
    """Before the daemon looks at any socket, as where it is held up for longer than it waits between two scans."""
    daemon = place.serve()
    daemon.send_signal(signal.SIGSTOP)
    frozen_at = time.monotonic()

    def wait_for_scan():
        wait_until(lambda: time.monotonic() - frozen_at > 2, what="the next scan is due")
        daemon.send_signal(signal.SIGCONT)

    forks = Forks(place, "exec", afterwards=wait_for_scan)
    forks.expects("exec", "ended", executed=[forks.processes[1]["pid"]])


def test_a_daemon_is_a_fork_child_whose_parent_left_at_once(service):
    Forks(service, "daemon").expects("vanished", followed=False)


def test_a_followed_daemon_is_recorded_on(service):
    forks = Forks(service, "daemon", SCOPED_LANE_FORK="follow").expects("vanished", "ended")
    assert forks.parents() == [None, 0]


@pytest.mark.parametrize("scene", ["closefrom", "closefrom, sockets"])
def test_descriptors_that_the_program_closed_and_took_again_are_the_programs(service, scene):
    forks = Forks(service, scene)
    (process,) = forks.processes
    assert process["state"] == "ended"
    made = sum(forks.made.values())
    assert process["produced"] == made == process["stored"] + process["lost"]  # it outruns a daemon that it cannot wake
    assert forks.recorded().keys() <= forks.made.keys() and process["stored"] > made / 10
    assert forks.program.stderr_text == ""
    assert all(path.stat().st_size == 0 for path in forks.files.iterdir())


def test_destructors_of_thread_specific_data_record_in_all_passes(service):
    forks = Forks(service, "thread-specific data").expects("ended")
    per_thread = collections.Counter(
        thread for data in forks.file.run.get_region("destructor").regions.values() for thread in data.thread_ids.tolist()
    )
    assert sorted(per_thread.values()) == [1, 1, 2, 2, 3, 3, 4, 4]
    assert len(forks.file.threads(0)) == 8


def test_constructors_atexit_handlers_and_destructors_record(service):
    forks = Forks(service, "early and late", FORKS_EARLY="1").expects("ended")
    assert {region for _, region in forks.recorded()} == {"constructor", "main", "atexit", "destructor"}


def test_a_process_that_leaves_at_once_has_its_calls_its_open_ones_and_its_status(service):
    forks = Forks(service, "_exit", status=7).expects("vanished")
    assert [row["region"] for row in forks.file.table("open_calls")] == ["held"]
    (process,) = forks.processes
    assert not process["has_exit"] or process["exit_status"] == 7
