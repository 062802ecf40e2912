"""A little of all that the module does, for the address sanitizer to watch: made and left tasks, generators left early, threads, trackers."""

import asyncio
import gc
import threading

import scoped_lane as sl


@sl.profile
def function(x):
    return x + 1


async def numbers():
    with sl.region("numbers"):
        for i in range(5):
            yield i


async def leaves_early():
    async for i in numbers():
        if i == 2:
            break


async def main():
    await asyncio.gather(*(leaves_early() for _ in range(100)))
    task = asyncio.create_task(asyncio.sleep(10), name="named")
    unstarted = asyncio.create_task(asyncio.sleep(10))
    await asyncio.sleep(0)
    task.set_name("renamed")
    repr(task), task.get_stack(), task.get_coro()
    task.cancel()
    asyncio.create_task(asyncio.sleep(10)).cancel()
    await asyncio.sleep(0)
    unstarted.cancel()
    try:
        asyncio.Task(7)
    except TypeError:
        pass


def in_a_thread():
    threading.current_thread().name = "renamed"
    with sl.region("thread"):
        asyncio.run(main())


trackers = [sl.ConcurrencyTracker(track_async=True) for _ in range(3)]
for tracker in trackers:
    tracker.install()
asyncio.run(main())
for _ in range(20):
    thread = threading.Thread(target=in_a_thread)
    thread.start()
    thread.join()
for tracker in trackers:
    tracker.snapshot()
    [(row.name, row.cpu_ns) for row in tracker.threads]
    [(row.name, row.steps) for row in tracker.tasks]
    tracker.uninstall()
del trackers, tracker
for i in range(2000):
    with sl.region(f"region {i}"):
        function(i)
try:
    from greenlet import getcurrent, greenlet
except ImportError:
    pass
else:
    made = [greenlet(lambda: getcurrent().parent.switch()) for _ in range(1000)]
    for one in made:
        one.switch()
    for one in made[::2]:
        one.switch()
    for one in made[1:100:2]:
        one.throw()
    del made, one
loop = asyncio.new_event_loop()
loop.set_exception_handler(lambda *_: None)
loop.create_task(asyncio.sleep(5))
loop.call_soon(loop.stop)
loop.run_forever()
del loop
gc.collect()
print("done")
