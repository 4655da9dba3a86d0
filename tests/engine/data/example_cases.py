"""Texts and options on which tokenizers are compared. example_cases.h makes the same ones."""
import json
import pathlib

SNIPPETS = [s.encode() for s in json.loads((pathlib.Path(__file__).parent / "golden/snippets.json").read_text())]
BLOCKS = [0, 0x80, 0x300, 0x370, 0x400, 0x590, 0x900, 0x1C80, 0x2000, 0x3000, 0x4E00, 0xA700, 0xFE00, 0xFF00, 0x10500, 0x10D40,
          0x11F00, 0x1D400, 0x1E000, 0x1F300, 0x20000]
SPACES = [0x20, 0x9, 0xA, 0xD, 0xB, 0xC, 0x85, 0xA0, 0x2003, 0x2028, 0x3000, 0x180E, 0x200B, 0x61, 0x2E, 0x27, 0x31, 0x2581]
PIECES = [b"ab", b"e", b"th", b"xyz", b"9", b"Q"]
SEPARATORS = [b"", b" ", b"\n", b"'s", b" ", b"  ", b", "]
TRUNCATIONS = ["none", "longest_first", "only_first", "only_second"]


class Random:
    """SplitMix64."""

    def __init__(self, seed):
        self.state = seed

    def below(self, limit):
        mask = (1 << 64) - 1
        self.state = (self.state + 0x9E3779B97F4A7C15) & mask
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        return ((z ^ (z >> 31)) >> 11) % limit


def code_points(random, count, choose):
    chosen = [choose() for _ in range(random.below(count))]
    return "".join(chr(c) for c in chosen if not 0xD800 <= c < 0xE000).encode()


def snippets(random):
    text = b""
    for _ in range(random.below(10)):
        text += SNIPPETS[random.below(len(SNIPPETS))]
        text += SEPARATORS[random.below(len(SEPARATORS))]
    return text


def random_text(random):
    """Bytes that may be invalid UTF-8."""
    kind = random.below(8)
    if kind == 0:  # any bytes
        return bytes([random.below(256) for _ in range(random.below(120))])
    if kind == 1:  # any code points
        return code_points(random, 60, lambda: random.below(0x110000))
    if kind == 2:  # those of one block
        base = BLOCKS[random.below(len(BLOCKS))]
        return code_points(random, 100, lambda: base + random.below(256))
    if kind == 3:  # white space and little else
        return code_points(random, 40, lambda: SPACES[random.below(len(SPACES))])
    if kind == 4:  # a long word
        return b"".join([PIECES[random.below(len(PIECES))] for _ in range(random.below(300))])
    text = snippets(random)
    if kind == 5 and text:  # damaged
        damaged = bytearray(text)
        for _ in range(1 + random.below(5)):
            place = random.below(len(damaged))
            damaged[place] = random.below(256)
        return bytes(damaged)
    if kind == 6 and text:  # cut anywhere
        begin = random.below(len(text))
        return text[begin : begin + 1 + random.below(100)]
    return text


class Example:
    """An example to encode. first and second: bytes, a list of bytes (words), or None."""

    def __init__(self, random):
        self.first, self.second = random_text(random), None
        self.special, self.truncation, self.windows, self.max_length, self.stride = True, 0, False, 0, 0
        kind = random.below(8)
        if kind == 0:
            self.special = False
        elif kind == 2:  # windows of one text
            self.truncation, self.windows = 1, random.below(2) == 1
            self.max_length = 6 + random.below(30)
        elif kind in (3, 4):
            self.second = random_text(random)
        elif kind == 5:  # a pair that is cut
            self.second = random_text(random)
            self.truncation = 1 + random.below(3)
            self.windows = self.truncation > 1
            self.max_length = 10 + random.below(60)
        elif kind >= 6:
            self.first = [word for word in self.first.split(b" ") if word]
        if self.windows:
            self.stride = random.below(3)
