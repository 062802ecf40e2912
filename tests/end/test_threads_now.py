"""What threads and tasks do now: shares of a processor, waiting for one, context switches, steps that are in progress."""

from conftest import wait_until
from still import end, start_still


def threads(place):
    return {row["name"]: row for row in place.rows("threads")}


def tasks(place):
    return {row["name"]: row for row in place.rows("tasks")}


def test_a_thread_that_computes_is_told_from_those_that_wait(service):
    program = start_still(service)

    def looked_at():
        rows = threads(service)
        known = all(row["cpu_share"] is not None and row["switches"] for row in rows.values())
        return known and rows["computes"]["cpu_share"] > 0.1 and rows

    rows = wait_until(looked_at, what="the computing thread is seen to compute")
    assert rows["waits"]["cpu_share"] < 0.05 and rows["idle"]["cpu_share"] < 0.05
    assert all(0 <= row["cpu_share"] <= 1 for row in rows.values())
    assert rows["waits"]["switches"] >= 1
    text = service.command("threads")
    assert "NOW" in text and "RUN QUEUE" in text and " %" in text
    wait_until(lambda: threads(service)["works"]["switches"] > rows["works"]["switches"], what="the working thread's switches are counted")
    queued = wait_until(lambda: threads(service)["computes"]["run_queue_ns"], what="the computing thread had to wait for a processor")
    assert queued > 0
    end(program)


def test_a_wait_for_a_processor_is_counted_though_the_thread_gets_none(service):
    program = start_still(service)
    first = threads(service)["computes"]["run_queue_ns"]
    wait_until(lambda: threads(service)["computes"]["run_queue_ns"] > first, what="it waited again")
    end(program)


def test_an_ended_thread_has_no_share(service):
    program = service.start(service.api("threads"))
    program.ends(status=None)
    rows = wait_until(lambda: [row for row in service.rows("threads") if row["end_ns"] is not None], what="threads have ended")
    assert all(row["cpu_share"] is None for row in rows)


def test_a_step_or_a_suspension_in_progress_counts_up_to_now(service):
    program = start_still(service)
    first = tasks(service)
    blocker, sleeper = first["blocker"], first["sleeper"]
    assert (blocker["state"], blocker["steps"], blocker["stack"]) == ("running", 1, ["blocking step"])
    assert (sleeper["state"], sleeper["steps"], sleeper["stack"]) == ("suspended", 1, ["await"])
    assert blocker["running_ns"] == blocker["longest_step_ns"] > 0 and blocker["suspended_ns"] == 0
    assert sleeper["suspended_ns"] > sleeper["running_ns"] == sleeper["longest_step_ns"] > 0
    later = wait_until(lambda: (rows := tasks(service))["blocker"]["running_ns"] > 2 * blocker["running_ns"] and rows, what="it goes on")
    assert later["blocker"]["longest_step_ns"] == later["blocker"]["running_ns"] and later["blocker"]["steps"] == 1
    assert later["sleeper"]["suspended_ns"] > sleeper["suspended_ns"]
    assert (later["sleeper"]["running_ns"], later["sleeper"]["longest_step_ns"]) == (sleeper["running_ns"], sleeper["longest_step_ns"])
    assert later["sleeper"]["longest_step_ns"] < later["blocker"]["longest_step_ns"], "who blocks is told by the longest step"
    end(program)
