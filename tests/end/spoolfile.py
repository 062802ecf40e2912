"""A spool as its bytes say it, read without the daemon's own reader: docs/format.md is what the two have in common."""

import collections
import struct
import zlib

import numpy as np

HEADER, FRAME, RECORD = 64, 16, 32
RECORDS, LEDGER, DROPPED, END = 4, 8, 12, 13
REASONS = ["ring full", "no ring", "in signal handler", "no row", "too deep", "spool full", "in flight"]
CALL_KINDS = (1, 4)  # first, last

Ledger = collections.namedtuple("Ledger", ["produced", "stored", "lost"])


def frames(data):
    """(type, payload) of every frame up to the first that does not hold together."""
    at = HEADER
    while at + FRAME <= len(data):
        marker, kind, _, length, crc = struct.unpack_from("<IHHII", data, at)
        payload = data[at + FRAME : at + FRAME + length]
        if marker != 0x4D52464C or len(payload) < length or zlib.crc32(payload, zlib.crc32(data[at + 4 : at + 12])) != crc:
            return
        yield kind, payload
        at += FRAME + (length + 7) // 8 * 8


class SpoolFile:
    """`calls`: stored calls by (process, ring), counted record by record; `ledgers`: the last word on each ring; `drops`: how
    often records were passed over."""

    def __init__(self, path):
        data = memoryview(np.memmap(path, "u1", "r"))
        assert bytes(data[:8]) == b"SLSPOOL1"
        self.calls, self.ledgers, self.next, self.ended = collections.Counter(), {}, collections.Counter(), False
        self.drops = 0
        for kind, payload in frames(data):
            if kind == RECORDS:
                self.take_records(payload)
            elif kind == DROPPED:
                process, slot, following, _ = struct.unpack_from("<IIQQ", payload)
                self.next[process, slot] = following
                self.drops += 1
            elif kind == LEDGER:
                process, slot, produced, stored, *lost = struct.unpack_from("<IIQQ7Q", payload)
                self.ledgers[process, slot] = Ledger(produced, stored, dict(zip(REASONS, lost)))
            self.ended = kind == END

    def take_records(self, payload):
        process, slot, first = struct.unpack_from("<IIQ", payload)
        words = np.frombuffer(payload, "u8", offset=16).reshape(-1, RECORD // 8)
        key = process, slot
        assert first == self.next[key], f"ring {slot} of process {process}: record {first} follows {self.next[key] - 1}"
        self.next[key] += len(words)
        kinds = words[:, 1] >> 56
        self.calls[key] += int(((kinds >= CALL_KINDS[0]) & (kinds <= CALL_KINDS[1])).sum())

    @property
    def produced(self):
        return sum(ledger.produced for ledger in self.ledgers.values())

    @property
    def lost(self):
        total = collections.Counter()
        for ledger in self.ledgers.values():
            total.update({reason: count for reason, count in ledger.lost.items() if count})
        return dict(total)


class KeptSpool:
    """Holds on to the spool of a run that is being recorded, by a second name: the daemon removes its own once the file is there."""

    def __init__(self, place, directory=None):
        self.place, self.directory, self.path = place, directory or place.output, place.path / "kept.spool"

    def found(self):
        for path in self.directory.glob("*.spool"):
            self.path.hardlink_to(path)
            return True
        return False

    def read(self):
        return SpoolFile(self.path)
