"""python -m scoped_lane run [--include MODULE,...] [--c-functions] PROGRAM.py|-m MODULE [ARGUMENT...]

Runs a Python program that knows nothing of scoped_lane, with a region around each call of its functions.
"""

import os
import sys
import types

OPTIONS = """
  --include MODULE,...  modules whose functions are recorded, with those below them; * and ? match. Without it: the program and what lies
                        beside it
  --c-functions         functions in C that the recorded ones call, too
"""
USAGE = "python -m scoped_lane run [--include MODULE,...] [--c-functions] PROGRAM.py | -m MODULE [ARGUMENT...]"


def _fresh_main():
    """A __main__ of the program's own: multiprocessing and pickle look for it."""
    main = types.ModuleType("__main__")
    main.__builtins__ = __builtins__
    sys.modules["__main__"] = main
    return main


def _run_file(path):
    main = _fresh_main()
    main.__file__ = path
    main.__cached__ = None
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    exec(code, main.__dict__)


def _run_module(name):
    import runpy

    _fresh_main()
    runpy._run_module_as_main(name)  # what python -m does


def _misused(problem):
    print(f"python -m scoped_lane: {problem}\nusage: {USAGE}", file=sys.stderr)
    sys.exit(2)


def _arguments(words):
    """(options, whether a module is run, the words of the program), which are its own from its name on."""
    options = {"include": [], "c_functions": False}
    if words and words[0] in ("-h", "--help"):
        print(f"{__doc__}\n{OPTIONS}")
        sys.exit()
    if not words or words.pop(0) != "run":
        _misused("the one command is run")
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if name == "--include":
            if not equals and not words:
                _misused("--include names modules")
            options["include"] += [module for module in (value if equals else words.pop(0)).split(",") if module]
        elif word == "--c-functions":
            options["c_functions"] = True
        elif word in ("-h", "--help"):
            print(f"{__doc__}\n{OPTIONS}")
            sys.exit()
        elif word == "-m" and words:
            return options, True, words
        elif word == "--" and words:
            return options, False, words
        elif word.startswith("-"):
            _misused(f"there is no option {word}, or it lacks its value")
        else:
            return options, False, [word, *words]
    _misused("what is to be run?")


def main():
    options, is_module, words = _arguments(sys.argv[1:])
    from scoped_lane import functions

    if is_module:
        name = words[0]
        sys.argv[:] = words
        sys.path[0:1] = [os.getcwd()]
        functions.record(options["include"] or ["__main__", name.partition(".")[0]], None, name, options["c_functions"])
        _run_module(name)
    else:
        path = words[0]
        if not os.path.isfile(path):
            sys.exit(f"python -m scoped_lane: {path}: there is no such file")
        sys.argv[:] = words
        directory = os.path.dirname(os.path.realpath(path))
        sys.path[0:1] = [directory]
        stem = os.path.splitext(os.path.basename(path))[0]
        functions.record(options["include"], directory, stem, options["c_functions"])
        _run_file(path)


if __name__ == "__main__":
    main()
