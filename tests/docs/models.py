"""Small stand-ins for the models that the documentation's commands name, made with the program and the standard library."""
import json
import pathlib
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


def make_gpt2(program, folder, work, **sizes):
    """A directory as save_pretrained writes it for GPT-2: trained for one step from random weights."""
    folder.mkdir(parents=True, exist_ok=True)
    write_byte_tokenizer(folder)
    config = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 257, "n_positions": 1024,
              "n_embd": 32, "n_layer": 4, "n_head": 4, "bos_token_id": 256, "eos_token_id": 256, **sizes}
    text = work / "words.txt"
    text.write_text("one step from random weights. " * 40)
    job = {"model": {"config": config}, "data": {"train": str(text), "tokenizer": str(folder), "sequence_length": 16},
           "training": {"per_device_train_batch_size": 2, "max_steps": 1, "save_strategy": "no"},
           "runtime": {"device": "cpu", "communicator": "local", "threads_per_rank": 1}, "output_dir": str(work / "made")}
    path = work / "made.json"
    path.write_text(json.dumps(job))
    subprocess.run([program, "train", str(path), "--set", "training.overwrite_output_dir=true"], cwd=work, check=True,
                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    for name in ("config.json", "model.safetensors"):
        (folder / name).write_bytes((pathlib.Path(work) / "made" / name).read_bytes())
