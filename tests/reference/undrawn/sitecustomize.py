"""Hides the plotting package, as if scope-profiler[pproc] were not installed: accept.sh skips the plots then and says so."""

import sys

sys.modules["maxplotlib"] = None
