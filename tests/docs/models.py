"""Small stand-ins for the models that the documentation's commands name, made with the program and the standard library."""
import json
import subprocess


def byte_characters():
    """GPT-2's characters for the 256 bytes."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    characters = {byte: chr(byte) for byte in printable}
    characters.update({byte: chr(256 + i) for i, byte in enumerate(others)})
    return [characters[byte] for byte in range(256)]


def write_byte_tokenizer(folder, end="<|endoftext|>"):
    vocabulary = {character: number for number, character in enumerate(byte_characters())}
    vocabulary[end] = 256
    special = {"id": 256, "content": end, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
               "special": True}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [special], "normalizer": None,
        "pre_tokenizer": level, "post_processor": None, "decoder": level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "vocab": vocabulary,
                  "merges": []}}))


def train(program, work, job):
    """Trains in `work` for a step or a few; returns the directory of the model."""
    job = {"runtime": {"device": "cpu", "communicator": "local", "threads_per_rank": 1}, "output_dir": str(work / "made"),
           **job, "training": {"save_strategy": "no", "overwrite_output_dir": True, **job["training"]}}
    path = work / "made.json"
    path.write_text(json.dumps(job))
    subprocess.run([program, "train", str(path)], cwd=work, check=True, stdin=subprocess.DEVNULL,
                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return work / "made"


def make_gpt2(program, folder, work, **sizes):
    """A directory as save_pretrained writes it for GPT-2: trained for one step from random weights."""
    folder.mkdir(parents=True, exist_ok=True)
    write_byte_tokenizer(folder)
    config = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 257, "n_positions": 1024,
              "n_embd": 32, "n_layer": 4, "n_head": 4, "bos_token_id": 256, "eos_token_id": 256, **sizes}
    text = work / "words.txt"
    text.write_text("one step from random weights. " * 40)
    made = train(program, work, {
        "model": {"config": config}, "data": {"train": str(text), "tokenizer": str(folder), "sequence_length": 16},
        "training": {"per_device_train_batch_size": 2, "max_steps": 1}})
    for name in ("config.json", "model.safetensors"):
        (folder / name).write_bytes((made / name).read_bytes())


def make_classifier(program, folder, work):
    """A directory with a DistilBERT that tells positive from negative sentences, not well."""
    words = "a the film is fine bad good dull plot and".split()
    tokenizer = work / "words"
    tokenizer.mkdir(exist_ok=True)
    (tokenizer / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]) + "\n")
    rows = [f"the film is {word},{label}" for word, label in
            (("fine", "positive"), ("good", "positive"), ("bad", "negative"), ("dull", "negative"))] * 4
    (work / "sentences.csv").write_text("sentence,label\n" + "\n".join(rows) + "\n")
    config = {"model_type": "distilbert", "vocab_size": 5 + len(words), "dim": 16, "n_layers": 2, "n_heads": 2,
              "hidden_dim": 32, "max_position_embeddings": 32}
    made = train(program, work, {
        "task": "sequence-classification", "model": {"config": config},
        "data": {"train": str(work / "sentences.csv"), "text_column": "sentence", "tokenizer": str(tokenizer),
                 "sequence_length": 16},
        "training": {"per_device_train_batch_size": 4, "max_steps": 2}})
    folder.parent.mkdir(parents=True, exist_ok=True)
    made.rename(folder)
