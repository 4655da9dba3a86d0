"""Compares tokenizers of all kinds with the `tokenizers` library on examples: ids, types, offsets, words, windows.

    python compare_examples.py ENCODE_EXAMPLES [--examples N] [--seed S] [--only NAME ...]
    python compare_examples.py --write

ENCODE_EXAMPLES is the program built from encode_examples.cpp. Trains a small tokenizer of each kind (example_tokenizers.py),
encodes the same examples (example_cases.py) with both sides, and exits with 1 at the first difference.

--write makes golden/examples.json: the digests of what the library returns for 10000 examples, for each of the
tokenizers that are committed, and for 500 examples for other normalizers and pre-tokenizers (needs xxhash).
"""
import argparse
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

from tokenizers import Tokenizer

import example_tokenizers
from example_cases import TRUNCATIONS, Example, Random

HERE = pathlib.Path(__file__).parent
PER_DIGEST = 500


def request(example):
    def parts(source):
        items = source if isinstance(source, list) else [] if source is None else [source]
        return struct.pack("<I", len(items)) + b"".join(struct.pack("<I", len(i)) + i for i in items)

    def form(source):
        return 0 if source is None else 2 if isinstance(source, list) else 1

    return (struct.pack("<5B2I", example.special, example.truncation, example.windows, form(example.first), form(example.second),
                        example.max_length, example.stride) + parts(example.first) + parts(example.second))


def encode_with_ours(program, tokenizer, examples):
    out = subprocess.run([program, tokenizer], input=b"".join(map(request, examples)), stdout=subprocess.PIPE, check=True).stdout
    at = 0

    def number():
        nonlocal at
        at += 4
        return struct.unpack_from("<I", out, at - 4)[0]

    for _ in examples:
        count = number()
        if count == 0xFFFFFFFF:
            length = number()
            at += length
            yield out[at - length : at].decode()
            continue
        encodings = []
        for _ in range(count):
            size = number()
            encodings.append([list(struct.unpack_from(f"<{size}i", out, at + 4 * size * k)) for k in range(6)])
            at += 24 * size
        yield encodings


def places(raw):
    """The byte at which each character of raw.decode(errors="replace") begins, and the end."""
    begins, offset = [], 0
    while offset < len(raw):
        try:
            good, bad = len(raw[offset:].decode().encode()), 0
        except UnicodeDecodeError as error:
            good, bad = error.start, error.end - error.start
        for character in raw[offset : offset + good].decode():
            begins.append(offset)
            offset += len(character.encode())
        if bad:
            begins.append(offset)
            offset += bad
    return begins + [len(raw)]


def text_of(source):
    if source is None:
        return None
    return [w.decode("utf-8", "replace") for w in source] if isinstance(source, list) else source.decode("utf-8", "replace")


def encode_with_theirs(tokenizer, example):
    """Returns the library's encodings in the form of ours, or None if the library refuses the example."""
    if example.truncation:
        tokenizer.enable_truncation(example.max_length, stride=example.stride, strategy=TRUNCATIONS[example.truncation])
    else:
        tokenizer.no_truncation()
    try:
        encoding = tokenizer.encode(text_of(example.first), text_of(example.second),
                                    is_pretokenized=isinstance(example.first, list), add_special_tokens=example.special)
    except BaseException as error:  # a failed assertion of the library is not an Exception
        if isinstance(error, KeyboardInterrupt):
            raise
        return None
    tables = [[places(w) for w in s] if isinstance(s, list) else None if s is None else places(s)
              for s in (example.first, example.second)]
    out = []
    for part in [encoding] + (encoding.overflowing if example.windows else []):
        begins, ends = [], []
        for (begin, end), sequence, word in zip(part.offsets, part.sequence_ids, part.word_ids):
            if sequence is None:
                begins.append(0)
                ends.append(0)
                continue
            table = tables[sequence] if not isinstance(example.first, list) else tables[sequence][word]
            begins.append(table[begin])
            ends.append(table[end])
        none = lambda values: [-1 if v is None else v for v in values]
        # Without a template, the library leaves the types in windows after the first unchanged. Ours follow the
        # template.
        types = dict(zip(encoding.sequence_ids, encoding.type_ids))
        of_text = [type_id if s is None else types.get(s, type_id) for s, type_id in zip(part.sequence_ids, part.type_ids)]
        out.append([part.ids, of_text, begins, ends, none(part.sequence_ids), none(part.word_ids)])
    return out


def compare(name, program, folder, theirs, examples):
    if theirs.post_processor is None:  # then the library does not know to which text the tokens of later windows belong
        for example in examples:
            example.windows, example.stride = False, 0
    tokens = refused = 0
    for number, (example, ours) in enumerate(zip(examples, encode_with_ours(program, str(folder), examples))):
        want = encode_with_theirs(theirs, example)
        if isinstance(ours, str) and want is None:
            refused += 1
            continue
        if ours == want:
            tokens += sum(len(e[0]) for e in ours)
            continue
        print(f"{name}: example {number} differs: {vars(example)}")
        if want is None or isinstance(ours, str):
            print(f"  ours   {ours if isinstance(ours, str) else 'accepts'}\n  theirs {'refuse' if want is None else 'accept'}")
        else:
            print(f"  {len(ours)} encodings, theirs {len(want)}")
            for mine, other in zip(ours, want):
                for field, a, b in zip(["ids", "types", "begins", "ends", "sequences", "words"], mine, other):
                    if a != b:
                        at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
                        print(f"  {field} at {at}: ours {a[at:at+12]} theirs {b[at:at+12]}; tokens",
                              [theirs.id_to_token(i) for i in other[0][max(0, at - 2) : at + 6]])
        sys.exit(1)
    print(f"{name}: {len(examples)} examples, {tokens} tokens equal, {refused} refused by both", flush=True)


def digests_of(tokenizer, examples, windows=True):
    """Yields a digest for each PER_DIGEST examples."""
    import xxhash

    random = Random(1)
    digests, digest = [], xxhash.xxh3_64()
    for number in range(1, examples + 1):
        example = Example(random)
        if not windows:
            example.windows, example.stride = False, 0
        for encoding in encode_with_theirs(tokenizer, example) or [[[-2]]]:
            for values in encoding:
                digest.update(struct.pack(f"<{len(values) + 1}i", len(values), *values))
        if number % PER_DIGEST == 0:
            digests.append(digest.hexdigest())
            digest.reset()
    return digests


def write():
    kinds = [{"name": name, "digests": digests_of(Tokenizer.from_str(example_tokenizers.reference_of(HERE / "golden/examples" / name)), 10000)}
             for name in example_tokenizers.COMMITTED]
    options = []
    for name, tokenizer in example_tokenizers.committed_options():
        shape = json.loads(tokenizer.to_str())
        parts = {key: shape[key] for key in ("normalizer", "pre_tokenizer")}
        options.append({"name": name, "parts": parts, "digests": digests_of(tokenizer, PER_DIGEST, windows=False)})
    lines = ",\n".join(json.dumps(case) for case in kinds + options)
    (HERE / "golden/examples.json").write_text(f"[\n{lines}\n]\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", nargs="?")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--examples", type=int, default=10000, help="for each tokenizer")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=[])
    options = parser.parse_args()
    if options.write:
        return write()
    for name, files, reference in example_tokenizers.all_kinds():
        if options.only and not any(word in name for word in options.only):
            continue
        random = Random(options.seed)
        examples = [Example(random) for _ in range(options.examples)]
        with tempfile.TemporaryDirectory() as folder:
            for file, content in files.items():
                (pathlib.Path(folder) / file).write_bytes(content)
            compare(name, options.program, folder, Tokenizer.from_str(reference), examples)


main()
