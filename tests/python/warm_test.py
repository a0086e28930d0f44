"""Which imports of a script are done before its processes are forked: those of what is installed, up to its first other
line."""
import os
import subprocess
import sys
from types import ModuleType

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(os.path.dirname(HERE), "e2e")]

from harness import SOURCE, main, require  # noqa: E402

sys.path[:0] = [os.path.join(SOURCE, "tools", "python")]

from starling import warm  # noqa: E402

INSTALLED = "import os\nNAME, done = __name__, []\ndef again(): return 'again'\n"


def written(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(text if isinstance(text, bytes) else text.encode())
    return path


def imported(place, script, beside=()):
    """Names of modules, of one, two and three, that are imported after the script's own imports."""
    folder, packages = place.path(f"{len(os.listdir(place.folder))}"), place.path("site-packages")
    for name in ("one", "two", "three"):
        written(os.path.join(packages, name, "__init__.py"), INSTALLED)
        written(os.path.join(packages, name, "part.py"), "")
    for name in beside:
        written(os.path.join(folder, name), "raise ValueError('a file beside the script is imported')\n")
    kept, sys.path[:] = list(sys.path), [folder, *sys.path, packages]
    try:
        warm.do_imports(written(os.path.join(folder, "train.py"), script), ModuleType("__main__"))
        return sorted(name for name in sys.modules if name.split(".")[0] in ("one", "two", "three"))
    finally:
        sys.path[:] = kept
        for name in [name for name in sys.modules if name.split(".")[0] in ("one", "two", "three")]:
            del sys.modules[name]


def imports_up_to_the_first_other_line_are_done(place):
    for script, wanted in (("import one\nimport two, three.part as p\n", ["one", "three", "three.part", "two"]),
                           ('"""What it is."""\nfrom __future__ import annotations\nimport os, json\nfrom two.part import *\n',
                            ["two", "two.part"]),
                           ("from three import part\nx = 1\nimport one\n", ["three", "three.part"]),
                           ("import os\nos.environ['A'] = '1'\nimport one\n", []),
                           ("try:\n    import one\nexcept ImportError:\n    one = None\n", []),
                           ("from . import one\nimport two\n", []), ("import one; 'text'; import two", ["one"]),
                           ("import starling.order\nimport one\n", ["one"]), ("", []),
                           (b"\xef\xbb\xbfimport one\n", ["one"]), (b"# coding: latin-1\n'\xe9'\nimport one\n", ["one"])):
        found = imported(place, script)
        require(found == wanted, f"{script!r}: {found}, expected {wanted}")


def files_beside_a_script_are_not_imported(place):
    """Neither the script's own nor one that hides a package: every process imports them by the script."""
    for beside in (("own.py",), ("own/__init__.py",)):
        require(imported(place, "import one, json\nimport own\nimport two\n", beside) == ["one"], f"{beside}")
    for beside, wanted in ((("two.py",), ["one"]), (("two/__init__.py",), ["one"]), (("two/part.py",), ["one", "three", "two"])):
        found = imported(place, "import one\nimport two\nimport three\n", beside)
        require(found == wanted, f"{beside}: {found}, expected {wanted}, as a folder that is no package hides none")


def what_an_import_raises_is_told(place):
    written(place.path("site-packages/broken.py"), "raise ValueError('no')\n")
    for script in ("import one\nimport broken\n", "import one\nfrom one import nothing\n", "import one\n(\n"):
        try:
            imported(place, script)
        except (ValueError, ImportError, SyntaxError):
            continue
        require(False, f"{script!r} raised nothing")


def nothing_slow_comes_before_the_end_of_the_worker_is_waited_for(_):
    """torch is imported by a process that ends with its worker; this one has none."""
    paths = [os.path.join(SOURCE, "tools", "python"), os.path.join(SOURCE, "tests", "stand_in")]
    for arguments in (["train.py"], ["--warm", "train.py"]):
        ended = subprocess.run([sys.executable, "-X", "importtime", "-m", "starling", *arguments], stdin=subprocess.DEVNULL, text=True,
                               env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)}, capture_output=True)
        require("die_with_the_worker" in ended.stderr and "| torch\n" not in ended.stderr.replace(" ", "").replace("|", "| "), f"{arguments}: {ended.stderr[-2000:]}")


main(imports_up_to_the_first_other_line_are_done, files_beside_a_script_are_not_imported, what_an_import_raises_is_told,
     nothing_slow_comes_before_the_end_of_the_worker_is_waited_for)
