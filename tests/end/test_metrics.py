"""What Prometheus would gather, and what the daemon says of itself: its clock, its settings."""

import os
import re
import subprocess
import time

import pytest
from conftest import ROOT, wait_until
from test_regions import busy_ranks
from test_where import end

PROMTOOL = ROOT / ".venv/bin/promtool"
SAMPLE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{((?:[a-z]+="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (\S+)')


def metrics(place):
    """{(name, frozenset of labels): value}; fails unless the text is what Prometheus's text format asks for."""
    status, text = place.ask("/metrics")
    assert status == 200 and text.endswith("\n")
    found, kinds, family, done = {}, {}, None, set()
    for line in text.splitlines():
        if line.startswith("# HELP "):
            done.add(family)
            family = line.split()[2]
            assert family not in done, f"{family} stands in two places"
        elif line.startswith("# TYPE "):
            _, _, name, kinds[family] = line.split()
            assert name == family and kinds[family] in ("counter", "gauge", "histogram")
        else:
            match = SAMPLE.fullmatch(line)
            parts = ("_bucket", "_sum", "_count") if kinds.get(family) == "histogram" else ("",)
            assert match and family in kinds and match[1] in {family + part for part in parts}, line
            assert kinds[family] != "counter" or family.endswith("_total"), family
            labels = frozenset(re.findall(r'([a-z]+)="((?:[^"\\]|\\.)*)"', match[2] or ""))
            assert (match[1], labels) not in found, f"twice: {line}"
            found[match[1], labels] = float(match[3])
    return found


def value(found, name, **labels):
    """The one sample of that name that has the labels."""
    values = [v for (family, own), v in found.items() if family == name and set(labels.items()) <= own]
    assert len(values) == 1, (name, labels, values)
    return values[0]


def test_metrics_tell_of_each_region_and_rank(service):
    programs = busy_ranks(service, {0: 300, 1: 20})
    opened = service.start(service.api("pairs"), "-n", 1, "-r", 1, "-o", 'a "b" \\ c\nd', "-w", "work", stdin=-1, SCOPED_LANE_RUN="ranks")
    rows = wait_until(lambda: [r for r in service.rows("regions?ranks") if r["open"]], what="a call is open")
    found = metrics(service)
    run = rows[0]["run"]
    assert value(found, "scoped_lane_region_calls_total", run=run, rank="0", region="work") == 300
    assert value(found, "scoped_lane_region_calls_total", run=run, rank="1", region="work") == 21, "two processes of one rank"
    totals = {(r["rank"], r["pid"]): r["total_ns"] for r in service.rows("regions?ranks&region=work")}
    told = value(found, "scoped_lane_region_seconds_total", rank="0", region="work")
    assert told == pytest.approx(sum(t for (rank, _), t in totals.items() if rank == 0) / 1e9, rel=0.01)
    odd = r"a \"b\" \\ c\nd"
    assert value(found, "scoped_lane_region_open_calls", rank="1", region=odd) == 1
    first = value(found, "scoped_lane_region_open_seconds", rank="1", region=odd)
    assert value(metrics(service), "scoped_lane_region_open_seconds", rank="1", region=odd) > first > 0
    assert value(found, "scoped_lane_calls_produced_total", rank="0") == value(found, "scoped_lane_calls_stored_total", rank="0") == 300
    assert value(found, "scoped_lane_processes", rank="1") == 2
    assert value(found, "scoped_lane_cpu_seconds_total", rank="0") > 0
    assert value(found, "scoped_lane_run_queue_seconds_total", rank="0") >= 0
    assert value(found, "scoped_laned_processes") == 3 and value(found, "scoped_laned_resident_bytes") > 1 << 20
    assert value(found, "scoped_laned_series_left_out") == 0
    end(programs)
    opened.stdin.close()
    opened.ends()
    gone = wait_until(lambda: not any("run" in dict(labels) for _, labels in metrics(service)), what="the run is over and has no series")
    assert gone


STEP = "scoped_lane_task_step_seconds"


def buckets(found, **labels):
    """{edge in seconds: steps not longer} of the one histogram of steps with these labels."""
    own = {}
    for (name, of), count in found.items():
        if name == STEP + "_bucket" and set(labels.items()) <= of:
            edge = float(dict(of)["le"])
            assert edge not in own, "several histograms"
            own[edge] = count
    return own


def check_steps(found, lengths, **labels):
    """The histogram against what the program measured: of each step two lengths in ns, between which its own lies."""
    told = buckets(found, **labels)
    assert list(told) == sorted(told) and list(told.values()) == sorted(told.values())
    for edge, count in told.items():
        surely, perhaps = sum(most <= edge * 1e9 for _, most in lengths), sum(least <= edge * 1e9 for least, _ in lengths)
        assert surely <= count <= perhaps, (edge, told, lengths)
    assert told[float("inf")] == value(found, STEP + "_count", **labels) == len(lengths)
    total = value(found, STEP + "_sum", **labels) * 1e9
    assert sum(least for least, _ in lengths) <= total <= sum(most for _, most in lengths)


def loop(service, kind, *milliseconds, **env):
    """A running tests/api/loop in its last step, and the lengths of the others."""
    program = service.start(service.api("loop"), kind, *milliseconds, stdin=-1, **env)
    wait_until(lambda: "waits" in program.stdout_text, what="it is in its last step")
    return program, [tuple(map(int, line.split())) for line in program.stdout_text.splitlines()[:-1]]


def test_a_handler_that_blocks_its_loop_is_in_the_histogram_of_steps(service):
    """L14: 300 ms now and then."""
    program, lengths = loop(service, "handler", *[0] * 40, 2, 300, 0, 7, 30, OMPI_COMM_WORLD_RANK=3)
    labels = {"rank": "3", "kind": "handler"}
    found = wait_until(lambda: buckets(now := metrics(service), **labels).get(float("inf")) == 45 and now, what="the steps are told")
    check_steps(found, lengths, **labels)
    longest = "scoped_lane_task_longest_step_seconds"
    assert 0.3 <= value(found, longest, **labels)
    assert not any(name.startswith("scoped_lane_task") and {"task", "name", "index"} & set(dict(of)) for name, of in found)
    before = max(most for _, most in lengths) / 1e9
    wait_until(lambda: value(metrics(service), longest, **labels) > before, what="the step in progress is the longest")
    rows = service.rows("tasks")
    assert max(row["longest_step_ns"] for row in rows) >= 3e8 and {row["kind"] for row in rows} == {"handler"}
    program.stdin.close()
    program.ends()


def test_steps_of_several_processes_of_a_rank_and_of_several_kinds_are_added_up_by_kind(service):
    started = [loop(service, kind, 0, 3, 12, 0, OMPI_COMM_WORLD_RANK=rank, SCOPED_LANE_RUN="loops")
               for kind, rank in (("fiber", 0), ("fiber", 0), ("green \"let\"", 0), ("fiber", 1))]
    wait_until(lambda: sum(count for (name, _), count in metrics(service).items() if name == STEP + "_count") == 16, what="all are told")
    found = metrics(service)
    check_steps(found, started[0][1] + started[1][1], rank="0", kind="fiber")
    check_steps(found, started[2][1], rank="0", kind=r"green \"let\"")
    check_steps(found, started[3][1], rank="1", kind="fiber")
    for program, _ in started:
        program.stdin.close()
        program.ends()


def test_a_daemon_that_goes_on_for_a_killed_one_knows_the_steps(service):
    program, lengths = loop(service, "handler", 0, 20, 0, 60, 0)
    check = lambda: check_steps(metrics(service), lengths, kind="handler")
    wait_until(lambda: buckets(metrics(service), kind="handler").get(0.01) == 3, what="the steps are told")
    check()
    service.daemon.kill()
    service.daemon.wait()
    service.serve()
    wait_until(lambda: buckets(metrics(service), kind="handler").get(0.01) == 3, what="the next daemon tells of them")
    check()
    program.stdin.close()
    program.ends()


def test_no_counter_ever_goes_back(service):
    """Prometheus takes one that does for a new one and counts the whole of it again. The daemon learns the counter's rate all the while."""
    idle, _ = loop(service, "handler", 700, 700, 700, OMPI_COMM_WORLD_RANK=0)
    programs = [idle] + [service.start(service.api(name), *words, stdin=-1, OMPI_COMM_WORLD_RANK=rank)
                         for rank, (name, *words) in enumerate([("load", "-t", 2, "-p", 1000), ("churn", "-n", 5000, "-a", 4, "-w")], 1)]
    anchors = lambda: service.rows("clock")[0]["anchors"]
    counters = lambda: {key: v for key, v in metrics(service).items() if key[0].endswith(("_total", "_bucket", "_sum", "_count"))}
    looks, until = [counters()], anchors() + 6

    def looked():
        looks.append(counters())
        assert not {key: (before, looks[-1][key]) for key, before in looks[-2].items() if looks[-1].get(key, before) < before}
        return anchors() >= until

    wait_until(looked, what="six anchors were taken")
    assert {dict(of)["rank"] for name, of in looks[-1] if name in (STEP + "_sum", "scoped_lane_region_seconds_total")} == {"0", "1", "2"}
    for program in programs:
        program.stdin.close()
        program.ends()


def test_calls_that_were_lost_are_told_by_reason(place):
    place.serve("--spool-limit", "1K")
    program = place.start(place.api("pairs"), "-n", 50000, "-w", "work", stdin=-1)
    lost = wait_until(
        lambda: [v for (name, labels), v in metrics(place).items() if name == "scoped_lane_calls_lost_total"], what="calls are lost"
    )
    assert sum(lost) > 0
    end({0: program})


def test_series_are_bounded_and_those_left_out_are_counted(place):
    place.serve("--metrics-series", "100")
    programs = {rank: place.start(place.api("pairs"), "-n", 5, "-r", rank, "-w", f"work {rank}", stdin=-1, SCOPED_LANE_RUN="many")
                for rank in range(12)}
    wait_until(lambda: sum(row["stored"] for row in place.rows("processes")) == 60, what="all calls are stored")
    found = metrics(place)
    of_runs = sum("run" in dict(labels) for _, labels in found)
    assert of_runs == 100 and value(found, "scoped_laned_series_left_out") == 12 * (8 + 5) - 100
    end(programs)


@pytest.mark.skipif(not PROMTOOL.exists(), reason="make deps could not fetch promtool")
def test_promtool_finds_no_fault(service):
    programs = busy_ranks(service, {0: 10})
    programs[1], _ = loop(service, "task", 0, 5)
    wait_until(lambda: STEP in service.ask("/metrics")[1], what="steps are told")
    done = subprocess.run([PROMTOOL, "check", "metrics"], input=service.ask("/metrics")[1], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and not done.stdout + done.stderr, done.stdout + done.stderr
    end(programs)


def test_the_clock_is_told_with_all_three_readings(service):
    (row,) = service.rows("clock")
    monotonic, realtime = row["latest"]["monotonic_ns"], int(row["latest"]["realtime_ns"])
    assert abs((time.monotonic_ns() - monotonic) - (time.time_ns() - realtime)) < 1e9
    assert 0 < monotonic <= time.monotonic_ns() and row["ns_per_tick"] > 0 and row["error_ns"] >= 0 and row["anchors"] >= 1
    assert row["clock"] == service.query("/v1/status")["rows"][0]["clock"]


def test_every_setting_is_told_with_its_value_and_who_gave_it(place):
    (place.path / "laned.ini").write_text("spool-limit = 2M\nidle-timeout = 7.5\nverbose = yes\n")
    place.serve("--config", "laned.ini", "--spool-limit", "3M")
    rows = {row["key"]: row for row in place.rows("config")}
    told = lambda key: (rows[key]["value"], rows[key]["unit"], rows[key]["source"])
    assert told("spool-limit") == (3 << 20, "bytes", "command line")
    assert told("idle-timeout") == (7.5, "seconds", "file")
    assert told("connections") == (64, None, "default")
    assert told("verbose") == (True, None, "file")
    assert told("output") == (os.path.realpath(place.output), None, "command line")
    options = re.findall(r"^  (?:-v, )?--([a-z-]+)", place.run(place.laned, "--help").stdout_text, re.M)
    assert set(options) - {"config", "version"} == set(rows)


def test_limits_of_the_query_socket_are_settings(place):
    place.serve("--connections-per-user", "2", "--header-size", "1K")
    assert place.ask("/v1/status?run=" + "x" * 2000)[0] in (414, 431)


@pytest.mark.parametrize(
    "words, why",
    [
        (["--stuck-after", "soon"], "stuck-after"),
        (["--stuck-after", "-1"], "stuck-after"),
        (["--connections", "0"], "connections.*between 1 and"),
        (["--metrics-series", "1e3"], "no whole number"),
        (["--idle-timeout", "0.5"], "between 1 and"),
        (["--queued-size", "much"], "no size"),
    ],
)
def test_a_setting_that_is_none_is_named(place, words, why):
    program = place.run(place.laned, "--rundir", place.rundir, *words, status=2)
    assert re.search(why, program.stderr_text), program.stderr_text
