"""Trains exported programs (.pt2) with PyTorch and with shardline on the same batches, and compares.

    python tests/transformers/compare_exported.py build/tools/shardline [--model gpt2 ... | --all]
        [--layout "D P T" "D P T sharded each" ...] [--optimize speed] [--markdown FILE]

Small random models of transformers are exported in training mode with dynamic sizes. Per model, layout and dtype: the
losses and gradient norms of ten steps of AdamW (see compare.py) against those of the same program in PyTorch; the saved
model.pt2, opened by torch.export.load, and its logits against those of the program trained there; the names in
model.safetensors; and the share of the products with weights that tensor parallelism splits. In float64, both compute
in float64 throughout. A layout may shard the optimizer's states ("sharded") and recompute each block ("each"). Needs
torch 2.11, transformers, numpy, safetensors.

Models of tasks with labels have the names of compare_heads.py, such as "bert answers": their rows, losses, metrics and
predictions are those of that script, and the reference is the model of transformers from which the program was made.
Encoders with decoders take tokenised rows of different lengths, which are padded in PyTorch; the loss of an evaluation
after the training is compared, too.

Models of images and of sound take columns of tensors: of a .safetensors file, and, with "files" in the name, of rows
that name .npy files.

Without --model, one model of each kind is compared, in a few minutes.
"""
import argparse
import inspect
import json
import os
import pathlib
import re
import shutil
import sys
import tempfile
import types

import numpy as np
import torch
import transformers
from safetensors.torch import load_model, save_file
from torch.export import Dim

import compare_heads
from compare import BATCH, DECAY, SEQUENCE, STEPS, clip, distances, train_shardline
from compare_heads import ENCODER, FAMILIES, HEADS

WORDS, WORDS_OF_PAIRS = 211, 260
# For models whose activation is ReLU by default: its gradient jumps at 0, so where rounding changes the sign of a value,
# a gradient norm in float32 differs by up to 3e-4. T5 keeps its ReLU.
SMOOTH = "gelu"
MODELS = {
    "gpt2": lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=WORDS, n_positions=64, n_embd=48, n_layer=4, n_head=6, attn_pdrop=0.0, embd_pdrop=0.0,
        resid_pdrop=0.0, bos_token_id=0, eos_token_id=0)),
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=WORDS, hidden_size=48, intermediate_size=80, num_hidden_layers=4, num_attention_heads=6,
        num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=True, bos_token_id=0, eos_token_id=0)),
    "opt": lambda: transformers.OPTForCausalLM(transformers.OPTConfig(
        vocab_size=WORDS, hidden_size=48, word_embed_proj_dim=48, ffn_dim=96, num_hidden_layers=3,
        num_attention_heads=6, max_position_embeddings=64, dropout=0.0, attention_dropout=0.0, pad_token_id=1,
        activation_function=SMOOTH)),
    "gpt_neo": lambda: transformers.GPTNeoForCausalLM(transformers.GPTNeoConfig(
        vocab_size=WORDS, hidden_size=48, num_layers=4, attention_types=[[["global", "local"], 2]], num_heads=6,
        window_size=8, max_position_embeddings=64, attention_dropout=0.0, embed_dropout=0.0, resid_dropout=0.0,
        bos_token_id=0, eos_token_id=0)),
    "gpt_neox": lambda: transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(
        vocab_size=WORDS, hidden_size=48, intermediate_size=96, num_hidden_layers=3, num_attention_heads=6,
        max_position_embeddings=64, hidden_dropout=0.0, attention_dropout=0.0, bos_token_id=0, eos_token_id=0)),
    "phi3": lambda: transformers.Phi3ForCausalLM(transformers.Phi3Config(
        vocab_size=WORDS, hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=6,
        num_key_value_heads=2, max_position_embeddings=64, bos_token_id=0, eos_token_id=0, pad_token_id=0)),
    "gpt_bigcode": lambda: transformers.GPTBigCodeForCausalLM(transformers.GPTBigCodeConfig(
        vocab_size=WORDS, n_positions=64, n_embd=48, n_layer=3, n_head=6, multi_query=True, attn_pdrop=0.0, embd_pdrop=0.0,
        resid_pdrop=0.0, bos_token_id=0, eos_token_id=0)),
    "falcon": lambda: transformers.FalconForCausalLM(transformers.FalconConfig(
        vocab_size=WORDS, hidden_size=48, num_hidden_layers=3, num_attention_heads=6, new_decoder_architecture=True,
        num_kv_heads=2, attention_dropout=0.0, hidden_dropout=0.0, bos_token_id=0, eos_token_id=0)),
    "falcon with one key": lambda: transformers.FalconForCausalLM(transformers.FalconConfig(
        vocab_size=WORDS, hidden_size=48, num_hidden_layers=3, num_attention_heads=6, new_decoder_architecture=False,
        multi_query=True, attention_dropout=0.0, hidden_dropout=0.0, bos_token_id=0, eos_token_id=0)),
    "qwen2": lambda: transformers.Qwen2ForCausalLM(transformers.Qwen2Config(
        vocab_size=WORDS, hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=6,
        num_key_value_heads=2, max_position_embeddings=64, bos_token_id=0, eos_token_id=0)),
}
class Translator(torch.nn.Module):
    """A model around torch's own Transformer that computes no loss."""
    def __init__(self):
        super().__init__()
        self.words, self.places = torch.nn.Embedding(WORDS_OF_PAIRS, 48), torch.nn.Embedding(64, 48)
        self.transformer = torch.nn.Transformer(48, 6, 2, 2, 96, dropout=0.0, activation=SMOOTH, batch_first=True,
                                                norm_first=True)
        self.head = torch.nn.Linear(48, WORDS_OF_PAIRS)

    def embed(self, ids):
        return self.words(ids) + self.places(torch.arange(ids.shape[1]))

    def forward(self, source, source_mask, target):
        hidden = source_mask == 0
        later = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1)
        return self.head(self.transformer(self.embed(source), self.embed(target), tgt_mask=later, tgt_is_causal=True,
                                          src_key_padding_mask=hidden, memory_key_padding_mask=hidden))


# Returns models with an encoder and a decoder.
PAIRS = {
    "torch.nn.Transformer": Translator,
    "t5": (lambda: transformers.T5ForConditionalGeneration(transformers.T5Config(
        vocab_size=WORDS_OF_PAIRS, d_model=48, d_kv=8, d_ff=96, num_layers=2, num_decoder_layers=3, num_heads=6,
        dropout_rate=0.0, decoder_start_token_id=0, pad_token_id=0, eos_token_id=1))),
    "bart": (lambda: transformers.BartForConditionalGeneration(transformers.BartConfig(
        vocab_size=WORDS_OF_PAIRS, d_model=48, encoder_layers=2, decoder_layers=2, encoder_ffn_dim=96,
        decoder_ffn_dim=80, encoder_attention_heads=6, decoder_attention_heads=6, max_position_embeddings=64,
        dropout=0.0, attention_dropout=0.0, activation_dropout=0.0, decoder_start_token_id=2, pad_token_id=1,
        bos_token_id=0, eos_token_id=2))),
}
# Models that take tensors: the model, the numbers of an example, its sizes, and whether labels are tokens.
SENSES = {
    "vit": (lambda: transformers.ViTForImageClassification(transformers.ViTConfig(
        hidden_size=48, num_hidden_layers=4, num_attention_heads=6, intermediate_size=96, image_size=16, patch_size=4,
        num_labels=5, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)), "pixel_values", (3, 16, 16), False),
    "whisper": (lambda: transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(
        vocab_size=WORDS_OF_PAIRS, d_model=48, encoder_layers=2, decoder_layers=3, encoder_attention_heads=6,
        decoder_attention_heads=6, encoder_ffn_dim=96, decoder_ffn_dim=80, num_mel_bins=8, max_source_positions=16,
        max_target_positions=24, dropout=0.0, attention_dropout=0.0, activation_dropout=0.0, decoder_start_token_id=2,
        pad_token_id=1, bos_token_id=0, eos_token_id=2, suppress_tokens=None, begin_suppress_tokens=None)),
        "input_features", (8, 32), True),
}
SENSES["vit of files"], SENSES["whisper of files"] = SENSES["vit"], SENSES["whisper"]
# Settings of a shardline config for a model that is not from transformers.
START = 2
OF_TRANSLATOR = ['model.inputs={"source": "input_ids", "source_mask": "attention_mask", "target": "decoder_input_ids"}',
                 'model.loss={"function": "cross_entropy", "logits": "0"}',
                 f'model.config={{"decoder_start_token_id": {START}}}']
HEADS_OF = {"bert": list(HEADS), "deberta-v2": ["classes of pairs"]}
FAMILIES["deberta-v2"] = ("examples/bert", dict(
    ENCODER, vocab_size=1201, relative_attention=True, pos_att_type=["p2c", "c2p"], position_biased_input=False,
    norm_rel_ebd="layer_norm", share_att_key=True, position_buckets=16, type_vocab_size=0, pooler_dropout=0.0))
LABELLED = [f"{family} {title}" for family, titles in HEADS_OF.items() for title in titles
            if HEADS[title].task != "causal-lm"]
DEFAULT = ["gpt2", "bert several labels", "bert answers", "t5", "vit", "whisper of files"]
LIMITS = {"float32": 5e-6, "float64": 1e-11}  # for losses
# For logits of the saved program, whose weights are float32.
SAVED_LIMITS = {"float32": 2e-4, "float64": 1e-5}
LEAST_SHARE = 0.95  # of the products with weights, which T must divide
OPTIONS = {"sharded": {"shard_optimizer_state": True}, "each": {"activation_checkpointing": "each"}}  # of a layout


def degrees_of(layout):
    return [int(degree) for degree in layout.split()[:3]]


def options_of(layout, optimize):
    options = {"optimize": optimize}
    for word in layout.split()[3:]:
        options.update(OPTIONS[word])
    return options


def settings_of(path, dtype, layout, optimize):
    options = options_of(layout, optimize).items()
    return [f"model.path={path}", f"runtime.dtype={dtype}",
            *(f"smp_options.{key}={json.dumps(value)}" for key, value in options)]


def share_of(row):
    """The share of the products with weights that T divides; None without T."""
    found = re.search(r"([0-9.e+-]+) % of the products", row["split"])
    return float(found.group(1)) / 100 if found else None


def is_within(row, least_share=LEAST_SHARE):
    share = share_of(row)
    limits = {"loss": LIMITS[row["dtype"]], "first_norm": 1e-5, "saved_logits": SAVED_LIMITS[row["dtype"]],
              "eval_loss": 1e-4, "metrics": 1e-4, "predictions": 1e-4}
    return (all(row[key] <= limit for key, limit in limits.items() if key in row) and
            not row.get("differing_names") and (share is None or share >= least_share))


def export(name, directory):
    torch.manual_seed(1)
    model = MODELS[name]().train()
    ids = torch.randint(WORDS, (3, 10))
    rows = {0: Dim.AUTO, 1: Dim.AUTO}
    arguments = dict(input_ids=ids, attention_mask=torch.ones_like(ids), labels=ids.clone())
    program = torch.export.export(model, (), {**arguments, "use_cache": False},
                                  dynamic_shapes={**{key: rows for key in arguments}, "use_cache": None}, strict=False)
    path = os.path.join(directory, "program.pt2")
    torch.export.save(program, path)
    tokens = np.random.default_rng(5).integers(0, WORDS, STEPS * BATCH * SEQUENCE).astype(np.uint16)
    tokens.tofile(os.path.join(directory, "tokens.bin"))
    return path, torch.from_numpy(tokens.astype(np.int64)).view(STEPS, BATCH, SEQUENCE)


def module_of(path, dtype):
    """Returns the program of an archive, changed to compute in this dtype throughout."""
    module = torch.export.load(path).module()
    if dtype == torch.float64:
        for tensor in (*module.parameters(), *module.buffers()):
            if tensor.dtype == torch.float32:
                tensor.data = tensor.data.double()
        types_of = {torch.float32: torch.float64, torch.complex64: torch.complex128}
        wider = lambda value: types_of[value] if isinstance(value, torch.dtype) and value in types_of else value
        for part in module.modules():
            for key, value in list(vars(part).items()):  # constants of the program
                if isinstance(value, torch.Tensor) and value.dtype in types_of:
                    setattr(part, key, value.to(types_of[value.dtype]))
            if isinstance(part, torch.fx.GraphModule):
                for node in list(part.graph.nodes):
                    if node.target == torch.ops.aten._assert_tensor_metadata.default:
                        part.graph.erase_node(node)  # it expects the dtype of the export
                        continue
                    node.args = torch.fx.node.map_aggregate(node.args, wider)
                    node.kwargs = torch.fx.node.map_aggregate(node.kwargs, wider)
                part.recompile()
    return module


def run(module, ids):
    return module(input_ids=ids, attention_mask=torch.ones_like(ids), labels=ids, use_cache=False)


def train_pytorch(module, batches):
    return train_rows(module, batches, run)


def train_rows(module, batches, run=None):
    run = run or run_pair
    run(module, batches[0]).loss.backward()
    used = [p for p in module.parameters() if p.grad is not None]  # the program uses only one of the tied parameters
    groups = [{"params": [p for p in used if p.dim() > 1], "weight_decay": DECAY},
              {"params": [p for p in used if p.dim() <= 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, fused=True)
    losses, norms = [], []
    for batch in batches:
        optimizer.zero_grad()
        loss = run(module, batch).loss
        loss.backward()
        norms.append(clip(types.SimpleNamespace(parameters=lambda: used)))
        optimizer.step()
        losses.append(loss.item())
    return np.array(losses), np.array(norms)


def compare_causal(program, name, layouts, optimize):
    with tempfile.TemporaryDirectory() as scratch:
        path, batches = export(name, scratch)
        for dtype in LIMITS:
            module = module_of(path, getattr(torch, dtype))
            reference = train_pytorch(module, batches)
            for layout in layouts:
                out = os.path.join(scratch, "out")
                ours = train_shardline(program, scratch, degrees_of(layout), out, "adamw_torch_fused",
                                       settings_of(path, dtype, layout, optimize), False)
                saved = module_of(os.path.join(out, "model.pt2"), getattr(torch, dtype))
                with torch.no_grad():
                    logits = (run(saved, batches[0]).logits - run(module, batches[0]).logits).abs().max().item()
                row = {"dtype": dtype, "layout": layout, **distances(ours, reference), "saved_logits": logits,
                       "differing_names": differing_names(out), "split": split_of(out)}
                shutil.rmtree(out)
                yield row


def differing_names(out):
    """The names that the state_dict() of the saved program or model.safetensors lacks."""
    module = torch.export.load(os.path.join(out, "model.pt2")).module()
    return sorted(set().union(*load_model(module, os.path.join(out, "model.safetensors"), strict=False)))


def split_of(out):
    with open(os.path.join(out, "plan.json")) as file:
        return json.load(file)["tensor_parallel"]


class ExportedCase(compare_heads.Case):
    """Returns the model of a case as a program without position_ids."""

    def export(self):
        model = self.open(self.folder / "model").train()
        batch = self.samples(self.train, 42)[:3]
        longest = max(len(s.ids) for s in batch)
        ids = torch.zeros(3, longest, dtype=torch.long)
        arguments = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if getattr(model.config, "type_vocab_size", 1) > 1:
            arguments["token_type_ids"] = torch.zeros_like(ids)
        places = [torch.arange(len(s.ids)) for s in batch]
        labels = self.head.model_labels([s.labels for s in batch], places, ids.shape)
        if self.head.task == "question-answering":
            labels = dict(zip(("start_positions", "end_positions"), torch.tensor([s.labels for s in batch]).unbind(1)))
        if self.head.config.get("num_labels") == 1:  # regression: the loss expects labels of this shape
            labels = {"labels": labels["labels"].squeeze(1)}
        arguments.update(labels)
        sizes = {key: {i: Dim.AUTO for i in range(2 if value.shape[1:] == ids.shape[1:] else 1)}
                 for key, value in arguments.items()}
        program = torch.export.export(model, (), arguments, dynamic_shapes=sizes, strict=False)
        torch.export.save(program, self.folder / "program.pt2")

    def forward(self, model, samples, left=False):
        return super().forward(model, samples)


def compare_labelled(program, name, layouts, optimize):
    family, title = name.split(" ", 1)
    with tempfile.TemporaryDirectory() as scratch:
        case = ExportedCase(pathlib.Path(scratch), family, title, [])
        case.export()
        for dtype in LIMITS:
            reference = case.reference(getattr(torch, dtype))
            for layout in layouts:
                out = case.folder / "out"
                compare_heads.LAYOUTS[layout] = (*degrees_of(layout), options_of(layout, optimize), dtype)
                config = compare_heads.config_of(case, layout, out)
                config["model"] = {"path": str(case.folder / "program.pt2")}
                if "id2label" in case.head.config:
                    config["model"]["config"] = {"id2label": {str(i): n for i, n in case.head.config["id2label"].items()}}
                (case.folder / "config.json").write_text(json.dumps(config))
                row = {"dtype": dtype, "layout": layout, "predictions": 0.0}
                if case.head.predicted:
                    compare_heads.run(program, case, "predict", case.folder / "config.json", "--output",
                                      case.folder / "predictions.jsonl")
                    row["predictions"] = compare_heads.far(compare_heads.lines_of(case.folder / "predictions.jsonl"),
                                                           reference["first predictions"])
                compare_heads.run(program, case, "train", case.folder / "config.json")
                steps = compare_heads.lines_of(out / "metrics.jsonl")
                evaluation = steps.pop()
                row["loss"] = compare_heads.relative([s["loss"] for s in steps], reference["losses"])
                row["first_norm"] = compare_heads.relative([steps[0]["grad_norm"]], reference["norms"][:1])
                row["metrics"] = compare_heads.far(evaluation, reference["metrics"])
                row["split"] = split_of(out)
                shutil.rmtree(out)
                yield row


def padded(lists, filler):
    longest = max(map(len, lists))
    return torch.tensor([row + [filler] * (longest - len(row)) for row in lists])


def arguments_of(rows, translates):
    ids, targets = [row["input_ids"] for row in rows], [row["labels"] for row in rows]
    mask = padded([[1] * len(row) for row in ids], 0)
    if translates:
        return dict(source=padded(ids, 0), source_mask=mask, target=padded([[START] + row[:-1] for row in targets], 0))
    return dict(input_ids=padded(ids, 0), attention_mask=mask, labels=padded(targets, -100))


def run_pair(module, rows):
    translates = "target" in inspect.signature(module.forward).parameters
    if not translates:
        return module(**arguments_of(rows, False), use_cache=False)
    logits = module(**arguments_of(rows, True))
    labels = padded([row["labels"] for row in rows], -100)
    return types.SimpleNamespace(logits=logits, loss=torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()))


def compare_pair(program, name, layouts, optimize):
    make, translates = PAIRS[name], PAIRS[name] is Translator
    with tempfile.TemporaryDirectory() as scratch:
        torch.manual_seed(1)
        model = make().train()
        draw = np.random.default_rng(5)
        numbers = lambda count: draw.integers(3, WORDS_OF_PAIRS, count).tolist()
        arguments = arguments_of([{"input_ids": numbers(10), "labels": numbers(7)} for _ in range(3)], translates)
        sizes = {key: {0: Dim.AUTO, 1: Dim.AUTO} for key in arguments}
        others = {} if translates else {"use_cache": False}
        exported = torch.export.export(model, (), {**arguments, **others}, strict=False,
                                       dynamic_shapes={**sizes, **dict.fromkeys(others)})
        path = os.path.join(scratch, "program.pt2")
        torch.export.save(exported, path)
        rows = [{"input_ids": numbers(draw.integers(2, 20)), "labels": numbers(draw.integers(2, 10))}
                for _ in range(STEPS * BATCH)]
        data = os.path.join(scratch, "rows.jsonl")
        with open(data, "w") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        with open(os.path.join(scratch, "validation.jsonl"), "w") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows[:6])
        batches = [rows[i:i + BATCH] for i in range(0, len(rows), BATCH)]
        for dtype in LIMITS:
            module = module_of(path, getattr(torch, dtype))
            reference = train_rows(module, batches)
            for layout in layouts:
                out = os.path.join(scratch, "out")
                ours = train_shardline(
                    program, scratch, degrees_of(layout), out, "adamw_torch_fused",
                    [*settings_of(path, dtype, layout, optimize), "task=seq2seq-lm", f"data.train={data}",
                     f"data.validation={os.path.join(scratch, 'validation.jsonl')}", "data.format=jsonl",
                     "data.tokenizer=bytes", "data.sequence_length=32", "data.max_target_length=12",
                     "training.do_eval=true", *(OF_TRANSLATOR if translates else [])], False)
                evaluation = [json.loads(line) for line in open(os.path.join(out, "metrics.jsonl"))][-1]
                saved = module_of(os.path.join(out, "model.pt2"), getattr(torch, dtype))
                with torch.no_grad():
                    logits = (run_pair(saved, batches[0]).logits - run_pair(module, batches[0]).logits).abs().max().item()
                    loss = run_pair(module, rows[:6]).loss.item()
                row = {"dtype": dtype, "layout": layout, **distances(ours, reference), "saved_logits": logits,
                       "eval_loss": abs(evaluation["eval_loss"] - loss) / loss,
                       "differing_names": differing_names(out), "split": split_of(out)}
                shutil.rmtree(out)
                yield row


def write_samples(path, values, labels, given, in_files):
    """Writes data with tensors: a .safetensors file, or rows and .npy files. Returns its path."""
    if not in_files:
        save_file({given: values, "labels": labels}, path + ".safetensors")
        return path + ".safetensors"
    os.makedirs(path)
    with open(os.path.join(path, "rows.jsonl"), "w") as file:
        for i, (value, label) in enumerate(zip(values.numpy(), labels.tolist())):
            np.save(os.path.join(path, f"{i}.npy"), value)
            file.write(json.dumps({given: f"{i}.npy", "label" if labels.dim() == 1 else "labels": label}) + "\n")
    return os.path.join(path, "rows.jsonl")


def compare_senses(program, name, layouts, optimize):
    make, given, sizes, writes = SENSES[name]
    in_files = name.endswith("files")
    with tempfile.TemporaryDirectory() as scratch:
        torch.manual_seed(1)
        model = make().train()
        draw = torch.Generator().manual_seed(5)
        numbers = lambda count: torch.randn(count, *sizes, generator=draw)
        count = STEPS * BATCH
        values = numbers(count)
        if writes:
            labels = torch.randint(3, WORDS_OF_PAIRS, (count, 9), generator=draw)
            for row in labels:
                row[torch.randint(2, 10, (), generator=draw):] = -100
            example, dimensions = labels[:3, :7].clamp(3), {0: Dim.AUTO, 1: Dim.AUTO}
        else:
            labels = torch.randint(model.config.num_labels, (count,), generator=draw)
            example, dimensions = labels[:3], {0: Dim.AUTO}
        others = {"use_cache": False} if writes else {}
        exported = torch.export.export(model, (), {given: numbers(3), "labels": example, **others}, strict=False,
                                       dynamic_shapes={given: {0: Dim.AUTO}, "labels": dimensions, **dict.fromkeys(others)})
        path = os.path.join(scratch, "program.pt2")
        torch.export.save(exported, path)
        train = write_samples(os.path.join(scratch, "train"), values, labels, given, in_files)
        validation = write_samples(os.path.join(scratch, "validation"), values[:6], labels[:6], given, in_files)
        for dtype in LIMITS:
            module = module_of(path, getattr(torch, dtype))
            run = lambda of, rows: of(**{given: values[rows].to(getattr(torch, dtype)), "labels": labels[rows]}, **others)
            reference = train_rows(module, torch.arange(count).split(BATCH), run)
            for layout in layouts:
                out = os.path.join(scratch, "out")
                settings = [*settings_of(path, dtype, layout, optimize),
                            f"model.inputs={json.dumps({given: given, 'labels': 'labels'})}", f"data.train={train}",
                            f"data.validation={validation}", "data.format=auto", "training.do_eval=true",
                            "data.sequence_length=1024",
                            *(["task=seq2seq-lm", "data.tokenizer=bytes", "data.max_target_length=12"] if writes else
                              ["task=sequence-classification"])]
                ours = train_shardline(program, scratch, degrees_of(layout), out, "adamw_torch_fused", settings, False)
                evaluation = [json.loads(line) for line in open(os.path.join(out, "metrics.jsonl"))][-1]
                saved = module_of(os.path.join(out, "model.pt2"), getattr(torch, dtype))
                some = torch.arange(6)
                with torch.no_grad():
                    logits = (run(saved, some).logits - run(module, some).logits).abs().max().item()
                    loss = run(module, some).loss.item()
                row = {"dtype": dtype, "layout": layout, **distances(ours, reference), "saved_logits": logits,
                       "eval_loss": abs(evaluation["eval_loss"] - loss) / loss,
                       "differing_names": differing_names(out), "split": split_of(out)}
                shutil.rmtree(out)
                yield row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=lambda path: str(pathlib.Path(path).resolve()))
    every = [*MODELS, *LABELLED, *PAIRS, *SENSES]
    parser.add_argument("--model", nargs="*", choices=every, default=DEFAULT)
    parser.add_argument("--all", action="store_true", help="every model")
    parser.add_argument("--layout", nargs="*",
                        default=["1 1 1", "2 1 1", "1 2 1", "1 1 2", "1 2 2", "2 2 1 sharded each"])
    parser.add_argument("--optimize", choices=["memory", "speed"], default="memory", help="with T > 1")
    parser.add_argument("--markdown", type=pathlib.Path, help="file for a table of the results")
    args = parser.parse_args()
    results = {}
    for name in every if args.all else args.model:
        compare = (compare_causal if name in MODELS else compare_pair if name in PAIRS else
                   compare_senses if name in SENSES else compare_labelled)
        for row in compare(args.program, name, args.layout, args.optimize):
            results.setdefault(name, []).append(row)
            print(json.dumps({"model": name, **row, "ok": is_within(row)}), flush=True)
    if args.markdown:
        args.markdown.write_text(table_of(results, args.layout))
    sys.exit(0 if all(is_within(row) for rows in results.values() for row in rows) else 1)


def table_of(results, layouts):
    """The share that T divides, and the largest relative differences of losses by layout: in float32, in float64."""
    lines = ["| model | divided over T | " + " | ".join(layouts) + " | saved logits |",
             "| --- | ---: |" + " ---: |" * (len(layouts) + 1)]
    for name, rows in results.items():
        shares = [share_of(row) for row in rows if share_of(row) is not None]
        cell = lambda key, layout: ", ".join(
            f"{max(row[key] for row in of_type):.1e}" for of_type in
            ([row for row in rows if row["dtype"] == dtype and layout in (None, row["layout"]) and key in row]
             for dtype in LIMITS) if of_type)
        lines.append(f"| {name} | {f'{100 * min(shares):.1f} %' if shares else ''} | " +
                     " | ".join(cell("loss", layout) for layout in layouts) + f" | {cell('saved_logits', None)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
