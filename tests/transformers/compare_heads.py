"""Trains every family and head of docs/families.md, except for causal-lm of encoders, with transformers and with
shardline, from the same model directory on the same rows of data, and compares losses, gradient norms, metrics, predictions and saved models.

    python tests/transformers/compare_heads.py build/tools/shardline [--family NAME ...] [--head TITLE ...]
        [--layout LAYOUT ...] [--markdown FILE]

Per family and head: a model with random weights, and a run of ten AdamW steps (learning rate 1e-3, constant; weight
decay 0.1 by transformers' rule; clipping at norm 1; no dropout) with rows in the order of the file, an evaluation after
it, and predictions of the saved model. transformers receives batches that are padded to their longest sample, on the
right in odd steps and on the left in even ones (always on the right if a class reads the first token), with the
positions of the tokens. Its float32 loss is that of the model's class, except for answers: there, padding must not take
part in the softmax (docs/families.md).

--markdown writes the table of docs/transformers.md to a file. Needs torch 2.11, transformers 5.23, scikit-learn,
seqeval.
"""
import argparse
import copy
import fnmatch
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import tokenizers
import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
sys.path += [str(HERE), str(HERE.parent / "models/golden")]
from heads import HEADS, NOTHING, LENGTH  # noqa: E402
from make_families import DECODERS, value  # noqa: E402
from make_golden import widen_attention  # noqa: E402

TOKENIZERS = HERE.parent / "engine/data/golden"
STEPS, BATCH, TRAIN_ROWS, OTHER_ROWS = 10, 8, 140, 37
SIZES = dict(hidden_size=36, num_attention_heads=3)
ENCODER = dict(**SIZES, num_hidden_layers=3, intermediate_size=50, max_position_embeddings=40, hidden_dropout_prob=0.0,
               attention_probs_dropout_prob=0.0)
GPT = dict(**SIZES, num_hidden_layers=3, n_inner=50, n_positions=40, pad_token_id=1200, resid_pdrop=0.0, embd_pdrop=0.0,
           attn_pdrop=0.0, classifier_dropout=0.0, vocab_size=1213)
# By model_type: the tokenizer, and keys of the config. The 3 heads and these vocabularies cannot be divided evenly by two or four ranks.
FAMILIES = {
    "bert": ("examples/bert", dict(**ENCODER, vocab_size=1201)),
    "roberta": ("examples/roberta", dict(**ENCODER, vocab_size=803, type_vocab_size=1, layer_norm_eps=1e-5)),
    "xlm-roberta": ("examples/unigram", dict(**ENCODER, vocab_size=907, type_vocab_size=1, hidden_act="gelu_new")),
    "distilbert": ("examples/bert", dict(**SIZES, num_hidden_layers=3, hidden_dim=50, max_position_embeddings=40, dropout=0.0,
                                         attention_dropout=0.0, qa_dropout=0.0, seq_classif_dropout=0.0,
                                         vocab_size=1201)),
    "gpt2": ("gpt2", GPT),
    "gpt_neo": ("gpt2", dict(**SIZES, num_layers=3, attention_types=[[["global", "local", "global"], 1]], window_size=5,
                             intermediate_size=50, max_position_embeddings=40, pad_token_id=1200, resid_dropout=0.0,
                             embed_dropout=0.0, attention_dropout=0.0, classifier_dropout=0.0, vocab_size=1213)),
    "gptj": ("gpt2", dict(GPT, rotary_dim=4)),
}
# Runs that train only a part of the model: patterns of transformers' names.
FROZEN = {("bert", "classes of pairs"): ["bert.encoder.layer.2.*", "bert.pooler.*", "classifier.*"],
          ("distilbert", "answers"): ["*.attention.*", "qa_outputs.bias"]}
# Name: D, P, T, further smp_options, number type.
LAYOUTS = {
    "1": (1, 1, 1, {}, "float32"),
    "P2": (1, 2, 1, {}, "float32"),
    "T2 speed": (1, 1, 2, {"optimize": "speed"}, "float32"),
    "T2 memory": (1, 1, 2, {"optimize": "memory"}, "float32"),
    "D2": (2, 1, 1, {}, "float32"),
    "P2 T2": (1, 2, 2, {"optimize": "memory"}, "float32"),
    "1, float64": (1, 1, 1, {}, "float64"),
    "P2 T2, float64": (1, 2, 2, {"optimize": "memory"}, "float64"),
}
# Limits are relative for losses and norms, and absolute for logits. For other numbers, they are relative above 1 and
# absolute below. AdamW amplifies small differences of small gradients, so logits of trained models differ more than
# losses.
LIMITS = {"float32": {"loss": 5e-6, "norm": 1e-5, "metrics": 1e-4, "predictions": 1e-4, "saved logits": 2e-4},
          "float64": {"loss": 1e-9, "norm": 1e-9, "metrics": 1e-9, "predictions": 1e-9, "saved logits": 2e-4}}


def pairs():
    for family in FAMILIES:
        for title, head in HEADS.items():
            if head.task == ("masked-lm" if family in DECODERS else "causal-lm"):
                continue
            if (family, head.task) != ("gptj", "token-classification"):  # transformers has no such class
                yield family, title, None
    for (family, title), patterns in FROZEN.items():
        yield family, title, patterns


class Case:
    """A model directory and data files in a folder, and the results of transformers for them."""

    def __init__(self, folder, family, title, trainable):
        self.folder, self.family, self.head, self.trainable = folder, family, HEADS[title], trainable
        place, keys = FAMILIES[family]
        self.tokenizer_path = TOKENIZERS / place
        if (self.tokenizer_path / "tokenizer.json").exists():
            self.tokenizer = tokenizers.Tokenizer.from_file(str(self.tokenizer_path / "tokenizer.json"))
        else:
            self.tokenizer = transformers.AutoTokenizer.from_pretrained(self.tokenizer_path).backend_tokenizer
        self.tokenizer.no_padding()
        keys = dict(keys, **self.head.config)
        if title == "masked words" and family == "roberta":
            keys["tie_word_embeddings"] = False
        self.make_model(transformers.AutoConfig.for_model(family, **keys))
        draw = random.Random(f"{family} {title}")
        self.train = [self.head.row(draw) for _ in range(TRAIN_ROWS)]
        self.validation = [self.head.row(draw) for _ in range(OTHER_ROWS)]
        self.test = self.validation
        if hasattr(self.head, "test_rows"):
            self.test = list(self.head.test_rows(self.validation, self.tokenizer))
        self.write_rows()

    def make_model(self, config):
        model = self.head.auto.from_config(config)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(value(name, parameter.shape))
        model.save_pretrained(self.folder / "model")
        (self.folder / "model/generation_config.json").unlink(missing_ok=True)

    def write_rows(self):
        self.paths = {}
        for part in ("train", "validation", "test"):
            rows = getattr(self, part)
            if "format" in self.head.data:
                path = self.folder / f"{part}.bin"
                ids = sum((s.ids for s in self.head.samples(self.tokenizer, rows, 0)), [])
                np.array(ids, dtype=np.uint16).tofile(path)
            else:
                path = self.folder / f"{part}.jsonl"
                path.write_text("".join(json.dumps(row) + "\n" for row in rows))
            self.paths[part] = str(path)

    def samples(self, rows, seed):
        return list(self.head.samples(self.tokenizer, rows, seed))

    def forward(self, model, samples, left=False):
        """The logits of each sample's own tokens or of each sample, and the class's own loss."""
        longest = max(len(s.ids) for s in samples)
        places = [torch.arange(longest - len(s.ids) if left else 0, longest if left else len(s.ids)) for s in samples]
        shape = (len(samples), longest)
        ids, mask, types, positions = torch.full(shape, model.config.pad_token_id or 0), *torch.zeros(3, *shape).long()
        for row, (place, sample) in enumerate(zip(places, samples)):
            ids[row, place], types[row, place] = torch.tensor(sample.ids), torch.tensor(sample.types)
            mask[row, place], positions[row, place] = 1, torch.arange(len(sample.ids))
        inputs = {"input_ids": ids, "attention_mask": mask}
        if getattr(model.config, "type_vocab_size", 1) > 1:
            inputs["token_type_ids"] = types
        if "roberta" not in self.family:  # RoBERTa computes the positions itself from the padding
            inputs["position_ids"] = positions
        labels = None
        if all(s.labels is not None for s in samples):
            labels = self.head.model_labels([s.labels for s in samples], places, shape)
        outputs = model(**inputs, **(labels or {}))
        if self.head.task == "question-answering":
            logits = torch.stack([outputs.start_logits, outputs.end_logits], -1)
        else:
            logits = outputs.logits
        if self.head.task != "sequence-classification":
            logits = [row[place] for row, place in zip(logits, places)]
        return list(logits), outputs.loss if labels else None

    def open(self, path, dtype=torch.float32):
        model = self.head.auto.from_pretrained(path, dtype=dtype)
        widen_attention(model)
        return model

    def reference(self, dtype):
        """Returns losses, norms, metrics, predictions before and after training, and the logits of the trained
        model."""
        model = self.open(self.folder / "model", dtype).train()
        decayed = set(transformers.Trainer.get_decay_parameter_names(None, model))
        for name, parameter in model.named_parameters():
            parameter.requires_grad = not self.trainable or any(fnmatch.fnmatchcase(name, p) for p in self.trainable)
        named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW([{"params": [p for n, p in named if n in decayed], "weight_decay": 0.1},
                                       {"params": [p for n, p in named if n not in decayed], "weight_decay": 0.0}],
                                      lr=1e-3)
        result = {"first predictions": self.evaluate(model)[1], "losses": [], "norms": []}
        model.train()
        samples = self.samples(self.train, 42)
        assert len(samples) >= STEPS * BATCH, len(samples)
        for step in range(STEPS):
            batch = samples[step * BATCH: (step + 1) * BATCH]
            # transformers' encoders take the first column as the first token of each sample.
            pools = self.family not in DECODERS and self.head.task == "sequence-classification"
            outputs, loss = self.forward(model, batch, left=step % 2 == 1 and not pools)
            own = self.head.loss(outputs, [s.labels for s in batch])
            if loss is None or dtype == torch.float64:  # some classes compute their loss in float32
                loss = own
            assert abs(own.item() - loss.item()) < 1e-5 * abs(own.item()), (own, loss)
            loss.backward()
            parameters = [p for _, p in named if p.grad is not None]
            norm = sum(p.grad.double().square().sum() for p in parameters).sqrt().item()
            for parameter in parameters:
                parameter.grad.mul_(min(1.0, 1.0 / (norm + 1e-6)))
            optimizer.step()
            optimizer.zero_grad()
            result["losses"].append(loss.item())
            result["norms"].append(norm)
        result["metrics"], result["predictions"], result["logits"] = self.evaluate(model)
        return result

    def evaluate(self, model):
        model.eval()
        with torch.no_grad():
            samples = self.samples(self.validation, 0)
            outputs, _ = self.forward(model, samples)
            metrics = {f"eval_{name}": score for name, score
                       in self.head.metrics(outputs, samples, self.validation, self.tokenizer).items()}
            metrics["eval_loss"] = self.head.loss(outputs, [s.labels for s in samples]).item()
            predictions = []
            if self.head.predicted:
                tests = self.samples(self.test, None)
                of_tests, _ = self.forward(model, tests)
                predictions = list(self.head.predictions(of_tests, tests, self.test, self.tokenizer))
        return metrics, predictions, outputs


def config_of(case, layout, out):
    d, p, t, options, dtype = LAYOUTS[layout]
    data = {"train": case.paths["train"], "validation": case.paths["validation"], "test": case.paths["test"],
            "sequence_length": LENGTH, "shuffle": False, **case.head.data}
    if "format" not in data:
        data["tokenizer"] = str(case.tokenizer_path)
    return {
        "task": case.head.task, "model": {"path": str(case.folder / "model")}, "data": data,
        "training": {"global_batch_size": BATCH, "max_steps": STEPS, "learning_rate": 1e-3, "weight_decay": 0.1,
                     "lr_scheduler_type": "constant", "max_grad_norm": 1.0, "do_eval": True, "save_strategy": "no",
                     "seed": 42, **({"trainable": case.trainable} if case.trainable else {})},
        "smp_options": {"pipeline_parallel_degree": p, "tensor_parallel_degree": t, "microbatches": 2, **options},
        "mpi_options": {"processes_per_host": d * p * t},
        "runtime": {"device": "cpu", "dtype": dtype, "threads_per_rank": 1},
        "output_dir": str(out),
    }


def run(program, case, *arguments):
    environment = dict(os.environ, XDG_CACHE_HOME=str(case.folder / "cache"))
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, arguments))} failed ({done.returncode}):\n{done.stdout}\n{done.stderr}")


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def far(given, expected):
    """The largest difference of numbers, relative to those above 1; infinite if anything else differs. Keys that only `given` has do not count."""
    if isinstance(expected, dict):
        return max((far(given[key], expected[key]) for key in expected), default=0.0)
    if isinstance(expected, list):
        if len(given) != len(expected):
            return float("inf")
        return max((far(g, e) for g, e in zip(given, expected)), default=0.0)
    if isinstance(expected, (int, float)):
        return abs(given - expected) / max(1.0, abs(expected))
    return 0.0 if given == expected else float("inf")


def relative(given, expected):
    return max(abs(g - e) / abs(e) for g, e in zip(given, expected, strict=True))


def lost_keys(case, out, dtype):
    """Returns the keys of the model's config that the saved one lacks or changed. The weights have the number type of
    the run."""
    before, after = (json.loads((path / "config.json").read_text()) for path in (case.folder / "model", out))
    return [key for key, value in dict(before, dtype=dtype).items() if after.get(key) != value]


def compare(program, case, layout, references):
    """Returns the differences from transformers in the same number type."""
    dtype = LAYOUTS[layout][4]
    reference, out = references[dtype], case.folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    config = case.folder / "config.json"
    config.write_text(json.dumps(config_of(case, layout, out)))
    row = {"predictions": 0.0}
    if case.head.predicted and dtype == "float64":
        run(program, case, "predict", config, "--output", case.folder / "predictions.jsonl")
        row["predictions"] = far(lines_of(case.folder / "predictions.jsonl"), reference["first predictions"])
    run(program, case, "train", config)
    steps = lines_of(out / "metrics.jsonl")
    evaluation = steps.pop()
    row["loss"] = relative([s["loss"] for s in steps], reference["losses"])
    row["norm"] = relative([steps[0]["grad_norm"]], reference["norms"][:1])
    row["metrics"] = far(evaluation, reference["metrics"])
    if case.head.predicted and dtype == "float32":
        run(program, case, "predict", config, "--set", f"model.path={out}", "--output", case.folder / "predictions.jsonl")
        given, expected = lines_of(case.folder / "predictions.jsonl"), copy.deepcopy(reference["predictions"])
        row["predictions"] = far(*map(case.head.predictions_without_bias, (given, expected)))
    model, found = getattr(transformers, json.loads((out / "config.json").read_text())["architectures"][0]).from_pretrained(
        out, output_loading_info=True)
    assert isinstance(model, type(case.open(case.folder / "model"))), type(model)
    if not getattr(model.config, "tie_word_embeddings", True):
        found["missing_keys"] -= {"lm_head.bias"}  # RoBERTa's class has it but does not use it
    wrong = {key: found[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs") if found[key]}
    assert not wrong, wrong
    logits = map(case.head.without_bias, (case.evaluate(model)[2], references["float32"]["logits"]))
    row["saved logits"] = max((a - b).abs().max().item() for a, b in zip(*logits, strict=True))
    row["keys"] = lost_keys(case, out, dtype)
    return row


def worse(rows):
    """The largest differences over several layouts."""
    return {key: max(row[key] for row in rows) for key in LIMITS["float32"]}


def table(results):
    """Prints the differences in float32 and in float64, one row for each family and head."""
    lines = ["| family | head | losses | first norm | metrics | predictions | saved logits |",
             "| --- | --- | --- | --- | --- | --- | --- |"]
    for (family, title), by_type in results.items():
        numbers = [worse(by_type[dtype]) for dtype in LIMITS if dtype in by_type]
        cells = [", ".join(f"{n[key]:.1e}" for n in numbers) for key in LIMITS["float32"] if key != "saved logits"]
        lines.append(f"| `{family}` | {title} | {' | '.join(cells)} | {numbers[0]['saved logits']:.1e} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=lambda path: str(pathlib.Path(path).resolve()))
    parser.add_argument("--family", nargs="*", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--head", nargs="*", choices=HEADS, default=list(HEADS))
    parser.add_argument("--layout", nargs="*", choices=LAYOUTS, default=list(LAYOUTS))
    parser.add_argument("--markdown", type=pathlib.Path, help="file for the table")
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    results, bad = {}, 0
    for family, title, trainable in pairs():
        if family not in args.family or title not in args.head:
            continue
        name = title + (", partly frozen" if trainable else "")
        with tempfile.TemporaryDirectory() as folder:
            case = Case(pathlib.Path(folder), family, title, trainable)
            references = {"float32": case.reference(torch.float32), "float64": case.reference(torch.float64)}
            rounding = relative(references["float32"]["losses"], references["float64"]["losses"])
            for layout in args.layout:
                dtype = LAYOUTS[layout][4]
                try:
                    row = compare(args.program, case, layout, references)
                except (RuntimeError, AssertionError) as problem:
                    row = {"problem": str(problem)}
                limits = dict(LIMITS[dtype])
                if case.head.task == "question-answering" and dtype == "float64":
                    limits["predictions"] = 1e-6  # shardline writes logits of answers in float32
                ok = "problem" not in row and not row["keys"] and all(row[key] <= limits[key] for key in limits)
                bad += not ok
                print(json.dumps({"family": family, "head": name, "layout": layout, "ok": ok, **row,
                                  "transformers fp32 to fp64": rounding}), flush=True)
                if "problem" not in row:
                    results.setdefault((family, name), {}).setdefault(dtype, []).append(row)
    if args.markdown:
        args.markdown.write_text(table(results))
    print(f"{bad} differences are beyond the limits" if bad else "all within the limits")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
