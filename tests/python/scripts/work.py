"""What the programs that are recorded by both profilers do. argv: the profiler's module, the program's name, a file."""

import asyncio
import concurrent.futures
import importlib
import sys
import threading
import time

sp = importlib.import_module(sys.argv[1])


def spin(seconds=0.002):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def in_threads(function, count):
    threads = [threading.Thread(target=function, args=(i,), name=f"w{i}") for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def threads():
    barrier = threading.Barrier(4)

    def work(i):
        for _ in range(3):
            barrier.wait()
            with sp.region("outer"):
                with sp.region("inner"):
                    time.sleep(0.002)

    in_threads(work, 4)


def gather():
    async def job(n):
        with sp.region("job"):
            spin()
            await asyncio.sleep(0.01 * n)
            with sp.region("tail"):
                spin()

    async def main():
        with sp.region("main"):
            await asyncio.gather(job(3), job(1), job(2))

    asyncio.run(main())


def group():
    async def job(n):
        with sp.region("job"):
            await asyncio.sleep(0.005 * n)

    async def main():
        if hasattr(asyncio, "TaskGroup"):
            async with asyncio.TaskGroup() as tasks:
                for n in range(3):
                    tasks.create_task(job(n))
        else:
            await asyncio.gather(*(job(n) for n in range(3)))

    asyncio.run(main())


def cancelled():
    async def forever():
        with sp.region("forever"):
            await asyncio.sleep(60)

    async def never():
        with sp.region("never"):
            await asyncio.sleep(60)

    async def main():
        task = asyncio.ensure_future(forever())
        await asyncio.sleep(0.01)
        unstarted = asyncio.ensure_future(never())
        task.cancel()
        unstarted.cancel()
        await asyncio.wait([task, unstarted])
        try:
            await asyncio.wait_for(forever(), 0.01)
        except asyncio.TimeoutError:
            pass

    asyncio.run(main())


def loops():
    async def job():
        with sp.region("job"):
            await asyncio.sleep(0.005)

    async def main():
        await asyncio.gather(job(), job())

    in_threads(lambda i: asyncio.run(main()), 2 if len(sys.argv) < 5 else 1)


def mixed():
    async def job(n):
        with sp.region("job"):
            await asyncio.get_running_loop().run_in_executor(None, blocking)
            await asyncio.sleep(0.001 * n)

    def blocking():
        with sp.region("blocking"):
            time.sleep(0.003)

    async def main():
        # one worker: how many an executor starts for three jobs is a race
        asyncio.get_running_loop().set_default_executor(concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="asyncio"))
        for n in range(3):
            await job(n)

    with sp.region("before"):
        spin()
    asyncio.run(main())
    with sp.region("after"):
        blocking()


def recursion():
    @sp.profile("fib")
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    def deep(n):
        with sp.region("deep"):
            if n:
                deep(n - 1)

    assert fib(7) == 13
    deep(20)


def exceptions():
    @sp.profile
    def fails():
        raise KeyError("mine")

    async def fails_late():
        with sp.region("late"):
            await asyncio.sleep(0)
            raise ValueError("mine too")

    for _ in range(3):
        try:
            with sp.region("around"):
                fails()
        except KeyError as error:
            assert error.args == ("mine",)
    try:
        asyncio.run(fails_late())
    except ValueError as error:
        assert error.args == ("mine too",)


def generators():
    def numbers():
        with sp.region("numbers"):
            for n in range(3):
                yield n

    async def anumbers():
        with sp.region("anumbers"):
            for n in range(3):
                await asyncio.sleep(0)
                yield n

    async def main():
        async for _ in anumbers():
            with sp.region("use"):
                spin(0.0005)

    for _ in numbers():
        with sp.region("use"):
            spin(0.0005)
    asyncio.run(main())


if __name__ == "__main__":
    with sp.session(track_threads=True, track_async=True, verbose=False, output=sys.argv[3] if sys.argv[3] else None):
        globals()[sys.argv[2]]()
