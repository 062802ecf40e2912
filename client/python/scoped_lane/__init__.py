"""Regions, threads and asyncio tasks of Python programs, recorded by scoped-laned.

    import scoped_lane

    with scoped_lane.region("solve"):
        ...

    @scoped_lane.profile
    def step(): ...

Run it as ``scoped-lane run -- python program.py``, or beside a scoped-laned that is there already. Without a daemon nothing is put
into the interpreter and a region costs next to nothing. ``import scoped_lane as scope_profiler`` records a program written
for scope-profiler. See docs/python.md.
"""

import sys as _sys

if getattr(_sys.flags, "gil", 1) == 0:
    raise ImportError("scoped_lane needs the interpreter's lock, which PYTHON_GIL=0 or -X gil=0 has forbidden")

from scoped_lane import files as _files
from scoped_lane import manager as _manager
from scoped_lane._core import Region, begin, end, thread_name
from scoped_lane.concurrency import (
    CPU_SAMPLE_MASK,
    NO_TASK,
    UNKNOWN,
    ConcurrencyTracker,
    TaskInfo,
    TaskRecord,
    ThreadInfo,
    ThreadRecord,
    lane_ids,
    lane_tables_from_columns,
)
from scoped_lane.manager import (
    ProfileManager,
    ProfilingRun,
    attach,
    define_region,
    finalize,
    get_config,
    instrument,
    is_active,
    is_configured,
    is_recording,
    last_results,
    metadata,
    pause,
    profile,
    recorded_regions,
    region,
    region_factory,
    register_opt_in_tag,
    registered_regions,
    reset,
    resume,
    run,
    session,
    setup,
    setup_from_env,
    untracked_tasks,
)

__version__ = "0.1.0"
__all__ = [name for name in dir() if not name.startswith("_") and name not in ("manager", "concurrency")]


def open(path):
    """A run file, as scope_profiler's reader gives it."""
    return _files.read(path)


def __getattr__(name):
    if name == "live":  # which few programs use
        import importlib

        return importlib.import_module("scoped_lane.live")
    raise AttributeError(f"module 'scoped_lane' has no attribute {name!r}")


_manager.attach()
