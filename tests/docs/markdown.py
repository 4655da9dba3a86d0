"""Reads the parts of a Markdown page that tests check: code blocks with their markers, headings and links."""
import dataclasses
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
MARKER = re.compile(r"<!-- (needs|slow|shortened|file|fails|prints)(?:: (.*?))? -->$")
FENCE = re.compile(r"\s*(```+)\s*(\S*)\s*$")
# The first words of commands in shell blocks.
PROGRAMS = {"shardline", "python3", "cmake", "ctest", "mpirun", "sbatch", "srun", "salloc", "curl", "aws", "export", "tar",
            "mkdir", "ninja", "pip", "sudo", "ssh", "cp", "apt-get", "mkdocs"}
FOLDERS = ("tools/", "build/", "build-")


@dataclasses.dataclass
class Block:
    line: int  # where its first line is in the page
    language: str
    text: str
    markers: dict  # name -> argument, or ""; the arguments of markers with the same name are separate lines
    indented: bool = False

    def looks_like_commands(self):
        first = next((row for row in self.text.splitlines() if row.strip() and not row.startswith("#")), "")
        word = (first.split() or [""])[0]
        return word in PROGRAMS or (word.startswith(FOLDERS) and not word.endswith("/"))


def pages():
    return [ROOT / "README.md", ROOT / "HACKING.md", *sorted((ROOT / "configs").rglob("README.md")), *sorted((ROOT / "docs").glob("*.md"))]


def blocks(text):
    """The code blocks of a page. Markers are comments on the lines before a block, with at most empty lines between."""
    found, markers, rows = [], {}, text.splitlines()
    at, after_blank = 0, True
    while at < len(rows):
        row = rows[at]
        fence, marker = FENCE.match(row), MARKER.match(row.strip())
        if marker:
            before = markers.get(marker[1])
            markers[marker[1]] = (before + "\n" if before else "") + (marker[2] or "")
            after_blank = True
        elif fence:
            end = at + 1
            while end < len(rows) and rows[end].strip() != fence[1]:
                end += 1
            indent = len(row) - len(row.lstrip())
            body = "\n".join(r[indent:] if not r[:indent].strip() else r for r in rows[at + 1:end])
            found.append(Block(at + 2, fence[2], body, markers))
            markers, at, after_blank = {}, end, False
        elif row.startswith("    ") and after_blank and not row.lstrip().startswith(("- ", "* ")):
            end = at
            while end < len(rows) and (rows[end].startswith("    ") or not rows[end].strip()):
                end += 1
            body = "\n".join(r[4:] for r in rows[at:end]).rstrip()
            found.append(Block(at + 1, "", body, markers, indented=True))
            markers, at, after_blank = {}, end - 1, True
        elif row.strip():
            markers, after_blank = {}, False
        else:
            after_blank = True
        at += 1
    return found


def without_code(text):
    """Returns the page with each line of code replaced by an empty line."""
    rows = text.splitlines()
    for block in blocks(text):
        for number in range(block.line - 1, block.line - 1 + len(block.text.splitlines())):
            rows[number] = ""
    return re.sub(r"(`+)[^`].*?\1", "", "\n".join(rows))


def slug(heading):
    """GitHub's anchor of a heading."""
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")


def site_slug(heading):
    """The anchor that MkDocs gives it."""
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())


def headings(text):
    rows = text.splitlines()
    code = {number for block in blocks(text) for number in
            range(block.line - 1, block.line - 1 + len(block.text.splitlines()))}
    return [m[1] for number, row in enumerate(rows) if number not in code
            for m in [re.match(r"#{1,6} (.*?)\s*$", row)] if m]


def links(text):
    """(line, target) of each link and picture."""
    for number, row in enumerate(without_code(text).splitlines(), 1):
        for match in re.finditer(r"\]\(([^)\s]+)\)|<(?:img|a)[^>]* (?:src|href)=\"([^\"]+)\"", row):
            yield number, match[1] or match[2]
