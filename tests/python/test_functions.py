"""python -m scoped_lane run: functions of programs that know nothing of it."""

import collections

import pytest
from conftest import VERSION, RunFile, wait_until

PROGRAM = """
import asyncio, sys, threading
import helper

class Holder:
    def method(self): return plain(1)
    @staticmethod
    def static(): return [x for x in range(3)]

def plain(x): return x
def fails(): raise ValueError
def passes_on():
    try: fails()
    except ValueError: pass
def numbers(n):
    for i in range(n): yield i
def leaves_early():
    for i in numbers(10):
        if i == 2: break
def delegates(): yield from numbers(3)
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
def throws():
    generator = numbers(5); next(generator)
    try: generator.throw(KeyError)
    except KeyError: pass
    generator = numbers(5); next(generator); generator.close()

async def inner(seconds):
    await asyncio.sleep(seconds)
    return 3
async def anumbers():
    for i in range(3):
        await asyncio.sleep(0)
        yield i
async def cancelled(): await asyncio.sleep(10)
async def raises():
    await asyncio.sleep(0)
    raise KeyError
async def amain():
    assert await asyncio.gather(inner(0.01), inner(0.02)) == [3, 3]
    async for i in anumbers(): pass
    async for i in anumbers():
        if i == 1: break
    task = asyncio.create_task(cancelled())
    await asyncio.sleep(0.001)
    task.cancel()
    for awaitable in (task, raises()):
        try: await awaitable
        except (asyncio.CancelledError, KeyError): pass

assert sys.argv == [__file__, "--include", "b"], sys.argv
assert __name__ == "__main__" and sys.modules["__main__"].plain is plain
Holder().method(); Holder.static(); passes_on(); leaves_early(); list(delegates()); throws(); fib(6); helper.helped(); (lambda: 1)()
asyncio.run(amain())
thread = threading.Thread(target=fib, args=(4,), name="w"); thread.start(); thread.join()
sys.exit(3)
"""


@pytest.fixture
def record(scripts):
    scripts.write("def helped(): return deeper()\ndef deeper(): return 2\n", "helper.py")

    def record(*words, status=0, **env):
        command = [scripts.place.lane, "run", "-o", "run.h5", "--", scripts.python, "-m", "scoped_lane", "run", *words]
        done = scripts.place.run(*command, status=status, **scripts.env | env)
        file = RunFile(scripts.path / "run.h5")
        file.said = done.stdout_text
        return file

    return record


def counts(file):
    """{region: calls}; before 3.11 a function's code did not know its class."""
    return {name.replace("Holder.", ""): calls for _, name, calls in file.counts}


def test_the_functions_of_a_program_are_regions_and_all_are_closed(scripts, record):
    file = record(scripts.write(PROGRAM, "program.py"), "--include", "b", status=3)
    found = counts(file)
    generators = {name: found.pop(name) for name in ("program.numbers", "program.anumbers")}
    closed = found.pop("program.inner")
    assert closed == 2
    assert found == {
        "program.method": 1, "program.static": 1, "program.plain": 1, "program.passes_on": 1, "program.fails": 1,
        "program.leaves_early": 1, "program.delegates": 4, "program.throws": 1, "program.fib": 25 + 9, "program.<lambda>": 1,
        "program.amain": 1, "program.cancelled": 1, "program.raises": 1, "helper.helped": 1, "helper.deeper": 1,
    }  # fmt: skip
    # A call for each resumption; from 3.13 on a generator in which nothing waits to be done is closed without running it
    assert generators["program.numbers"] == (3 + 4 + 3 if VERSION >= (3, 13) else 4 + 4 + 4) and generators["program.anumbers"] >= 7 + 4
    (process,) = file.table("processes")
    assert (process["lost"], process["unmatched"], process["crossing"], process["exit_status"]) == (0, 0, 0, 3)
    assert file.table("open_calls") == []


def test_coroutines_are_one_call_on_their_tasks_lanes_waiting_included(scripts, record):
    file = record(scripts.write(PROGRAM, "program.py"), "--include", "b", status=3)
    rows = {task.index: task for task in file.run.tasks[0]}
    inner = file.run["program.inner"][0]
    assert {rows[task].coro_name for task in inner.task_ids} == {"inner"} and len(set(inner.task_ids)) == 2
    assert all(wait >= 0.009e9 for wait in inner.await_times_ns)
    paths = collections.Counter(path for (lane, path) in file.call_paths(0) if "amain" in lane and "anumbers" not in path)
    assert paths == {"program.amain": 1, "program.amain > program.raises": 1}
    assert ("w", "program.fib > program.fib") in file.call_paths(0)


def test_include_names_modules_and_what_is_below_them(scripts, record):
    package = scripts.path / "package" / "sub"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("def top(): pass\n")
    (package / "__init__.py").write_text("def below(): pass\n")
    (scripts.path / "packages.py").write_text("def other(): pass\n")
    program = scripts.write(
        "import json, package, package.sub, packages\ndef own(): package.top(); package.sub.below(); packages.other(); json.dumps(1)\nown()\n"
    )
    assert counts(record("--include", "package", program)) == {"package.top": 1, "package.sub.below": 1}
    assert counts(record("--include=package.sub,__main__", program)) == {"package.sub.below": 1, "script.own": 1}
    assert counts(record("--include", "pack*s", "--include", "json", program)).keys() >= {"packages.other", "json.dumps"}
    assert counts(record("--", program)).keys() == {"package.top", "package.sub.below", "packages.other", "script.own"}


def test_a_module_is_run_as_python_m_does(scripts, record):
    package = scripts.path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("def helper(): pass\n")
    (package / "__main__.py").write_text(
        "import sys\nfrom . import helper\ndef main():\n    helper()\n    print(sys.argv[1:], __package__)\nmain()\n"
    )
    file = record("-m", "package", "-x", "1")
    assert file.said == "['-x', '1'] package\n" and counts(file) == {"package.helper": 1, "package.main": 1}
    record("-m", "nothing_of_that_name", status=1)


def test_functions_in_c_on_demand(scripts, record):
    program = scripts.write("def own(): return len([1]), sorted('ab'), [].append(1), int('z')\ntry: own()\nexcept ValueError: pass\n")
    assert counts(record(program)) == {"script.own": 1}
    found = counts(record("--c-functions", program))
    assert {found.get(name) for name in ("script.own", "len", "sorted", "list.append")} == {1}, found
    (process,) = RunFile(scripts.path / "run.h5").table("processes")
    assert (process["unmatched"], process["crossing"]) == (0, 0)


def test_a_program_that_fails_says_so_as_ever_and_what_it_was_in_is_closed(scripts, record):
    file = record(scripts.write("def outer(): inner()\ndef inner(): raise KeyError('mine')\nouter()\n"), status=1)
    assert counts(file) == {"script.outer": 1, "script.inner": 1} and file.table("open_calls") == []


def test_without_a_daemon_it_just_runs_and_misuse_is_told(scripts):
    program = scripts.write("import sys\ndef f(): print(sys.argv[1:])\nf()\n")
    words = ["-m", "scoped_lane"]
    run = lambda *more, status=0: scripts.place.run(scripts.python, *words, *more, status=status, **scripts.env)  # noqa: E731
    assert run("run", program, "a").stdout_text == "['a']\n"
    for wrong in ([], ["go"], ["run"], ["run", "--include"], ["run", "-m"], ["run", "--nothing", program]):
        assert "usage: python -m scoped_lane run" in run(*wrong, status=2).stderr_text
    assert "no such file" in run("run", "nothing.py", status=1).stderr_text
    assert "--include" in run("run", "--help").stdout_text


@pytest.mark.skipif(VERSION < (3, 12), reason="there is no sys.monitoring")
def test_what_is_not_chosen_is_switched_off(scripts, record):
    program = scripts.write(
        """
import sys
def own(): pass
tool = next(tool for tool in range(6) if sys.monitoring.get_tool(tool) == "scoped_lane")
asked = []
plain = sys.monitoring.register_callback(tool, sys.monitoring.events.PY_START, None)
sys.monitoring.register_callback(tool, sys.monitoring.events.PY_START, lambda *args: asked.append(1) or plain(*args))
for _ in range(1000): own()
print(len(asked))
"""
    )
    assert int(record("--include", "other", program).said) <= 2
    assert int(record(program).said) == 1000


def test_functions_are_seen_while_they_run(scripts, service):
    program = service.start(
        scripts.python, "-m", "scoped_lane", "run", scripts.write("import time\ndef outer(): inner()\ndef inner(): time.sleep(100)\nouter()\n"),
        **scripts.env,
    )  # fmt: skip
    stacks = lambda: [row["stack"] for row in service.rows("threads") if row["pid"] == program.pid and row["stack"]]  # noqa: E731
    assert wait_until(lambda: [["script.outer", "script.inner"]] == stacks())
    program.kill()
    program.wait()
