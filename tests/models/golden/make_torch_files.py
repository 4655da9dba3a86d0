"""Makes the files of torch.save with the reference implementation: python make_torch_files.py (torch 2.x)."""
import collections
import json
import pathlib

import torch

here = pathlib.Path(__file__).parent / "torch"


def numbers(dtype, *shape):
    count = torch.Size(shape).numel()
    return torch.arange(count, dtype=torch.float64).reshape(shape).sub(3).to(dtype)


# Every dtype, tensors that share a storage, views with strides and offsets, 0-d and empty tensors, a parameter.
wte, base = numbers(torch.float32, 7, 4), numbers(torch.float32, 4, 6)
state = collections.OrderedDict(
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
        "wte.weight": wte,
        "lm_head.weight": wte,
        "base": base,
        "part": base[1:3, 2:5],
        "transposed": base.t(),
        "expanded": numbers(torch.float32, 3).expand(2, 3),
        "parameter": torch.nn.Parameter(numbers(torch.float32, 2, 2)),
    }
)
state._metadata = collections.OrderedDict({"": {"version": 1}, "wte": {"version": 1}})
here.mkdir(exist_ok=True)
for protocol in (2, 3, 4, 5):
    torch.save(state, here / f"archive_{protocol}.bin", pickle_protocol=protocol)
    torch.save(state, here / f"older_{protocol}.bin", pickle_protocol=protocol, _use_new_zipfile_serialization=False)

# The base model of make_golden.py, one shard in each format, with a tensor that is transposed in its storage.
base = here / "sharded"
base.mkdir(exist_ok=True)
shards = {
    "pytorch_model-00001-of-00002.bin": {"wte.weight": numbers(torch.float32, 7, 4)},
    "pytorch_model-00002-of-00002.bin": {
        "h.0.c_attn.weight": numbers(torch.float32, 4, 30).t().contiguous().t(),
        "h.0.attn.bias": torch.ones(1, 1, 2, 2),
        "ln_f.bias": numbers(torch.bfloat16, 4),
    },
}
for number, (name, tensors) in enumerate(shards.items()):
    torch.save(tensors, base / name, _use_new_zipfile_serialization=number == 0)
weight_map = {tensor: name for name, tensors in shards.items() for tensor in tensors}
(base / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}, indent=2))
(base / "config.json").write_text(json.dumps({"model_type": "toy", "unknown": [1, {"kept": None}]}))
