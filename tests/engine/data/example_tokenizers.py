"""Small tokenizers of each kind, trained here, for compare_examples.py: what is written to their folder, and the
tokenizer.json of the reference.

    python example_tokenizers.py       writes the committed ones to golden/examples (made with Python 3.11,
                                       tokenizers 0.23, transformers 5.24, sentencepiece 0.2)
"""
import argparse
import inspect
import io
import json
import json.decoder
import pathlib
import tempfile
import textwrap

import sentencepiece
import transformers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from example_cases import SNIPPETS

GOLDEN = pathlib.Path(__file__).parent / "golden/examples"
COMMITTED = ["bert", "roberta", "unigram", "llama", "xlm_roberta", "llama_model"]
BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
METASPACE = "\u2581"

sources = [inspect.getsource(module) for module in (argparse, inspect, json.decoder, textwrap)]
CORPUS = sources + [s.decode() for s in SNIPPETS] * 3
LINES = [line for text in CORPUS for line in text.split("\n") if line.strip() and len(line) < 1000 and "\0" not in line]


def edited(tokenizer, **changes):
    """Returns the JSON of a tokenizer with other values below the keys, as in model__byte_fallback."""
    shape = json.loads(tokenizer.to_str())
    for path, value in changes.items():
        *folders, last = path.split("__")
        place = shape
        for key in folders:
            place = place[key]
        place[last] = value
    return json.dumps(shape)


def train_word_piece(normalizer, pre_tokenizer, size=1200, special=BERT):
    tokenizer = Tokenizer(models.WordPiece(unk_token=special[1]))
    if normalizer:
        tokenizer.normalizer = normalizer
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=size, special_tokens=special, show_progress=False))
    return tokenizer


def bert(**options):
    tokenizer = train_word_piece(normalizers.BertNormalizer(**options), pre_tokenizers.BertPreTokenizer())
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return tokenizer


def byte_level_bpe(special, prefix=False, size=1000):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def roberta(prefix, trim=True):
    tokenizer = byte_level_bpe(ROBERTA, prefix)
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim, prefix)
    return tokenizer


def spm_model(model_type="unigram", **options):
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES), model_writer=out, vocab_size=options.pop("vocab_size", 900), model_type=model_type,
        character_coverage=0.99, hard_vocab_limit=False, num_threads=1, minloglevel=2, **options)
    return out.getvalue()


def charsmap_of(model):
    from transformers.convert_slow_tokenizer import import_protobuf
    proto = import_protobuf().ModelProto()
    proto.ParseFromString(model)
    return proto


def xlm_roberta(model, normalizer=None, pre_tokenizer=None):
    proto = charsmap_of(model)
    vocabulary = [(t, 0.0) for t in ("<s>", "<pad>", "</s>", "<unk>")] + [(p.piece, p.score) for p in proto.pieces[3:]] + [("<mask>", 0.0)]
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=3, byte_fallback=False))
    charsmap = normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap)
    tokenizer.normalizer = normalizer(charsmap) if normalizer else charsmap
    tokenizer.pre_tokenizer = pre_tokenizer or pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")])
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens([AddedToken(t, special=True, lstrip=t == "<mask>") for t in ROBERTA])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    return tokenizer


def unigram(normalizer, pre_tokenizer):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, pre_tokenizer
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.train_from_iterator(LINES, trainers.UnigramTrainer(vocab_size=900, special_tokens=ROBERTA, unk_token="<unk>",
                                                                 show_progress=False))
    return tokenizer


def character_bpe(special, normalizer=None, pre_tokenizer=None, byte_fallback=False, size=900, **model):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    byte_tokens = [f"<0x{b:02X}>" for b in range(256)] if byte_fallback else []
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=special + byte_tokens, limit_alphabet=120, show_progress=False)
    tokenizer.train_from_iterator(LINES, trainer)
    shape = json.loads(edited(tokenizer, model__byte_fallback=byte_fallback, **{f"model__{k}": v for k, v in model.items()}))
    shape["added_tokens"] = [t for t in shape["added_tokens"] if not t["content"].startswith("<0x")]
    tokenizer = Tokenizer.from_str(json.dumps(shape))
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer:
        tokenizer.normalizer = normalizer
    return tokenizer


def llama(legacy):
    if legacy:
        normalizer = normalizers.Sequence([normalizers.Prepend(METASPACE), normalizers.Replace(" ", METASPACE)])
        tokenizer = character_bpe(["<unk>", "<s>", "</s>"], normalizer, None, True, fuse_unk=True)
    else:
        pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
        tokenizer = character_bpe(["<unk>", "<s>", "</s>"], None, pre_tokenizer, True, fuse_unk=True)
    tokenizer.decoder = decoders.Sequence([decoders.Replace(METASPACE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)])
    return tokenizer


def vocab_txt(tokenizer, **config):
    vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    return {"vocab.txt": "".join(token + "\n" for token, _ in vocabulary).encode(), "tokenizer_config.json": json.dumps(config).encode()}


def vocab_and_merges(tokenizer, **config):
    model = json.loads(tokenizer.to_str())["model"]
    merges = "".join(" ".join(m) + "\n" for m in model["merges"])
    return {"vocab.json": json.dumps(model["vocab"]).encode(), "merges.txt": ("#version: 0.2\n" + merges).encode(),
            "tokenizer_config.json": json.dumps(config).encode()}


def reference_of(folder):
    """Returns the tokenizer.json of a folder, or the one that transformers makes from it."""
    file = pathlib.Path(folder) / "tokenizer.json"
    if file.exists():
        return file.read_text()
    config = json.loads((pathlib.Path(folder) / "tokenizer_config.json").read_text())
    return getattr(transformers, config["tokenizer_class"]).from_pretrained(folder).backend_tokenizer.to_str()


def with_folder(files):
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            (pathlib.Path(folder) / name).write_bytes(content)
        return files, reference_of(folder)


def with_json(text):
    text = text if isinstance(text, str) else text.to_str()
    return {"tokenizer.json": text.encode()}, text


def added(tokenizer):
    tokenizer.add_special_tokens([AddedToken("[MASK]", lstrip=True, special=True), AddedToken("<mask>", rstrip=True, special=True)])
    tokenizer.add_tokens([AddedToken("RÉSUMÉ"), AddedToken("fox", single_word=True), AddedToken("New York", normalized=False),
                          AddedToken("the ", normalized=True, rstrip=True)])
    return tokenizer


def folders():
    yield "bert folder", lambda: with_folder(vocab_txt(bert(), tokenizer_class="BertTokenizer"))
    yield "bert cased folder", lambda: with_folder(vocab_txt(bert(lowercase=False), tokenizer_class="BertTokenizerFast", do_lower_case=False))
    yield "bert folder with options", lambda: with_folder(
        vocab_txt(bert(), tokenizer_class="BertTokenizer", strip_accents=False, tokenize_chinese_chars=False, unk_token="[UNK]",
                  mask_token={"__type": "AddedToken", "content": "[MASK]", "lstrip": True, "rstrip": False, "single_word": False, "normalized": False}))
    yield "distilbert folder", lambda: with_folder(vocab_txt(bert(), tokenizer_class="DistilBertTokenizer", do_lower_case=True))
    yield "roberta folder", lambda: with_folder(vocab_and_merges(byte_level_bpe(ROBERTA), tokenizer_class="RobertaTokenizer"))
    yield "roberta folder with prefix", lambda: with_folder(
        vocab_and_merges(byte_level_bpe(ROBERTA), tokenizer_class="RobertaTokenizer", add_prefix_space=True))
    yield "gpt2 folder", lambda: with_folder(vocab_and_merges(byte_level_bpe(["<|endoftext|>"]), tokenizer_class="GPT2Tokenizer"))
    for name, options in {"": {}, " with symbols": {"user_defined_symbols": ["[URL]", "fox"]}}.items():
        yield f"xlm-roberta model{name}", lambda o=options: with_folder(
            {"sentencepiece.bpe.model": spm_model(**o), "tokenizer_config.json": b'{"tokenizer_class": "XLMRobertaTokenizer"}'})
        yield f"llama model{name}", lambda o=options: with_folder(llama_folder(**o))
    yield "llama model, legacy, bos, eos", lambda: with_folder(llama_folder(legacy=True, add_bos_token=True, add_eos_token=True))
    yield "llama model, no prefix, bos", lambda: with_folder(llama_folder(add_prefix_space=False, add_bos_token=True))


def llama_folder(user_defined_symbols=(), vocab_size=900, **config):
    model = spm_model("bpe", vocab_size=vocab_size, byte_fallback=True, normalization_rule_name="identity", user_defined_symbols=user_defined_symbols)
    return {"tokenizer.model": model, "tokenizer_config.json": json.dumps({"tokenizer_class": "LlamaTokenizer", **config}).encode()}


def json_kinds():
    yield "bert", lambda: bert()
    yield "bert cased, added tokens", lambda: added(bert(lowercase=False))
    yield "bert, added tokens", lambda: added(bert())
    yield "bert lower with accents", lambda: bert(strip_accents=False, handle_chinese_chars=False)
    yield "bert unclean", lambda: bert(clean_text=False, lowercase=False, strip_accents=True)
    yield "roberta", lambda: roberta(False)
    yield "roberta with prefix", lambda: roberta(True)
    yield "roberta untrimmed", lambda: roberta(True, trim=False)
    yield "roberta, added tokens", lambda: added(roberta(False))

    def gpt2():
        tokenizer = byte_level_bpe(["<|endoftext|>"])
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=True, add_prefix_space=False)
        return tokenizer

    yield "gpt2", gpt2

    def gpt2_template():
        tokenizer = byte_level_bpe(["<|endoftext|>"])
        tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
        tokenizer.post_processor = processors.Sequence(
            [processors.ByteLevel(trim_offsets=True), processors.TemplateProcessing(
                single="<|endoftext|> $A", pair="$B:3 <|endoftext|>:2 $A:1", special_tokens=[("<|endoftext|>", 0)])])
        return tokenizer

    yield "gpt2 with NFKC and a template", gpt2_template
    yield "xlm-roberta", lambda: xlm_roberta(spm_model())
    yield "xlm-roberta as converted before", lambda: xlm_roberta(
        spm_model(), lambda charsmap: normalizers.Sequence([charsmap, normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(" {2,}"), METASPACE)]),
        pre_tokenizers.Metaspace(prepend_scheme="always"))
    yield "xlm-roberta, added tokens", lambda: added(xlm_roberta(spm_model()))
    yield "unigram", lambda: unigram(normalizers.NFKC(), pre_tokenizers.Metaspace())
    yield "unigram with bytes", lambda: Tokenizer.from_str(edited(unigram(normalizers.NFKD(), pre_tokenizers.Metaspace(prepend_scheme="first")), model__byte_fallback=True))
    yield "llama", lambda: llama(False)
    yield "llama legacy", lambda: llama(True)
    yield "llama, added tokens", lambda: added(llama(False))
    for fuse in (False, True):
        yield f"character BPE, fused {fuse}", lambda fuse=fuse: character_bpe(
            ["<unk>"], normalizers.Lowercase(), pre_tokenizers.Metaspace(prepend_scheme="never"), fuse_unk=fuse)
    yield "character BPE, whole words", lambda: character_bpe(["<unk>"], None, pre_tokenizers.Whitespace(), ignore_merges=True)


def option_parts():
    """Yields (name, normalizer, pre-tokenizer) for the components that the kinds above lack."""
    pre, norm = pre_tokenizers, normalizers
    for name, normalizer in {
        "NFC": norm.NFC(), "NFD": norm.NFD(), "NFKC": norm.NFKC(), "NFKD": norm.NFKD(), "lowercase": norm.Lowercase(),
        "accents": norm.Sequence([norm.NFD(), norm.StripAccents()]), "strip accents alone": norm.StripAccents(),
        "strip": norm.Strip(), "strip left": norm.Strip(left=True, right=False), "strip right, NFD": norm.Sequence([norm.NFD(), norm.Strip(left=False)]),
        "replace": norm.Sequence([norm.Replace("e", "E\u0301!"), norm.Replace(Regex(r"\s+"), " "), norm.NFC()]),
        "replace by nothing": norm.Sequence([norm.Replace(Regex("[aeo]+"), ""), norm.Lowercase()]),
        "prepend": norm.Sequence([norm.Prepend("\u00e9x"), norm.NFD(), norm.Lowercase()]),
        "NFKD, lowercase, NFC": norm.Sequence([norm.NFKD(), norm.Lowercase(), norm.NFC()]),
    }.items():
        yield f"normalizer {name}", normalizer, pre.Whitespace()
    for name, pre_tokenizer in {
        "none": None, "whitespace split": pre.WhitespaceSplit(), "digits": pre.Sequence([pre.WhitespaceSplit(), pre.Digits()]),
        "each digit": pre.Sequence([pre.Digits(individual_digits=True), pre.Whitespace()]),
        "metaspace first, added": pre.Sequence([pre.Metaspace(prepend_scheme="first"), pre.Punctuation()]),
        **{f"punctuation {b}": pre.Sequence([pre.Punctuation(b), pre.WhitespaceSplit()])
           for b in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous")},
        **{f"split {b}, inverted {i}": pre.Sequence([pre.Split(Regex(r"\p{L}+|\d{1,2}"), b, invert=i)])
           for b in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous") for i in (False, True)},
        "split at a string": pre.Split(". ", "merged_with_previous"),
    }.items():
        yield f"pre-tokenizer {name}", norm.Lowercase(), pre_tokenizer


def options():
    for name, normalizer, pre_tokenizer in option_parts():
        yield name, lambda n=normalizer, p=pre_tokenizer: train_word_piece(n, p, 400)


def committed_options():
    """Yields tokenizers of option_parts() with the vocabulary of golden/examples/bert."""
    vocabulary = {token: i for i, token in enumerate((GOLDEN / "bert/vocab.txt").read_text().split("\n")[:-1])}
    for name, normalizer, pre_tokenizer in option_parts():
        tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
        tokenizer.normalizer = normalizer
        if pre_tokenizer:
            tokenizer.pre_tokenizer = pre_tokenizer
        yield name, tokenizer


def all_kinds():
    """Yields (name, {file: bytes}, tokenizer.json of the reference)."""
    for name, make in folders():
        yield name, *make()
    for name, make in [*json_kinds(), *options()]:
        yield name, *with_json(make())


def write():
    made = {
        "bert": vocab_txt(bert(), tokenizer_class="BertTokenizer"),
        "roberta": vocab_and_merges(byte_level_bpe(ROBERTA, size=800), tokenizer_class="RobertaTokenizer"),
        "unigram": with_json(xlm_roberta(spm_model(normalization_rule_tsv=str(GOLDEN.parent / "rules.tsv"))))[0],
        "llama": with_json(llama(False))[0],
        "xlm_roberta": {"sentencepiece.bpe.model": spm_model(vocab_size=500, normalization_rule_tsv=str(GOLDEN.parent / "rules.tsv")),
                        "tokenizer_config.json": b'{"tokenizer_class": "XLMRobertaTokenizer"}'},
        "llama_model": llama_folder(vocab_size=600, add_bos_token=True),
    }
    for name in COMMITTED:
        (GOLDEN / name).mkdir(parents=True, exist_ok=True)
        for file, content in made[name].items():
            (GOLDEN / name / file).write_bytes(content)


if __name__ == "__main__":
    write()
