"""Where Python tells of its threads and tasks: put in while somebody wants them, taken out as found when nobody does.

Those who want them are the recording itself and each installed ConcurrencyTracker. Threads are told of where each begins, in
``threading.Thread``. A profile function (threading.setprofile) would do that too: it costs each thread 2 µs more, the program may put
its own in its place, and from Python 3.12 on it makes the interpreter look at all code anew. Tasks are told of in ``asyncio.Task``
(task.c).
"""

import os
import sys
import threading
import warnings

from scoped_lane import _core

_lock = threading.RLock()
_users = {}  # who -> whether tasks are wanted too
_stand_downs = {}  # who -> weak method for the child of a fork
_plain_name = None  # threading.Thread.name as it was
_plain_begin = _begin = None  # threading.Thread._bootstrap_inner as it was, as it is with us
_plain_task = {}  # of asyncio's task in Python
_in_tasks = False


# -- threads


def _set_name(thread, name):
    _plain_name.fset(thread, name)
    if thread.ident == threading.get_ident() and not _core.rename_greenlet(thread.ident, thread.name):
        _core.thread_name(thread.name)  # another thread's is told when that one ends


def _thread_class(attribute="name"):
    """The one that has it: gevent puts one derived from it in its place."""
    return next(cls for cls in threading.Thread.__mro__ if attribute in cls.__dict__)


def _put_in_threads():
    global _plain_name, _plain_begin, _begin
    if hasattr(threading.Thread, "_bootstrap_inner"):  # else each is known at its first call
        cls = _thread_class("_bootstrap_inner")
        if _begin is None or cls._bootstrap_inner is _plain_begin:  # else one that somebody put around ours is there
            _plain_begin = cls._bootstrap_inner
            cls._bootstrap_inner = _begin = _core.begin_method(cls, _plain_begin)
    _plain_name = _thread_class().__dict__["name"]
    _thread_class().name = property(_plain_name.fget, _set_name, _plain_name.fdel, _plain_name.__doc__)
    daemon = _thread_class("daemon").__dict__["daemon"]
    if all(getattr(getattr(one, "fget", None), "__module__", None) == "threading" for one in (_plain_name, daemon)):
        _core.know_properties(_thread_class().__dict__["name"], daemon)


def _take_out_threads():
    if getattr(threading.Thread, "_bootstrap_inner", None) is _begin:
        _thread_class("_bootstrap_inner")._bootstrap_inner = _plain_begin
    if getattr(_thread_class().__dict__["name"], "fset", None) is _set_name:
        _thread_class().name = _plain_name


# -- tasks


class WaitForModule:
    """On sys.meta_path until a module is imported: nobody is to pay for an import they did not ask for."""

    def __init__(self, name, then, is_wanted=lambda: any(_users.values())):
        self._name, self._then, self._is_wanted = name, then, is_wanted

    def find_spec(self, name, path=None, target=None):
        if name != self._name:
            return None
        self.remove()
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target) if hasattr(finder, "find_spec") else None
            if spec is not None:
                break
        else:
            return None
        plain = getattr(spec.loader, "exec_module", None)
        if plain is not None and not isinstance(spec.loader, type):  # a loader of its own, not one that others share

            def exec_module(module):
                plain(module)
                try:
                    del spec.loader.exec_module
                    if self._is_wanted():
                        self._then()
                except Exception as problem:  # the module is there, and we are not in it
                    warnings.warn(f"scoped_lane: {self._name} is not followed: {problem!r}")

            spec.loader.exec_module = exec_module
        return spec

    def put_in(self):
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def remove(self):
        if self in sys.meta_path:
            sys.meta_path.remove(self)


def _put_in_tasks():
    global _in_tasks
    tasks = sys.modules.get("asyncio.tasks")
    if tasks is None or not hasattr(tasks, "Task"):
        _wait.put_in()
        return
    if _in_tasks:
        return
    _in_tasks = True
    native = getattr(tasks, "_CTask", None)
    if native is not None:
        _core.hook_tasks(native)
    _put_in_python_task(tasks._PyTask)
    _adopt()


_wait = WaitForModule("asyncio.tasks", _put_in_tasks)


def _take_out_tasks():
    global _in_tasks
    _wait.remove()
    if _in_tasks:
        _in_tasks = False
        _core.hook_tasks(None)
        _take_out_python_task(sys.modules["asyncio.tasks"]._PyTask)


def _put_in_python_task(task):
    """The same for asyncio's task in Python, which some programs prefer."""
    plain = {name: task.__dict__[name] for name in ("__init__", "set_name", "get_coro")}
    _plain_task.update(plain)
    iscoroutine = sys.modules["asyncio.coroutines"].iscoroutine

    def __init__(self, coro, *args, **kwargs):
        if not _in_tasks or not iscoroutine(coro):
            return plain["__init__"](self, coro, *args, **kwargs)
        timer = _core.time_coroutine(coro, kwargs.get("name"))
        plain["__init__"](self, timer, *args, **kwargs)
        if kwargs.get("name") is None:
            _core.rename(timer, self.get_name())

    def set_name(self, value):
        plain["set_name"](self, value)
        _core.rename(self._coro, self.get_name())

    def get_coro(self):
        return _core.inner(plain["get_coro"](self))

    for function in (__init__, set_name, get_coro):
        function.__doc__ = plain[function.__name__].__doc__
        setattr(task, function.__name__, function)


def _take_out_python_task(task):
    for name, function in _plain_task.items():
        if getattr(task.__dict__.get(name), "__module__", None) == __name__:
            setattr(task, name, function)
    _plain_task.clear()


def _adopt():
    """Tasks of the loop that runs here already."""
    asyncio = sys.modules.get("asyncio")
    try:
        loop = asyncio.get_running_loop()
        current = asyncio.current_task(loop)
        tasks = asyncio.all_tasks(loop)
    except (AttributeError, RuntimeError):
        return
    for task in sorted(tasks, key=lambda task: task is not current):
        if _core.adopt_task(task, task is current) and task is current:
            loop.call_soon(_core.end_adopted_step, task)


# -- who wants them


def use(user, tasks, stand_down=None):
    """From here on `user` wants threads, and tasks too where `tasks` says so."""
    with _lock:
        _stand_downs[user] = stand_down
        if not _users:
            _put_in_threads()
        _users[user] = bool(tasks) or _users.get(user, False)
        if any(_users.values()):
            _put_in_tasks()
            greenlets.put_in()


def leave(user):
    with _lock:
        if user not in _users:
            return
        del _users[user], _stand_downs[user]
        if not any(_users.values()):
            _take_out_tasks()
            greenlets.take_out()
        if not _users:
            _take_out_threads()


def is_used_by(user):
    return user in _users


def _after_fork():
    """In the child: only a recording that follows forks goes on."""
    global _lock
    _lock = threading.RLock()
    _core.forget_threads()
    _core.renew_greenlets()
    for user, stand_down in list(_stand_downs.items()):
        method = stand_down() if stand_down is not None else None
        if stand_down is None and os.environ.get("SCOPED_LANE_FORK") == "follow":
            continue
        leave(user)
        if method is not None:
            method()


from scoped_lane import greenlets  # noqa: E402  (which waits for modules as this one does)

os.register_at_fork(after_in_child=_after_fork)
