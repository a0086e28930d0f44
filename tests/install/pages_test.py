#!/usr/bin/env python3
"""Man pages and completions (tools/package/pages.py) say what the commands' --help says: nothing is left out, shells complete
it, and man shows it without a complaint. Called with the folder of the build."""
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = sys.argv[1]
PROGRAMS = ("starling", "starling-bench")


def require(condition, text):
    if not condition:
        sys.exit(f"pages_test.py: {text}")


def said(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, **options)
    require(done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def table_of(program):
    return json.loads(said(os.path.join(BUILD, program), "help", "--json"))


def the_table_is_that_of_the_help(program):
    for sub in table_of(program)["subcommands"]:
        shown = said(os.path.join(BUILD, program), sub["name"], "--help")
        for option in sub["options"]:
            for name in option["names"] or [option["positional"]]:
                require(name in shown, f"{program} {sub['name']} --help does not have {name}")
        listed = [line for line in shown.splitlines() if re.match(r"\s+-", line)]
        options = {word for line in listed for word in line.replace(",", " ").split()[:2] if word.startswith("--")}
        known = {name for option in sub["options"] for name in option["names"]}
        require(options <= known, f"only --help of {program} {sub['name']} has {options - known}")


def man_has_every_option(program, folder):
    for sub in table_of(program)["subcommands"]:
        path = os.path.join(folder, "man/man1", f"{program}-{sub['name']}.1.gz")
        with gzip.open(path, "rt") as file:
            text = file.read()
        for option in sub["options"]:
            for name in option["names"]:
                require(name.replace("-", "\\-") in text, f"{path} has no {name}")
        if shutil.which("man"):
            done = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", path], capture_output=True, text=True,
                                  timeout=60, env={**os.environ, "MANROFFSEQ": "", "MANWIDTH": "100", "LC_ALL": "C.UTF-8"})
            require(done.returncode == 0 and not done.stderr, f"{path}: {done.stderr}")


def completed(folder, program, *words):
    """What bash offers for the last of these words."""
    script = f"source {folder}/bash-completion/completions/{program}; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); " \
             f"_{program.replace('-', '_')}; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    return said("bash", "-uc", script, "-", program, *words).split()


def bash_completes(folder):
    subcommands = {sub["name"] for sub in table_of("starling")["subcommands"]}
    require(subcommands <= set(completed(folder, "starling", "")), "a subcommand is not offered")
    require(completed(folder, "starling", "coo") == ["coordinator"], "coo")
    require(completed(folder, "starling", "help", "au") == ["audit"], "help au")
    require("--workers" in completed(folder, "starling", "run", "job.toml", "--w"), "run --w")
    require(completed(folder, "starling", "run", "--transport", "n") == ["nccl"], "run --transport n")
    require(completed(folder, "starling", "run", "--out", "") == [], "files are bash's own matter")
    require(completed(folder, "starling", "worker", "--no-such") == [], "an unknown option")
    require(completed(folder, "starling", "launch", "k") == ["kubernetes"], "launch k")
    require("--split" in completed(folder, "starling", "keys", "--s"), "keys --s: options of a group")
    require("recovery" in completed(folder, "starling-bench", "re"), "starling-bench re")


def shells_read_theirs(folder):
    for program in PROGRAMS:
        for shell, path in (("bash", f"bash-completion/completions/{program}"), ("zsh", f"zsh/site-functions/_{program}"),
                            ("fish", f"fish/vendor_completions.d/{program}.fish")):
            if shutil.which(shell):
                said(shell, "-n", os.path.join(folder, path))
            else:
                print(f"not asked: {shell}, which is not here")
    if shutil.which("fish"):
        offered = said("fish", "--no-config", "-c", f"source {folder}/fish/vendor_completions.d/starling.fish; complete -C 'starling run --transport '")
        require(offered.split() == ["auto", "tcp", "nccl"] or {"auto", "tcp", "nccl"} <= set(offered.split()), f"fish offers {offered}")


with tempfile.TemporaryDirectory(prefix="starling-pages-") as work:
    said(sys.executable, os.path.join(SOURCE, "tools/package/pages.py"), "--out", work, *(os.path.join(BUILD, name) for name in PROGRAMS))
    for one in PROGRAMS:
        the_table_is_that_of_the_help(one)
        man_has_every_option(one, work)
    bash_completes(work)
    shells_read_theirs(work)
