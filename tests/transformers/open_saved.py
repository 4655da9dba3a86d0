"""Opens saved models of every family and head with transformers and compares their logits with the recorded ones:

    SHARDLINE_SAVED=/tmp/saved build-test/tests/models/models_tests "[.saved]"
    python tests/transformers/open_saved.py /tmp/saved          (torch 2.11, transformers 5.23)
"""
import json
import pathlib
import sys

import torch
import transformers

REPOSITORY = pathlib.Path(__file__).parents[2]
sys.path += [str(REPOSITORY / "tests" / "models" / "golden"), str(REPOSITORY / "tests" / "transformers")]
import make_families  # noqa: E402
from make_golden import widen_attention  # noqa: E402


def check(directory):
    family, task, problem = directory.name.split(".")
    problem = json.loads(problem)
    recorded = json.loads((REPOSITORY / "tests/models/golden/families" / family / "runs.json").read_text())
    run = next(r for r in recorded["runs"] if (r["task"], r["problem"], r["smoothing"]) == (task, problem, 0.0))
    config = json.loads((directory / "config.json").read_text())
    model, found = getattr(transformers, config["architectures"][0]).from_pretrained(
        directory, dtype=torch.float64, output_loading_info=True)
    assert type(model).__name__ == config["architectures"][0], type(model)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
        # An untied decoder has a bias of its own, next to one that transformers does not use.
        assert not set(found[kind]) - {"lm_head.bias"}, (directory.name, kind, found[kind])
    if task == "sequence-classification":
        assert model.config.problem_type == problem
    widen_attention(model)
    model.eval()
    loss, logits = make_families.loss_of(model, family, task, problem, 0.0, recorded["batches"][0], run["steps"][0])
    assert abs(loss.item() - run["float64"]["losses"][0]) < 1e-9, (directory.name, loss.item())
    if task != "masked-lm":
        assert (logits - torch.tensor(run["float64"]["logits"], dtype=torch.float64)).abs().max() < 1e-9
    print(f"{directory.name}: {type(model).__name__}, loss {loss.item():.6f}")


for saved in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    check(saved)
