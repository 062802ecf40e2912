"""wheel.py LIBRARY VERSION DIRECTORY: builds the package for the interpreter that runs this, with the library inside, and packs a wheel.

Nothing but the interpreter, its headers and a compiler is needed: a wheel is an archive of the files and a list of them. The library
goes by its own name beside the extension, which looks for it there, so that a process that has it already gets no second one.
"""

import base64
import glob
import hashlib
import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
SUMMARY = "Regions, threads, asyncio tasks and greenlets of Python programs, recorded by scoped-laned"


def compiled(library, directory):
    """The extension, built."""
    target = os.path.join(directory, "_core" + sysconfig.get_config_var("EXT_SUFFIX"))
    words = [*shlex.split(os.environ.get("CC", "cc")), "-std=gnu11", *shlex.split(os.environ.get("CFLAGS", "-O2"))]
    words += ["-D_GNU_SOURCE", "-fPIC", "-fno-plt", "-fvisibility=hidden", "-shared", "-I", ROOT, "-I", os.path.join(ROOT, "client")]
    words += ["-isystem", sysconfig.get_path("include"), *sorted(glob.glob(os.path.join(HERE, "*.c"))), library]
    subprocess.run([*words, "-Wl,-rpath,$ORIGIN", "-o", target], check=True)
    return target


def contents(library, extension):
    """{name in the wheel: bytes} of all but what describes it."""
    paths = {f"scoped_lane/{os.path.basename(path)}": path for path in glob.glob(os.path.join(HERE, "scoped_lane", "*.py"))}
    paths["scoped_lane_pytest.py"] = os.path.join(HERE, "scoped_lane_pytest.py")
    paths["scoped_lane/" + os.path.basename(library)] = library
    paths["scoped_lane/" + os.path.basename(extension)] = extension
    found = {}
    for name, path in sorted(paths.items()):
        with open(path, "rb") as file:
            found[name] = file.read()
    return found


def description(version, tag):
    """What describes it."""
    return {
        "METADATA": f"Metadata-Version: 2.1\nName: scoped-lane\nVersion: {version}\nSummary: {SUMMARY}\nLicense: MIT\n"
        f"Requires-Python: =={sys.version_info[0]}.{sys.version_info[1]}.*\n",
        "WHEEL": f"Wheel-Version: 1.0\nGenerator: scoped-lane\nRoot-Is-Purelib: false\nTag: {tag}\n",
        "top_level.txt": "scoped_lane\nscoped_lane_pytest\n",
        "entry_points.txt": "[pytest11]\nscoped_lane = scoped_lane_pytest\n",
    }


def main():
    library, version, directory = sys.argv[1:]
    python = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    tag = f"{python}-{python}{getattr(sys, 'abiflags', '')}-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
    described = f"scoped_lane-{version}.dist-info"
    with tempfile.TemporaryDirectory() as place:
        files = contents(library, compiled(library, place))
    files.update((f"{described}/{name}", text.encode()) for name, text in description(version, tag).items())
    record = f"{described}/RECORD"
    lines = [
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}"
        for name, data in files.items()
    ]
    files[record] = ("\n".join([*lines, f"{record},,"]) + "\n").encode()
    os.makedirs(directory, exist_ok=True)
    path = os.path.join(directory, f"scoped_lane-{version}-{tag}.whl")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o755 if ".so" in name else 0o644) << 16
            wheel.writestr(entry, data)
    print(f"  WHL   {path}")


if __name__ == "__main__":
    main()
