"""The watchdog: lanes that are in a region and get nowhere are found, told of, and told from calls that are merely long."""

import json
import os
import signal

from conftest import wait_until
from still import end, start_still
from test_follow import Follower
from test_metrics import metrics, value

STUCK = {"long computation": "computes", "wait for message": "waits", "blocking step": "blocks", "await": "still"}  # region: thread


def stuck(place, query=""):
    return {row["region"]: row for row in place.rows(f"stuck{query}")}


def go_on(program):
    program.stdin.write(b"\n")
    program.stdin.flush()


def alerts(place):
    return sorted(place.output.glob("*.stuck-*.json"))


def test_lanes_that_get_nowhere_are_listed_with_what_tells_a_long_call_from_a_wait(place):
    place.serve("--stuck-after", "1")
    program = start_still(place)

    def all_are_stuck():
        rows = stuck(place)
        return set(rows) == set(STUCK) and rows["long computation"]["cpu_share"] and rows["wait for message"]["cpu_share"] is not None and rows

    rows = wait_until(all_are_stuck, what="all lanes are stuck that are to be")
    threads = {row["index"]: row["name"] for row in place.rows("threads")}
    assert {region: threads[row["thread_index"]] for region, row in rows.items()} == STUCK
    for region, row in rows.items():
        assert row["quiet_ns"] >= row["limit_ns"] == 1e9 and row["longest_ns"] == 0 and row["stack"][-1] == region
        assert (row["pid"], row["rank"]) == (program.pid, None)
    busy = wait_until(lambda: (row := stuck(place)["long computation"])["cpu_share"] > 0.1 and row, what="it is seen to compute")
    assert busy["state"] == "running" and busy["lane"] < 0
    waits = stuck(place)["wait for message"]
    assert waits["state"] == "waiting" and waits["cpu_share"] < 0.05
    blocks, sleeps = rows["blocking step"], rows["await"]
    assert blocks["state"] == "running" and blocks["cpu_share"] < 0.05 and blocks["label"].startswith("blocker (block_main) on blocks")
    assert sleeps["state"] == "suspended" and sleeps["cpu_share"] is None and sleeps["task_index"] == 0
    assert set(stuck(place, "?state=suspended")) == {"await"}
    text = place.command("stuck")
    assert "wait for message" in text and "work" not in text and "NOW" in text
    os.kill(program.pid, signal.SIGSTOP)
    wait_until(lambda: stuck(place)["long computation"]["state"] == "stopped", what="a stopped program is told")
    os.kill(program.pid, signal.SIGCONT)
    end(program)
    wait_until(lambda: not stuck(place), what="a process that has ended has no lanes")
    assert place.run(place.lane, "stuck").stderr_text.strip().endswith("no lane is stuck")


def test_an_alert_writes_the_roll_call_runs_the_command_and_is_told_once(place):
    said = place.path / "said"
    command = f'env | grep ^SCOPED_LANE >>{said}; cat "$SCOPED_LANE_ALERT_FILE" >/dev/null && echo read >>{said}'
    place.serve("--stuck-after", "1", "--stuck-command", command)
    follower = Follower(place)
    program = start_still(place)
    alert = follower.hears(event="alert")
    (run,) = place.rows("runs")
    assert alert["lanes"] == 4 and alert["run"] == run["run"]
    assert {line["region"] for line in follower.heard(event="lane", state="stuck")} == set(STUCK)
    wait_until(lambda: said.exists() and "read" in said.read_text(), what="the command has run")
    (path,) = alerts(place)
    assert str(path) == alert["file"] and str(path).startswith(run["file"][:-3] + ".stuck-")
    roll_call = json.loads(path.read_text())
    assert roll_call["schema"] == "scoped-lane/alert/1" and roll_call["run"] == run["run"] and roll_call["lanes"] == 4
    assert {row["region"] for row in roll_call["stuck"]} == set(STUCK)
    assert {tuple(row["stack"]) for row in roll_call["where"]} >= {(region,) for region in STUCK}
    told = dict(line.split("=", 1) for line in said.read_text().splitlines() if "=" in line)
    assert told["SCOPED_LANE_ALERT_RUN"] == run["run"] and told["SCOPED_LANE_ALERT_FILE"] == str(path)
    assert told["SCOPED_LANE_ALERT_LANES"] == "4" and told["SCOPED_LANE_ALERT_RUN_FILE"] == run["file"] and told["SCOPED_LANE"] == "off"
    found = metrics(place)
    assert value(found, "scoped_laned_alerts_total") == 1
    assert value(found, "scoped_lane_region_stuck_lanes", region="await", rank="none") == 1
    assert value(found, "scoped_lane_region_stuck_lanes", region="work") == 0
    assert place.query("/v1/status")["rows"][0]["stuck"] == 4

    go_on(program)
    assert follower.hears(event="lane", state="goes on")["region"] == "wait for message"
    again = wait_until(lambda: follower.heard(event="alert")[1:], what="the lane that went on is stuck again")[0]
    assert again["lanes"] == 1, "those that were told of are not told of again"
    assert follower.heard(event="lane", state="stuck")[-1]["region"] == "another wait"
    assert len(alerts(place)) == 2 and value(metrics(place), "scoped_laned_alerts_total") == 2
    end(program)
    place.run_file()


def test_a_region_with_long_calls_is_given_longer(place):
    place.serve("--stuck-after", "0.2", "--stuck-factor", "400")
    program = start_still(place)
    go_on(program)
    go_on(program)  # from here on "work" is not left any more
    quiet = wait_until(lambda: stuck(place, "?after=0.2").get("work"), what="the working lane is quiet")
    assert "work" not in stuck(place)
    assert set(stuck(place)) >= {"await", "blocking step"}, "these have no finished calls to go by"
    limit = 400 * quiet["longest_ns"] / 1e9  # on a busy machine a call of a few milliseconds may have taken many
    row = wait_until(lambda: stuck(place).get("work"), limit + 30, what="it is stuck in the end")
    assert row["limit_ns"] == 400 * row["longest_ns"] >= 400 * 5e6 and row["quiet_ns"] >= row["limit_ns"]
    assert "work" in place.command("stuck", "--after", "0.2")
    end(program)


def test_without_a_limit_none_is_stuck(place):
    place.serve("--stuck-after", "0")
    program = start_still(place)
    assert set(stuck(place, "?after=0")) >= set(STUCK) and not stuck(place)
    end(program)
    assert not alerts(place) and place.query("/v1/status")["rows"][0]["alerts"] == 0


def test_an_alert_that_cannot_be_written_is_said_and_told_all_the_same(place):
    place.serve("--stuck-after", "1")
    follower = Follower(place)
    program = start_still(place)
    (run,) = place.rows("runs")
    daemon_output = place.output.rename(place.path / "moved")  # no directory any more to write it in
    assert follower.hears(event="alert")["file"] is None
    daemon_output.rename(place.output)
    end(program)
    place.run_file()


def test_after_is_a_number_of_seconds(service):
    status, body = service.ask("/v1/stuck?after=soon")
    assert status == 400 and "soon" in body


def test_very_many_stuck_lanes_are_each_told_of_once(place):
    place.serve("--stuck-after", "1")
    follower = Follower(place)
    program = place.start(place.api("many_tasks"), 16000, 16000, stdin=-1)  # in the middle it waits, with 8,000 tasks in their regions
    wait_until(lambda: place.query("/v1/status")["rows"][0]["stuck"] >= 8000, what="all of them are stuck")
    follower.hears(event="alert")
    first = value(metrics(place), "scoped_laned_uptime_seconds")  # by the daemon's clock it has time to look again, and again
    wait_until(lambda: value(metrics(place), "scoped_laned_uptime_seconds") > first + 4, what="it has looked again")
    total = place.query("/v1/status")["rows"][0]["stuck"]
    assert sum(line["lanes"] for line in follower.heard(event="alert")) == total
    assert len(place.rows("stuck?limit=1000")) == total
    program.stdin.write(b"go on\n")
    end(program)
