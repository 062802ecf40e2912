"""``profile``: a region around each call of a function.

Functions get a callable in C. The others are wrapped by a function of their own kind, so that whoever asks finds a coroutine function
to be one. A coroutine's region is open from its first step to its end, waiting included. A generator's is open while it
runs, from each resumption to the next yield: what happens in between is its caller's.
"""

import functools
import inspect
import sys

from scoped_lane import _core


def source_of(function):
    """(file, line) of a function, ("", -1) where there is none."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return (code.co_filename, code.co_firstlineno) if code is not None else ("", -1)


def wrap(function, region):
    """The function with the region around its calls."""
    # What it is itself, not what it wraps: a context manager's function wraps a generator, and is none.
    if inspect.isasyncgenfunction(function):
        return _wrap_async_generator(function, region)
    if inspect.iscoroutinefunction(function):
        return _wrap_coroutine(function, region)
    if inspect.isgeneratorfunction(function):
        return _wrap_generator(function, region)
    wrapped = _core.wrap(function, region)
    functools.update_wrapper(wrapped, function)
    return wrapped


def _wrap_coroutine(function, region):
    @functools.wraps(function)
    async def wrapper(*args, **kwargs):
        with region:
            return await function(*args, **kwargs)

    return wrapper


def _wrap_generator(function, region):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        generator = function(*args, **kwargs)
        resume, value = generator.send, None
        while True:
            try:
                with region:
                    item = resume(value)
            except StopIteration as stop:
                return stop.value
            resume, value = generator.send, None
            try:
                value = yield item
            except GeneratorExit:
                with region:
                    generator.close()
                raise
            except BaseException as exception:
                resume, value = generator.throw, exception

    return wrapper


def _wrap_async_generator(function, region):
    @functools.wraps(function)
    async def wrapper(*args, **kwargs):
        generator = function(*args, **kwargs)
        resume, value = generator.asend, None
        while True:
            try:
                with region:
                    item = await resume(value)
            except StopAsyncIteration:
                return
            resume, value = generator.asend, None
            try:
                value = yield item
            except GeneratorExit:
                with region:
                    await generator.aclose()
                raise
            except BaseException as exception:
                resume, value = generator.athrow, exception

    return wrapper


def caller():
    """(file, line) of the nearest frame that is not the package's own."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] == __name__.split(".")[0]:
        frame = frame.f_back
    return ("", -1) if frame is None else (frame.f_code.co_filename, frame.f_lineno)
