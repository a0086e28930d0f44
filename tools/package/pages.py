#!/usr/bin/env python3
"""Man pages, and completions for bash, zsh and fish, of the option tables that the commands print themselves.

Usage: tools/package/pages.py --out FOLDER COMMAND...

Each COMMAND is asked `help --json`. FOLDER gets man/man1, bash-completion/completions, zsh/site-functions and
fish/vendor_completions.d, as they lie below /usr/share.
"""

import argparse
import gzip
import json
import pathlib
import re
import subprocess
import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class Option:
    names: tuple[str, ...]  # as they are typed; empty: a word without a dash in front
    word: str               # the name of that word; empty: an option with a dash
    value: str              # what it takes, "NUMBER"; empty: nothing
    choices: tuple[str, ...]  # values that it takes; empty: any
    fallback: str
    required: bool
    text: str


@dataclass(frozen=True)
class Command:
    name: str
    text: str
    options: tuple[Option, ...]
    commands: tuple["Command", ...]
    footer: str


def option_of(table: dict) -> Option:
    # The type has a validator's own words behind a colon: "TEXT:{auto,tcp,nccl}", "UINT:INT in [1 - 64]", "TEXT:DIGEST".
    value, text = table["value"], table["text"]
    choices: tuple[str, ...] = ()
    kind, _, bound = value.partition(":")
    if kind in ("TEXT", "UINT", "INT", "FLOAT"):
        between = re.fullmatch(r".* in \[(\S+) - (\S+)\]", bound)
        if bound.startswith("{"):
            choices = tuple(bound[1:-1].split(","))
        elif between:
            text += f"; {between[1]} to {between[2]}"
        value = "|".join(choices) or (bound if bound and not between else kind if kind == "TEXT" else "NUMBER")
    return Option(tuple(table["names"]), table["positional"], value, choices, table["default"], table["required"], text)


def command_of(table: dict, name: str = "") -> Command:
    return Command(name or table["name"], table["text"], tuple(option_of(o) for o in table["options"]),
                   tuple(command_of(c) for c in table["subcommands"]), table["footer"])


# ---- Man pages -------------------------------------------------------------------------------------------
def roff(text: str) -> str:
    """A text as roff prints it. A line that begins with a dot or an apostrophe would be a request."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "\\`").replace("'", "\\(aq")
    return re.sub(r"(?m)^([.])", r"\\&\1", text)


def sentence(text: str) -> str:
    """The first sentence, for a line that has no room for more."""
    text = " ".join(text.split())
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter in "([") - (letter in ")]")
        ends = letter in ".;" or letter == ":" and not text[at - 1].isdigit()
        if ends and depth == 0 and at > 0 and text[at + 1:at + 2] in ("", " "):
            return text[:at]
    return text


def synopsis(option: Option) -> str:
    if option.word:
        return f"\\fI{roff(option.word)}\\fR"
    dashed = ", ".join(f"\\fB{roff(name)}\\fR" for name in option.names)
    return f"{dashed} \\fI{roff(option.value)}\\fR" if option.value else dashed


def example_and_rest(footer: str) -> tuple[list[str], str]:
    """The lines below "Example:", and what stands beside them."""
    before, _, after = footer.partition("Example:\n")
    typed, _, said = after.partition("\n\n")
    return [line.removeprefix("  ") for line in typed.splitlines() if line.strip()], f"{before}\n{said}".strip()


def man_page(program: str, version: str, command: Command, top: Command) -> str:
    whole = command is top
    title = program if whole else f"{program}-{command.name}"
    typed = program if whole else f"{program} {command.name}"
    lines = [f'.TH "{title.upper()}" 1 "" "Starling {version}" "Starling"', ".nh", ".SH NAME",
             f"{roff(title)} \\- {roff(sentence(command.text))}", ".SH SYNOPSIS"]
    words = [o for o in command.options if o.word]
    usage = f".B {roff(typed)}\n"
    if whole:
        usage += ".I SUBCOMMAND\n[\\fIOPTIONS\\fR]"
    else:
        usage += "".join(f"\\fI{roff(o.word.upper())}\\fR " if o.required else f"[\\fI{roff(o.word.upper())}\\fR] "
                         for o in words) + "[\\fIOPTIONS\\fR]"
    lines += [usage, ".SH DESCRIPTION", roff(command.text)]
    if whole:
        lines.append(".SH SUBCOMMANDS")
        for sub in command.commands:
            lines += [".TP", f"\\fB{roff(sub.name)}\\fR", roff(sub.text)]
    lines.append(".SH OPTIONS")
    for option in command.options:
        lines += [".TP", synopsis(option)]
        text = roff(option.text)
        if option.required:
            text += " (needed)"
        if option.fallback:
            text += f" [{roff(option.fallback)}]"
        lines.append(text)
    example, rest = example_and_rest(command.footer)
    if example:
        lines += [".SH EXAMPLES", ".nf", *[roff(line) for line in example], ".fi"]
    if rest:
        lines += [".SH EXIT STATUS" if rest.startswith("Exit codes:") else ".SH NOTES",
                  roff(rest.removeprefix("Exit codes: "))]
    others = [top] + list(top.commands)
    lines += [".SH SEE ALSO",
              ",\n".join(f".BR {program if o is top else f'{program}-{o.name}'} (1)" for o in others
                         if o is not command).replace(" (1),\n", " (1),\n")]
    return "\n".join(lines) + "\n"


# ---- Completions -----------------------------------------------------------------------------------------
def quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def dashed(command: Command) -> list[str]:
    return [name for option in command.options for name in option.names]


def bash(program: str, top: Command) -> str:
    name = "_" + program.replace("-", "_")
    cases = []
    for command in top.commands:
        values = "".join(f"      {'|'.join(o.names)}) COMPREPLY=($(compgen -W {quoted(' '.join(o.choices))} -- \"$word\")); "
                         "return ;;\n" for o in command.options if o.choices and o.names)
        plain = [n for o in command.options if o.value and not o.choices for n in o.names]
        values += f"      {'|'.join(plain)}) return ;;\n" if plain else ""
        values = f"    case $before in\n{values}    esac\n" if values else ""
        # A word without a dash: only the first one has values of its own.
        first = next((o.choices for o in command.options if o.word), ())
        if first:
            values += f"    [ \"$COMP_CWORD\" -ne 2 ] || COMPREPLY=($(compgen -W {quoted(' '.join(first))} -- \"$word\"))\n"
        cases.append(f"  {command.name})\n{values}"
                     f"    options={quoted(' '.join(dashed(command)))} ;;\n")
    subcommands = " ".join([c.name for c in top.commands] + ["help"])
    return f"""# bash completion of {program}. Files are completed where no word of the command fits.
{name}() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} options=
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W {quoted(subcommands + " " + " ".join(dashed(top)))} -- "$word"))
    return
  fi
  case ${{COMP_WORDS[1]}} in
  help) [ "$COMP_CWORD" -gt 2 ] || COMPREPLY=($(compgen -W {quoted(subcommands)} -- "$word")); return ;;
{"".join(cases)}  esac
  case $word in -*) COMPREPLY=($(compgen -W "$options" -- "$word")) ;; esac
}}
complete -o default -F {name} {program}
"""


def zsh_text(text: str) -> str:
    return sentence(text).replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")


def zsh(program: str, top: Command) -> str:
    name = "_" + program.replace("-", "_")

    def arguments(command: Command) -> str:
        lines = []
        for option in command.options:
            for typed in option.names:
                value = ""
                if option.choices:
                    value = f":{option.names[0].strip('-')}:({' '.join(option.choices)})"
                elif option.value:
                    value = f":{zsh_text(option.value)}:_files"
                lines.append(quoted(f"{typed}[{zsh_text(option.text)}]{value}"))
        first = [quoted(f"1:{o.word}:({' '.join(o.choices)})") for o in command.options if o.word and o.choices][:1]
        return " \\\n      ".join(lines + first + [quoted("*:file:_files")])

    described = " \\\n    ".join(quoted(f"{c.name}:{sentence(c.text)}") for c in top.commands)
    cases = "".join(f"  {c.name})\n    _arguments \\\n      {arguments(c)} ;;\n" for c in top.commands)
    return f"""#compdef {program}
{name}() {{
  local -a commands
  commands=({described} 'help:says more of a subcommand')
  if (( CURRENT == 2 )); then
    _describe -t commands subcommand commands
    return
  fi
  local chosen=$words[2]
  shift words
  (( CURRENT-- ))
  case $chosen in
  help) _describe -t commands subcommand commands ;;
{cases}  esac
}}
{name} "$@"
"""


def fish(program: str, top: Command) -> str:
    def text_of(text: str) -> str:
        return "'" + sentence(text).replace("\\", "\\\\").replace("'", "\\'") + "'"

    lines = [f"# fish completion of {program}"]
    names = " ".join([c.name for c in top.commands] + ["help"])
    first = f"-n 'not __fish_seen_subcommand_from {names}'"
    for command in top.commands:
        lines.append(f"complete -c {program} -f {first} -a {command.name} -d {text_of(command.text)}")
    lines.append(f"complete -c {program} -f {first} -a help -d 'says more of a subcommand'")
    lines.append(f"complete -c {program} -f -n '__fish_seen_subcommand_from help' -a '{names}'")
    for command in top.commands:
        for option in command.options:
            if option.word:
                if option.choices:
                    lines.append(f"complete -c {program} -n '__fish_seen_subcommand_from {command.name}' -a '{' '.join(option.choices)}'")
                continue
            parts = [f"complete -c {program} -n '__fish_seen_subcommand_from {command.name}'"]
            parts += [f"-l {n[2:]}" if n.startswith("--") else f"-s {n[1:]}" for n in option.names]
            if option.choices:
                parts.append(f"-x -a '{' '.join(option.choices)}'")
            elif option.value:
                parts.append("-r")
            lines.append(" ".join(parts + [f"-d {text_of(option.text)}"]))
    return "\n".join(lines) + "\n"


# ---- Files -----------------------------------------------------------------------------------------------
def write(path: pathlib.Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = text.encode()
    # Neither name nor time is in the archive: the same table gives the same bytes.
    path.write_bytes(gzip.compress(data, 9, mtime=0) if path.suffix == ".gz" else data)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("command", nargs="+", type=pathlib.Path)
    given = parser.parse_args()
    for path in given.command:
        program = path.name
        asked = subprocess.run([str(path), "help", "--json"], capture_output=True, text=True, check=True)
        version = subprocess.run([str(path), "--version"], capture_output=True, text=True, check=False).stdout.split()
        top = command_of(json.loads(asked.stdout), program)
        number = version[1] if len(version) > 1 else ""
        for command in (top, *top.commands):
            title = program if command is top else f"{program}-{command.name}"
            write(given.out / "man/man1" / f"{title}.1.gz", man_page(program, number, command, top))
        write(given.out / "bash-completion/completions" / program, bash(program, top))
        write(given.out / "zsh/site-functions" / f"_{program}", zsh(program, top))
        write(given.out / "fish/vendor_completions.d" / f"{program}.fish", fish(program, top))
    return 0


if __name__ == "__main__":
    sys.exit(main())
