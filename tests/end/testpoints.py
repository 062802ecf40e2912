"""The testpoints that the binaries have, and at_testpoint, which kills a process at one of them.

They are listed from the ELF notes (systemtap-sdt), so that a new testpoint is covered without a word in a test."""

import concurrent.futures
import contextlib
import os
import re
import subprocess
from dataclasses import dataclass

from conftest import BUILD, SHM, Place

DAEMON = BUILD / "bin" / "scoped-laned"
CLIENT = BUILD / "lib" / "libscoped_lane.so.0"
DRIVER = BUILD / "tests" / "api" / "at_testpoint"

NOTE = re.compile(r"Provider: (\S+)\s+Name: (\S+)\s+Location: (0x[0-9a-f]+), Base: (0x[0-9a-f]+)")


def points_of(elf):
    """{name: [address]} of all testpoints of a binary; the compiler may have made several of one."""
    if not elf.exists():
        return {}
    notes = subprocess.run(["readelf", "-nW", elf], capture_output=True, text=True, check=True).stdout
    found = {}
    for _, name, address, _ in NOTE.findall(notes):
        found.setdefault(name, []).append(int(address, 16))
    return found


@dataclass
class Killer:
    """at_testpoint around a command: what it has said so far."""

    program: object  # conftest.Program
    said: object  # path

    @property
    def hit(self):
        """(pid, tid) of the kill, None while it has not come to it."""
        words = re.match(r"hit (\d+) (\d+) ", self.said.read_text()) if self.said.exists() else None
        return words and (int(words[1]), int(words[2]))

    def counts(self):
        """{address: hits} of a command that has ended."""
        return {int(a, 16): int(n) for a, n in re.findall(r"^count (\S+) (\d+)$", self.said.read_text(), re.M)}


def at_testpoint(place, elf, addresses, *words, hit=1, follow=False, stop=False, stdin=subprocess.DEVNULL, **env):
    """Starts a command that is killed at the hit-th time it comes to one of the addresses (0: never)."""
    place.count += 1
    said = place.path / f"{place.count}.testpoint"
    options = ["-n", hit, "-o", said] + ["-f"] * follow + ["-s"] * stop
    program = place.start(DRIVER, *options, elf, ",".join(map(hex, addresses)), *words, stdin=stdin, **env)
    return Killer(program, said)


def count_hits(place, elf, *words, follow=False, deadline=120, **env):
    """Runs a command to its end; {name: hits} of all testpoints."""
    names = points_of(elf)
    killer = at_testpoint(place, elf, [a for all in names.values() for a in all], *words, hit=0, follow=follow, **env)
    killer.program.ends(status=None, deadline=deadline)
    counts = killer.counts()
    return {name: sum(counts[a] for a in addresses) for name, addresses in names.items()}


class Corner(Place):
    """A place among others that are tested at the same time: only segments that name its runtime directory, or one in it, or have
    no name yet and are of a process it started, are its own."""

    def segments(self, directory=SHM):
        found = []
        for path in directory.glob(f"scoped-lane.{os.getuid()}.*"):
            try:
                with open(path, "rb") as file:
                    head = file.read(480)
            except FileNotFoundError:
                continue
            named = head[368:480].rstrip(b"\0").decode()
            is_ours = named == str(self.rundir) or named.startswith(f"{self.rundir}/")
            if is_ours or (not named and int(path.name.split(".")[2]) in self.pids):
                found.append(path)
        return found

    def start(self, *words, **options):
        program = super().start(*words, **options)
        self.pids.add(program.pid)
        return program

    def __init__(self, path):
        super().__init__(path)
        self.pids = set()

    def leftovers(self):
        """Whatever lies where nothing should be left: beside run files, in the runtime directory, in /dev/shm."""
        beside = [p for p in self.output.iterdir() if p.suffix != ".h5" or p.name.startswith(".")]
        usual = {"lock", "log", "register.sock", "query.sock", "spools"}
        rundir = [p for p in self.rundir.iterdir() if p.name not in usual] if self.rundir.exists() else []
        links = list((self.rundir / "spools").glob("*"))
        return [str(p) for p in (*beside, *rundir, *links, *self.segments())]


@contextlib.contextmanager
def a_corner(path):
    path.mkdir(parents=True, exist_ok=True)
    corner = Corner(path)
    try:
        yield corner
    finally:
        corner.finish()


def all_at_once(function, cases, workers=6):
    """{case: function(case), or what it raised}, some at a time."""

    def one(case):
        try:
            return function(case)
        except BaseException as error:  # pytest.fail raises one that is no Exception
            return error

    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        return dict(zip(cases, pool.map(one, cases)))


def result_of(results, case):
    """The result of a case; raises what it raised."""
    if isinstance(results[case], BaseException):
        raise results[case]
    return results[case]
