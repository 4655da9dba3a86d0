"""Makes golden/: small tokenizers trained with the `tokenizers` library, and texts with the ids that it assigns to
them.

    python make_golden.py      (made with Python 3.11, tokenizers 0.23)

gpt2/tokenizer.json, pair/{vocab.json,merges.txt,...} (the same tokenizer in its other shape) and llama3/tokenizer.json
are tokenizers; NAME.json holds [{"hex": bytes of the text, "ids": [...], "decoded": text}]. options.json holds
[{"name", "base": gpt2 or llama3, "changes": to its tokenizer.json, "rows": as above without "decoded"}].
"""
import argparse
import inspect
import json
import json.decoder
import pathlib
import textwrap

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).parent
OUT = HERE / "golden"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEXTS = [
    "",
    " ",
    "Hello world",
    "  Hello   world  ",
    "The fox's tail isn't long; we'll see, they've gone, I'M HERE, YOU'LL SEE",
    "'s 't 're 've 'm 'll 'd 'S 'x ''s \u2019s '\u017f",
    "Zażółć gęślą jaźń. Příliš žluťoučký kůň. Ça va très bien, où êtes-vous?",
    "Привет, мир! Съешь ещё этих мягких французских булок",
    "Γειά σου Κόσμε και καλημέρα",
    "こんにちは世界。今日は晴れです。カタカナ",
    "你好,世界!中文 mixed with English 123",
    "안녕하세요 세계",
    "مرحبا بالعالم ١٢٣ ۴۵۶",
    "שלום עולם",
    "नमस्ते दुनिया १२३",
    "สวัสดีชาวโลก",
    "Cafe\u0301 vs Café, A\u030angstro\u0308m",
    "👩\u200d👩\u200d👧\u200d👦 🏳️\u200d🌈 👍🏽 🇩🇪🇫🇷 ☺️ 🤷🏿\u200d♂️",
    "line\nline\r\nline\rline\n\n\n  end\n",
    "\t\tx\t y\v\fz \t\n \t",
    "a\u00a0b\u2003c\u3000d\u200be\u180ef\u2028g\u2029h\u0085i\ufeffj",
    "x²³ ½ Ⅷ ٣ 12345678901234567890 1,234.56 0x1F",
    "\x01\x02\x1b[0m\x7f\u0080\u009f",
    "!!!??...---***///\\\\\\ ((())) <<<>>> \"quoted\" `code` ~~ @#$%^&*",
    "def f(x):\n    return x ** 2  # square\n\n\nclass A:\n\tpass\n",
    "https://example.org/path?a=b&c=%20d#fragment",
    "before<|endoftext|>after",
    "<|endoftext|><|endoftext|> x <|endoftext|",
    "text <strip> text \n <strip>\n\n end<strip>",
    "word sword words word. [word] x[word]y _word",
    "<pad><pad><pad> <pad>",
    "a" * 1000,
    "thethethe" * 120,
    " " * 300 + "x" + "\n" * 200,
    "ab" * 3 + "\u0301" * 50,
    # newer than Unicode 14: a cased letter, a Todhri letter, Garay digits, CJK extensions H and I
    "x\u1c89y\ua7cb \U000105c0\U000105c1 \U00010d40\U00010d41 \U00031350\U0002ebf0 [word]\U0002ebf0 ",
]
BYTES = [
    bytes(range(256)),
    b"good \xff bad \xc3( \xe2\x82 \xe2\x82\xac \xf0\x9f\x92 \xf0\x9f\x92\xa9 end\xe2",
    b"\xed\xa0\x80 surrogate \xc0\xaf overlong \xf4\x90\x80\x80 too large \xfe\xff",
    b"\x80\x80 the\xffthe \xf0\x80\x80\x80",
    b"NUL \x00 inside\x00",
]


OPTION_TEXTS = [
    "The fox's tail isn't long; we'll see 123 4567.",
    "  Hello   world.  ...",
    "Hello world",
    "\n\nx\n  end\n",
    "Cafe\u0301 vs Café, A\u030angstro\u0308m, \u212b \u1100\u1161\u11a8 a\u0327\u0301 \u037e",
    "re\u0301sume\u0301 résumé sword word \t word <strip> \n<strip>  x<strip>",
    "before<|endoftext|>after <|endoftext|> e<|endoftext|>\u0301",
    "a.b..c . d",
    "thethethe ~~~ a~b ~ ''x'~'",
    "naïve 数字123と文字 ١٢٣",
]


def option_cases():
    def split(pattern, behavior="Isolated", invert=False):
        return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}

    def byte_level(prefix=False, regex=False):
        return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}

    def sequence(*parts):
        return {"pre_tokenizer": {"type": "Sequence", "pretokenizers": list(parts)}}

    def added(*tokens):
        flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": True, "special": False}
        return {"added_tokens": [{"id": i, **flags, **token} for i, token in tokens]}

    nfc = {"normalizer": {"type": "NFC"}}
    eos = (0, {"content": "<|endoftext|>", "special": True, "normalized": False})
    words = added(eos, (1200, {"content": "résumé"}), (1201, {"content": "word", "single_word": True, "lstrip": True}))
    no_tilde = {"ignore_merges": False, "unk_token": "!", "vocab": ["~", "'"]}
    yield "vocab.json and merges.txt alone", "gpt2", added(eos)
    yield "NFC", "gpt2", nfc
    yield "NFC in a sequence", "llama3", {"normalizer": {"type": "Sequence", "normalizers": [nfc["normalizer"]]}}
    yield "NFC and normalized tokens", "gpt2", {**nfc, **words}
    yield "tokens without NFC", "gpt2", words
    yield "prefix space", "gpt2", {"pre_tokenizer": byte_level(True, True)}
    yield "prefix space without a pattern", "gpt2", {"pre_tokenizer": byte_level(True, False)}
    yield "prefix space and NFC", "gpt2", {**nfc, "pre_tokenizer": byte_level(True, True)}
    yield "no pattern", "gpt2", {"pre_tokenizer": byte_level()}
    yield "String removed", "gpt2", sequence(split({"String": " "}, "Removed"), byte_level())
    yield "String isolated", "gpt2", sequence(split({"String": "."}), byte_level())
    yield "String inverted and removed", "gpt2", sequence(split({"String": "the"}, "Removed", True), byte_level())
    yield "Regex removed", "gpt2", sequence(split({"Regex": r"\s+"}, "Removed"), byte_level(True))
    yield "Regex inverted", "gpt2", sequence(split({"Regex": r"\p{N}+"}, "Isolated", True), byte_level())
    yield "digits, then GPT-2 with prefix space", "gpt2", sequence(split({"Regex": r"\d"}), byte_level(True, True))
    yield "lookbehind", "gpt2", sequence(split({"Regex": r"(?<=\p{L})\.|(?<!e)\s"}), byte_level())
    yield "merges instead of words", "llama3", {"model": {"ignore_merges": False}}
    yield "unknown", "gpt2", {"model": {**no_tilde, "fuse_unk": False}}
    yield "fused unknown", "gpt2", {"model": {**no_tilde, "fuse_unk": True}}


def write_options():
    cases = []
    for name, base, changes in option_cases():
        shape = json.loads((OUT / base / "tokenizer.json").read_text())
        for token in changes.get("added_tokens", []):
            token["id"] = shape["model"]["vocab"].get(token["content"], token["id"])
        for key, value in changes.items():
            if key != "model":
                shape[key] = value
                continue
            gone = value.pop("vocab", [])  # single characters to remove from the vocabulary
            shape["model"].update(value)
            vocab, merges = shape["model"]["vocab"], shape["model"]["merges"]
            changes = {**changes, "model": value, "lost": gone}
            for character in gone:
                for token in [t for t in vocab if character in t]:
                    del vocab[token]
                merges[:] = [m for m in merges if character not in m]
            shape["added_tokens"] = changes["added_tokens"] = []
        tokenizer = Tokenizer.from_str(json.dumps(shape))
        rows = [{"hex": t.encode().hex(), "ids": tokenizer.encode(t, add_special_tokens=False).ids} for t in OPTION_TEXTS]
        cases.append({"name": name, "base": base, "changes": changes, "rows": rows})
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    (OUT / "options.json").write_text(f"[\n{lines}\n]\n")


def training_texts():
    modules = [argparse, inspect, json.decoder, textwrap]  # English and Python, the same for everyone with this Python
    return [inspect.getsource(module) for module in modules] + TEXTS * 3


def train(vocab_size, pre_tokenizer):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=["<|endoftext|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(training_texts(), trainer)
    return tokenizer


def write_vectors(name, tokenizer):
    rows = []
    for raw in [t.encode() for t in TEXTS] + BYTES:
        ids = tokenizer.encode(raw.decode("utf-8", "replace"), add_special_tokens=False).ids
        rows.append({"hex": raw.hex(), "ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=False)})
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    (OUT / f"{name}.json").write_text(f"[\n{lines}\n]\n")


def save(tokenizer, name, **model):
    """Saves a tokenizer with merges in their older form, "a b" strings, unless `model` specifies otherwise."""
    (OUT / name).mkdir(parents=True, exist_ok=True)
    shape = json.loads(tokenizer.to_str())
    shape["model"].update(model)
    text = json.dumps(shape, separators=(",", ":"))
    (OUT / name / "tokenizer.json").write_text(text + "\n")
    return Tokenizer.from_str(text)


def main():
    gpt2 = train(1200, pre_tokenizers.ByteLevel(add_prefix_space=False))
    gpt2.post_processor = processors.ByteLevel(trim_offsets=False)
    merges = json.loads(gpt2.to_str())["model"]["merges"]
    plain = json.loads(gpt2.to_str())

    gpt2.add_special_tokens([AddedToken("<pad>", special=True), AddedToken("<strip>", lstrip=True, rstrip=True, special=True)])
    gpt2.add_tokens([AddedToken("[word]", normalized=False), AddedToken("word", single_word=True)])
    gpt2 = save(gpt2, "gpt2", merges=[" ".join(m) for m in merges])
    write_vectors("gpt2", gpt2)

    pair = OUT / "pair"
    pair.mkdir(parents=True, exist_ok=True)
    (pair / "vocab.json").write_text(json.dumps(plain["model"]["vocab"], separators=(",", ":")))
    (pair / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges))
    flags = {t["id"]: {k: v for k, v in t.items() if k != "id"} for t in json.loads(gpt2.to_str())["added_tokens"]}
    (pair / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": "<|endoftext|>", "pad_token": "<pad>", "added_tokens_decoder": flags}, indent=1)
    )

    llama3 = train(
        900,
        pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(LLAMA3), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        ),
    )
    llama3.post_processor = processors.TemplateProcessing(single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)])
    write_vectors("llama3", save(llama3, "llama3", ignore_merges=True))
    write_options()


main()
