"""Small stand-ins for the models that the documentation's commands name, made with the program and the standard library."""
import json
import os
import subprocess

# What `aws sagemaker describe-training-job` prints about a job, in part.
SAGEMAKER_JOB = {
    "TrainingJobName": "gpt2",
    "HyperParameters": {"model_type": '"gpt2"', "config_overrides": '"n_embd=64,n_layer=2,n_head=2,vocab_size=256"',
                        "tokenizer_name": '"bytes"', "block_size": "64", "max_steps": "5", "output_dir": '"runs/job"',
                        "sagemaker_program": '"run_clm.py"'},
    "AlgorithmSpecification": {"TrainingInputMode": "File"},
    "InputDataConfig": [{"ChannelName": "train", "DataSource": {"S3DataSource": {"S3Uri": "s3://bucket/text"}}}],
    "ResourceConfig": {"InstanceType": "ml.m5.xlarge", "InstanceCount": 1},
}


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
    """Trains in `work` for one or a few steps, and returns the directory of the model."""
    job = {"runtime": {"device": "cpu", "communicator": "local", "threads_per_rank": 1}, "output_dir": str(work / "made"),
           **job, "training": {"save_strategy": "no", "overwrite_output_dir": True, **job["training"]}}
    path = work / "made.json"
    path.write_text(json.dumps(job))
    subprocess.run([program, "train", str(path)], cwd=work, check=True, stdin=subprocess.DEVNULL,
                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return work / "made"


def make_pretrained(program, folder, work, task, config):
    """Makes a directory as save_pretrained writes it, from one that already has a tokenizer, by training for one
    step."""
    text = work / "words.txt"
    text.write_text("one step from random weights. " * 40)
    made = train(program, work, {
        "task": task, "model": {"config": config},
        "data": {"train": str(text), "tokenizer": str(folder), "sequence_length": 16},
        "training": {"per_device_train_batch_size": 2, "max_steps": 1}})
    for name in ("config.json", "model.safetensors"):
        (folder / name).write_bytes((made / name).read_bytes())


def make_decoder(program, folder, work, model_type="gpt2"):
    folder.mkdir(parents=True)
    write_byte_tokenizer(folder)
    name = {"gpt2": "GPT2LMHeadModel", "gptj": "GPTJForCausalLM"}[model_type]
    config = {"model_type": model_type, "architectures": [name], "vocab_size": 257, "n_positions": 1024, "n_embd": 32,
              "n_layer": 4, "n_head": 4, "bos_token_id": 256, "eos_token_id": 256}
    make_pretrained(program, folder, work, "causal-lm", {**config, "rotary_dim": 4} if model_type == "gptj" else config)


def make_encoder(program, folder, work, model_type):
    """Makes an encoder whose words are single characters."""
    folder.mkdir(parents=True)
    characters = "abcdefghijklmnopqrstuvwxyz0123456789.,?'"
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *characters, *("##" + c for c in characters)]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    sizes = {"bert": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64},
             "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64}}[model_type]
    make_pretrained(program, folder, work, "masked-lm", {
        "model_type": model_type, "vocab_size": len(words), "max_position_embeddings": 512, **sizes})


def write_squad(path, articles):
    """Writes questions in the nested JSON of SQuAD 1.1."""
    data = []
    for number in range(articles):
        context = f"Article {number} has {number + 3} pages. It was written in {1900 + number}."
        questions = [("How many pages does it have?", f"{number + 3} pages"), ("When was it written?", f"{1900 + number}")]
        data.append({"title": f"Article {number}", "paragraphs": [{"context": context, "qas": [
            {"id": f"{number}-{i}", "question": question,
             "answers": [{"text": answer, "answer_start": context.index(answer)}]}
            for i, (question, answer) in enumerate(questions)]}]})
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"version": "1.1", "data": data}))


def write_tokenised(path, rows):
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps({"input_ids": [2, 5 + i % 20, 6 + i % 2, 3], "attention_mask": [1] * 4,
                                        "labels": i % 2}) + "\n" for i in range(rows)))


def make_classifier(program, folder, work):
    """Makes a directory with a DistilBERT that distinguishes positive from negative sentences, but not well."""
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


def make_parts(program, work):
    """Makes the parts of checkpoint-500 that two hosts save on disks of their own: each of two ranks has its own host
    name and current directory, which contains checkpoint_dir. Needs root."""
    text = work / "train.txt"
    hosts = ("alpha", "beta")
    for host in hosts:
        (work / host).mkdir(parents=True)
    text.write_text("two hosts save what their ranks write. " * 20)
    job = {"model": {"config": {"model_type": "gpt2", "vocab_size": 256, "n_positions": 16, "n_embd": 4, "n_layer": 2,
                                "n_head": 1}},
           "data": {"train": str(text), "tokenizer": "bytes", "sequence_length": 8},
           "training": {"per_device_train_batch_size": 1, "max_steps": 500, "save_steps": 500, "checkpoint_dir": "disk"},
           "smp_options": {"pipeline_parallel_degree": 2},
           "runtime": {"device": "cpu", "threads_per_rank": 1}, "output_dir": str(work / "out")}
    (work / "job.json").write_text(json.dumps(job))
    ranks = [["-n", "1", "-wdir", str(work / host), "unshare", "--uts", "sh", "-c",
              f'hostname {host} && exec "$0" train ../job.json', str(program)] for host in hosts]
    subprocess.run(["mpirun", "--oversubscribe", "--bind-to", "none", *ranks[0], ":", *ranks[1]], check=True, stdin=subprocess.DEVNULL,
                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                   env=dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1"))
    return [work / host / f"disk/checkpoint-500.part-{number}-of-2" for number, host in enumerate(hosts, 1)]
