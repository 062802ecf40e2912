"""Greenlets: put in when greenlet is there, or when it comes (greenlet.c does the rest)."""

import sys

from scoped_lane import _core, hooks

_FUNCTIONS = {"settrace": _core.greenlet_settrace, "gettrace": _core.greenlet_gettrace}
_plain = {}  # greenlet's own, which ours stand for


def put_in():
    """From here on every greenlet has a lane."""
    module = sys.modules.get("greenlet")
    if not hasattr(module, "settrace"):
        _wait.put_in()
    elif not _plain and _core.hook_greenlets(module.greenlet, module.settrace, module.gettrace, module.getcurrent):
        for name, function in _FUNCTIONS.items():
            _plain[name] = getattr(module, name)
            setattr(module, name, function)


def take_out():
    """No more."""
    _wait.remove()
    _core.hook_greenlets()
    for name, function in _plain.items():
        if getattr(sys.modules["greenlet"], name) is _FUNCTIONS[name]:
            setattr(sys.modules["greenlet"], name, function)
    _plain.clear()


_wait = hooks.WaitForModule("greenlet", put_in)
