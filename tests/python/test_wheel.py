"""make wheel: what it makes needs no libscoped_lane on the machine, and there is one copy of it in a process."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from conftest import BUILD, HERE, PYTHON

ROOT = HERE.parents[1]
USES = """
import os, sys
import scoped_lane as sl
with sl.region("wheel"):
    pass
copies = {line.split()[-1] for line in open("/proc/self/maps") if "libscoped_lane.so" in line}
print(*copies)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    place = tmp_path_factory.mktemp("wheels")
    words = ["make", "-s", "wheel", f"PYTHONS={PYTHON}", f"WHEELS={place}", f"O={BUILD}"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = place.glob("*.whl")
    return path


@pytest.fixture
def site(wheel, scripts):
    target = scripts.path / "site"
    words = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--disable-pip-version-check", "--target", target, wheel]
    if PYTHON == sys.executable:
        done = subprocess.run(words, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
    else:  # whose pip is not there for certain
        zipfile.ZipFile(wheel).extractall(target)
    scripts.env["PYTHONPATH"] = str(target)
    return target


def test_a_wheel_carries_the_library_and_finds_the_daemon(scripts, site):
    file = scripts.record(USES)
    assert file.said.split() == [str(site / "scoped_lane" / "libscoped_lane.so.0")]
    assert file.calls("wheel") == 1 and len(file.table("processes")) == 1
    scripts.run("import scoped_lane as sl\nassert not sl.is_recording()\n")  # no daemon: it just runs
    assert (site / "scoped_lane_pytest.py").exists()


def test_a_library_that_is_there_already_is_taken(scripts, site):
    library = BUILD / "lib" / "libscoped_lane.so.0"
    file = scripts.record(f"import ctypes\nctypes.CDLL({str(library)!r})\n{USES}")
    assert file.said.split() == [str(library)]
    assert file.calls("wheel") == 1 and len(file.table("processes")) == 1


def test_a_second_copy_in_one_image_is_refused(scripts, site):
    source = scripts.path / "other.c"
    source.write_text('#include <scoped_lane.h>\nvoid go(void)\n{\n    SL_SCOPE("within");\n}\n')
    other = scripts.path / "other.so"
    words = ["cc", "-shared", "-fPIC", "-I", ROOT, "-I", ROOT / "client", source, BUILD / "lib" / "libscoped_lane.a", "-o", other, "-lpthread"]
    subprocess.run(words, check=True, timeout=60)
    refused = """
try:
    import scoped_lane
except ImportError as error:
    print(error)
"""
    file = scripts.record(f"import ctypes\nctypes.CDLL({str(other)!r}).go()\n{refused}")
    assert "has another copy of libscoped_lane already" in file.said
    assert file.calls("within") == 1 and len(file.table("processes")) == 1
    renamed = scripts.path / "libscoped_lane.so.7"
    renamed.write_bytes(Path(BUILD / "lib" / "libscoped_lane.so.0").read_bytes().replace(b"libscoped_lane.so.0", b"libscoped_lane.so.7"))
    said = scripts.run(f"import ctypes\nctypes.CDLL({str(renamed)!r})\n{refused}")
    assert f"already: {renamed}" in said
