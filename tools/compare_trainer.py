#!/usr/bin/env python3
"""Measures fine-tuning of encoders against transformers' Trainer with dynamic padding: one run, alternating.

In every round each case runs once with shardline and once with the Trainer, on one process with two threads or on two
processes with one thread each (D=2, DDP over gloo). Both train the same model directory (random weights) on the same
examples in the same order; a case whose steps differ in numbers of tokens has failed. Prints a markdown table; rates
are examples per second of all measured steps of a round, memory is the largest resident set of all ranks together.

  tools/compare_trainer.py [--shapes bert,distilbert] [--lengths sentences,windows] [--processes 1,2]
                           [--precisions fp32,bf16] [--rounds 3] [--warmup 2] [--steps 10] [--out results.jsonl]

Needs torch, transformers and accelerate in the Python that runs it, and a built program.
"""
import argparse
import dataclasses
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
CLS, SEP = SPECIAL.index("[CLS]"), SPECIAL.index("[SEP]")
WORDS = 30522 - len(SPECIAL)
LENGTH, STRIDE = 384, 128  # in question windows

# Tokens of an example or of a context, and how many of 100 have this length. Sentences with their two special tokens:
# median 9, mean 12, longest 60. Contexts are cut into windows, three quarters of which are full.
SENTENCES = {4: 7, 5: 9, 6: 11, 7: 11, 8: 9, 9: 8, 10: 7, 12: 9, 15: 8, 18: 6, 22: 5, 27: 4, 34: 3, 43: 2, 60: 1}
CONTEXTS = {350: 10, 700: 20, 1100: 40, 1500: 30}
QUESTIONS = {8: 20, 11: 40, 14: 30, 20: 10}


@dataclasses.dataclass
class Work:
    task: str
    head: str
    batch: int
    warmup: int
    steps: int


WORKS = {"sentences": Work("sequence-classification", "SequenceClassification", 32, 2, 10),
         "windows": Work("question-answering", "QuestionAnswering", 8, 1, 3)}


def draw_length(draw, histogram):
    return draw.choices(list(histogram), list(histogram.values()))[0]


def words(draw, count):
    return [draw.randrange(WORDS) for _ in range(count)]


def text(of_words):
    return " ".join(f"w{word}" for word in of_words)


def ids(of_words):
    return [len(SPECIAL) + word for word in of_words]


def sentences(draw, count):
    """Rows of the data, and the examples that the Trainer takes."""
    rows, examples = [], []
    for number in range(count):
        sentence = words(draw, draw_length(draw, SENTENCES) - 2)
        rows.append({"text": text(sentence), "label": number % 2})
        examples.append({"input_ids": [CLS, *ids(sentence), SEP], "labels": number % 2})
    return rows, examples


def windows(draw, count):
    rows, examples = [], []
    while len(examples) < count:
        question, context = words(draw, draw_length(draw, QUESTIONS)), words(draw, draw_length(draw, CONTEXTS))
        place = draw.randrange(len(context))
        answer = {"text": [text(context[place:place + 1])], "answer_start": [len(text(context[:place] + [0])) - 2]}
        rows.append({"question": text(question), "context": text(context), "answers": answer})
        room, begin = LENGTH - 3 - len(question), 0
        while True:
            part = context[begin:begin + room]
            at = len(question) + 2 + place - begin if begin <= place < begin + len(part) else 0
            examples.append({"input_ids": [CLS, *ids(question), SEP, *ids(part), SEP], "start_positions": at,
                             "end_positions": at})
            if begin + room >= len(context):
                break
            begin += room - STRIDE
    return rows, examples


class Case:
    """One shape and kind of data, in a folder of its own."""

    def __init__(self, options, shape, lengths, folder):
        import transformers
        self.options, self.folder = options, folder
        asked = {name: value for name in ("warmup", "steps") if (value := getattr(options, name)) is not None}
        self.work = dataclasses.replace(WORKS[lengths], **asked)
        config = transformers.AutoConfig.for_model(shape)
        kind = {"bert": "Bert", "distilbert": "DistilBert"}[shape]
        getattr(transformers, f"{kind}For{self.work.head}")(config).save_pretrained(folder / "model")
        (folder / "model/vocab.txt").write_text("\n".join([*SPECIAL, *(f"w{i}" for i in range(WORDS))]) + "\n")
        make = {"sentences": sentences, "windows": windows}[lengths]
        rows, examples = make(random.Random(0), self.work.batch * (self.work.warmup + self.work.steps))
        (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (folder / "examples.json").write_text(json.dumps(examples))
        full = sum(len(example["input_ids"]) == LENGTH for example in examples)
        sizes = [len(example["input_ids"]) for example in examples]
        print(f"{shape}, {lengths}: {len(examples)} examples, tokens: median {statistics.median(sizes):.0f}, mean "
              f"{statistics.mean(sizes):.1f}, longest {max(sizes)}, {full / len(sizes):.0%} of {LENGTH}", flush=True)

    def run(self, command, processes):
        threads = str(2 // processes)
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=3600,
                              env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": threads,
                                   "GLOO_SOCKET_IFNAME": "lo"})
        if done.returncode != 0:
            sys.exit(f"{' '.join(map(str, command))}\nfailed with {done.returncode}:\n{done.stderr[-3000:]}")

    def steps(self):
        return self.work.warmup + self.work.steps

    def ours(self, processes, precision):
        config = {
            "task": self.work.task, "model": {"path": str(self.folder / "model")},
            "data": {"train": str(self.folder / "train.jsonl"), "sequence_length": LENGTH, "doc_stride": STRIDE,
                     "shuffle": False},
            "training": {"global_batch_size": self.work.batch, "max_steps": self.steps(), "learning_rate": 2e-5,
                         "save_strategy": "no", "bf16": precision == "bf16"},
            "smp_options": {"ddp": True} if processes > 1 else {},
            "mpi_options": {"processes_per_host": processes},
            "runtime": {"device": "cpu", "threads_per_rank": 2 // processes},
            "output_dir": str(self.folder / "out"),
        }
        if self.work.task != "question-answering":
            del config["data"]["doc_stride"]
        file = self.folder / "config.json"
        file.write_text(json.dumps(config))
        shutil.rmtree(self.folder / "out", ignore_errors=True)
        self.run([self.options.program, "train", file], processes)
        records = [json.loads(line) for line in (self.folder / "out/metrics.jsonl").read_text().splitlines()]
        records = [record for record in records if "step_seconds" in record]
        return {"step_seconds": [record["step_seconds"] for record in records],
                "tokens": [record["tokens"] for record in records],
                "resident_bytes": sum(rank["resident"] for rank in records[-1]["peak_memory_bytes"])}

    def trainer(self, processes, precision):
        launcher = [] if processes == 1 else [
            "-m", "torch.distributed.run", "--nproc-per-node", processes, "--rdzv-backend", "c10d", "--rdzv-endpoint",
            "127.0.0.1:0", "--local-addr", "127.0.0.1"]
        self.run([sys.executable, *launcher, HERE / "trainer_peer.py", self.folder, "--batch",
                  self.work.batch // processes, "--steps", self.steps(), *(["--bf16"] if precision == "bf16" else [])],
                 processes)
        ranks = [json.loads((self.folder / f"trainer-{rank}.json").read_text()) for rank in range(processes)]
        return {"step_seconds": ranks[0]["step_seconds"],
                "tokens": [sum(step) for step in zip(*(rank["tokens"] for rank in ranks))],
                "resident_bytes": sum(rank["resident_bytes"] for rank in ranks)}

    def rate(self, result):
        measured = result["step_seconds"][self.work.warmup:]
        return self.work.batch * len(measured) / sum(measured)


def spread(values, digits):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def measure(case, processes, precision, options, record):
    ours, theirs = [], []
    for number in range(options.rounds):
        for name, side in (("shardline", ours), ("Trainer", theirs)):
            side.append(getattr(case, "ours" if name == "shardline" else "trainer")(processes, precision))
            record(number, name, side[-1])
    if any(a["tokens"] != b["tokens"] for a, b in zip(ours, theirs)):
        sys.exit(f"token counts of the steps differ: shardline {ours[0]['tokens']}, Trainer {theirs[0]['tokens']}")
    rates = [[case.rate(result) for result in side] for side in (ours, theirs)]
    memory = [statistics.median(result["resident_bytes"] for result in side) for side in (ours, theirs)]
    return (spread(rates[0], 1), spread(rates[1], 1), spread([a / b for a, b in zip(*rates)], 2),
            *(f"{size / 2**30:.2f}" for size in memory), f"{memory[0] / memory[1]:.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default="bert,distilbert")
    parser.add_argument("--lengths", default="sentences,windows")
    parser.add_argument("--processes", default="1,2")
    parser.add_argument("--precisions", default="fp32,bf16")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warmup", type=int, help="steps that are not measured; the default depends on the lengths")
    parser.add_argument("--steps", type=int, help="measured steps; the default depends on the lengths")
    parser.add_argument("--program", type=pathlib.Path, default=HERE.parent / "build/tools/shardline")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    rows = []
    for shape in options.shapes.split(","):
        for lengths in options.lengths.split(","):
            with tempfile.TemporaryDirectory() as folder:
                case = Case(options, shape, lengths, pathlib.Path(folder))
                for processes in map(int, options.processes.split(",")):
                    for precision in options.precisions.split(","):
                        name = (shape, lengths, str(processes), precision)

                        def record(number, program, result):
                            print(*name, f"round {number + 1}: {program} {case.rate(result):.1f} examples/s", flush=True)
                            if options.out:
                                with options.out.open("a") as file:
                                    file.write(json.dumps([*name, number, program, result]) + "\n")

                        rows.append((*name, *measure(case, processes, precision, options, record)))
    head = ("shape", "data", "processes", "precision", "examples/s, shardline", "examples/s, Trainer", "ratio by round",
            "GiB, shardline", "GiB, Trainer", "ratio")
    for row in (head, ("---",) * len(head), *rows):
        print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
