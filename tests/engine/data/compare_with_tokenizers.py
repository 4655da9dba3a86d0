"""Compares our byte-level BPE with the `tokenizers` library, token for token, on random and real texts.

    python compare_with_tokenizers.py ENCODE_TEXTS [--rounds N] [--seed S] [--corpus FILE_OR_FOLDER ...]

ENCODE_TEXTS is the program built from encode_texts.cpp. Trains small tokenizers of several shapes, encodes the same
texts with both sides, prints the number of texts and tokens compared, and exits with 1 at the first difference.
"""
import argparse
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

SNIPPETS = """The quick brown fox's 3 dogs don't; we'll they've I'M YOU'RE 'S 'Ll \u017fx|Zażółć gęślą jaźń|Привет, мир! Ёлка|Ελληνικά γλώσσα
こんにちは世界。カタカナ|你好,世界!中文分词測試|안녕하세요 세계|مرحبا بالعالم ١٢٣|שלום עולם|नमस्ते दुनिया १२३|สวัสดีชาวโลก|Cafe\u0301 Å Å \u1100\u1161
👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🇩🇪🇫🇷 ☺️|\t\tindent    deep\r\n\r\nnext \n \n\n  x|   \u00a0\u2003\u3000 \u180e\u200b\u2028\u2029\u0085|x²³ ½ Ⅷ ٣ 12345678 1,234.56|\x00\x01\x7f\x1b[0m
def f(x):\n    return x**2  # comment\n|https://example.org/a?b=c&d=%20#e|<|endoftext|>|<pad>|[MASK]|tok|\u1c89\ua7cb\U000105c0\U00031350\U0002ebf0""".replace(
    "\n", "|"
).split("|")
SNIPPETS += ["<|endoftext|>", "<strip>", "[word]", "word", "résumé", "re\u0301sume\u0301", " ", "\n", "a" * 300]


def random_text(rng):
    kind = rng.randrange(8)
    if kind == 0:  # any bytes
        return rng.randbytes(rng.randrange(200))
    if kind == 1:  # any code points
        return "".join(map(chr, (c for c in (rng.randrange(0x110000) for _ in range(rng.randrange(100))) if not 0xD800 <= c < 0xE000))).encode()
    if kind == 2:  # code points of one block
        base = rng.choice([0, 0x80, 0x300, 0x370, 0x400, 0x590, 0x900, 0x1C80, 0x2000, 0x3000, 0xA700, 0xFE00, 0x10500, 0x10D40, 0x11F00, 0x1E000, 0x1F300])
        return "".join(chr(base + rng.randrange(256)) for _ in range(rng.randrange(150))).encode()
    if kind == 3:  # white space and little else
        return "".join(rng.choice(" \t\n\r\v\f\u0085\u00a0\u2003\u2028\u3000\u180ea.'1") for _ in range(rng.randrange(60))).encode()
    if kind == 4:  # long words
        return "".join(rng.choice(["ab", "e", "th", "xyz"]) for _ in range(rng.randrange(2000))).encode()
    text = "".join(rng.choice(SNIPPETS) + rng.choice(["", " ", "\n", "'s"]) for _ in range(rng.randrange(12))).encode()
    if kind == 5 and text:  # damaged text
        damaged = bytearray(text)
        for _ in range(rng.randrange(1, 6)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        return bytes(damaged)
    if kind == 6 and text:  # cut anywhere
        return text[rng.randrange(len(text)) :][: rng.randrange(1, 200)]
    return text


def byte_level_bpe(corpus, vocab_size, pre_tokenizer, normalizer=None, **model):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer:
        tokenizer.normalizer = normalizer
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=["<|endoftext|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(corpus, trainer)
    tokenizer.add_special_tokens([AddedToken("<pad>", special=True), AddedToken("<strip>", lstrip=True, rstrip=True, special=True)])
    tokenizer.add_tokens(
        [
            AddedToken("[word]", single_word=True, normalized=False),
            AddedToken("word", single_word=True),
            AddedToken("résumé", normalized=True),
            AddedToken("<pad><pad>", normalized=False, rstrip=True),
        ]
    )
    shape = json.loads(tokenizer.to_str())
    shape["model"].update(model)
    return json.dumps(shape)


def shapes(corpus):
    byte_level = pre_tokenizers.ByteLevel

    def split(pattern, behavior="isolated", invert=False):
        return pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(pattern), behavior, invert), byte_level(add_prefix_space=False, use_regex=False)]
        )

    yield "gpt2", byte_level_bpe(corpus, 3000, byte_level(add_prefix_space=False))
    yield "gpt2, prefix space", byte_level_bpe(corpus, 1500, byte_level(add_prefix_space=True))
    # The library would take hours for whole files as single words.
    yield "no pattern", byte_level_bpe(SNIPPETS * 20, 1000, byte_level(add_prefix_space=False, use_regex=False))
    yield "llama 3", byte_level_bpe(corpus, 2000, split(LLAMA3), ignore_merges=True)
    yield "qwen 2, NFC", byte_level_bpe(corpus, 2000, split(QWEN2), normalizers.NFC())
    yield "o200k, removed and inverted", byte_level_bpe(corpus, 2000, split(O200K, "removed", True))
    yield "digits, then gpt2 with prefix space", byte_level_bpe(
        corpus, 1000, pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r"\d"), "isolated"), byte_level(add_prefix_space=True)])
    )
    yield "spaces removed", byte_level_bpe(corpus, 1000, split(r"\s+", "removed"))
    # There is no alphabet: bytes without a token become <unk>, one by one or fused.
    for fuse in (False, True):
        tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=fuse))
        tokenizer.pre_tokenizer = byte_level(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=["<unk>"], show_progress=False)
        tokenizer.train_from_iterator(["the cat sat on the mat and went to the sea"] * 3, trainer)
        yield f"unknown, fused {fuse}", tokenizer.to_str()


def encode_with_ours(program, tokenizer_file, texts):
    payload = b"".join(struct.pack("<I", len(t)) + t for t in texts)
    out = subprocess.run([program, tokenizer_file], input=payload, stdout=subprocess.PIPE, check=True).stdout
    at, results = 0, []
    for _ in texts:
        (count,) = struct.unpack_from("<I", out, at)
        ids = list(struct.unpack_from(f"<{count}i", out, at + 4))
        at += 4 + 4 * count
        (length,) = struct.unpack_from("<I", out, at)
        results.append((ids, out[at + 4 : at + 4 + length].decode()))
        at += 4 + length
    return results


def read_corpus(paths):
    files = []
    for path in map(pathlib.Path, paths):
        files += sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    return [f.read_bytes() for f in files]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=20000, help="random texts for each tokenizer")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--corpus", nargs="*", default=[], help="real texts, compared as whole files")
    options = parser.parse_args()

    real = read_corpus(options.corpus)
    rng = random.Random(options.seed)
    training = SNIPPETS * 20 + [pathlib.Path(__file__).read_text()] + [t.decode("utf-8", "replace") for t in real[:200]]
    total_texts = total_tokens = 0
    for name, text in shapes(training):
        theirs = Tokenizer.from_str(text)
        texts = (real if name != "no pattern" else []) + [random_text(rng) for _ in range(options.rounds)]
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "tokenizer.json"
            file.write_text(text)
            ours = encode_with_ours(options.program, str(file), texts)
        strings = [t.decode("utf-8", "replace") for t in texts]
        expected = [e.ids for e in theirs.encode_batch(strings, add_special_tokens=False)]
        tokens = 0
        for raw, want, (got, back) in zip(texts, expected, ours):
            tokens += len(want)
            if got != want:
                at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
                print(f"{name}: ids differ at {at} for {raw[:300]!r}\n ours   {got[at:at+20]}\n theirs {want[at:at+20]}")
                print("        ", [theirs.id_to_token(i) for i in want[max(0, at - 3) : at + 5]])
                sys.exit(1)
            if back != theirs.decode(want, skip_special_tokens=False):
                print(f"{name}: decoding differs for {raw[:300]!r}\n ours   {back!r}")
                sys.exit(1)
        print(f"{name}: {len(texts)} texts, {tokens} tokens equal, vocabulary {theirs.get_vocab_size()}", flush=True)
        total_texts += len(texts)
        total_tokens += tokens
    print(f"total: {total_texts} texts, {total_tokens} tokens equal")


main()
