"""What programs with greenlets do that are recorded by both profilers. argv: the profiler's module, the program's name, a file."""

import importlib
import sys
import threading
import time

from greenlet import GreenletExit, getcurrent, greenlet

sp = importlib.import_module(sys.argv[1])


def spin(seconds=0.001):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def pause():
    getcurrent().parent.switch()


def job(n):
    with sp.region("job"):
        for _ in range(n):
            with sp.region("part"):
                spin()
                pause()


def interleaved():
    jobs = [greenlet(job) for _ in range(3)]
    for i, one in enumerate(jobs):
        one.switch(i + 1)
    while any(jobs):
        for one in jobs:
            if not one.dead:
                one.switch()


def chained():
    """Each switches to the next, not to its parent."""

    def step(i):
        with sp.region("step"):
            if i:
                made[i - 1].switch(i - 1)
            pause_at.switch()

    pause_at = getcurrent()
    made = [greenlet(step) for _ in range(4)]
    made[3].switch(3)
    while any(made):
        for one in made:
            if not one.dead:
                one.switch()


def failing():
    def fails():
        with sp.region("fails"):
            raise KeyError("mine")

    def catches():
        with sp.region("catches"):
            try:
                pause()
            except ValueError:
                with sp.region("handler"):
                    spin()

    try:
        greenlet(fails).switch()
    except KeyError as error:
        assert error.args == ("mine",)
    one = greenlet(catches)
    one.switch()
    one.throw(ValueError)
    other = greenlet(catches)
    other.switch()
    assert isinstance(other.throw(), GreenletExit) and other.dead


def in_threads():
    threads = [threading.Thread(target=interleaved, name=f"w{i}") for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def hubs():
    import gevent

    def sleeper(n):
        with sp.region("sleeper"):
            gevent.sleep(0.01 * n)

    gevent.joinall([gevent.spawn(sleeper, n) for n in (3, 1, 2)])


if __name__ == "__main__":
    with sp.session(track_threads=True, track_async=True, verbose=False, output=sys.argv[3] if sys.argv[3] else None):
        globals()[sys.argv[2]]()
