"""Writes engine/data/text/unicode_additions.cpp: what the regex engine of `tokenizers` knows beyond Unicode 14.

Run with a Python whose unicodedata is 14.0 (3.11) and tokenizers installed:
    python make_unicode_additions.py > ../../../engine/data/text/unicode_additions.cpp
"""
import unicodedata

from tokenizers import Regex, pre_tokenizers

CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp".split()
CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def members(category):
    """All code points that the library's \\p{category} matches."""
    split = pre_tokenizers.Split(Regex(r"\p{%s}" % category), "removed")
    found = set()
    for start in range(0, len(CODE_POINTS), 4096):
        chunk = CODE_POINTS[start : start + 4096]
        left = set()
        for _, (begin, end) in split.pre_tokenize_str("".join(map(chr, chunk))):
            left.update(range(begin, end))
        found.update(c for i, c in enumerate(chunk) if i not in left)
    return found


def ranges(code_points):
    out = []
    for c in sorted(code_points):
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def main():
    assert unicodedata.unidata_version.startswith("14."), unicodedata.unidata_version
    rows = []
    for category in CATEGORIES:
        old = {c for c in CODE_POINTS if unicodedata.category(chr(c)) == category}
        new = members(category)
        assert old - new <= {0x1171E}, (category, sorted(old - new)[:10])  # went from Mn to Mc, stays in M
        rows += [f'    {{"{category}", 0x{a:X}, 0x{b:X}}},' for a, b in ranges(new - old)]
    print("// Made by tests/engine/data/make_unicode_additions.py; do not edit.")
    print('#include "engine/data/text/unicode_additions.h"\n\nnamespace shardline {\n')
    print("std::span<const UnicodeRange> unicode_additions() {")
    print("  // clang-format off\n  static constexpr UnicodeRange kRanges[] = {")
    print("\n".join(rows))
    print("  };\n  // clang-format on\n  return kRanges;\n}\n\n}  // namespace shardline")


main()
