"""Starting tests/api/still: lanes that stand still, each in a way of its own."""

from conftest import wait_until


def start_still(place, **env):
    """The program, once all its lanes are where they stay, and its tables are read."""
    program = place.start(place.api("still"), stdin=-1, **env)
    wait_until(lambda: program.stdout_text.startswith("still"), what="all lanes are in their places")
    assert program.stdout_text == "still 1\n"
    names = {"computes", "waits", "blocks", "works", "idle", "still"}
    wait_until(lambda: {row["name"] for row in place.rows("threads")} >= names and len(place.rows("tasks")) == 2, what="all have rows")
    return program


def end(program):
    program.stdin.close()
    program.ends()
