"""Writes the inputs that fuzzing starts from to OUT/<target>/: those in corpus/, files of the project in the same
formats, and binary ones. Each is in the folder accepted/ or refused/, as its parser treats it; fuzz.py checks that, so
that no seed is refused before it reaches the code for which it was written. Also writes OUT/<target>.dict, words of
the format.

  make_corpus.py OUT
"""
import base64
import gzip
import json
import pathlib
import re
import shutil
import struct
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def files(*parts):
    """Returns an input of several files from (name, bytes), as files_of in fuzz.h reads it."""
    return b"\n".join(b"=== " + name.encode() + b"\n" + content for name, content in parts)


def megatron(width, code, ids, bounds, modes=b""):
    """Returns a pair of two sequences: its .bin and its .idx."""
    kind = {1: "B", 2: "H", 4: "i", 8: "q"}[width]
    data = struct.pack(f"<{len(ids)}{kind}", *ids)
    lengths = [1, len(ids) - 1]
    index = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, 2, len(bounds)) + struct.pack("<2i2q", *lengths, 0, width)
    return files(("data.bin", data), ("data.idx", index + struct.pack(f"<{len(bounds)}q", *bounds) + modes))


def llmc(magic, version, kind, ids, count=None):
    return files(("data.bin", struct.pack("<3i", magic, version, len(ids) if count is None else count) + bytes(1012) +
                  struct.pack(f"<{len(ids)}{kind}", *ids)))


def token_cache(width, ids, vocabulary=100):
    """Writes the header as TokenCacheHeader defines it; the target repairs the checksum."""
    definition = (ROOT / "engine/data/cache/token_cache_header.h").read_text()
    version = int(re.search(r"kVersion = (\d+);", definition)[1])
    header = b"SLTOKENS" + struct.pack("<2I14Q", version, width, len(ids), 1, vocabulary, *[0] * 11)
    return files(("cache.tokens", header + struct.pack(f"<{len(ids)}{'HI'[width // 4]}", *ids)))


def zstd_frame(text, size=None):
    """A frame with one block that is not compressed."""
    block = (len(text) << 3 | 1).to_bytes(3, "little") + text
    return b"\x28\xb5\x2f\xfd\x20" + bytes([len(text) if size is None else size]) + block


def compressed():
    packed = gzip.compress(b"a text " * 30, mtime=0)
    yield "accepted/gzip", b"7\n" + packed
    yield "accepted/gzip_members", b"100\n" + packed + gzip.compress(b"", mtime=0) + packed + bytes(9)
    yield "refused/gzip_cut", b"7\n" + packed[:-3]
    yield "refused/gzip_more", b"7\n" + packed + b"more"
    yield "refused/gzip_sum", b"7\n" + packed[:-8] + b"\1" + packed[-7:]
    yield "accepted/zstd", b"3\n" + zstd_frame(b"a text") + zstd_frame(b"") + zstd_frame(b"more")
    yield "accepted/zstd_skipped", b"3\n" + zstd_frame(b"a text") + b"\x50\x2a\x4d\x18" + struct.pack("<I", 2) + b"ab"
    yield "refused/zstd_cut", b"3\n" + zstd_frame(b"a text")[:-1]
    yield "refused/zstd_size", b"3\n" + zstd_frame(b"a text", size=9)


def tokens():
    yield "accepted/raw", files(("data.bin", struct.pack("<4H", 1, 2, 3, 50256)))
    yield "refused/odd", files(("data.bin", b"abc"))
    for width, code in ((1, 1), (1, 2), (2, 3), (4, 4), (8, 5), (2, 8)):
        yield f"accepted/megatron_{code}", megatron(width, code, [1, 2, 3], [0, 1, 2])
    yield "accepted/megatron_modes", megatron(2, 8, [1, 2, 3], [0, 2], modes=b"\0\1")
    yield "refused/megatron_negative", megatron(4, 4, [1, -2, 3], [0, 2])
    yield "accepted/llmc_gpt2", llmc(20240520, 1, "H", [5, 6, 7])
    yield "refused/llmc_llama3", llmc(20240801, 7, "I", [5, 6, 70000])
    yield "refused/llmc_count", llmc(20240520, 1, "H", [5, 6, 7], count=900)
    yield "refused/megatron_long", megatron(2, 8, [1, 2, 3], [0, 2], modes=bytes(5))
    yield "refused/megatron_short", megatron(2, 8, [1, 2, 3], [0, 2])[:-8]
    yield "refused/llmc_version", llmc(20240520, 2, "H", [5])
    yield "accepted/cache_2", token_cache(2, [1, 2, 99])
    yield "refused/cache_4", token_cache(4, [1, 2, 100])


def safetensors(header, data):
    text = json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(text)) + text + data


def safetensors_files():
    tensor = {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}
    yield "accepted/whole", safetensors(tensor, bytes(8))
    yield "refused/short", safetensors(tensor, bytes(7))
    yield "accepted/unaligned", safetensors({"b": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
                                    "a": {"dtype": "F64", "shape": [1], "data_offsets": [1, 9]}}, bytes(9))
    yield "refused/long_header", struct.pack("<Q", 1 << 40) + b"{}"
    yield "refused/seven_bytes", bytes(7)
    yield "refused/zero_byte", struct.pack("<Q", 3) + b"{}\0"


def npy_files():
    def npy(header, data, version=1):
        return b"\x93NUMPY" + bytes([version, 0]) + len(header).to_bytes(2 if version == 1 else 4, "little") + header + data

    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }"
    for version in (1, 2, 3):
        yield f"accepted/version_{version}", npy(header, bytes(8), version)
    yield "refused/short", npy(header, bytes(7))
    yield "refused/long", npy(header, bytes(9))
    yield "refused/version_4", npy(header, bytes(8), 4)
    yield "refused/long_header", b"\x93NUMPY\2\0" + struct.pack("<I", 1 << 31) + header


def zip_of(entries, lengthened=0):
    """Returns a zip archive of stored entries (name, bytes); the last one claims to be longer."""
    archive, directory = b"", b""
    for number, (name, content) in enumerate(entries):
        size = len(content) + (lengthened if number == len(entries) - 1 else 0)
        common = struct.pack("<2H8x2IH", 0, 0, size, size, len(name))
        directory += b"PK\1\2" + bytes(2) + struct.pack("<H", 45) + common + bytes(12) + struct.pack("<I", len(archive)) + name
        archive += b"PK\3\4" + struct.pack("<H", 45) + common + bytes(2) + name + content
    end = struct.pack("<2H2IH", len(entries), len(entries), len(directory), len(archive), 0)
    return archive + directory + b"PK\5\6" + bytes(4) + end


def pickled(*tensors, parameter=False, location=b"cpu"):
    """Returns the pickle of a dict of tensors (name, type, key, elements, offset, sizes, strides)."""
    def text(value):
        return b"X" + struct.pack("<I", len(value)) + value

    def numbers(values):
        return b"(" + b"".join(b"\x8a\x08" + struct.pack("<q", value) for value in values) + b"t"

    opcodes = b"\x80\2}("
    for name, kind, key, elements, offset, sizes, strides in tensors:
        storage = b"(" + text(b"storage") + b"ctorch\n" + kind + b"\n" + text(key) + text(location)
        storage += b"K" + bytes([elements]) + b"tQ"
        tensor = b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"K" + bytes([offset]) + numbers(sizes)
        tensor += numbers(strides) + b"\x89ccollections\nOrderedDict\n)RtR"
        if parameter:
            tensor = b"ctorch._utils\n_rebuild_parameter\n(" + tensor + b"\x88}tR"
        opcodes += text(name) + tensor
    return opcodes + b"u."


def older(pickle, *storages):
    """Returns a file of torch.save before PyTorch 1.6, with storages (key, elements, bytes)."""
    magic = b"\x80\2\x8a\x0a" + bytes.fromhex("6cfc9c46f9206aa85019") + b".\x80\2M\xe9\3.\x80\2}."
    keys = b"\x80\2](" + b"".join(b"\x8c" + bytes([len(key)]) + key for key, _, _ in storages) + b"e."
    return magic + pickle + keys + b"".join(struct.pack("<Q", elements) + content for _, elements, content in storages)


def torch_files():
    two = (b"w", b"FloatStorage", b"0", 2, 0, [2], [1])
    eight = struct.pack("<2f", 1, 2)
    yield "accepted/archive", zip_of([(b"m/data.pkl", pickled(two)), (b"m/byteorder", b"little"), (b"m/data/0", eight)])
    yield "refused/archive_without_storage", zip_of([(b"m/data.pkl", pickled(two))])
    yield "refused/archive_with_overlap", zip_of([(b"m/data/0", eight), (b"m/data.pkl", pickled(two))]).replace(
        struct.pack("<2I", 8, 8), struct.pack("<2I", 60, 60))
    hidden = zip_of([(b"m/data/0", eight)]).split(b"PK\1\2")[0]  # an entry inside the pickle
    nested = bytearray(zip_of([(b"m/data.pkl", pickled(two, location=hidden)), (b"m/data/0", eight)]))
    nested[(at := nested.rindex(b"PK\1\2") + 42):at + 4] = struct.pack("<I", nested.index(hidden))
    yield "refused/archive_nested", bytes(nested)
    yield "refused/archive_past_the_end", zip_of([(b"m/data.pkl", pickled(two)), (b"m/data/0", eight)], lengthened=999)
    yield "refused/archive_climbs", zip_of([(b"m/data.pkl", b"}."), (b"../x", b"")])
    yield "refused/archive_short_storage", zip_of([(b"m/data.pkl", pickled(two)), (b"m/data/0", eight[1:])])
    yield "refused/archive_big_endian", zip_of([(b"m/data.pkl", pickled(two)), (b"m/byteorder", b"big"), (b"m/data/0", eight)])
    yield "accepted/older", older(pickled(two), (b"0", 2, eight))
    yield "accepted/older_unaligned", older(pickled((b"wo", *two[1:])), (b"0", 2, eight))
    yield "refused/older_huge", older(pickled(two), (b"0", 1 << 62, eight))
    yield "refused/older_short", older(pickled(two), (b"0", 2, eight[1:]))
    yield "accepted/shared", pickled((b"a", b"HalfStorage", b"0", 32, 1, [2, 3], [3, 1]),
                                     (b"b", b"HalfStorage", b"0", 32, 0, [5, 2], [0, 4]))
    yield "accepted/parameter", pickled((b"a", b"DoubleStorage", b"1", 8, 7, [], []), parameter=True)
    yield "accepted/stride_of_one", pickled((b"a", b"ShortStorage", b"1", 8, 1, [1, 2], [2**62, 5]))
    yield "accepted/empty", pickled((b"a", b"LongStorage", b"1", 0, 99, [0, 7], [1, 1]))
    yield "accepted/attributes", b"\x80\4\x95" + bytes(8) + (
        b"\x8c\x0bcollections\x8c\x0bOrderedDict\x93)R\x94}\x8c\x09_metadata\x94}\x8c\0}\x8c\7versionK\1sssb.")
    yield "refused/past_the_storage", pickled((b"a", b"FloatStorage", b"0", 16, 1, [4, 4], [4, 1]))
    yield "refused/sizes_overflow", pickled((b"a", b"FloatStorage", b"0", 16, 0, [2**40] * 3, [0, 0, 0]))
    yield "refused/runs", b"cos\nsystem\n(X\2\0\0\0idtR."
    yield "refused/builds", b"\x80\2}}b."
    yield "refused/number", b"\x80\2}X\1\0\0\0w\x8a\x09" + bytes(9) + b"s."
    yield "refused/circle", b"\x80\2]q\1h\1a."


def manifests():
    weights = safetensors({"wte": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}}, bytes(16))
    none = "0" * 16
    pieces = {"model.safetensors": [[8, none], [len(weights) - 16, none], [len(weights), none]],
              "trainer_state.json": [[2, none]], "gone.json": [[4, none]]}
    manifest = {"checksum": none, "files": pieces, "format": "shardline checkpoint", "step": 500, "version": 1}
    text = json.dumps(manifest, separators=(",", ":")).encode()
    yield "accepted/files", files(("manifest.json", text), ("model.safetensors", weights), ("trainer_state.json", b"{}"))
    manifest["part"] = {"number": 2, "count": 3, "hosts": ["a", "b", "a"],
                        "pieces": {"model.safetensors": [[0, 1], [2, 3]], "trainer_state.json": [[0, 1]]}}
    part = json.dumps(manifest, separators=(",", ":")).encode()
    stored = weights[:8] + weights[-16:]
    yield "accepted/part", files(("manifest.json", part), ("model.safetensors.part", stored), ("trainer_state.json.part", b"{}"))
    manifest["part"]["pieces"] = {"model.safetensors": [[0, 2]]}
    part = json.dumps(manifest, separators=(",", ":")).encode()
    yield "accepted/head_of_part", files(("manifest.json", part), ("model.safetensors.part", weights[:-16]))
    yield "accepted/broken_header", files(("manifest.json", text), ("model.safetensors", bytes(len(weights))))


def event(step):
    """Returns a record of TensorBoard's files; readers here ignore the checksums."""
    message = struct.pack("<Bd", 1 << 3 | 1, 0.5) + (bytes([2 << 3, step & 0x7f | 0x80, step >> 7]) if step else b"")
    return struct.pack("<QI", len(message), 0) + message + bytes(4)


def run_records():
    line = b'{"step": 1, "step_seconds": 2.5, "bubble_fraction": 0.25, "tokens_per_second": 100.0}\n'
    yield "accepted/events", files(("events", event(0) + event(5) + event(300) + event(7)), ("metrics.jsonl", line))
    yield "accepted/cut", files(("events", event(5) + event(6)[:-1]))
    yield "accepted/no_step", files(("events", struct.pack("<QI", 0, 0) + bytes(4) + event(1)))


def message(number, content):
    """Returns a field of a protocol buffer."""
    size = len(content)
    return bytes([number << 3 | 2, size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14]) + content


def piece(text, score, kind=1):
    return message(1, message(1, text.encode()) + bytes([2 << 3 | 5]) + struct.pack("<f", score) + bytes([3 << 3, kind]))


def sentence_pieces():
    unigram = json.loads((ROOT / "tests/engine/data/golden/examples/unigram/tokenizer.json").read_text())
    charsmap = base64.b64decode(unigram["normalizer"]["precompiled_charsmap"])
    special = piece("<unk>", 0, 2) + piece("<s>", 0, 3) + piece("</s>", 0, 3)
    pieces = special + piece("\u2581a", -1) + piece("\u2581", -2) + piece("a", -3) + piece("b", -3.5) + piece("ab", -4, 4)
    xlm = b'{"tokenizer_class": "XLMRobertaTokenizer"}'
    text = "a ab\u2460 \uff21\ufb01 e\u0301\r\nb \u337f".encode()
    yield "accepted/xlm_roberta_model", files(
        ("sentencepiece.bpe.model", pieces + message(3, message(2, charsmap))), ("tokenizer_config.json", xlm), ("text", text))
    yield "accepted/llama_model", files(
        ("tokenizer.model", pieces + piece("<0xC3>", 0, 6) + piece("\u2581ab", -5) + message(2, bytes([3 << 3, 2]))),
        ("tokenizer_config.json", b'{"tokenizer_class": "LlamaTokenizer", "add_bos_token": true, "legacy": true}'), ("text", b"a ab  b"))
    yield "refused/model_of_other_algorithm", files(
        ("sentencepiece.bpe.model", pieces + message(2, bytes([3 << 3, 2]))), ("tokenizer_config.json", xlm))
    yield "refused/model_that_is_cut", files(("tokenizer.model", pieces[:-3]), ("config.json", b'{"model_type": "llama"}'))
    yield "refused/model_without_class", files(("spiece.model", pieces))


BINARY = {"tokenizer": sentence_pieces, "run_records": run_records, "tokens": tokens, "compressed": compressed,
          "safetensors": safetensors_files, "npy": npy_files, "torch_file": torch_files, "manifest": manifests}

# Files of the project, which are accepted.
SHARED = {
    "config": ["configs/*.json"],
    "cluster": ["configs/clusters/*.json"],
    "safetensors": ["tests/models/golden/*.safetensors", "tests/models/golden/sharded/*.safetensors"],
    "torch_file": ["tests/models/golden/torch/*_[24].bin", "tests/models/golden/torch/sharded/*.bin"],
    "program": ["tests/models/golden/program/words.pt2"],
    "tokenizer": ["tests/engine/data/golden/llama3/tokenizer.json",
                  "tests/engine/data/golden/examples/unigram/tokenizer.json"],
}


def config_words():
    """Returns the keys of docs/config.md and the words that they accept."""
    text = (ROOT / "docs/config.md").read_text()
    words = set(re.findall(r"^\| `(\w+)`", text, re.M)) | set(re.findall(r"\"([\w*.-]+)\"", text))
    return sorted(words | {"model", "data", "training", "smp_options", "mpi_options", "runtime", "distribution"})


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    out = pathlib.Path(sys.argv[1])
    for folder in sorted((HERE / "corpus").iterdir()):
        target = out / folder.name
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(folder, target)
        for treatment in ("accepted", "refused"):
            (target / treatment).mkdir(exist_ok=True)
        for pattern in SHARED.get(folder.name, []):
            for file in sorted(ROOT.glob(pattern)):
                shutil.copy(file, target / "accepted" / ("-".join(file.relative_to(ROOT).parts)))
        for name, content in BINARY.get(folder.name, lambda: [])():
            (target / name).write_bytes(content)
        words = (HERE / "words" / f"{folder.name}.dict")
        text = words.read_text() if words.exists() else ""
        if folder.name == "config":
            text += "".join(f'"\\"{word}\\""\n' for word in config_words())
        (out / f"{folder.name}.dict").write_text(text)


if __name__ == "__main__":
    main()
