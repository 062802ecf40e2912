"""A program that forks, recorded by either profiler. argv: the profiler's module, "session" where the child begins one of its own."""

import importlib
import os
import sys
import threading

sp = importlib.import_module(sys.argv[1])


def work():
    with sp.region("child's"):
        pass


def child():
    threads = [threading.Thread(target=work, name=f"child-{i}") for i in range(2)]
    for thread in threads:
        thread.start()
        thread.join()


with sp.session(track_threads=True, verbose=False, file_path="parent.h5"):
    with sp.region("before"):
        pass
    pid = os.fork()
    if not pid and "session" in sys.argv:
        with sp.session(replace=True, track_threads=True, verbose=False, file_path="child.h5"):
            child()
        os._exit(0)
    elif not pid:
        child()
        run = sp.finalize(verbose=False, return_results=True)
        print([region.name for region in run or ()], flush=True)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    with sp.region("after"):
        pass
