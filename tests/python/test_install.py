"""pip builds the package from the tree, and what it installs records."""

import os
import subprocess
import sys
from pathlib import Path

from conftest import HERE

PACKAGE = HERE.parents[1] / "client" / "python"


def test_pip_installs_the_package(scripts):
    target = scripts.path / "site"
    words = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-build-isolation", "--no-deps", "--target", target, PACKAGE]
    done = subprocess.run(words, capture_output=True, text=True, env=os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"}, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    file = scripts.record(
        "import scoped_lane as sl\nprint(sl.__file__)\nwith sl.region('installed'):\n    pass\n", PYTHONPATH=target
    )
    assert Path(file.said.strip()).is_relative_to(target) and file.calls("installed", 0) == 1
