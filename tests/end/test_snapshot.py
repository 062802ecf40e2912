"""The file now, while the program runs on: snapshot; and the end of a run at will: finish."""

import pytest
from conftest import wait_until
from runfile import RunFile, accept
from test_restart import end, waiting_pairs

pytestmark = pytest.mark.beside


def test_a_snapshot_is_a_whole_file_and_the_run_goes_on(service):
    pairs = waiting_pairs(service, 600, "work")
    wait_until(lambda: sum(row["stored"] for row in service.rows("processes")) == 600, what="the calls are stored")
    service.command("snapshot", "-o", "now.h5")
    assert RunFile(service.path / "now.h5").calls("work", 0) == 600
    accept(service.path / "now.h5")
    assert [row["state"] for row in service.rows("runs")] == ["recording"]
    end(pairs)
    assert RunFile(service.run_file()).calls("work", 0) == 600


def test_finish_writes_the_file_and_what_lives_on_goes_into_a_continuation(service):
    pairs = waiting_pairs(service, 70, "work")
    wait_until(lambda: sum(row["stored"] for row in service.rows("processes")) == 70, what="the calls are stored")
    service.command("finish")
    first = service.run_file()
    assert RunFile(first).calls("work", 0) == 70
    rows = wait_until(lambda: [r for r in service.rows("runs") if r["state"] == "recording"], what="a continuation is open")
    assert rows[0]["part"] == 2 and rows[0]["file"].endswith("-2.h5")
    end(pairs)
    wait_until(lambda: all(r["state"] == "published" for r in service.rows("runs")), what="both parts are over")
    assert RunFile(first).calls("work", 0) == 70


def test_a_call_open_at_the_finish_counts_once_in_the_part_in_which_it_ends(service):
    program = service.start(service.api("lanes"), "across", stdin=-1)
    wait_until(lambda: "ready" in program.stdout_text, what="a thread is in a call")
    wait_until(lambda: sum(row["stored"] for row in service.rows("processes")) == 3, what="the calls are stored")
    service.command("finish")
    first = RunFile(service.run_file())
    program.stdin.write(b"\n")
    program.stdin.flush()
    end(program)
    wait_until(lambda: all(r["state"] == "published" for r in service.rows("runs")), what="both parts are over")
    (second,) = (RunFile(path) for path in service.run_files(2) if path != first.path)
    accept(second.path)

    names = [thread.name for thread in second.threads(0)]
    assert sorted(names[:2]) == ["main", "one"] and names[2:] == ["two"], "indices go on"
    assert [thread.name for thread in first.threads(0)] == names[:2]
    one, two = names.index("one"), names.index("two")
    before, after = first.run["work"][0], second.run["work"][0]
    assert before.thread_ids.tolist() == [one] * 3, "what had ended"
    assert sorted(after.thread_ids.tolist()) == sorted([one, one, two]), "and only what ended since"
    whole = after.durations_ns.argmax()
    finished_ns = int(first.run.metadata["finalize_time_ns"])
    assert after.thread_ids[whole] == one and after.start_times[whole] * 1e9 < finished_ns, "entered before the finish"
    assert {(label, path) for label, path in second.call_paths(0)} == {("one", "work"), ("one", "work > inner"), ("two", "work")}
    for file in first, second:
        (process,) = file.table("processes")
        assert (process["lost"], process["unmatched"]) == (0, 0)
    assert second.table("open_calls") == []


def test_with_no_run_there_is_nothing_to_finish(service):
    assert "no run" in service.run(service.lane, "finish", status=1).stderr_text
