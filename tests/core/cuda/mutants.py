#!/usr/bin/env python3
"""Plants faults into the CUDA kernels, one at a time, and fails for one that the tests of the host twins do not notice.

  mutants.py COMPILER ROOT FOLDER LIBRARY... -- OBJECT...

FOLDER: for what is compiled; LIBRARY: the twins without faults and what they need; OBJECT: the tests.
"""
import pathlib
import subprocess
import sys

KERNELS = "tensor_parallel/kernels/cuda/"
ATTENTION = ["attention_kernels.cu", "attention_backward_kernels.cu"]
# What is wrong, where, the right and the wrong code, and the sources to compile where that is not the file itself.
FAULTS = [
    ("the mask of attention is one key off", "attention_tiles.h", "four(query + g + t % 2 * 8, key + t / 2 * 4)",
     "four(query + g + t % 2 * 8, key + t / 2 * 4 + 4)", ATTENTION),
    ("the mask of the backward pass belongs to the next query", "attention_tiles.h", "four(query + 2 * t + turn % 2,",
     "four(query + 2 * t + 1 - turn % 2,", ATTENTION),
    ("a key sees the query before it", "attention_kernels.cu", "2 * t + i % 2 <= first", "2 * t + i % 2 <= 1 + first"),
    ("a barrier is missing before tiles change", "attention_backward_kernels.cu",
     "    sync_block();\n    load_tile<T, T::kColumns>(queries", "    load_tile<T, T::kColumns>(queries"),
    ("a barrier is missing after tiles are loaded", "attention_kernels.cu",
     "    sync_block();\n    float score", "    float score"),
    ("an operand of the tensor cores is read without transposing", "attention_tiles.h", "load_matrices<true>(right",
     "load_matrices<false>(right", ATTENTION),
    ("the mask of dropout is one element off", "dropout_kernels.cu",
     "const uint64_t element = start_ + static_cast<uint64_t>(column);",
     "const uint64_t element = start_ + static_cast<uint64_t>(column) + 1;"),
    ("padding is dropped", "dropout_kernels.cu", "token >= m.rows.tokens", "token > m.rows.tokens"),
    ("a row is written past its end", "dropout_kernels.cu", "  if (column >= n) return;\n  float factor",
     "  if (column > n) return;\n  float factor"),
    ("sums of two rows share their place", "norm_kernels.cu", "turn ^= 1", "turn ^= 0"),
    ("the sum over a warp is taken for that over the block", "norm_kernels.cu", "warp < warps", "warp < 1"),
    ("gradients of padding are added", "norm_kernels.cu", "row < a.valid_rows", "row <= a.valid_rows"),
    ("the last block of rows is left out", "row_sums.cu", "i < a.blocks", "i + 1 < a.blocks"),
    ("the label's logit is read after the gradient took its place", "cross_entropy_kernels.cu",
     "a.loss[row] = log_sum_exp - number(logits[label]);", "a.loss[row] = log_sum_exp - number(logits[0]);"),
    ("an odd column has the bias of its neighbour", "activation_kernels.cu", "shift = load<kV>(bias + column);\n  SHARD",
     "shift = load<kV>(bias + (column > 0 ? column - 1 : 0));\n  SHARD"),
    ("a pair turns by the angle of the next", "rotary_kernels.cu", "pair = i % a.pairs", "pair = (i + 1) % a.pairs"),
]
FLAGS = ["-std=c++20", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-xc++", "-c"]


def notices(compiler, root, folder, libraries, objects, fault):
    what, file, right, wrong, *sources = fault
    text = (root / KERNELS / file).read_text()
    if text.count(right) != 1:
        sys.exit(f"{what}: {file} has the code to change {text.count(right)} times; bring this list up to date")
    changed = folder / KERNELS / file
    changed.parent.mkdir(parents=True, exist_ok=True)
    changed.write_text(text.replace(right, wrong))
    made = []
    try:
        for source in sources[0] if sources else [file]:
            place = folder / KERNELS / source
            path = place if place.exists() else root / KERNELS / source
            made.append(str(folder / (source + ".o")))
            subprocess.run([compiler, *FLAGS, f"-I{folder}", f"-I{root}", str(path), "-o", made[-1]], check=True)
    finally:
        changed.unlink()
    program = str(folder / "mutant")
    subprocess.run([compiler, "-fsanitize=address,undefined", *made, *objects, *libraries, "-o", program], check=True)
    run = subprocess.run([program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
    print(("noticed: " if run.returncode else "NOT NOTICED: ") + what, flush=True)
    return run.returncode != 0


def main():
    split = sys.argv.index("--")
    compiler, root, folder, *libraries = sys.argv[1:split]
    arguments = (compiler, pathlib.Path(root), pathlib.Path(folder), libraries, sys.argv[split + 1:])
    results = [notices(*arguments, fault) for fault in FAULTS]
    sys.exit(0 if all(results) else 1)


main()
