"""Every CPython that is installed here, from 3.9 to 3.13: the module builds for it and records the same. The other tests run under one."""

import collections
import subprocess
import sys

import pytest
from conftest import BUILD, HERE

ROOT = HERE.parents[1]
MAKE = ["make", "-s", "-C", ROOT, f"O={BUILD}"]
PYTHONS = subprocess.run([*MAKE, "pythons"], capture_output=True, text=True, check=True, timeout=60).stdout.split()


def version_of(python):
    return subprocess.check_output([python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], text=True).strip()


def recorded(scripts, python):
    scripts.python = python
    file = scripts.record(HERE / "scripts" / "everything.py", output=f"{version_of(python)}.h5")
    assert file.said == "done\n"
    assert [row["lost"] for row in file.table("processes")] == [0]
    calls = collections.Counter({name: calls for _, name, calls in file.counts})
    tasks = collections.Counter((task.kind, task.coro_name) for task in file.run.tasks[0] if task.kind != "greenlet")
    return calls, tasks, collections.Counter(thread.name for thread in file.run.threads[0])


NAMES = """
import asyncio
import scoped_lane

async def job():
    with scoped_lane.region("job"):
        await asyncio.sleep(0)

async def main():
    tasks = [asyncio.create_task(job()) for _ in range(12)]
    tasks += [asyncio.create_task(job(), name="given"), asyncio.create_task(job(), name="Task-007")]
    tasks[0].get_name()
    await asyncio.gather(*tasks)
    print(*(task.get_name() for task in (asyncio.current_task(), *tasks)))

asyncio.run(main())
"""


def task_names(scripts, python):
    """As recorded, as asyncio gives them: from 3.12 on it makes them only for who asks."""
    scripts.python = python
    file = scripts.record(NAMES, output="names.h5")
    return sorted(task.name for task in file.run.tasks[0] if task.coro_name in ("job", "main")), sorted(file.said.split())


def test_tasks_have_the_names_that_asyncio_gives_them(scripts):
    names, given = task_names(scripts, sys.executable)
    assert names == given


@pytest.mark.parametrize("python", [python for python in PYTHONS if version_of(python) != "%d.%d" % sys.version_info[:2]], ids=version_of)
def test_it_records_the_same_under_each_python(scripts, python):
    subprocess.run([*MAKE, "python", f"PYTHON={python}"], check=True, timeout=120)
    assert recorded(scripts, python) == recorded(scripts, sys.executable)
    names, given = task_names(scripts, python)
    assert names == given
