#!/usr/bin/env python3
"""The rules of the house that a compiler does not know. Prints each violation as file:line and fails if there is one.

  - A folder includes only what stands below it on the ladder, by the path from the root.
  - What nvcc or oneDNN's headers meet must not meet torch's: no .cu file and no file with dnnl headers reaches a torch
    header, directly or through our own.
  - No hand-written source has more than 600 lines; sources but Python's are plain ASCII.
  - No file has a merge conflict left in it.

  tools/check_layout.py [--self-test]
"""
import pathlib
import re
import subprocess
import sys
import tempfile

# Whom a folder may include besides itself: folders, or single headers.
LADDER = {
    "core": [],
    "tensor_parallel": ["core"],
    "optim": ["core"],
    "pipeline": ["core"],
    "partitioner": ["core", "pipeline/schedule"],
    "models": ["core", "tensor_parallel"],
    "engine": ["core", "tensor_parallel", "optim", "pipeline", "partitioner", "models"],
    "tools": ["core", "tensor_parallel", "optim", "pipeline", "partitioner", "models", "engine"],
}
CPP = {".h", ".cpp", ".cu", ".cuh"}
SOURCES = CPP | {".py", ".sh", ".cmake"}
LONGEST = 600

OWN_INCLUDE = re.compile(r'\s*#\s*include\s+"([^"]+)"')
TORCH_INCLUDE = re.compile(r'\s*#\s*include\s+[<"](ATen|c10|torch|caffe2)/')
DNNL_INCLUDE = re.compile(r'\s*#\s*include\s+[<"](oneapi/dnnl/|dnnl)')


def check(root, names):
    """The violations in the files `names` (relative to `root`), as lines of text."""
    texts = {name: (root / name).read_bytes() for name in names if pathlib.PurePath(name).suffix in SOURCES}
    lines = {name: text.decode("utf-8", "replace").splitlines() for name, text in texts.items()}
    problems = [problem for name in sorted(names) for problem in left_over_markers(name, (root / name).read_bytes())]
    for name in sorted(texts):
        problems += plain_and_short(name, texts[name])
        if pathlib.PurePath(name).suffix in CPP:
            problems += upward_includes(name, lines[name])
            problems += torch_where_it_must_not_be(name, lines)
    return problems


def left_over_markers(name, text):
    return [f"{name}:{number}: a marker of a merge conflict" for number, row in enumerate(text.split(b"\n"), 1)
            if row.startswith((b"<<<<<<< ", b">>>>>>> "))]


def plain_and_short(name, text):
    problems = []
    rows = text.split(b"\n")
    for number, row in enumerate(rows, 1):
        if not row.isascii() and not name.endswith(".py"):
            problems.append(f"{name}:{number}: a byte that is not ASCII; write an escape")
    length = len(rows) - 1 if text.endswith(b"\n") else len(rows)
    if length > LONGEST:
        problems.append(f"{name}:{LONGEST + 1}: {length} lines, more than {LONGEST}; split it by concept")
    return problems


def upward_includes(name, rows):
    folder = name.split("/")[0]
    if folder not in LADDER:  # tests and examples may see everything
        return []
    allowed = [folder] + LADDER[folder]
    problems = []
    for number, row in enumerate(rows, 1):
        match = OWN_INCLUDE.match(row)
        if not match:
            continue
        target = match[1]
        if not any(target == place or target.startswith(place + "/") for place in allowed):
            problems.append(f'{name}:{number}: includes "{target}"; {folder} may include only {", ".join(allowed)}')
    return problems


def torch_where_it_must_not_be(name, lines):
    if name.endswith((".cu", ".cuh")):
        reason = "nvcc"
    elif any(DNNL_INCLUDE.match(row) for row in lines[name]):
        reason = "oneDNN's headers"
    else:
        return []
    path = path_to_torch(name, lines, set())
    return [f"{name}:1: {reason} would meet torch headers: {' -> '.join(path)}"] if path else []


def path_to_torch(name, lines, seen):
    """The chain of our own files from `name` to a torch include, or None."""
    seen.add(name)
    for row in lines.get(name, []):
        if TORCH_INCLUDE.match(row):
            return [name, row.strip()]
        match = OWN_INCLUDE.match(row)
        if match and match[1] not in seen:
            path = path_to_torch(match[1], lines, seen)
            if path:
                return [name] + path
    return None


def self_test():
    """Plants one violation of each kind, and their lawful neighbours."""
    planted = {
        "core/a.h": '#include "core/b.h"\n',
        "core/b.h": '#include <ATen/core/Tensor.h>\n',
        "core/up.cpp": '#include "core/a.h"\n  # include "engine/train/trainer.h"\n',
        "core/relative.cpp": '#include "a.h"\n',
        "core/tested.cpp": '#include "tests/catch.h"\n',
        "optim/side.h": '#include "pipeline/schedule/schedule.h"\n',
        "partitioner/fine.cpp": '#include "pipeline/schedule/schedule.h"\n#include "core/a.h"\n',
        "partitioner/executor.cpp": '#include "pipeline/run/executor.h"\n',
        "models/lookalike.cpp": '#include "core_of_another/a.h"\n',
        "engine/fine.cpp": '#include "models/families/gpt2.h"\n#include <vector>\n',
        "engine/up.cpp": '#include "tools/shardline.h"\n',
        "tests/core/fine.cpp": '#include "engine/train/trainer.h"\n',
        "tensor_parallel/direct.cu": '#include <torch/torch.h>\n',
        "tensor_parallel/chain.cu": '#include "core/a.h"\n',
        "tensor_parallel/plain.h": '#include <cstdint>\n',
        "tensor_parallel/fine.cu": '#include "tensor_parallel/plain.h"\n',
        "tensor_parallel/dnnl.cpp": '#include <dnnl.hpp>\n#include "core/b.h"\n',
        "tensor_parallel/fine_dnnl.cpp": '#include <dnnl.hpp>\n#include "tensor_parallel/plain.h"\n',
        "tools/long.sh": "\n" * 601,
        "tools/fine.sh": "\n" * 600,
        "core/accent.cpp": "// caf\u00e9\n",
        "tests/fine.py": "# caf\u00e9\n",
        "docs/fine.md": "caf\u00e9\n",
        "docs/merged.md": "\n" + "<" * 7 + " HEAD\n",
    }
    expected = [
        "docs/merged.md:2", "core/accent.cpp:1", "core/relative.cpp:1", "core/tested.cpp:1", "core/up.cpp:2", "engine/up.cpp:1",
        "models/lookalike.cpp:1", "optim/side.h:1", "partitioner/executor.cpp:1", "tensor_parallel/chain.cu:1",
        "tensor_parallel/direct.cu:1", "tensor_parallel/dnnl.cpp:1", "tools/long.sh:601",
    ]
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in planted.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        problems = check(root, planted)
    found = [problem.split(": ")[0] for problem in problems]
    if found != expected:
        sys.exit(f"check_layout's self-test: expected {expected}, found {problems}")


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if sys.argv[1:]:
        sys.exit(__doc__)
    root = pathlib.Path(__file__).resolve().parent.parent
    listing = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=root,
                             check=True, capture_output=True).stdout.decode()
    problems = check(root, [name for name in listing.split("\0") if name and (root / name).is_file()])
    print("\n".join(problems + [f"layout: {len(problems)} violations"]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
