"""Both sides are dead: what they left becomes run files, and what is finished goes away."""

import json

import pytest
from runfile import RunFile, accept
from test_restart import waiting_pairs

pytestmark = pytest.mark.beside


def rows_of(place, *words):
    return [row for row in json.loads(place.command("gc", "--json", *words)) if str(place.path) in row["path"] or mine(place, row)]


def mine(place, row):
    return str(place.rundir) in row["path"] or row["path"].rsplit("/", 1)[-1] in place.names


def both_dead(service, calls):
    """A program and its daemon, killed; its segment's name is kept in service.names."""
    pairs = waiting_pairs(service, calls, "work")
    service.names = [path.name for path in service.segments()]
    assert len(service.names) == 1
    service.daemon.kill()
    service.daemon.wait()
    pairs.kill()
    pairs.wait()


def test_salvage_makes_the_run_file_of_a_dead_daemon_and_its_dead_program(service):
    both_dead(service, 900)
    assert service.segments()
    service.command("salvage")
    file = RunFile(service.run_file())
    assert file.calls("work", 0) == 900
    assert not service.segments() and not list(service.output.glob("*.spool"))
    accept(service.run_file())


def test_gc_shows_what_lies_about_and_keeps_what_was_not_read(service):
    both_dead(service, 20)
    kinds = {row["kind"]: row for row in rows_of(service)}
    assert "salvage" in kinds["spool"]["state"] and not kinds["spool"]["removed"]
    service.command("salvage")
    assert RunFile(service.run_file()).calls("work", 0) == 20
    assert rows_of(service) == []


def test_salvage_of_nothing_is_said(place):
    assert place.run(place.lane, "salvage").stderr_text
