"""Trains small BERT models from random weights with shardline and with transformers' Trainer, five seeds each, on data
that can be learned except for its noise, and compares the scores of the validation data.

    python tests/transformers/quality.py build/tools/shardline [--task NAME ...] [--seeds N] [--layout P T] [--markdown FILE]

A share of the labels is replaced at random, in the validation data as well, so no model can reach a score of 0.97. It
fails unless each score is between 0.75 and 0.97 and the means are within 0.01. --markdown writes the table of
docs/transformers.md. Needs torch 2.11, transformers 5.23, accelerate, scikit-learn, seqeval.
"""
import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

import tokenizers
import torch
import transformers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import heads  # noqa: E402

FILLERS = "the a of and in on at with some then very quite".split()
GROUPS = [[f"{letter}{i}" for i in range(10)] for letter in "xyz"]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *FILLERS, *sum(GROUPS, []), "who", "where", "when"]
MODEL = dict(model_type="bert", vocab_size=len(VOCABULARY), hidden_size=48, num_hidden_layers=2, num_attention_heads=4,
             intermediate_size=96, max_position_embeddings=heads.LENGTH, initializer_range=0.05)
TRAIN_ROWS, VALIDATION_ROWS, BATCH, RATE = 3000, 1500, 32, 2e-3
LOWEST, HIGHEST, MEANS_APART = 0.75, 0.97, 0.01
EPOCHS = {"texts": 3, "pairs": 5, "tags": 6, "questions": 10}


def fill(draw, chosen, least, most):
    """Returns the chosen words in their order, with others between them."""
    fillers = [draw.choice(FILLERS) for _ in range(draw.randrange(least, most))]
    places = sorted(draw.sample(range(len(fillers) + len(chosen)), len(chosen)))
    for place, word in zip(places, chosen):
        fillers.insert(place, word)
    return fillers


def noisy(draw, label, others, share):
    return draw.choice([o for o in others if o != label]) if draw.random() < share else label


class Texts(heads.Classes):
    """The group to which most words of a text belong."""
    data, score = {"text_column": "first"}, "accuracy"

    def row(self, draw):
        counts = draw.sample([0, 1, 3], 3)
        chosen = sum(([draw.choice(group) for _ in range(count)] for group, count in zip(GROUPS, counts)), [])
        draw.shuffle(chosen)
        label = noisy(draw, self.names[counts.index(3)], self.names, 0.1)
        return {"first": " ".join(fill(draw, chosen, 3, 15)), "label": label}


class Pairs(heads.Classes):
    """Compares the groups of both texts' words: the second one comes before the first, is the same, or comes after
    it."""
    score = "accuracy"

    def row(self, draw):
        groups = [draw.randrange(3), draw.randrange(3)]
        sign = (groups[1] > groups[0]) - (groups[1] < groups[0])
        texts = [" ".join(fill(draw, [draw.choice(GROUPS[group])], 1, 8)) for group in groups]
        return {"first": texts[0], "second": texts[1], "label": noisy(draw, self.names[1 + sign], self.names, 0.1)}


class Tags(heads.Tags):
    """Words of the first two groups belong to entities; one that follows a word of its group continues its entity."""
    names, score = ["B-X", "B-Y", "I-X", "I-Y", "O"], "f1"
    config = {"id2label": dict(enumerate(names)), "label2id": {n: i for i, n in enumerate(names)}}

    def row(self, draw):
        tokens, tags = [], []
        for _ in range(draw.randrange(2, 7)):
            kind = draw.randrange(5)
            if kind < 2:
                count = draw.randrange(1, 3)
                tokens += [draw.choice(GROUPS[kind]) for _ in range(count)]
                tags += [("B-", "I-")[i > 0] + "XY"[kind] for i in range(count)]
            tokens += [draw.choice(FILLERS + GROUPS[2]) for _ in range(draw.randrange(1, 3))]
            tags += ["O"] * (len(tokens) - len(tags))
        return {"tokens": tokens, "tags": [noisy(draw, tag, self.names, 0.03) for tag in tags]}


class Questions(heads.Answers):
    """Finds which word of a context belongs to the group that the question names; some contexts have none."""
    score = "f1"

    def row(self, draw):
        asked = draw.randrange(3)
        kept = [group for group in range(3) if group != asked or draw.random() < 0.75]
        draw.shuffle(kept)
        context = fill(draw, [draw.choice(GROUPS[group]) for group in kept], 4, 14)
        found = [i for i, word in enumerate(context) if word in GROUPS[asked]]
        if draw.random() < 0.12:
            found = [draw.randrange(len(context))]
        answers = {"text": [context[i] for i in found],
                   "answer_start": [len(" ".join(context[:i])) + (i > 0) for i in found]}
        return {"id": str(draw.random()), "question": ["who", "where", "when"][asked], "context": " ".join(context),
                "answers": answers}


TASKS = {"texts": Texts(), "pairs": Pairs(), "tags": Tags(), "questions": Questions()}


class Case:
    def __init__(self, folder, name):
        self.folder, self.head, self.epochs = folder, TASKS[name], EPOCHS[name]
        (folder / "tokenizer").mkdir()
        (folder / "tokenizer/vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
        self.tokenizer = transformers.BertTokenizer.from_pretrained(folder / "tokenizer").backend_tokenizer
        self.tokenizer.no_padding()
        draw = random.Random(name)
        self.rows = {part: [self.head.row(draw) for _ in range(count)]
                     for part, count in (("train", TRAIN_ROWS), ("validation", VALIDATION_ROWS))}
        self.samples = {}
        for part, rows in self.rows.items():
            (folder / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
            self.samples[part] = list(self.head.samples(self.tokenizer, rows, None))

    def score(self, metrics):
        return metrics[self.head.score] / (100 if self.head.task == "question-answering" else 1)

    def fields(self, sample):
        fields = {"input_ids": sample.ids, "token_type_ids": sample.types, "attention_mask": [1] * len(sample.ids)}
        if self.head.task == "question-answering":
            fields["start_positions"], fields["end_positions"] = sample.labels
        else:
            fields["labels"] = sample.labels
        return fields

    def collate(self, rows):
        """Pads everything that has a length."""
        longest = max(len(row["input_ids"]) for row in rows)

        def padded(name, value):
            filler = heads.NOTHING if name == "labels" else 0
            return value + [filler] * (longest - len(value)) if isinstance(value, list) else value

        return {name: torch.tensor([padded(name, row[name]) for row in rows]) for name in rows[0]}

    def by_trainer(self, seed):
        transformers.set_seed(seed)
        config = transformers.AutoConfig.for_model(**MODEL, **self.head.config)
        arguments = transformers.TrainingArguments(
            output_dir=str(self.folder / "trainer"), per_device_train_batch_size=BATCH, num_train_epochs=self.epochs,
            learning_rate=RATE, warmup_steps=0.1, weight_decay=0.01, seed=seed, use_cpu=True, report_to="none",
            save_strategy="no", disable_tqdm=True, logging_strategy="no", eval_strategy="no")
        trainer = transformers.Trainer(self.head.auto.from_config(config), arguments, data_collator=self.collate,
                                       train_dataset=[self.fields(s) for s in self.samples["train"]])
        trainer.train()
        model, outputs, samples = trainer.model.eval(), [], self.samples["validation"]
        with torch.no_grad():
            for first in range(0, len(samples), 100):
                part = samples[first: first + 100]
                got = model(**{k: v for k, v in self.collate([self.fields(s) for s in part]).items()
                               if "labels" not in k and "positions" not in k})
                logits = torch.stack([got.start_logits, got.end_logits], -1) if "start_logits" in got else got.logits
                is_of_rows = self.head.task != "sequence-classification"
                outputs += [row[: len(s.ids)] if is_of_rows else row for row, s in zip(logits, part)]
        return self.score(self.head.metrics(outputs, samples, self.rows["validation"], self.tokenizer))

    def by_shardline(self, program, seed, p, t):
        out = self.folder / f"out-{seed}"
        config = {
            "task": self.head.task, "model": {"config": dict(MODEL, **self.head.config)},
            "data": {"train": str(self.folder / "train.jsonl"), "validation": str(self.folder / "validation.jsonl"),
                     "tokenizer": str(self.folder / "tokenizer"), "sequence_length": heads.LENGTH, **self.head.data},
            "training": {"global_batch_size": BATCH, "num_train_epochs": self.epochs, "learning_rate": RATE,
                         "warmup_steps": 0.1, "weight_decay": 0.01, "seed": seed, "do_eval": True,
                         "save_strategy": "no"},
            "smp_options": {"pipeline_parallel_degree": p, "tensor_parallel_degree": t, "microbatches": p},
            "runtime": {"device": "cpu", "threads_per_rank": 1}, "output_dir": str(out)}
        path = self.folder / "config.json"
        path.write_text(json.dumps(config))
        environment = dict(os.environ, XDG_CACHE_HOME=str(self.folder / "cache"))
        done = subprocess.run([program, "train", str(path)], capture_output=True, text=True, env=environment)
        if done.returncode:
            sys.exit(f"shardline failed ({done.returncode}):\n{done.stdout}\n{done.stderr}")
        last = json.loads((out / "metrics.jsonl").read_text().splitlines()[-1])
        return self.score({name.removeprefix("eval_"): number for name, number in last.items()})


def text_of(scores):
    return f"{statistics.mean(scores):.3f} | {min(scores):.3f} to {max(scores):.3f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=lambda path: str(pathlib.Path(path).resolve()))
    parser.add_argument("--task", nargs="*", choices=TASKS, default=list(TASKS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--layout", nargs=2, type=int, default=[1, 1], metavar=("P", "T"))
    parser.add_argument("--markdown", type=pathlib.Path, help="file for the table")
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    lines = ["| task | score | Trainer: mean | from to | shardline: mean | from to |",
             "| --- | --- | ---: | ---: | ---: | ---: |"]
    failed = False
    for name in args.task:
        with tempfile.TemporaryDirectory() as folder:
            case = Case(pathlib.Path(folder), name)
            seeds = range(1, args.seeds + 1)
            theirs = [case.by_trainer(seed) for seed in seeds]
            ours = [case.by_shardline(args.program, seed, *args.layout) for seed in seeds]
        apart = abs(statistics.mean(theirs) - statistics.mean(ours))
        ok = apart <= MEANS_APART and all(LOWEST <= score <= HIGHEST for score in theirs + ours)
        failed |= not ok
        print(json.dumps({"task": name, "ok": ok, "trainer": theirs, "shardline": ours, "apart": apart}), flush=True)
        lines.append(f"| {name} | {case.head.score} | {text_of(theirs)} | {text_of(ours)} |")
    if args.markdown:
        args.markdown.write_text("\n".join(lines) + "\n")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
