"""Stands in for a profiler: each region is entered in both."""

import contextlib

import scope_profiler
import scoped_lane


def region(name):
    stack = contextlib.ExitStack()
    stack.enter_context(scope_profiler.region(name))
    stack.enter_context(scoped_lane.region(name))
    return stack


def profile(name):
    def decorator(function):
        return scope_profiler.profile(name)(scoped_lane.profile(name)(function))

    return decorator if isinstance(name, str) else profile(name.__name__)(name)


def session(**options):
    stack = contextlib.ExitStack()
    stack.enter_context(scope_profiler.session(**options))
    stack.enter_context(scoped_lane.session())
    return stack
