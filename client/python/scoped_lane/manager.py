"""The recording as a program sees it: regions by name, setup and its options, sessions.

The names, arguments and defaults are those of ``scope_profiler``, so that a program written for it is recorded after changing the
import. What differs: the daemon records, so there is something to see without setup, and a file although the program was killed.
"""

import contextlib
import fnmatch
import inspect
import os
import sys
import warnings

from scoped_lane import _core, decorate, files, hooks, workers

SESSION_REGION = "scope_profiler.session"
RECORDING = "recording"  # who wants the hooks
ENABLE_TAGS = "SCOPE_PROFILER_ENABLE_TAGS"

# Options that act here, and those that do not: what they ask for the daemon does always, in its own way, or not at all.
ACTING = {
    "file_path": None,
    "label": None,
    "deactivate_profiling": False,
    "deactivate_file_output": False,
    "track_threads": False,
    "track_async": False,
    "enable_tags": None,
}
IDLE = {
    "aggregation_mode": False,
    "buffer_limit": None,
    "capture_region_source": False,
    "gpu_sync_on_exit": False,
    "gpu_timing_backend": None,
    "hdf5_chunk_size": None,
    "hdf5_compression": None,
    "hdf5_compression_level": None,
    "memory_profile_path": None,
    "memray_follow_fork": False,
    "memray_native_traces": False,
    "memray_trace_python_allocators": False,
    "metadata_detail": None,
    "output_mode": None,
    "perf_events": None,
    "profile_mpi_calls": False,
    "recursive_profile": False,
    "use_gpu_timing": False,
    "use_likwid": False,
    "use_line_profiler": False,
    "use_memray": False,
    "use_nvtx": False,
}
SILENT = {"buffer_limit", "hdf5_chunk_size", "hdf5_compression", "hdf5_compression_level", "metadata_detail", "output_mode"}
NOT_WITH_THREADS = ("use_line_profiler", "use_gpu_timing", "use_nvtx", "use_likwid", "perf_events", "aggregation_mode")

_UNSET = object()
_warned = set()


class Config:
    """The options of a setup, as attributes."""

    def __init__(self, **options):
        self.__dict__.update(ACTING | IDLE | options)
        if self.track_async:
            self.track_threads = True
        if self.track_threads:
            for name in NOT_WITH_THREADS:
                if getattr(self, name):
                    raise ValueError(f"track_threads cannot be combined with {name}")
        if self.file_path is not None:
            self.file_path = os.fspath(self.file_path)


class _State:
    config = None
    state = "inactive"  # active, finalized
    results = None
    opt_in = set()
    tag_filter = None
    definitions = {}
    paused = False
    attached = False


_state = _State()


# -- recording


def attach():
    """Looks for a daemon; True when this process is recorded. Done at import, and by setup()."""
    if not _core.is_active() and _core.attach() != 0:
        return False
    if not hooks.is_used_by(RECORDING):
        try:
            _follow()
        except Exception as problem:  # an interpreter that is made otherwise: regions are recorded all the same
            _warn_once("hooks", f"threads or tasks are not followed: {problem!r}")
    workers.watch(_attach_child)
    return True


def _attach_child():
    """The same in the child of a fork that is to be recorded, whatever the environment says."""
    if not attach() and _core.follow() == 0:
        _core.renew_greenlets()
        attach()


def _follow():
    hooks.use(RECORDING, os.environ.get("SCOPED_LANE_ASYNC") != "0")


def is_recording():
    """Whether a daemon records this process."""
    return _core.is_active()


def untracked_tasks():
    """How many asyncio tasks were found to which no lane could be given."""
    return _core.task_counts()[1]


# -- regions


def _is_off(tags):
    config, tags = _state.config, set(tags)
    if _state.tag_filter is not None and not tags & _state.tag_filter:
        return True
    opt_in = tags & _state.opt_in
    if not opt_in:
        return False
    enabled = {tag.strip() for tag in os.environ.get(ENABLE_TAGS, "").split(",") if tag.strip()}
    enabled |= set((config.enable_tags if config else None) or ()) | (_state.tag_filter or set())
    return "*" not in enabled and not opt_in & enabled


def _settle_tags():
    for region in _core.all_regions().values():
        region.is_off = _is_off(region.tags)


def _relative(path):
    """Below the working directory without that, below an import directory without that: no more of a path than is of use."""
    for directory in (os.getcwd(), *(entry for entry in sys.path if entry)):
        prefix = os.path.join(os.path.abspath(directory), "")
        if path.startswith(prefix):
            return path[len(prefix) :]
    return os.path.basename(path) if os.path.isabs(path) else path


def _place(file, line):
    try:
        return (_relative(file) if file and not file.startswith("<") else file), line
    except OSError:  # no working directory
        return os.path.basename(file), line


def _named(name, tags, place):
    """The region of a name; `place` says where it stands when it is new."""
    region = _core.find_region(name)
    if region is None:
        region = _core.new_region(name, *_place(*place()))
        region.tags = () if tags is None else tuple(tags)
        region.is_off = _is_off(region.tags)
    elif tags is not None and region.tags != tuple(tags):
        if region.tags or region.num_calls:
            raise ValueError(f"region {name!r} has the tags {region.tags!r} already, not {tuple(tags)!r}")
        region.tags = tuple(tags)
        region.is_off = _is_off(region.tags)
    return region


def _make_region(region_name, functions=None, tags=None):
    return _named(region_name, tags, decorate.caller)


_core.set_maker(_make_region)
region = _core.region


class RegionHandle:
    """A region by its name, for later."""

    def __init__(self, name, functions=None, tags=None):
        self.name = name
        self._region = _named(name, tags, decorate.caller)

    def __enter__(self):
        return self._region.__enter__()

    def __exit__(self, *exception):
        return self._region.__exit__(*exception)


def define_region(region_name, functions=None, tags=None):
    """A handle of a region that may be used whenever it is recorded."""
    definition = (None if functions is None else tuple(functions), None if tags is None else tuple(tags))
    if _state.definitions.setdefault(region_name, definition) != definition:
        raise ValueError(f"region {region_name!r} is defined otherwise already")
    return RegionHandle(region_name, functions, tags)


class RegionFactory:
    """A region that is called for each use; what it is called with is not recorded."""

    def __init__(self, name, tags=None):
        self.name = name
        self._region = _named(name, tags, decorate.caller)

    def __call__(self, **metadata):
        if metadata:
            _warn_once("metadata", "metadata of calls is not recorded")
        return self._region


def region_factory(region_name, *, tags=None):
    """A callable that gives the region, for programs that attach metadata to calls."""
    return RegionFactory(region_name, tags)


def register_opt_in_tag(*tags):
    """Regions with these tags are passed over unless `enable_tags` names one of them, or "*"."""
    for tag in tags:
        if not isinstance(tag, str) or not tag:
            raise TypeError(f"an opt-in tag is a str that is not empty, not {tag!r}")
    _state.opt_in.update(tags)
    _settle_tags()


def registered_regions():
    """The names of all regions."""
    return tuple(_core.all_regions())


def recorded_regions():
    """The names of those that were entered."""
    return tuple(name for name, region in _core.all_regions().items() if region.num_calls)


def profile(region_name=None, recursive=None, metadata=None, record_outcome=False, tags=None):
    """A decorator: a region around each call of a function, coroutine function, generator or asynchronous generator."""
    if callable(region_name):
        return profile()(region_name)
    if recursive:
        _warn_once("recursive", "recursive profiling is not done")
    if metadata is not None or record_outcome:
        _warn_once("metadata", "metadata of calls is not recorded")

    def decorator(function):
        name = region_name or function.__name__
        return decorate.wrap(function, _named(name, tags, lambda: decorate.source_of(function)))

    return decorator


def instrument(module, *, include=("*",), exclude=(), prefix=None, tags=None):
    """Puts a region around the functions of a module that match; returns them by name."""
    changed = {}
    before = prefix or getattr(module, "__name__", "module")
    for name, function in list(vars(module).items()):
        if not inspect.isfunction(function):
            continue
        if any(fnmatch.fnmatch(name, p) for p in include) and not any(fnmatch.fnmatch(name, p) for p in exclude):
            changed[name] = profile(f"{before}.{name}", tags=tags)(function)
            setattr(module, name, changed[name])
    return changed


@contextlib.contextmanager
def metadata(**values):
    """Accepted, and not recorded."""
    _warn_once("metadata", "metadata of calls is not recorded")
    yield dict(values)


# -- setup


def _warn_once(what, text):
    if what not in _warned:
        _warned.add(what)
        warnings.warn(f"scoped_lane: {text}", stacklevel=3)


def _settings(options, config_path, overrides):
    """Options by their sources: a TOML file, a bag, keywords; the later win."""
    settings = {}
    if config_path is not None:
        settings.update(files.read_toml(config_path))
    if options is not None:
        settings.update(options.to_kwargs() if hasattr(options, "to_kwargs") else vars(options))
    settings.update(overrides)
    unknown = set(settings) - set(ACTING) - set(IDLE)
    if unknown:
        raise TypeError(f"setup() knows no option {', '.join(sorted(unknown))}")
    return {name: value for name, value in settings.items() if value is not None}


def _settle_output(output, overrides):
    if output is _UNSET:
        return
    for name in ("file_path", "deactivate_file_output"):
        if overrides.get(name) is not None:
            raise TypeError(f"output cannot be combined with {name}")
    if output is None:
        overrides["deactivate_file_output"] = True
    else:
        overrides["file_path"] = os.fspath(output)


class ProfilingRun:
    """What setup() returns."""

    def __init__(self, config):
        self._config = config
        self.results = None

    @property
    def file_path(self):
        """Where finalize() writes to, None: nowhere but where the daemon does."""
        return self._config.file_path

    @property
    def is_active(self):
        """Whether this is the present setup, and it records."""
        return _state.config is self._config and is_active()

    def finalize(self, **kwargs):
        """finalize(), keeping its results."""
        if _state.config is not self._config:
            raise RuntimeError("another setup() has followed this one")
        kwargs.setdefault("return_results", True)
        self.results = finalize(**kwargs)
        return self.results


def setup(
    options=None,
    *,
    auto_finalize=False,
    output=_UNSET,
    replace=False,
    region_tags=None,
    config_path=None,
    **overrides,
):
    """Begins a run with options. Nothing is needed to record; see the manual for what the options do here."""
    if _state.state == "active" and not replace:
        raise RuntimeError("setup() was called already: finalize() first, or say replace=True")
    _settle_output(output, overrides)
    settings = _settings(options, config_path, overrides)
    config = Config(**settings)
    for name in sorted(set(settings) & set(IDLE) - SILENT):
        if settings[name] != IDLE[name]:
            _warn_once(name, f"the option {name} has no meaning here")
    _state.config = config
    _state.results = None
    _state.tag_filter = None if region_tags is None else set(region_tags)
    _state.state = "inactive" if config.deactivate_profiling else "active"
    _settle_pause()
    _settle_tags()
    if not config.deactivate_profiling:
        _attach_child()
    return ProfilingRun(config)


def _settle_pause():
    _core.pause(_state.paused or bool(_state.config and _state.config.deactivate_profiling))


def finalize(verbose=True, return_results=False, native_traces=None, verbose_line_profiler=False):
    """Writes what is recorded so far to the file that setup() named, if it named one; recording goes on.

    With `return_results` the run as scope_profiler reads it, None where that is not installed.
    """
    config = _state.config
    if config is None:
        return None
    _state.state = "inactive" if config.deactivate_profiling else "finalized"
    path = None if config.deactivate_file_output else config.file_path
    _state.results = files.write(path, config.label, return_results) if _core.is_active() else None
    return _state.results if return_results else None


class Session(contextlib.ContextDecorator):
    """setup(), a region around everything, finalize()."""

    def __init__(self, arguments, finalize_arguments):
        self._arguments, self._finalize_arguments = arguments, finalize_arguments
        self._region = None
        self.results = None

    def _recreate_cm(self):
        return type(self)(self._arguments, self._finalize_arguments)

    def __enter__(self):
        setup(**self._arguments)
        self._region = _named(SESSION_REGION, None, lambda: ("", -1))
        self._region.__enter__()
        return self

    def __exit__(self, *exception):
        self._region.__exit__(*exception)
        self.results = finalize(**self._finalize_arguments)
        return False


def session(
    options=None,
    *,
    verbose=True,
    verbose_line_profiler=False,
    return_results=False,
    native_traces=None,
    output=_UNSET,
    replace=False,
    config_path=None,
    **overrides,
):
    """A context manager, or decorator: setup() with these options, the region scope_profiler.session, finalize()."""
    arguments = dict(overrides, options=options, replace=replace, config_path=config_path)
    if output is not _UNSET:
        arguments["output"] = output
    return Session(arguments, {"verbose": verbose, "return_results": return_results})


def setup_from_env(**overrides):
    """setup() with what SCOPE_PROFILER_OUTPUT and SCOPE_PROFILER_CONFIG say."""
    if "SCOPE_PROFILER_OUTPUT" in os.environ:
        overrides.setdefault("output", os.environ["SCOPE_PROFILER_OUTPUT"])
    return setup(config_path=os.environ.get("SCOPE_PROFILER_CONFIG"), **overrides)


def run(func, *args, output=_UNSET, **kwargs):
    """Calls a function in a session; returns what it returns."""
    if output is not _UNSET:
        kwargs["output"] = output
    kwargs.setdefault("return_results", True)
    with session(**kwargs):
        return func(*args)


def pause():
    """From here on calls are passed over."""
    if _state.config is None:
        raise RuntimeError("pause() needs setup() before it")
    _state.paused = True
    _settle_pause()


def resume():
    """From here on calls are recorded again."""
    if _state.config is None:
        raise RuntimeError("resume() needs setup() before it")
    _state.paused = False
    _settle_pause()


def is_configured():
    """Whether setup() was called."""
    return _state.config is not None


def is_active():
    """Whether calls are recorded: a daemon is there, and setup() did not say otherwise."""
    config = _state.config
    return _core.is_active() and not (config is not None and config.deactivate_profiling)


def get_config():
    """The options of the present setup, or the defaults."""
    return _state.config or Config()


def last_results():
    """What the last finalize() returned, or would have."""
    return _state.results


def reset():
    """Forgets setup(); regions and decorated functions stay."""
    _state.config = _state.results = _state.tag_filter = None
    _state.state = "inactive"
    _state.paused = False
    _settle_pause()
    _settle_tags()


class ProfileManager:
    """The same functions under the name that programs know them by. There is one recording: instances are all the same."""

    profile_region = region = staticmethod(region)
    attach = staticmethod(attach)


for _function in (
    define_region,
    finalize,
    get_config,
    instrument,
    is_active,
    is_configured,
    last_results,
    metadata,
    pause,
    profile,
    recorded_regions,
    region_factory,
    register_opt_in_tag,
    registered_regions,
    reset,
    resume,
    run,
    session,
    setup,
    setup_from_env,
):
    setattr(ProfileManager, _function.__name__, staticmethod(_function))
