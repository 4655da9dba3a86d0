"""Makes families/ in this folder with transformers: python make_families.py [FAMILY ...] (torch 2.11, transformers
5.23 or 5.24). Without names, all of them.

    families/FAMILY/config.json, model.safetensors   a model directory with the tensors of all heads
    families/FAMILY/runs.json                        what transformers makes of it, for each head

The value of a tensor follows from its name, so the heads share the encoder, which is a decoder for "causal-lm". Samples
have different lengths; transformers receives them padded, with a mask. In question answering, it would also take
padding for a possible answer, so each sample is a batch of its own. Dropouts are 0 in train mode.

A run: "task", "problem" (of sequence classification), "smoothing", and "steps", the labels of ten AdamW steps on the
family's batches (lr 1e-3, weight decay 0.1 by transformers.Trainer's rule, clip 1.0). By dtype: "logits" of step 1 (for
"causal-lm": of each sample's last row; for "masked-lm" without smoothing: the logarithms of the probabilities of all
words in rows with labels, rounded), "losses" of all steps, and "gradients" of step 1 by name: their norm, and their
sums weighted with cos(0.37 (k + 1) i + k) for element i, k = 0 .. 3, which see each element.
"""
import json
import pathlib
import random
import sys
import zlib

import torch
import transformers
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "transformers"))
from make_golden import widen_attention  # noqa: E402

STEPS, LABELS, PROBES = 10, 3, 4
LENGTHS = (7, 2, 11, 1)
SMALL = dict(hidden_size=24, num_attention_heads=3, vocab_size=67, num_labels=LABELS)
BERT = dict(**SMALL, num_hidden_layers=2, intermediate_size=40, max_position_embeddings=16, hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0)
GPT = dict(**SMALL, pad_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, classifier_dropout=0.0)
FAMILIES = {
    "bert": dict(**BERT, hidden_act="gelu"),
    # An activation that the head for masked words does not use.
    "roberta": dict(**BERT, hidden_act="relu", type_vocab_size=1, layer_norm_eps=1e-5),
    "xlm-roberta": dict(**BERT, hidden_act="gelu_new", pad_token_id=2, tie_word_embeddings=False),
    "distilbert": dict(**SMALL, num_hidden_layers=2, hidden_dim=40, max_position_embeddings=16, activation="gelu",
                       dropout=0.0, attention_dropout=0.0, qa_dropout=0.0, seq_classif_dropout=0.0),
    "gpt2": dict(**GPT, num_hidden_layers=2, n_inner=40, n_positions=16),
    "gpt_neo": dict(**SMALL, pad_token_id=0, num_layers=2, attention_types=[[["global", "local"], 1]], window_size=3,
                    intermediate_size=40, max_position_embeddings=16, resid_dropout=0.0, embed_dropout=0.0,
                    attention_dropout=0.0, classifier_dropout=0.0),
    "gptj": dict(**GPT, num_hidden_layers=2, n_inner=40, n_positions=16, rotary_dim=4),
}
MODELS = {"causal-lm": transformers.AutoModelForCausalLM,
          "masked-lm": transformers.AutoModelForMaskedLM,
          "sequence-classification": transformers.AutoModelForSequenceClassification,
          "token-classification": transformers.AutoModelForTokenClassification,
          "question-answering": transformers.AutoModelForQuestionAnswering}
DECODERS = ("gpt2", "gpt_neo", "gptj")
WORD_TASKS = ("causal-lm", "masked-lm")
# task, problem, smoothing
RUNS = [("causal-lm", None, 0.0), ("causal-lm", None, 0.1),
        ("masked-lm", None, 0.0), ("masked-lm", None, 0.1),
        ("sequence-classification", "single_label_classification", 0.0),
        ("sequence-classification", "single_label_classification", 0.1),
        ("sequence-classification", "multi_label_classification", 0.0),
        ("sequence-classification", "regression", 0.0),
        ("token-classification", None, 0.0), ("token-classification", None, 0.1),
        ("question-answering", None, 0.0)]


def has_head(family, task):
    if family in DECODERS and task == "masked-lm":
        return False
    return (family, task) not in (("gptj", "token-classification"), ("distilbert", "causal-lm"))


def value(name, shape):
    """Values that every formula depends on: biases that are not zero, norms that are not one."""
    noise = torch.randn(shape, generator=torch.Generator().manual_seed(zlib.crc32(name.encode())))
    is_norm = any(part in name for part in ("LayerNorm", "layer_norm", "ln_")) and name.endswith("weight")
    return noise * (0.2 if len(shape) > 1 else 0.1) + (1.0 if is_norm else 0.0)


def make_model(config, task, dtype, problem=None):
    config.problem_type = problem
    config.num_labels = 2 if task == "question-answering" else LABELS
    if task in WORD_TASKS and config.model_type not in DECODERS:
        config.is_decoder = task == "causal-lm"
    model = MODELS[task].from_config(config).to(dtype)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(value(name, parameter.shape))
    widen_attention(model)
    return model.train()


def in_old_ways(family, tensors):
    """Renames tensors as in published directories: with the buffers and old names of pretraining checkpoints, or as a base
    model without a head."""
    if family == "bert":
        old = {n.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): t
               for n, t in tensors.items()}
        return old | {"bert.embeddings.position_ids": torch.arange(16).view(1, -1),
                      "cls.seq_relationship.weight": torch.zeros(2, 24), "cls.seq_relationship.bias": torch.zeros(2)}
    base = {"distilbert": "distilbert.", "gpt_neo": "transformer."}.get(family, "")
    return {n.removeprefix(base): t for n, t in tensors.items()}


def save_directory(family, config):
    directory = HERE / "families" / family
    directory.mkdir(parents=True, exist_ok=True)
    tensors = {}
    for task in MODELS:
        if not has_head(family, task):
            continue
        model = make_model(config, task, torch.float32)
        tensors |= {n: p.detach().clone() for n, p in model.named_parameters()}
    config.problem_type = None
    config.num_labels = LABELS
    config.architectures = None
    config.save_pretrained(directory)
    save_file(in_old_ways(family, tensors), directory / "model.safetensors", metadata={"format": "pt"})
    return directory


def make_batches(config):
    """Returns the ids and types of each step's samples, without padding and special ids."""
    draw = random.Random(5)
    types = getattr(config, "type_vocab_size", 1)
    batches = []
    for step in range(STEPS):
        lengths = [(n + step * 3) % 11 + 1 for n in LENGTHS]
        batches.append({"ids": [[draw.randrange(3, config.vocab_size) for _ in range(n)] for n in lengths],
                        "types": [[draw.randrange(types) for _ in range(n)] for n in lengths]})
    return batches


def make_labels(task, problem, batches, vocabulary):
    """Returns what each step's samples or rows predict (for "causal-lm", most of the next ids); -100: no label."""
    draw = random.Random(9)
    steps = []
    for batch in batches:
        lengths = [len(ids) for ids in batch["ids"]]
        if task == "causal-lm":
            steps.append([[label if draw.random() < 0.8 else -100 for label in ids[1:] + [-100]]
                          for ids in batch["ids"]])
        elif task == "question-answering":  # the third answer is elsewhere
            answers = [sorted(draw.randrange(n) for _ in range(2)) for n in lengths]
            answers[2] = [-100, -100]
            steps.append(answers)
        elif problem == "single_label_classification":
            steps.append([draw.randrange(LABELS) for _ in lengths])
        elif problem == "multi_label_classification":
            steps.append([[float(draw.randrange(2)) for _ in range(LABELS)] for _ in lengths])
        elif problem == "regression":
            steps.append([[round(draw.uniform(-2, 2), 3) for _ in range(LABELS)] for _ in lengths])
        else:
            classes = vocabulary if task == "masked-lm" else LABELS
            share = 0.4 if task == "masked-lm" else 0.8
            steps.append([[draw.randrange(classes) if draw.random() < share or i == 0 else -100 for i in range(n)]
                          for n in lengths])
    return steps


def padded(rows, filler):
    longest = max(map(len, rows))
    return torch.tensor([row + [filler] * (longest - len(row)) for row in rows])


def outputs_of(model, family, batch):
    ids = padded(batch["ids"], model.config.pad_token_id)
    inputs = {"input_ids": ids, "attention_mask": padded([[1] * len(row) for row in batch["ids"]], 0)}
    if family not in DECODERS and family != "distilbert":
        inputs["token_type_ids"] = padded(batch["types"], 0)
    return model(**inputs)


def cross_entropy(logits, labels, smoothing):
    return torch.nn.functional.cross_entropy(logits, labels, label_smoothing=smoothing)


def rounded(logits):
    return [[round(value, 12 if logits.dtype == torch.float64 else 7) for value in row] for row in logits.tolist()]


def loss_of(model, family, task, problem, smoothing, batch, labels):
    """Returns the loss of the model in its dtype, and the logits of valid rows or of segments. Some models compute
    their loss in float32."""
    if task == "question-answering":
        losses, logits = [], []
        for i, (first, last) in enumerate(labels):
            alone = outputs_of(model, family, {key: rows[i: i + 1] for key, rows in batch.items()})
            logits.append(torch.stack([alone.start_logits[0], alone.end_logits[0]], 1))
            if first >= 0:
                losses.append((cross_entropy(alone.start_logits, torch.tensor([first]), 0.0)
                               + cross_entropy(alone.end_logits, torch.tensor([last]), 0.0)) / 2)
        return torch.stack(losses).mean(), torch.cat(logits)
    logits = outputs_of(model, family, batch).logits
    if task == "causal-lm":
        # transformers shifts the labels itself, and computes the loss in float32.
        unshifted = padded([[-100] + row[:-1] for row in labels], -100)
        own = model.loss_function(logits=logits, labels=unshifted, vocab_size=model.config.vocab_size)
        loss = cross_entropy(logits.flatten(0, 1), padded(labels, -100).flatten(), smoothing)
        assert smoothing > 0 or abs(own.item() - loss.item()) < 1e-5, (own, loss)
        return loss, torch.stack([logits[i, len(row) - 1] for i, row in enumerate(batch["ids"])])
    if task in ("masked-lm", "token-classification"):
        loss = cross_entropy(logits.flatten(0, 1), padded(labels, -100).flatten(), smoothing)
        return loss, torch.cat([logits[i, : len(row)] for i, row in enumerate(batch["ids"])])
    if problem == "single_label_classification":
        return cross_entropy(logits, torch.tensor(labels), smoothing), logits
    targets = torch.tensor(labels, dtype=logits.dtype)
    if problem == "regression":
        return torch.nn.functional.mse_loss(logits, targets), logits
    return torch.nn.functional.binary_cross_entropy_with_logits(logits, targets), logits


def probes(gradient):
    flat = gradient.double().flatten()
    i = torch.arange(flat.numel(), dtype=torch.float64)
    return [flat.norm().item()] + [(flat * torch.cos(0.37 * (k + 1) * i + k)).sum().item() for k in range(PROBES)]


def train(family, config, task, problem, smoothing, batches, labels, dtype):
    model = make_model(config, task, dtype, problem)
    decayed = set(transformers.Trainer.get_decay_parameter_names(None, model))
    named = list(model.named_parameters())
    optimizer = torch.optim.AdamW([{"params": [p for n, p in named if n in decayed], "weight_decay": 0.1},
                                   {"params": [p for n, p in named if n not in decayed], "weight_decay": 0.0}],
                                  lr=1e-3)
    result = {"losses": []}
    for batch, targets in zip(batches, labels):
        loss, logits = loss_of(model, family, task, problem, smoothing, batch, targets)
        loss.backward()
        if not result["losses"]:
            if task != "masked-lm":
                result["logits"] = logits.tolist()
            elif smoothing == 0:
                counts = torch.tensor([label >= 0 for row in targets for label in row])
                result["logits"] = rounded(logits[counts].log_softmax(-1))
            result["gradients"] = {n: probes(p.grad) for n, p in named if p.grad is not None}
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        result["losses"].append(loss.item())
    if dtype == torch.float32:  # they differ from those of float64 only by rounding
        del result["gradients"]
    return result


def make_family(family):
    config = transformers.AutoConfig.for_model(family, **FAMILIES[family])
    directory = save_directory(family, config)
    batches = make_batches(config)
    runs = []
    for task, problem, smoothing in RUNS:
        if not has_head(family, task):
            continue
        labels = make_labels(task, problem, batches, config.vocab_size)
        runs.append({"task": task, "problem": problem, "smoothing": smoothing, "steps": labels})
        for name, dtype in (("float64", torch.float64), ("float32", torch.float32)):
            runs[-1][name] = train(family, config, task, problem, smoothing, batches, labels, dtype)
        pairs = zip(runs[-1]["float32"]["losses"], runs[-1]["float64"]["losses"])
        worst = max(abs(single - exact) / exact for single, exact in pairs)
        # AdamW makes full steps for gradients that are only rounding errors; then other labels are better.
        assert worst < 2e-6, (family, task, problem, worst)
        print(family, task, problem, smoothing, runs[-1]["float64"]["losses"][::9], worst)
    (directory / "runs.json").write_text(json.dumps({"batches": batches, "runs": runs}) + "\n")


if __name__ == "__main__":
    for chosen in sys.argv[1:] or FAMILIES:
        make_family(chosen)
