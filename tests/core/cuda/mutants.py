#!/usr/bin/env python3
"""Plants faults into the CUDA kernels, one at a time, and fails if the tests of the host twins do not notice one.

  mutants.py KERNELS COMPILER ROOT FOLDER LIBRARY... -- OBJECT...
  mutants.py --check ROOT               only whether the sources have the code that the faults change

KERNELS: the folder of kernels, below ROOT; FOLDER: for what is compiled; LIBRARY: the twins without faults and what
they need; OBJECT: the tests.
"""
import pathlib
import subprocess
import sys

ATTENTION = ["attention_kernels.cu", "attention_backward_kernels.cu"]
# By folder: what is wrong, where, the right and the wrong code, and the sources to compile if that is not the file
# itself.
FAULTS = {"tensor_parallel/kernels/cuda": [
    ("the mask of attention is one key off", "attention_kernels.h", "4 * (lane_index() % 4)) / 4",
     "4 * (lane_index() % 4) + 4) / 4", ATTENTION),
    ("the mask of the backward pass belongs to the next query", "attention_kernels.h", "query = 2 * (lane_index() % 4)",
     "query = 1 + 2 * (lane_index() % 4)", ATTENTION),
    ("lanes exchange the words of the wrong query", "attention_kernels.h", "even.word[j] = is_odd ? theirs : mine",
     "even.word[j] = is_odd ? mine : theirs", ATTENTION),
    ("keys have places in the order of another product", "attention_tiles.h", "key % 4 / 2 * 8 + key % 16 / 4 * 2",
     "key % 4 / 2 * 2 + key % 16 / 4 * 4", ATTENTION),
    ("a key sees the query before it", "attention_kernels.cu", "> last + i / 2 * 8", "> 1 + last + i / 2 * 8"),
    ("a barrier is missing before tiles change", "attention_tiles.h",
     "sync_block();  // no warp needs the previous tile any longer\n", "\n", ATTENTION),
    ("a wait for the copies of a tile is missing", "attention_tiles.h",
     "    wait_for_copies();\n    sync_block();  // all", "    sync_block();  // all", ATTENTION),
    ("a barrier is missing after copies have arrived", "attention_tiles.h", "    sync_block();  // all copies",
     "    // all copies", ATTENTION),
    ("the next tile is copied to the one in use", "attention_tiles.h", "start(row + T::kColumns, 1 - buffer)",
     "start(row + T::kColumns, buffer)", ATTENTION),
    ("values are those of another tile", "attention_kernels.cu", "seen.second_tile(buffer)", "seen.second_tile(0)"),
    ("the queries' sums are those of another tile", "attention_backward_kernels.cu",
     "const int place = buffer * T::kQuerySums", "const int place = 0 * T::kQuerySums"),
    ("a launch has more threads than its kernel declares", "attention_kernels.cu", ".threads = T::kThreads,",
     ".threads = T::kThreads + kWarp,"),
    ("an operand of the tensor cores is read without transposing", "attention_tiles.h", "load_matrices<true>(right",
     "load_matrices<false>(right", ATTENTION),
    ("the mask of dropout is one element off", "dropout_kernels.cu",
     "const uint64_t element = start_ + column;", "const uint64_t element = start_ + column + 1;"),
    ("a mask is counted in 32 bits", "dropout_kernels.cu", "words_.block(element / 4)",
     "words_.block(static_cast<uint32_t>(element / 4))"),
    ("the mask of attention is counted in 32 bits", "attention_kernels.h", "uint64_t{upper} << 32 | lower", "lower",
     ATTENTION),
    ("a mask that is computed one by one is counted in 32 bits", "attention_kernels.h", "words_.block(e / 4, keys_)",
     "words_.block(static_cast<uint32_t>(e / 4), keys_)", ATTENTION),
    ("the upper half of a block's number is taken for that of all queries", "attention_kernels.h", "return aligned_ && ",
     "return aligned_ || ", ATTENTION),
    ("a tile's row is found by 32 bits", "attention_tiles.h", "from_ + first * stride_",
     "from_ + static_cast<int>(first * stride_)", ATTENTION),
    ("a row of logits is found by 32 bits", "cross_entropy_kernels.cu",
     "static_cast<const S*>(a.logits) + row * a.row_stride", "static_cast<const S*>(a.logits) + static_cast<int>(row * a.row_stride)"),
    ("padding is dropped", "dropout_kernels.cu", "token >= m.rows.tokens", "token > m.rows.tokens"),
    ("a row is written past its end", "dropout_kernels.cu", "  if (column >= n) return;\n  float factor",
     "  if (column > n) return;\n  float factor"),
    ("sums of two rows share their place", "norm_kernels.cu", "turn ^= 1", "turn ^= 0"),
    ("the sum over a warp is taken for that over the block", "norm_kernels.cu", "warp < warps", "warp < 1"),
    ("an RMS norm has the gradient of a mean", "norm_kernels.cu", "a.mean != nullptr ? sum / count : 0.0f",
     "sum / count"),
    ("gradients of padding are added", "norm_kernels.cu", "row < a.valid_rows", "row <= a.valid_rows"),
    ("the last row of a sum is left out", "row_sums.cu", "row < rows;", "row + 1 < rows;"),
    ("the sum of a warp is left out", "row_sums.cu", "int stripe = 0;", "int stripe = 1;"),
    ("the label's logit is read after the gradient took its place", "cross_entropy_kernels.cu",
     "a.loss[row] = log_sum_exp - number(logits[label]);", "a.loss[row] = log_sum_exp - number(logits[0]);"),
    ("the last columns of a vocabulary are left out", "cross_entropy_kernels.cu", "if (last < v)", "if (last + 1 < v)"),
    ("an odd column has the bias of its neighbour", "activation_kernels.cu", "shift = load<kV>(bias + column);\n  SHARD",
     "shift = load<kV>(bias + (column > 0 ? column - 1 : 0));\n  SHARD"),
    ("a pair turns by the angle of the next", "rotary_kernels.cu", "sign * sine[pair]",
     "sign * sine[(pair + 1) % a.pairs]"),
], "optim/update/cuda": [
    ("the copy in half precision is of something else", "adam.cu", "stored<S>(value.value[j])",
     "stored<S>(m.value[j])"),
    ("the copy in half precision begins one element late", "adam.cu", "store<4>(rounded + i, copy)",
     "store<4>(rounded + i + 4, copy)"),
    ("what is left of 1 without beta2 is computed in fp32", "adam.cu", "f.rest2 * g * g", "(1.0f - f.beta2) * g * g"),
    ("the clip factor on the device is not used", "adam.cu",
     "f.device_gradient != nullptr ? *f.device_gradient : f.gradient", "f.gradient"),
    ("the first block of a range updates the range before", "adam.cu", "first_block[middle] <= block_x()",
     "first_block[middle] < block_x()"),
    ("weights decay that should not", "adam.cu", "range.decays ? f.decay : 0.0f", "f.decay"),
    ("the sums of one lane are left out", "exact_squares.cu", "place < kPlaces; ++place", "place + 1 < kPlaces; ++place"),
    ("a barrier is missing before the lanes' sums are added", "exact_squares.cu",
     "  sync_block();\n  if (thread_index() < kWords) {\n    Word sum", "  if (thread_index() < kWords) {\n    Word sum"),
    ("the clip factor loses what one word carries to the next", "exact_squares.cu", "carried >>= kBits", "carried = 0"),
    ("the clip factor is of the scaled norm", "exact_squares.cu", "/ a.scale + 1e-6", "+ 1e-6"),
]}
FLAGS = ["-std=c++20", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-xc++", "-c"]


def planted(root, kernels, fault):
    """Returns the text of a source with a fault."""
    what, file, right, wrong, *_ = fault
    text = (root / kernels / file).read_text()
    if text.count(right) != 1:
        sys.exit(f"{what}: {file} has the code to change {text.count(right)} times; bring this list up to date")
    return text.replace(right, wrong)


def notices(kernels, compiler, root, folder, libraries, objects, fault):
    what, file, _, _, *sources = fault
    changed = folder / kernels / file
    changed.parent.mkdir(parents=True, exist_ok=True)
    changed.write_text(planted(root, kernels, fault))
    made = []
    try:
        for source in sources[0] if sources else [file]:
            place = folder / kernels / source
            path = place if place.exists() else root / kernels / source
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
    if sys.argv[1] == "--check":
        for kernels, faults in FAULTS.items():
            for fault in faults:
                planted(pathlib.Path(sys.argv[2]), kernels, fault)
        return
    split = sys.argv.index("--")
    kernels, compiler, root, folder, *libraries = sys.argv[1:split]
    arguments = (kernels, compiler, pathlib.Path(root), pathlib.Path(folder), libraries, sys.argv[split + 1:])
    results = [notices(*arguments, fault) for fault in FAULTS[kernels]]
    sys.exit(0 if all(results) else 1)


main()
