"""Functions of a program that is not edited, recorded as regions: which ones, and how the interpreter tells of them (functions.c)."""

import fnmatch
import opcode
import os
import sys
import sysconfig
import threading

from scoped_lane import _core, manager

TOOL = "scoped_lane"
HERE = os.path.join(os.path.dirname(__file__), "")


class Choice:
    """Says of each code object, once, whether its function is recorded, and under which name."""

    def __init__(self, include, directory, main):
        self._include = tuple(include)
        self._main = main  # what functions of __main__ are said to be of
        self._directory = os.path.join(os.path.abspath(directory), "") if directory is not None else None
        self._library = tuple(
            os.path.join(path, "") for path in {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
        )
        self.on_choice = None

    def _is_chosen(self, module, file):
        if self._include:
            return any(module == name or module.startswith(name + ".") or fnmatch.fnmatchcase(module, name) for name in self._include)
        if file.startswith("<"):  # of the interpreter's own, or made up at run time
            return False
        path = os.path.abspath(file)
        return self._directory is not None and path.startswith(self._directory) and not path.startswith(self._library)

    def __call__(self, code, global_names):
        module = global_names.get("__name__") or ""
        name = getattr(code, "co_qualname", code.co_name)
        last = code.co_name
        if code.co_filename.startswith(HERE) or (last.startswith("<") and last != "<lambda>"):
            return 0
        if not isinstance(module, str) or not self._is_chosen(module, code.co_filename):
            return 0
        module = self._main if module == "__main__" else module
        region = _region(f"{module}.{name}", code.co_filename, code.co_firstlineno)
        if self.on_choice is not None:
            self.on_choice(code)
        return region


def _region(name, file, line):
    return manager._named(name, None, lambda: (file, line)).id


def _choose_c(function):
    module = getattr(function, "__module__", None) or getattr(getattr(function, "__objclass__", None), "__module__", None)
    name = getattr(function, "__qualname__", function.__name__)
    return _region(f"{module}.{name}" if module and module != "builtins" else name, "", -1)


def record(include=(), directory=None, main="__main__", c_functions=False):
    """From here on: functions of modules that `include` names (with what is below them, or by pattern); else those of files below
    `directory` that are not the interpreter's library."""
    choice = Choice(include, directory, main)
    choose_c = _choose_c if c_functions else None
    opcodes = tuple(opcode.opmap.get(name, 255) for name in ("YIELD_VALUE", "YIELD_FROM", "RESUME"))
    monitoring = getattr(sys, "monitoring", None)
    _core.choose_functions(choice, choose_c, monitoring.DISABLE if monitoring else None, opcodes)
    if monitoring is None:
        threading.setprofile(_core.profile_thread)
        _core.profile_thread()
        return
    events = monitoring.events
    tool = next((number for number in (monitoring.PROFILER_ID, 3, 4) if monitoring.get_tool(number) is None), None)
    if tool is None:
        raise RuntimeError("sys.monitoring has no place left for another tool")
    monitoring.use_tool_id(tool, TOOL)
    local = events.PY_RETURN | events.PY_YIELD | events.PY_RESUME | (events.CALL if c_functions else 0)
    choice.on_choice = lambda code: monitoring.set_local_events(tool, code, local)
    for event, callback in (
        (events.PY_START, _core.on_start),
        (events.PY_RETURN, _core.on_return),
        (events.PY_UNWIND, _core.on_return),
        (events.PY_YIELD, _core.on_yield),
        (events.PY_RESUME, _core.on_resume),
        (events.PY_THROW, _core.on_resume),
        (events.CALL, _core.on_c_call),
        (events.C_RETURN, _core.on_c_return),
        (events.C_RAISE, _core.on_c_return),
    ):
        monitoring.register_callback(tool, event, callback)
    monitoring.set_events(tool, events.PY_START | events.PY_UNWIND | events.PY_THROW)
