"""What the tests of scripts share: a script is run as people run it, and cases are told one by one."""

import contextlib
import difflib
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def environment(**more):
    return {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", **more}


def ended(path, *arguments, **more):
    """Exit code, and all that was said."""
    done = subprocess.run([sys.executable, path, *map(str, arguments)], capture_output=True, text=True,
                          env=environment(**more))
    return done.returncode, done.stdout + done.stderr


def said(path, *arguments, **more):
    code, text = ended(path, *arguments, **more)
    assert code == 0, f"exit code {code}: {text[-3000:]}"
    return text


def digest_in(text):
    return re.findall(r"digest ([0-9a-f]{32})", text)[-1]


def written(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def without_starling(folder, script, changes):
    """Path of the script as it was before these (now, before) were made in it: at most ten lines, all in docs/pytorch.md."""
    with open(script, encoding="utf-8") as file:
        text = file.read()
    plain = text
    for ours, theirs in changes:
        assert plain.count(ours) == 1, ours
        plain = plain.replace(ours, theirs)
    changed = [line for line in difflib.ndiff(plain.splitlines(), text.splitlines()) if line[0] in "+-"]
    with open(os.path.join(ROOT, "docs", "pytorch.md"), encoding="utf-8") as file:
        shown = file.read()
    assert changed and len(changed) <= 10 and all(line[0] + line[2:] in shown for line in changed), changed
    return written(folder, "plain.py", plain)


@contextlib.contextmanager
def busy(count):
    """So many processes that only compute; they end with this one, also where it is killed."""
    processes = [subprocess.Popen(["sh", "-c", "while kill -0 $PPID; do :; done 2>/dev/null"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


def run(*cases, shared=False):
    """Exit code of a test program that has these; each has a folder of its own, or all one that is shared."""
    failed = 0
    common = tempfile.TemporaryDirectory()
    for case in cases:
        try:
            with contextlib.nullcontext(common.name) if shared else tempfile.TemporaryDirectory() as folder:
                case(folder)
            print(f"ok     {case.__name__}", flush=True)
        except Exception as why:  # the others are run all the same
            failed += 1
            print(f"FAILED {case.__name__}: {type(why).__name__}: {why}", flush=True)
    common.cleanup()
    print(f"{len(cases) - failed} passed, {failed} failed")
    return 1 if failed else 0
