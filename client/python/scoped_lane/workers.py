"""The workers that multiprocessing forks: they are there to go on with the program, so they are recorded as those that it spawns are."""

import os
import sys

from scoped_lane import _core, hooks

_is_watching = False


class _Worker:
    """Stands for the process in multiprocessing's list, which holds it by a weak reference."""

    was_recording = False  # in the parent, when it forked


_worker = _Worker()


def watch(follow):
    """From here on `follow` is called in each such worker of a recorded process."""
    global _is_watching
    if _is_watching:
        return
    _is_watching = True
    os.register_at_fork(before=_before_fork)

    def register():
        sys.modules["multiprocessing.util"].register_after_fork(_worker, lambda worker: _begin(worker, follow))

    if hasattr(sys.modules.get("multiprocessing.util"), "register_after_fork"):
        register()
    else:
        hooks.WaitForModule("multiprocessing.util", register, lambda: True).put_in()


def _before_fork():
    _worker.was_recording = _core.is_active()


def _begin(worker, follow):
    if worker.was_recording and not _core.is_active():
        follow()
