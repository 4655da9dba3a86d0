"""Fine-tunes an encoder with transformers' Trainer, in one process or as a torchrun job; started by compare_trainer.py.

  python trainer_peer.py FOLDER --batch 32 --steps 8 [--bf16]

FOLDER contains a model directory `model` and `examples.json`, a list of objects with input_ids and labels or positions.
The examples are taken in their order and padded to the longest one of a batch. Each rank writes trainer-RANK.json with
the seconds and the tokens of its steps and its largest resident set.
"""
import argparse
import json
import os
import pathlib
import time

import torch
import transformers


class Clock(transformers.TrainerCallback):
    def __init__(self):
        self.ends = []

    def on_train_begin(self, *_, **__):
        self.ends.append(time.perf_counter())

    def on_step_end(self, *_, **__):
        self.ends.append(time.perf_counter())

    def seconds(self):
        return [after - before for before, after in zip(self.ends, self.ends[1:])]


class Padding:
    """Collates examples into a batch, and records the number of tokens in each batch."""

    def __init__(self):
        self.tokens = []

    def __call__(self, examples):
        lengths = [len(example["input_ids"]) for example in examples]
        self.tokens.append(sum(lengths))
        ids = torch.zeros(len(examples), max(lengths), dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, (example, length) in enumerate(zip(examples, lengths)):
            ids[row, :length] = torch.tensor(example["input_ids"])
            mask[row, :length] = 1
        labels = {key: torch.tensor([example[key] for example in examples]) for key in examples[0] if key != "input_ids"}
        return {"input_ids": ids, "attention_mask": mask, **labels}


def largest_resident_set():
    line = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--bf16", action="store_true")
    options = parser.parse_args()
    examples = json.loads((options.folder / "examples.json").read_text())
    config = transformers.AutoConfig.from_pretrained(options.folder / "model")
    model = getattr(transformers, config.architectures[0]).from_pretrained(options.folder / "model")
    clock, padding = Clock(), Padding()
    arguments = transformers.TrainingArguments(
        output_dir=str(options.folder / "trainer"), per_device_train_batch_size=options.batch, max_steps=options.steps,
        learning_rate=2e-5, bf16=options.bf16, use_cpu=True, save_strategy="no", report_to="none", disable_tqdm=True,
        logging_strategy="no", train_sampling_strategy="sequential", remove_unused_columns=False)
    transformers.Trainer(model=model, args=arguments, train_dataset=examples, data_collator=padding,
                         callbacks=[clock]).train()
    result = {"step_seconds": clock.seconds(), "tokens": padding.tokens[:options.steps],
              "resident_bytes": largest_resident_set()}
    (options.folder / f"trainer-{os.environ.get('RANK', 0)}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
