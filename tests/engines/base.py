"""Debian's base as an archive, for containers and roots of tests: made once, of the packages that apt has here."""
import os
import subprocess

from harness import SOURCE, Skipped

BASE = os.environ.get("STARLING_ENGINES_BASE", os.path.join(SOURCE, "build", "engines", "base.tar"))


def base_root():
    """The path of the archive."""
    if os.path.exists(BASE):
        return BASE
    os.makedirs(os.path.dirname(BASE), exist_ok=True)
    part = f"{BASE}.{os.getpid()}.tar"
    try:
        made = subprocess.run(["mmdebstrap", "--variant=minbase", "bookworm", part], capture_output=True, text=True, timeout=900)
    except FileNotFoundError as error:
        raise Skipped("needs mmdebstrap (tools/setup.sh --engines)") from error
    if made.returncode:
        raise Skipped(f"no Debian for a base: {made.stderr.strip().splitlines()[-1]}")
    os.rename(part, BASE)
    return BASE
