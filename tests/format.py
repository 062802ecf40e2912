"""docs/format.md as data: `asserts` turns its tables into a C file of assertions; `read DAEMON PLACE` reads, by its tables
alone, what a daemon and PLACE/recorded (see format.sh) leave: the segment, the spool, the run file."""

import glob
import os
import re
import struct
import subprocess
import sys
import time
import zlib
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "format.md"
HEADERS = [*sorted(glob.glob("proto/*.h")), "daemon/core/facts.h", "daemon/storage/spool.h", "daemon/storage/spool-frame.h"]
INCLUDES = ["proto/segment.h", "proto/hello.h", "core/ticks.h", "core/facts.h", "storage/spool.h", "storage/spool-frame.h", "storage/h5.h"]
SCALARS = {
    "u8": ("B", "uint8_t"), "u16": ("H", "uint16_t"), "u32": ("I", "uint32_t"), "u64": ("Q", "uint64_t"),
    "i32": ("i", "int32_t"), "i64": ("q", "int64_t"), "f64": ("d", "double"),
}  # fmt: skip


def tables():
    """(heading, columns, rows) of every table; rows as dicts, code marks taken off."""
    heading, columns, found = "", None, []
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip().replace("`", "") for cell in line.strip("|").split("|")] if line.startswith("|") else None
        if line.startswith("#"):
            heading = line.lstrip("# ")
        if not cells:
            columns = None
        elif columns is None:
            columns, rows = cells, []
            found.append((heading, columns, rows))
        elif not set(line) <= set("|- "):
            rows.append(dict(zip(columns, cells)))
    return found


class Page:
    def __init__(self):
        self.structs, self.sizes, self.frames, self.constants, self.columns = {}, {}, {}, {}, {}
        for heading, columns, rows in tables():
            if columns[0] == "constant":
                self.constants |= {row["constant"]: int(row["value"], 0) for row in rows}
            elif found := re.fullmatch(r"struct (\w+), (\d+) bytes", heading):
                if columns[0] == "offset":
                    self.structs[found[1]], self.sizes[found[1]] = rows, int(found[2])
            elif found := re.fullmatch(r"frame (\w+), type (\d+)", heading):
                self.frames[int(found[2])] = rows
                self.constants[found[1]] = int(found[2])
            elif found := re.fullmatch(r"(columns|attributes) of (\S+)", heading):
                self.columns[found[1], found[2]] = rows

    # -- reading by the tables

    def value(self, type_, data, at, length):
        if type_ in SCALARS:
            return struct.unpack_from("<" + SCALARS[type_][0], data, at)[0]
        kind, count = re.fullmatch(r"(.+?)(\[\d*\])?", type_).groups()
        if kind in ("text", "bytes"):
            return data[at : at + length].split(b"\0")[0].decode()
        if kind == "texts":
            return data[at : at + length].rstrip(b"\0").decode().split("\0")
        one = self.sizes[kind.split()[1]] if kind.startswith("struct ") else struct.calcsize(SCALARS[kind][0])
        read = self.read if kind.startswith("struct ") else lambda _, data, at: self.value(kind, data, at, one)
        values = [read(kind.split()[-1], data, at + i * one) for i in range(length // one)]
        return values if count else values[0]

    def read(self, name, data, at=0):
        return {
            row["name"]: self.value(row["type"], data, at + int(row["offset"]), int(row["length"])) for row in self.structs[name]
        }

    def payload(self, type_, data):
        values, at = {}, 0
        for row in self.frames[type_]:
            if row["length"] == "rest":
                length = len(data) - at
            elif row["length"].isdigit():
                length = int(row["length"])
            else:
                item, field = row["length"].split(".")
                length = values[item][field]
            values[row["name"]] = self.value(row["type"], data, at, length)
            at += length
        assert at == len(data), f"frame {type_}: {len(data)} bytes, the page says {at}"
        return values


# ---- against the headers


def c_type(type_):
    kind, count = re.fullmatch(r"(.+?)(\[\d+\])?", type_).groups()
    kind = "char" if kind == "text" else SCALARS[kind][1] if kind in SCALARS else kind
    return kind + (" *" if count else "")


def asserts(page):
    for include in INCLUDES:
        yield f'#include "{include}"'
    for name, rows in page.structs.items():
        yield f'_Static_assert(sizeof(struct {name}) == {page.sizes[name]}, "{name}");'
        at = 0
        for row in rows:
            where = f"((struct {name} *)0)->{row['name']}"
            assert int(row["offset"]) == at, f"{name}.{row['name']}: the page has a gap or a wrong length before it"
            at += int(row["length"])
            yield (
                f"_Static_assert(offsetof(struct {name}, {row['name']}) == {row['offset']} && sizeof({where}) == {row['length']}"
                f' && _Generic({where}, {c_type(row["type"])}: 1, default: 0), "{name}.{row["name"]}");'
            )
        assert at == page.sizes[name], f"{name}: the page's fields end at {at}"
    for name, value in page.constants.items():
        yield f'_Static_assert((long long)({name}) == {value if value >= -(2**63) + 1 else "(-9223372036854775807 - 1)"}, "{name}");'
    for rows in page.frames.values():
        for row in rows:
            if row["length"].isdigit() and row["type"].startswith("struct"):
                yield f'_Static_assert(sizeof({row["type"]}) == {row["length"]}, "{row["type"]}");'
    for header in HEADERS:
        text = Path(header).read_text()
        for name in re.findall(r"^struct (\w+) \{", text, re.M):
            assert name in page.structs or name.startswith("spool"), f"{header}: struct {name} is not on the page"
        for name in re.findall(r"^ +((?:SL|SPOOL|PROCESS)_\w+) = \d+,?", text, re.M):
            assert name in page.constants, f"{header}: {name} is not on the page"


# ---- against what the programs write


def wait_until(condition, what):
    end = time.monotonic() + 30
    while not (value := condition()):
        assert time.monotonic() < end, f"not within 30 s: {what}"
        time.sleep(0.01)
    return value


def extents(page, segment):
    header, found = page.read("sl_segment", segment), []
    table, used = 1024, 0
    for _ in range(header["extents"]):
        extent = page.read("sl_extent", segment, table + used * page.sizes["sl_extent"])
        found.append(extent)
        used += 1
        if extent["kind"] == page.constants["SL_EXTENT_TABLE"]:
            table, used = extent["offset"], 0
    return header, found


def bits(word, low, high):
    return word >> low & (1 << high - low + 1) - 1


def call(record):
    word = record["word"]
    return {
        "kind": bits(word[1], 56, 63), "duration": bits(word[1], 0, 55), "task": bits(word[3], 32, 63),
        "region": bits(word[2], 48, 63) | bits(word[3], 0, 7) << 16, "parent": bits(word[3], 8, 31),
    }  # fmt: skip


def read_strings(page, segment, extent):
    at, found = extent["offset"], {}
    while (string := page.read("sl_string", segment, at))["header"]:
        text = at + page.sizes["sl_string"]
        name = segment[text : text + string["name_length"]].decode()
        file = segment[text + string["name_length"] : text + string["name_length"] + string["file_length"]].decode()
        found[string["type"], string["id"]] = (name, file, string["line"])
        at += string["header"] & page.constants["SL_STRING_LENGTH"]
    return found


def read_segment(page, path, pid, place):
    constants = page.constants
    segment = Path(path).read_bytes()
    header, found = extents(page, segment)
    of_kind = {kind: [e for e in found if e["kind"] == kind] for kind in range(1, 8)}
    assert header["magic"] == constants["SL_MAGIC"] and header["abi"] == constants["SL_ABI_VERSION"]
    assert (header["pid"], header["place"], header["rank"], header["size"]) == (pid, str(place), 3, len(segment))

    (slot,) = of_kind[constants["SL_EXTENT_SLOT"]]
    ring = page.read("sl_ring", segment, slot["offset"])
    records = [
        call(page.read("sl_record", segment, slot["offset"] + constants["SL_SLOT_RECORDS_OFFSET"] + 32 * i))
        for i in range(ring["head"])
    ]
    strings = {}
    for extent in of_kind[constants["SL_EXTENT_STRINGS"]]:
        strings |= read_strings(page, segment, extent)
    name = {id_: text for (type_, id_), (text, _, _) in strings.items() if type_ == constants["SL_STRING_REGION"]}
    assert strings[constants["SL_STRING_REGION"], 1] == ("work", "work.c", 7)
    assert strings[constants["SL_STRING_WORD"], 1][0] == "fiber"
    calls = [r for r in records if constants["SL_CALL"] <= r["kind"] <= constants["SL_CALL_LONG"]]
    none = constants["SL_TASK_NONE"]
    assert records[0]["kind"] == constants["SL_THREAD"] and records[0]["task"] == 0
    assert [(name[r["region"]], r["task"], r["kind"]) for r in calls] == [
        *[("work", none, constants["SL_CALL"])] * 5,
        ("work", 0, constants["SL_CALL"]),
        ("outer", none, constants["SL_CALL_CROSSING"]),
        ("inner", none, constants["SL_CALL"]),
    ]
    assert (ring["produced"], sum(ring["lost"]), ring["crossing"], ring["owner"]) == (8, 0, 1, 0)

    lane = slot["offset"] + constants["SL_SLOT_LANE_OFFSET"]
    block, entry = page.read("sl_lane", segment, lane), page.read("sl_entry", segment, lane + page.sizes["sl_lane"])
    assert (block["depth"], block["entries"], block["task"]) == (1, constants["SL_THREAD_ENTRIES"], none)
    assert name[entry["region"]] == "left open" and entry["start"] > header["created_ticks"]

    row = page.read("sl_thread_row", segment, of_kind[constants["SL_EXTENT_THREADS"]][0]["offset"])
    block = page.read("sl_name_block", segment, row["name"]["blocks"])
    assert block["text"].startswith("a name that is too long") and row["name"]["length"] == len(block["text"]) > 64
    assert row["state"] == constants["SL_ROW_LIVE"] and row["native_id"] == pid and row["slot"] == slot["first"]
    rows = of_kind[constants["SL_EXTENT_TASKS"]][0]
    tasks = [page.read("sl_task_row", segment, rows["offset"] + 768 * i) for i in range(rows["count"])]
    (task,) = [row for row in tasks if row["state"] == constants["SL_ROW_LIVE"]]
    assert (task["name"]["text"], task["coro_name"]["text"], task["lane"]["steps"]) == ("the task", "its function", 1)
    return ring, header


def read_spool(page, path):
    """Its frames, as (type, payload), up to the first that does not hold together: it may be being written. Their tables take all of them."""
    data, frames = Path(path).read_bytes(), []
    header = page.read("spool_header", data)
    assert header["magic"] == "SLSPOOL1" and header["version"] == page.constants["SPOOL_VERSION"]
    at = page.sizes["spool_header"]
    while at + 16 <= len(data):
        head = page.read("frame_header", data, at)
        payload = data[at + 16 : at + 16 + head["length"]]
        crc = zlib.crc32(payload, zlib.crc32(data[at + 4 : at + 12]))
        if head["marker"] != page.constants["FRAME_MARKER"] or len(payload) < head["length"] or head["crc"] != crc:
            break
        frames.append((head["type"], page.payload(head["type"], payload)))
        at += 16 + (head["length"] + 7 & ~7)
    return bytes(header["run_id"]).decode(), frames


def check_spool(page, place, uuid):
    constants = page.constants

    def whole():
        paths = glob.glob(f"{place}/*.spool")
        run, frames = read_spool(page, paths[0]) if paths else ("", [])
        of = {type_: [payload for each, payload in frames if each == type_] for type_ in page.frames}
        ledgers = [f for f in of[constants["SPOOL_LEDGER"]] if f["slot"] == 0 and f["ledger"]["produced"] == 8]
        return ledgers and of[constants["SPOOL_OPEN"]] and of[constants["SPOOL_SAMPLES"]] and (paths[0], run, of)

    path, run, of = wait_until(whole, "the spool has a ledger, open calls and samples")
    assert path.endswith(f".h5.{run}.spool")
    assert of[constants["SPOOL_RUN"]][0]["texts"][1] == path.removesuffix(f".{run}.spool")
    assert of[constants["SPOOL_PROCESS"]][0]["facts"]["uuid"] == uuid
    records = [call(record) for frame in of[constants["SPOOL_RECORDS"]] for record in frame["records"]]
    assert sum(constants["SL_CALL"] <= r["kind"] <= constants["SL_CALL_LONG"] for r in records) == 8
    assert {(s["head"]["type"], s["text"]) for s in of[constants["SPOOL_STRING"]]} >= {(1, "work"), (1, "left open"), (2, "fiber")}
    assert of[constants["SPOOL_THREAD"]][-1]["text"].startswith("a name that is too long")
    assert of[constants["SPOOL_TASK"]][0]["text"] == "the task" and of[constants["SPOOL_TASK"]][0]["coro_name"] == "its function"
    assert [open_["position"] for open_ in of[constants["SPOOL_OPEN"]][-1]["open"]] in ([], [0])
    assert of[constants["SPOOL_ANCHOR"]] and of[constants["SPOOL_SAMPLES"]][0]["samples"][0]["thread"] == 0


def is_of(type_, dtype):
    import h5py

    if type_ == "text":
        return (texts := h5py.check_string_dtype(dtype)) is not None and texts.encoding == "utf-8"
    if type_.startswith("struct"):
        return dtype.names is not None
    return f"{dtype.kind}{8 * dtype.itemsize}" in re.split(", | or ", type_)


def check_run_file(page, path):
    import h5py

    with h5py.File(path) as file:
        for (what, where), rows in page.columns.items():
            there = set(file[where].attrs) if what == "attributes" else set(file[where])
            assert there == {row["name"] for row in rows}, f"{what} of {where}: the file has {sorted(there)}"
            for row in rows if what == "columns" else []:
                assert is_of(row["type"], file[where][row["name"]].dtype), f"{where}/{row['name']} is {file[where][row['name']].dtype}"
        own = file["scoped_lane"]
        assert {f"/scoped_lane/{name}" for name in own} == {where for _, where in page.columns if where.startswith("/scoped_lane/")}
        assert all(own[name].attrs["version"] == 1 for name in own)
        summary = file["rank_region_index/summary_statistics"].dtype
        assert {n: summary.fields[n][1] for n in summary.names} == {r["name"]: int(r["offset"]) for r in page.structs["h5_summary"]}
        assert list(own["processes/produced"]) == [8] == list(own["processes/stored"]) and list(own["processes/rank"]) == [3]
        assert list(own["crossing/region"].asstr()) == ["outer"] and list(own["open_calls/region"].asstr()) == ["left open"]
        assert len(file["events/start_times"]) == 7


def read(page, daemon_program, place):
    env = os.environ | {"SCOPED_LANE_RUNDIR": place}
    for variable in ("SCOPED_LANE", "SCOPED_LANE_RUN", "SCOPED_LANE_SHM_DIR"):
        env.pop(variable, None)
    started = []
    try:
        with open(f"{place}/daemon.err", "w") as words:
            started.append(subprocess.Popen([daemon_program, "--rundir", place, "--output", place], stderr=words, env=env))
        wait_until(lambda: "ready" in Path(f"{place}/daemon.err").read_text(), "the daemon is ready")
        program = subprocess.Popen([f"{place}/recorded"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
        started.append(program)
        assert program.stdout.readline() == b"recorded\n"
        (path,) = glob.glob(f"/dev/shm/scoped-lane.{os.getuid()}.{program.pid}.*")
        ring, header = read_segment(page, path, program.pid, place)
        wait_until(lambda: (now := read_segment(page, path, program.pid, place)[0])["tail"] == now["head"], "the ring is drained")
        check_spool(page, place, header["uuid"])
        program.stdin.close()
        assert program.wait(30) == 0
        (file,) = wait_until(lambda: glob.glob(f"{place}/*.h5"), "the run file is there")
        check_run_file(page, file)
        assert not glob.glob(path) and not glob.glob(f"{place}/*.spool"), "what was taken in is removed"
    finally:
        for each in reversed(started):
            each.terminate()
            each.wait(60)


if __name__ == "__main__":
    if sys.argv[1] == "asserts":
        print("\n".join(asserts(Page())))
    else:
        read(Page(), *sys.argv[2:])
