"""The example that exports a Hugging Face model; skipped if Python lacks torch or transformers."""
import json
import os
import subprocess
import sys

from package import BUILD, Package, run

PYTHON = os.environ.get("SHARDLINE_PYTHON", sys.executable)
if subprocess.run([PYTHON, "-c", "import torch, transformers; torch.export.save"], capture_output=True).returncode:
    print(f"{PYTHON} has no torch with torch.export, or no transformers (SHARDLINE_PYTHON names another Python)")
    sys.exit(77)

package = Package()
try:
    folder = package.copied("examples/export_hugging_face")
    small = "dict(vocab_size=300, n_positions=64, n_embd=16, n_layer=2, n_head=2)"
    run([PYTHON, "-c", f"from transformers import *; GPT2LMHeadModel(GPT2Config(**{small})).save_pretrained('gpt2')"], folder)
    run([PYTHON, "export.py", "gpt2"], folder)
    run([package.prefix / "bin/shardline", "train", "config.json", "--set", "data.tokenizer=bytes"], folder,
        env=package.env)
    losses = [json.loads(line)["loss"] for line in (folder / "out/metrics.jsonl").read_text().splitlines()]
    assert len(losses) == 20, losses
    # The outputs are instances of a class of transformers, which must be registered.
    run([PYTHON, "-c", "import torch, transformers.modeling_outputs; torch.export.load('out/model.pt2')"], folder)
finally:
    package.remove()
