"""Listings in pages while processes, threads and tasks come and go: no row twice, none missing that is there all the while; and after
another daemon has taken over, a 410 and a cursor to begin again with."""

import json

from conftest import wait_until
from test_pause import Told
from test_restart import end

TABLES = {"processes": (), "threads": ("index",), "tasks": ("index",), "lanes": ("lane",), "stuck?after=0": ("lane",), "regions?ranks": ("name",)}


def page(place, table, limit, cursor=None):
    parameters = f"{'&' if '?' in table else '?'}limit={limit}" + (f"&cursor={cursor}" if cursor is not None else "")
    status, body = place.ask(f"/v1/{table}{parameters}")
    return status, json.loads(body)


def keys_of(rows, members):
    return [(row["run"], row["pid"], *(row[member] for member in members)) for row in rows]


def all_pages(place, table, limit, between=lambda: None):
    rows, cursor = [], None
    while True:
        status, reply = page(place, table, limit, cursor)
        assert status == 200 and len(reply["rows"]) <= limit, reply
        rows += reply["rows"]
        cursor = reply["cursor"]
        if cursor is None:
            return rows
        assert len(reply["rows"]) == limit, "a page that is not the last one is full"
        between()


def steady(place, ranks):
    """Programs whose lanes stay: threads in a region and out of one, tasks in a region."""
    told = [Told(place, OMPI_COMM_WORLD_RANK=rank, SCOPED_LANE_RUN="steady") for rank in range(ranks)]
    for each in told:
        each.do("enter main", "calls work 5", "idle pool 10", "hold db 20")
    wait_until(lambda: len(place.rows("lanes")) == ranks * 31 and len(place.rows("regions?ranks")) == ranks * 4, what="all lanes are known")
    return told


def test_while_lanes_come_and_go_each_page_goes_on_where_the_last_one_ended(service):
    told = steady(service, 3)
    there = {table: set(keys_of(service.rows(table), members)) for table, members in TABLES.items()}
    churning = [service.start(service.api("load"), "-t", 2, "-p", 1000, stdin=-1, SCOPED_LANE_RUN=name) for name in ("steady", "aside")]
    wait_until(lambda: len(service.rows("processes")) == 5, what="others come and go")
    brief = []

    def more():
        brief.append(service.start(service.api("pairs"), "-n", 2, "-o", "open", "work", SCOPED_LANE_RUN="steady"))
        told[1].do("hold new 1", "idle more 1")

    for table, members in TABLES.items():
        keys = keys_of(all_pages(service, table, 17, more), members)
        assert len(set(keys)) == len(keys), f"{table}: twice: {[key for key in keys if keys.count(key) > 1][:5]}"
        assert there[table] <= set(keys), f"{table}: missing: {sorted(there[table] - set(keys))[:5]}"
    for program in brief:
        program.ends(status=None)
    for program in churning:
        end(program)
    for each in told:
        each.ends()


def test_a_cursor_of_a_daemon_that_has_ended_is_gone_and_a_fresh_one_is_given(service):
    told = steady(service, 2)
    _, first = page(service, "lanes", 40)
    keys = set(keys_of(service.rows("lanes"), ("lane",)))
    service.daemon.kill()
    service.daemon.wait()
    service.serve()
    wait_until(lambda: len(service.rows("lanes")) == len(keys), what="the next daemon knows all lanes")
    status, reply = page(service, "lanes", 40, first["cursor"])
    assert status == 410 and "begin again" in reply["error"]
    status, again = page(service, "lanes", 1000, reply["cursor"])
    assert status == 200 and set(keys_of(again["rows"], ("lane",))) == keys and again["cursor"] is None
    for nonsense in ("x", "1.2.3", f"{first['cursor']}.1", ""):
        assert page(service, "lanes", 40, nonsense)[0] == 400
    for each in told:
        each.ends()


def test_a_page_has_no_more_rows_than_the_daemon_is_told(place):
    place.serve("--page-rows", "7")
    told = steady(place, 2)
    status, reply = page(place, "lanes", 7)
    assert status == 200 and len(reply["rows"]) == 7 and reply["cursor"] is not None
    assert len(place.query("/v1/lanes")["rows"]) == 7
    status, reply = page(place, "lanes", 8)
    assert status == 400 and "from 1 to 7" in reply["error"]
    assert len(place.command("lanes").splitlines()) == 1 + 2 * 31
    for each in told:
        each.ends()


MANY = 20_000


def metric(place, name):
    lines = place.ask("/metrics")[1].splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith((f"{name} ", f"{name}{{")) and ("{" not in line or '"db"' in line))


def test_what_takes_longer_than_a_turn_of_the_loop_is_gone_on_with_in_the_next_and_is_whole(place):
    place.serve("--query-turn", "0.001")
    told = [Told(place, OMPI_COMM_WORLD_RANK=rank, SCOPED_LANE_RUN="many") for rank in range(3)]
    for each, count in zip(told, (20, MANY, 10)):
        each.do("enter main", "calls work 5", f"hold db {count}")
    wait_until(lambda: len(place.rows("lanes")) == MANY + 33, what="all lanes are known")
    before = metric(place, "scoped_laned_requests_deferred_total")
    groups = {tuple(row["stack"]): (row["lanes"], row["ranks"]) for row in place.rows("where")}
    assert groups == {("main",): (3, "0-2"), ("db",): (MANY + 30, "0-2")}
    assert {(row["name"], row["open"], row["calls"]) for row in place.rows("regions")} == {("main", 3, 0), ("work", 0, 15), ("db", MANY + 30, 0)}
    ranks = {(row["name"], row["rank"]): row["open"] for row in place.rows("regions?ranks")}
    assert [ranks["db", rank] for rank in range(3)] == [20, MANY, 10] and len(ranks) == 9
    assert metric(place, "scoped_lane_region_open_calls") == MANY + 30
    assert len(place.rows("lanes?state=moving")) == 0
    for table in ("lanes", "stuck?after=0", "tasks"):
        keys = keys_of(all_pages(place, table, 1000), ("index",) if table == "tasks" else ("lane",))
        assert len(set(keys)) == len(keys) == MANY + 30 + 3 * (table != "tasks"), table
    assert metric(place, "scoped_laned_requests_deferred_total") > before
    for each in told:
        each.ends()
