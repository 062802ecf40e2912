"""Handlers that record, ten thousand times a second, and leave by siglongjmp or not: no exit that had begun is uncounted, recording
goes on, and no stack stays full. tests/unit/test_every_instruction.c shows the same at each instruction; this one, at speed."""

import json

import pytest

from runfile import RunFile

THREADS = 2
TAIL = 10000
MODES = {
    "handlers that return": [],
    "handlers that return, on a stack of their own": ["-a"],
    "handlers that jump": ["-j"],
    "handlers that jump, and the program unwinds": ["-j", "-u"],
    "handlers that jump into the frame that calls": ["-j", "-f"],
    "handlers that jump into the frame that calls, which unwinds": ["-j", "-f", "-u"],
    "handlers that jump from a stack of their own": ["-j", "-a"],
    "handlers that jump from a stack of their own into the frame that calls": ["-j", "-a", "-f"],
}


@pytest.mark.parametrize("options", MODES.values(), ids=MODES)
def test_calls_interrupted_by_handlers_that_record_are_all_accounted_for(service, options):
    seconds = 3 if "-j" in options and "-u" not in options else 1  # so much is left behind that stacks fill up
    program = service.run(service.api("signals"), *options, "-s", seconds, "-t", THREADS)
    threads = [json.loads(line) for line in program.stdout_text.splitlines()]
    assert len(threads) == THREADS
    jumps = "-j" in options
    for own in threads:
        assert own["signals"] > 100 and (own["jumped"] > 50) == jumps, own
        counted = own["produced"] + own["unmatched"]
        assert own["completed"] <= counted <= own["begun"], own
        assert own["begun"] - own["completed"] <= own["jumped"], own
        if not jumps:
            assert own["unmatched"] == own["crossing"] == own["abandoned"] == own["too_deep"] == 0 and own["depth"] == 1, own
        if "-u" in options:
            assert own["depth"] == 1 and own["too_deep"] == 0, own
        assert own["other"] == 0 and own["too_deep"] < own["completed"] / 50, f"the stack stays full: {own}"
        assert own["in_signal"] < own["completed"] / 10, own

    file = RunFile(service.run_file())
    assert file.calls("tail") == THREADS * TAIL, "recording goes on"
    loss = file.table("loss")
    stored = file.all_calls() + len(file.table("crossing"))
    lost = sum(row["count"] for row in loss)
    assert sum(own["produced"] for own in threads) == stored + lost, loss
    by_reason = {reason: sum(row["count"] for row in loss if row["reason"] == reason) for reason in ("in flight", "in signal handler")}
    assert by_reason["in flight"] == 0, loss
    assert by_reason["in signal handler"] == sum(own["in_signal"] for own in threads)
