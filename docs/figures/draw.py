#!/usr/bin/env python3
"""Draws the timelines of docs/design.md: every NAME.txt beside this script becomes NAME.svg.

  draw.py              write the drawings
  draw.py --check      one line for each thing wrong, exit code 1 if there is one: a drawing that is not
                       what its text gives, a message, frame or rule that does not exist, words that lie
                       on each other
  draw.py --self-test  plant one wrong text after the other and see each check fail

A text has one statement a line; time goes down, `+N` is how far below the statement before it:

  title WORDS                     says WORDS            what the timeline is of; lines below it
  lane KEY NAME | WORDS           from left to right
  phase WORDS                     begins here, a shaded stretch of time
  +N A -> B C : MESSAGE WORDS     control message, from lane A to lanes B and C (core/wire/messages.h)
  +N A => B : FRAME, FRAME WORDS  frames of an epoch's connections (core/wire/frame.h)
  +N A .> B : WORDS               what is no message: an end of file, an order within a process
  +N A <> B : WORDS               a connection is made
  +N bar A LENGTH KIND : WORDS    work, so long; kinds as in BARS
  +N mark A : WORDS               a moment
  +N note A : WORDS               beside the lane
  +N dead A : WORDS               the process of this lane ends

After a lane, `<` puts the words to its left. `@B` puts an arrow's words before lane B instead of
beside its sender. `|` begins a new line.
"""

import os
import re
import sys
import tempfile

FOLDER = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(FOLDER))

WIDTH, GUTTER, MARGIN, TOP = 900, 84, 112, 30
SIZE, LINE, SLOPE = 11.5, 14, 7  # of words; between their lines; how far an arrow falls from lane to lane
INK, PALE, PAPER, BANDS = "#1b1f24", "#57606a", "#ffffff", ("#f6f8fa", "#ffffff")
ARROWS = {"->": ("#0550ae", ""), "=>": ("#a04100", ""), ".>": (PALE, "4 3"), "<>": (PALE, "")}
LEGEND = (("->", "control message"), ("=>", "frame of the epoch's connections"), (".>", "no message"),
          ("<>", "connection"))
BARS = {"compute": "#9ec5fe", "reduce": "#ffd8a8", "apply": "#b2e5bd", "gather": "#d8c4f5", "other": "#d0d7de"}
NARROW, WIDE = set("ijlrtfI.,:;'|!()[] "), set("mwMW")


def width_of(words, size=SIZE):
    """What the widest of the usual sans-serif fonts takes at most."""
    em = sum(0.38 if c in NARROW else 0.92 if c in WIDE else 0.7 if c.isupper() else 0.61 for c in words)
    return em * size


def escaped(words):
    return words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


class Wrong(Exception):
    pass


class Drawing:
    def __init__(self, name, text):
        self.name, self.title, self.says = name, name, []
        self.lanes, self.x = {}, {}  # key -> (name, words), place
        self.events = []  # (y, kind, parsed)
        self.phases = []  # (y, words)
        self.y = 0
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip() and not line.startswith("#"):
                try:
                    self.take(line.strip())
                except (KeyError, ValueError, AttributeError, IndexError) as error:
                    raise Wrong(f"{name}.txt:{number}: cannot be read ({error}): {line.strip()}") from error
        step = (WIDTH - GUTTER - 60 - MARGIN) / max(1, len(self.lanes) - 1)
        self.x = {key: round(GUTTER + 60 + i * step) for i, key in enumerate(self.lanes)}
        self.head = TOP + 22 + 15 * len(self.says) + 22 + 40
        longest = max((y + p[3] for y, kind, p in self.events if kind == "bar"), default=0)
        self.bottom = self.head + max(self.y + 20, longest + 8) + 14
        self.shapes, self.words, self.lines, self.blocks = [], [], [], []
        for y, kind, parsed in self.events:
            getattr(self, "draw_" + kind)(self.head + y, *parsed)

    # ---- Reading ----

    def take(self, line):
        word, _, rest = line.partition(" ")
        if word == "title":
            self.title = rest
        elif word == "says":
            self.says.append(rest)
        elif word == "lane":
            key, _, rest = rest.partition(" ")
            self.lanes[key] = [part.strip() for part in rest.split("|")]
        elif word == "phase":
            self.y += 16
            self.phases.append((self.y, [part.strip() for part in rest.split("|")]))
            self.y += 6
        else:
            self.y += int(word[1:] if word[0] == "+" else None)
            self.take_event(rest)

    def take_event(self, rest):
        place, _, words = rest.partition(" : ")
        words = [part.strip() for part in words.split("|")] if words else []
        parts = place.split()
        if parts[0] in ("bar", "mark", "note", "dead"):
            lane, left = parts[1].rstrip("<"), parts[1].endswith("<")
            self.lanes[lane]
            more = (int(parts[2]), BARS[parts[3]]) if parts[0] == "bar" else ()
            self.events.append((self.y, parts[0], (lane, left, words, *more)))
            return
        before = parts.pop()[1:] if parts[-1].startswith("@") else None
        source, arrow, *targets = parts
        for lane in (source, *targets, before or source):
            self.lanes[lane]
        ARROWS[arrow]
        order = list(self.lanes)
        hops = [order.index(lane) - order.index(source) for lane in targets]
        if before and order.index(before) - order.index(source) not in [
                way for hop in hops for way in (range(1, hop + 1) if hop > 0 else range(hop, 0))]:
            raise ValueError(f"lane {before} is not on the way")
        self.events.append((self.y, "arrow", (arrow, source, targets, before, words)))

    # ---- Drawing ----

    def write(self, x, y, lines, anchor, style="", first=False):
        """Lines of words, the last one's foot at y. Of an arrow the names come first."""
        for i, line in enumerate(lines):
            foot = y - LINE * (len(lines) - 1 - i)
            wide = width_of(line) * (1.06 if first and i == 0 else 1)
            left = {"start": x, "middle": x - wide / 2, "end": x - wide}[anchor]
            self.words.append((left, foot - SIZE + 2, left + wide, foot + 2, line))
            said = re.sub(r"\bR(\d+)\b", r'<tspan class="r">R\1</tspan>', escaped(line))
            if first and i == 0:
                said = re.sub(r"^[A-Za-z]+(, k[A-Z][a-z]+)*", r'<tspan class="n">\g<0></tspan>', said)
            self.shapes.append(f'<text x="{x:g}" y="{foot:g}" text-anchor="{anchor}"{style}>{said}</text>')

    def beside(self, y, lane, left, words, space, style=""):
        x = self.x[lane] - space if left else self.x[lane] + space
        self.write(x, y + LINE * (len(words) - 1), words, "end" if left else "start", style)

    def draw_bar(self, y, lane, left, words, length, colour):
        x = self.x[lane]
        self.blocks.append((x - 6, y, x + 6, y + length, f"a bar of lane {lane}"))
        self.shapes.insert(0, f'<rect x="{x - 6}" y="{y}" width="12" height="{length}" rx="2" '
                              f'fill="{colour}" stroke="{PALE}" stroke-width="0.6"/>')
        self.beside(y + 10, lane, left, words, 11, f' fill="{PALE}"')

    def draw_mark(self, y, lane, left, words):
        x = self.x[lane]
        self.shapes.append(f'<path d="M{x - 6} {y}l6 -6l6 6l-6 6z" fill="{INK}"/>')
        self.beside(y + 4, lane, left, words, 11)

    def draw_note(self, y, lane, left, words):
        self.beside(y + 4, lane, left, words, 11, f' fill="{PALE}"')

    def draw_dead(self, y, lane, left, words):
        x = self.x[lane]
        self.shapes.append(f'<path d="M{x - 7} {y - 7}l14 14m0 -14l-14 14" stroke="#b91c1c" stroke-width="2.6"/>')
        self.beside(y + 4, lane, left, words, 13)

    def draw_arrow(self, y, arrow, source, targets, before, words):
        colour, dashes = ARROWS[arrow]
        order = list(self.lanes)
        at, spoken = order.index(source), order.index(before or targets[0])
        for side in (-1, 1):
            hops = [(order.index(t) - at) * side for t in targets]
            reached = [n for n in hops if n > 0]
            if not reached:
                continue
            x1, x2 = self.x[source] + 7 * side, self.x[order[at + max(reached) * side]] - 7 * side
            drop = SLOPE * max(reached) if arrow != "<>" else 0
            foot = lambda x: round(y + drop * (x - x1) / (x2 - x1), 1)  # noqa: E731
            self.lines.append((x1, y, x2, y + drop, f"the arrow of {' '.join(words) or arrow}"))
            if arrow == "<>":
                self.shapes.append(f'<path d="M{x1} {y - 2}H{x2}M{x1} {y + 2}H{x2}" stroke="{colour}"/>')
            else:
                dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
                self.shapes.append(f'<path d="M{x1} {y}L{x2} {y + drop}" stroke="{colour}" '
                                   f'stroke-width="1.4"{dashed}/>')
            for n in reached if arrow != "<>" else ():
                x = self.x[order[at + n * side]] - 7 * side
                self.shapes.append(f'<path d="M{x} {foot(x):g}l{-9 * side} -4.5v9z" fill="{colour}"/>')
            if words and (spoken - at) * side > 0:
                end = spoken if before else at + side
                middle = (self.x[order[end]] + self.x[order[end - side]]) // 2
                self.write(middle, foot(middle) - 6, words, "middle", f' fill="{colour}"', arrow in ("->", "=>"))

    # ---- What comes out ----

    def svg(self):
        out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.bottom:g}" '
               f'font-family="Helvetica, Arial, \'DejaVu Sans\', sans-serif" font-size="{SIZE}" fill="{INK}" '
               f'role="img">',
               f"<title>{escaped(self.title)}</title>",
               f"<style>.n{{font-weight:700}}.r{{font-weight:700;fill:#a40e26}}</style>",
               f'<rect width="{WIDTH}" height="{self.bottom:g}" rx="8" fill="{PAPER}"/>']
        ends = [y for y, _ in self.phases[1:]] + [self.bottom - self.head - 8]
        for i, ((y, words), end) in enumerate(zip(self.phases, ends)):
            top = self.head + y
            out.append(f'<rect x="8" y="{top}" width="{WIDTH - 16}" height="{end - y:g}" fill="{BANDS[i % 2]}"/>')
            for k, line in enumerate(words):
                out.append(f'<text x="16" y="{top + 17 + 14 * k}" font-weight="700">{escaped(line)}</text>')
        out.append(f'<text x="16" y="{TOP}" font-size="16" font-weight="700">{escaped(self.title)}</text>')
        for i, line in enumerate(self.says):
            out.append(f'<text x="16" y="{TOP + 20 + 15 * i}" fill="{PALE}">{escaped(line)}</text>')
        x, y = 16, TOP + 22 + 15 * len(self.says)
        for arrow, words in LEGEND:
            colour, dashes = ARROWS[arrow]
            line = f"M{x} {y}h28" if arrow != "<>" else f"M{x} {y - 2}h30m-30 4h30"
            out.append(f'<path d="{line}" stroke="{colour}" stroke-width="1.4" stroke-dasharray="{dashes or "none"}"/>')
            if arrow != "<>":
                out.append(f'<path d="M{x + 30} {y}l-9 -4.5v9z" fill="{colour}"/>')
            out.append(f'<text x="{x + 36}" y="{y + 4}">{escaped(words)}</text>')
            x = round(x + 56 + width_of(words))
        for key, words in self.lanes.items():
            x, died = self.x[key], [y for y, kind, p in self.events if kind == "dead" and p[0] == key]
            end = self.bottom - 8
            for top, foot, dashes in ((self.head - 4, self.head + died[0], "none"), (self.head + died[0], end, "2 4")
                                      ) if died else ((self.head - 4, end, "none"),):
                out.append(f'<path d="M{x} {top}V{foot:g}" stroke="{PALE}" stroke-dasharray="{dashes}"/>')
            for i, line in enumerate(words):
                style = ' class="n"' if i == 0 else ""
                out.append(f'<text x="{x}" y="{self.head - 10 - 14 * (len(words) - 1 - i)}" text-anchor="middle"'
                           f"{style}>{escaped(line)}</text>")
        return "\n".join(out + self.shapes + ["</svg>", ""])

    def overlaps(self):
        """Words must not lie on words, bars, lanes or arrows, nor beyond the edge."""
        def meet(a, b):
            return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]

        ends = [y for y, _ in self.phases[1:]] + [self.y + 40]
        for (y, words), end in zip(self.phases, ends):
            if end - y < 14 * len(words) + 6:
                yield f'phase "{words[0]}" is too short for its words'
        for i, box in enumerate(self.words):
            for other in self.words[i + 1:] + self.blocks:
                if meet(box, other):
                    yield f'"{box[4]}" lies on "{other[4]}"'
            if box[0] < GUTTER or box[2] > WIDTH - 8:
                yield f'"{box[4]}" is too long by {max(GUTTER - box[0], box[2] - WIDTH + 8):.0f}'
            for key, x in self.x.items():
                if box[0] < x < box[2]:
                    yield f'"{box[4]}" lies on lane {key}'
            for x1, y1, x2, y2, what in self.lines:
                steps = [(x1 + (x2 - x1) * t / 40, y1 + (y2 - y1) * t / 40) for t in range(41)]
                if any(box[0] < x < box[2] and box[1] < y < box[3] for x, y in steps):
                    yield f'"{box[4]}" lies on {what}'


def names_in(drawing, known):
    """Words that stand for something in the code or in the rules and are not there."""
    for _, kind, parsed in drawing.events:
        words = parsed[-1] if kind == "arrow" else parsed[2]
        for rule in re.findall(r"\bR\d+\b", " ".join(words)):
            if rule not in known["rules"]:
                yield f"{rule} is no rule of docs/design.md"
        if kind != "arrow" or parsed[0] not in ("->", "=>") or not words:
            continue
        kinds = known["messages" if parsed[0] == "->" else "frames"]
        for name in re.match(r"\w*(, k\w+)*", words[0])[0].split(", "):
            if name not in kinds:
                yield f'"{name}" is no {"control message" if parsed[0] == "->" else "frame"}'


def known_in(root):
    def read(path):
        with open(os.path.join(root, path), encoding="utf-8") as stream:
            return stream.read()

    messages = re.findall(r"^struct (\w+) \{", read("core/wire/messages.h"), re.MULTILINE)
    raft = re.search(r"enum class RaftKind .*?\{(.*?)\}", read("core/wire/messages.h"), re.DOTALL)[1]
    frames = re.search(r"enum class FrameKind .*?\{(.*?)\}", read("core/wire/frame.h"), re.DOTALL)[1]
    return {
        "messages": set(messages) | set(re.findall(r"\b(k\w+)", raft)),
        "frames": set(re.findall(r"^ *(k\w+)", frames, re.MULTILINE)),
        "rules": set(re.findall(r"\*\*(R\d+)\b", read("docs/design.md"))),
    }


def texts_in(folder):
    return sorted(name[: -len(".txt")] for name in os.listdir(folder) if name.endswith(".txt"))


def findings(folder, known):
    for name in texts_in(folder):
        with open(os.path.join(folder, name + ".txt"), encoding="utf-8") as stream:
            text = stream.read()
        try:
            drawing = Drawing(name, text)
        except Wrong as wrong:
            yield str(wrong)
            continue
        for fault in (*names_in(drawing, known), *drawing.overlaps()):
            yield f"{name}.txt: {fault}"
        path = os.path.join(folder, name + ".svg")
        drawn = open(path, encoding="utf-8").read() if os.path.exists(path) else ""
        if drawn != drawing.svg():
            yield f"{name}.svg: is not what {name}.txt gives; python3 docs/figures/draw.py writes it"


def write_all(folder):
    for name in texts_in(folder):
        with open(os.path.join(folder, name + ".txt"), encoding="utf-8") as stream:
            drawing = Drawing(name, stream.read())
        with open(os.path.join(folder, name + ".svg"), "w", encoding="utf-8") as stream:
            stream.write(drawing.svg())


GOOD = ("title Good\nlane 1 one\nlane 2 two\nphase all\n"
        "+20 1 -> 2 : Freeze z | R9\n+20 2 => 1 : kVote\n+9 bar 2 20 compute\n")
BAD = (
    ("is no control message", GOOD.replace("Freeze", "Thaw")),
    ("is no frame", GOOD.replace("kVote", "kBallot")),
    ("is no rule", GOOD.replace("R9", "R99")),
    ("lies on \"kVote", GOOD.replace("+9 bar 2 20", "+0 2 => 1 : kVote\n+9 bar 2 20")),
    ("lies on lane", GOOD + "+20 note 1 : " + "words " * 40 + "\n"),
    ("cannot be read", GOOD + "+20 1 -> 3 : Freeze\n"),
    ("cannot be read", GOOD + "+20 1 -> 2 @1 : Freeze\n"),
    ("is too short", GOOD + "phase one | two | three\nphase four\n"),
    ("is not what", GOOD + "+20 mark 1 : more\n"),
)


def self_test():
    failures, known = 0, known_in(ROOT)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "one.txt")
        for wanted, text in (("", GOOD), *BAD):
            with open(path, "w", encoding="utf-8") as stream:
                stream.write(GOOD if wanted == "is not what" else text)
            if wanted != "cannot be read":
                write_all(folder)
            with open(path, "w", encoding="utf-8") as stream:
                stream.write(text)
            found = list(findings(folder, known))
            if (not found) if wanted else found:
                failures += 1
            elif wanted and not any(wanted in line for line in found):
                failures += 1
            else:
                continue
            print(f"wanted {wanted or 'nothing'!r}, found:", *found, sep="\n  ")
    print(f"draw: {len(BAD) + 1} texts, {failures} failures")
    return 1 if failures else 0


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    if arguments == ["--check"]:
        found = list(findings(FOLDER, known_in(ROOT)))
        print(*found, f"draw: {len(texts_in(FOLDER))} figures, {len(found)} findings", sep="\n")
        return 1 if found else 0
    if arguments:
        print(__doc__)
        return 2
    write_all(FOLDER)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
