"""Greenlets that each make the next one and end. argv: how the next one comes, how many; it waits for a line at each quarter."""

import sys

import gevent
import gevent.event
import scoped_lane as sl
from greenlet import getcurrent, greenlet
from scoped_lane import _core

how, count = sys.argv[1], int(sys.argv[2])
main, done = getcurrent(), gevent.event.Event()
next_one = None


def live(left):
    with sl.region("generation"):
        pass
    if (left - 1) % (count // 4) == 0:
        with open("/proc/self/status") as status:
            resident = next(line.split()[1] for line in status if line.startswith("RssAnon:"))
        print(count - left + 1, resident, _core.known_greenlets(), flush=True)
        sys.stdin.readline()
    return left - 1


def generation(left):
    global next_one
    if left := live(left):
        next_one = greenlet(generation, main), left


def later(left):
    if left := live(left):
        gevent.spawn_later(0, later, left)
    else:
        done.set()


if how == "greenlet":
    next_one = greenlet(generation), count
    while next_one:
        (one, left), next_one = next_one, None
        one.switch(left)
else:
    gevent.spawn_later(0, later, count)
    done.wait()
