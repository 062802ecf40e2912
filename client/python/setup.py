"""The C part of the package, linked with the libscoped_lane that is installed, else with the one built in this tree."""

import glob
import os
import subprocess

from setuptools import Extension, setup

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BUILT = os.path.join(ROOT, "obj", "release", "lib")


def installed():
    """(include directories, library directories) of the installed library, None where pkg-config knows none."""
    try:
        words = subprocess.run(
            ["pkg-config", "--cflags", "--libs", "scoped-lane"], capture_output=True, text=True, check=True
        ).stdout.split()
    except (OSError, subprocess.CalledProcessError):
        return None
    found = [[word[2:] for word in words if word.startswith(flag)] for flag in ("-I", "-L")]
    return tuple(found)


def settings():
    here = [ROOT]  # the module's own headers say client/python/
    if os.path.exists(os.path.join(BUILT, "libscoped_lane.so")):
        return here + [os.path.join(ROOT, "client")], [BUILT]
    found = installed()
    if found is None:
        raise SystemExit("libscoped_lane is neither installed (make install) nor built here (make)")
    return here + found[0], found[1]


includes, libraries = settings()
os.chdir(HERE)
setup(
    ext_modules=[
        Extension(
            "scoped_lane._core",
            sorted(glob.glob("*.c")),
            depends=glob.glob("*.h"),
            include_dirs=includes,
            library_dirs=libraries,
            runtime_library_dirs=libraries,
            libraries=["scoped_lane"],
            define_macros=[("_GNU_SOURCE", None)],
            extra_compile_args=["-std=gnu11", "-O2", "-fno-plt", "-fvisibility=hidden"],
        )
    ]
)
