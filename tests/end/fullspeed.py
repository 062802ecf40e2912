"""tests/api/full_speed.c as tests use it: what it counted itself, and when the daemon has accounted for that."""

import collections
import os

from conftest import wait_until

LONG = bool(os.environ.get("SL_LONG"))  # full sizes where the usual ones are scaled down

FIELDS = ["name", "calls", "took_ns", "system_us", "late_ns", "slowest_ns", "preempted", "given_up"]
Worker = collections.namedtuple("Worker", FIELDS, defaults=[None] * 3)


def workers(program, threads=2):
    """What full_speed counted itself, once it has made all its calls."""
    wait_until(lambda: program.stdout_text.count("\n") == threads, deadline=120, what="full_speed has made its calls")
    rows = [line.split(":") for line in program.stdout_text.splitlines()]
    return [Worker(name, *map(int, rest)) for name, *rest in rows]


def settled(service, program, made):
    """The live row of the program when all its calls are accounted for."""
    rows = service.rows(f"processes?pid={program.pid}")
    return any(row["produced"] == made == row["stored"] + row["lost"] for row in rows) and rows[0]


def finish(program):
    program.stdin.close()
    program.ends()


def published(service, run):
    def file():
        (row,) = service.rows(f"runs?run={run}")
        assert row["state"] != "failed", row["problem"]
        return row["state"] == "published" and row["file"]

    return wait_until(file, deadline=120, what="the run is published")
