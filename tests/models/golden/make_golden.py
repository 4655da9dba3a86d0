"""Makes the golden files with the reference implementation: python make_golden.py (torch, safetensors)."""
import json
import pathlib

import torch
from safetensors.torch import save_file

here = pathlib.Path(__file__).parent


def numbers(dtype, *shape):
    count = torch.Size(shape).numel()
    return torch.arange(count, dtype=torch.float64).reshape(shape).sub(3).to(dtype)


# Every dtype, an odd number of bytes before wider elements (the reference sorts by alignment), 0-d and empty tensors.
save_file(
    {
        "f64": numbers(torch.float64, 2, 3),
        "f32": numbers(torch.float32, 3),
        "f16": numbers(torch.float16, 5),
        "bf16": numbers(torch.bfloat16, 2, 2),
        "i64": numbers(torch.int64, 2),
        "i32": numbers(torch.int32, 3),
        "i16": numbers(torch.int16, 3),
        "i8": numbers(torch.int8, 5),
        "u8": torch.arange(3, dtype=torch.uint8),
        "bool": torch.tensor([True, False, True]),
        "scalar": torch.tensor(0.5),
        "empty": torch.zeros(0, 4),
    },
    here / "all_dtypes.safetensors",
    metadata={"format": "pt", "made by": "the reference"},
)

# Writes a base model in two shards: names without the prefix "transformer.".
base = here / "sharded"
base.mkdir(exist_ok=True)
shards = {
    "model-00001-of-00002.safetensors": {"wte.weight": numbers(torch.float32, 7, 4)},
    "model-00002-of-00002.safetensors": {
        "h.0.c_attn.weight": numbers(torch.float32, 4, 30),
        "h.0.attn.bias": torch.ones(1, 1, 2, 2),
        "ln_f.bias": numbers(torch.bfloat16, 4),
    },
}
for name, tensors in shards.items():
    save_file(tensors, base / name, metadata={"format": "pt"})
weight_map = {tensor: name for name, tensors in shards.items() for tensor in tensors}
(base / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}, indent=2))
(base / "config.json").write_text(json.dumps({"model_type": "toy", "unknown": [1, {"kept": None}]}))
