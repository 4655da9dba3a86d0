"""Makes golden/: small tokenizers trained with the `tokenizers` library, and texts with the ids it gives them.

    python make_golden.py      (made with Python 3.11, tokenizers 0.23)

gpt2/tokenizer.json, pair/{vocab.json,merges.txt,...} (the same tokenizer in its other shape) and llama3/tokenizer.json
are tokenizers; NAME.json holds [{"hex": bytes of the text, "ids": [...], "decoded": text}].
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
    """With merges as "a b" strings where `model` says nothing else: the older form."""
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


main()
