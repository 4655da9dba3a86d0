#!/usr/bin/env python3
"""Checks project rules that a compiler does not know. Prints each violation as file:line and fails if there is one.

  - A folder includes only the folders that LADDER lists, and a room (subfolder) only lower rooms of its folder, by the
    path from the root. No room has more than 15 concepts.
  - Neither .cu files nor files with oneDNN's headers include torch's headers, directly or through our own.
  - A test file x_test.cpp has its code in a namespace x_test, because the files of a test program are compiled together,
    and includes Catch2 as tests/catch.h.
  - The code without tests has at most 240 casts: types that agree need none, and a count that grows shows where they do
    not.
  - No hand-written source has more than 600 lines; sources other than Python are plain ASCII.
  - Outside tests, no two types of one namespace have the same name: the linker would keep the destructor of one.
  - No file has a merge conflict left in it.

  tools/check_layout.py [--self-test]
"""
import pathlib
import re
import subprocess
import sys
import tempfile

# What a folder of the top level may include besides itself: folders, or rooms of one.
LADDER = {
    "include": [],
    "core": [],
    "tensor_parallel": ["core"],
    "optim": ["core"],
    "pipeline": ["core"],
    "partitioner": ["core", "optim", "pipeline/schedule", "pipeline/activations"],
    "models": ["core", "tensor_parallel", "include/shardline"],
    "engine": ["core", "tensor_parallel", "optim", "pipeline", "partitioner", "models", "include/shardline"],
    "tools": ["core", "tensor_parallel", "optim", "pipeline", "partitioner", "models", "engine", "include/shardline"],
}
# The rooms of a folder from the bottom to the top. A room may include those of its own folder on lower floors, not those
# on its own floor.
ROOMS = {
    "include": ["shardline"],
    "core": ["core", "numbers files memory device cuda/twin", "flight", "model cuda", "comm", "comm/mpi comm/nccl"],
    "tensor_parallel": ["kernels products/onednn", "kernels/aten", "kernels/cuda", "products", "kernels/cpu ops"],
    "optim": ["flat", "update/cuda", "update"],
    "pipeline": ["schedule", "schedule/files schedule/pictures activations", "schedule/kinds run"],
    "partitioner": ["layout cut", "memory", "cost", "search"],
    "models": ["files graph program/ops", "program families", "program/layers program/trace program/masks",
               "program/split traced"],
    "engine": ["data/arrow data/compressed data/text observe metrics page", "config/keys data/tokenizer/steps observe/doctor", "data/tokenizer",
               "config/rules data/tokenizer/files data/source", "config data/cache data/tensors import/keys",
               "checkpoint data/examples import",
               "run", "plan",
               "data/dataset plan/report", "train tasks", "generate profile study serve/http", "serve/answers",
               "commands/parts launch report serve", "commands", "commands/serve", "api"],
}
MOST_CONCEPTS = 15  # per room: a header counts once, together with its sources and what only these have
CPP = {".h", ".cpp", ".cu", ".cuh"}
MOST_CASTS = 240  # in all of LADDER's folders
SOURCES = CPP | {".py", ".sh", ".cmake"}
LONGEST = 600

OWN_INCLUDE = re.compile(r'\s*#\s*include\s+"([^"]+)"')
TORCH_INCLUDE = re.compile(r'\s*#\s*include\s+[<"](ATen|c10|torch|caffe2)/')
CATCH_INCLUDE = re.compile(r'\s*#\s*include\s+[<"]catch2/')
CAST = re.compile(r"\b(?:static|reinterpret|const)_cast<")
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
            problems += test_files_apart(name, lines[name])
    return problems + crowded_rooms(names) + too_many_casts(lines) + types_defined_twice(lines)


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


def room_of(path):
    return str(pathlib.PurePath(path).parent)


def floors_of(folder):
    """The floor of each room of a folder, the lowest first."""
    return {room if room == folder else f"{folder}/{room}": floor
            for floor, rooms in enumerate(ROOMS.get(folder, [])) for room in rooms.split()}


def upward_includes(name, rows):
    folder = name.split("/")[0]
    if folder not in LADDER:  # tests and examples may see everything
        return []
    floors, room = floors_of(folder), room_of(name)
    if floors and room not in floors:
        return [f"{name}:1: {room} is not a room of {folder}; add it to ROOMS in tools/check_layout.py"]
    problems = []
    for number, row in enumerate(rows, 1):
        match = OWN_INCLUDE.match(row)
        if not match:
            continue
        target = match[1]
        place = f'{name}:{number}: includes "{target}"; '
        if target.startswith(folder + "/"):
            to = room_of(target)
            if to != room and floors and floors.get(to, len(floors)) >= floors[room]:
                problems.append(place + f"{to} is not below {room}")
        elif not any(target.startswith(allowed + "/") for allowed in LADDER[folder]):
            problems.append(place + f"{folder} may include only {', '.join([folder] + LADDER[folder])}")
    return problems


def types_of(rows):
    """Yields the line number and the qualified name of each type that other files can see."""
    spaces = []
    for number, row in enumerate(rows, 1):
        if opened := re.match(r"(?:inline )?namespace(?: ([\w:]+))? \{", row):
            spaces.append(opened[1])
        elif row.startswith("}  // namespace") and spaces:
            spaces.pop()
        elif (made := re.match(r"(?:struct|class|enum class) (\w+)(?: final)?(?: : [^;]*)? \{", row)) and all(spaces):
            yield number, "::".join([*spaces, made[1]])


def types_defined_twice(lines):
    places, problems = {}, []
    for name in sorted(lines):
        if name.split("/")[0] not in LADDER or pathlib.PurePath(name).suffix not in CPP:
            continue
        for number, made in types_of(lines[name]):
            if places.get(made, name) != name:
                problems.append(f"{name}:{number}: {made} is also a type in {places[made]}; rename one of them")
            places[made] = name
    return problems


def crowded_rooms(names):
    concepts = {}
    for name in names:
        path = pathlib.PurePath(name)
        if path.suffix in CPP and path.parts[0] in ROOMS:
            concepts.setdefault(room_of(name), set()).add(path.stem)
    return [f"{room}:1: {len(stems)} concepts, more than {MOST_CONCEPTS}; give some of them a room of their own"
            for room, stems in sorted(concepts.items()) if len(stems) > MOST_CONCEPTS]


def too_many_casts(lines):
    casts = dict.fromkeys(LADDER, 0)
    for name, rows in lines.items():
        path = pathlib.PurePath(name)
        if path.suffix in CPP and path.parts[0] in LADDER:
            casts[path.parts[0]] += sum(len(CAST.findall(row)) for row in rows)
    if sum(casts.values()) <= MOST_CASTS:
        return []
    by_folder = ", ".join(f"{count} in {folder}" for folder, count in casts.items())
    most = max(casts, key=casts.get)
    return [f"{most}:1: {sum(casts.values())} casts, more than {MOST_CASTS} ({by_folder}); make the types agree"]


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


def test_files_apart(name, rows):
    problems = [f"{name}:{number}: include tests/catch.h; torch's headers define CHECK, too"
                for number, row in enumerate(rows, 1) if CATCH_INCLUDE.match(row) and name != "tests/catch.h"]
    stem = pathlib.PurePath(name).stem
    own = re.compile(rf"namespace shardline(::\w+)*::{stem} {{$")
    if name.startswith("tests/") and stem.endswith("_test") and not any(own.match(row) for row in rows):
        problems.append(f"{name}:1: no namespace {stem}; this file is compiled together with others")
    return problems


def self_test():
    """Plants one violation of each kind, and similar code that is allowed."""
    planted = {
        "core/a.h": '#include <vector>\n',
        "core/memory/b.h": '#include <ATen/core/Tensor.h>\n',
        "core/files/a.h": '#include "core/memory/b.h"\n#include "core/a.h"\n',
        "core/model/a.h": '#include "core/memory/b.h"\n',
        "core/up.cpp": '#include "core/a.h"\n  # include "engine/train/trainer.h"\n',
        "core/relative.cpp": '#include "a.h"\n',
        "core/tested.cpp": '#include "tests/catch.h"\n',
        "core/attic/a.h": "\n",
        "optim/flat/side.h": '#include "pipeline/schedule/schedule.h"\n',
        "optim/flat/up.h": '#include "optim/update/adam.h"\n',
        "optim/update/fine.h": '#include "optim/flat/flat_layout.h"\n',
        "partitioner/cut/fine.cpp": '#include "pipeline/schedule/schedule.h"\n#include "core/a.h"\n',
        "partitioner/cut/executor.cpp": '#include "pipeline/run/executor.h"\n',
        "models/files/lookalike.cpp": '#include "core_of_another/a.h"\n',
        "engine/run/fine.cpp": '#include "models/families/gpt2.h"\n#include <vector>\n',
        "engine/run/up.cpp": '#include "tools/shardline.h"\n',
        "tests/core/fine.cpp": '#include "engine/train/trainer.h"\n',
        "tests/core/fine_test.cpp": '#include "tests/catch.h"\nnamespace shardline::mpi::fine_test {\n',
        "tests/core/catch_test.cpp": 'namespace shardline::catch_test {\n#include <catch2/catch.hpp>\n',
        "tests/core/open_test.cpp": 'using namespace shardline;\nnamespace {\n',
        "tensor_parallel/ops/direct.cu": '#include <torch/torch.h>\n',
        "tensor_parallel/ops/chain.cu": '#include "core/model/a.h"\n',
        "tensor_parallel/kernels/plain.h": '#include <cstdint>\n',
        "tensor_parallel/ops/fine.cu": '#include "tensor_parallel/kernels/plain.h"\n',
        "tensor_parallel/ops/dnnl.cpp": '#include <dnnl.hpp>\n#include "core/memory/b.h"\n',
        "tensor_parallel/ops/fine_dnnl.cpp": '#include <dnnl.hpp>\n#include "tensor_parallel/kernels/plain.h"\n',
        "pipeline/run/casts.cpp": "static_cast<A>(reinterpret_cast<B>(p))\n" * (MOST_CASTS // 2) + "const_cast<C>(p)\n",
        "tests/core/casts.cpp": "static_cast<int>(x)\n",
        "tools/long.sh": "\n" * 601,
        "tools/fine.sh": "\n" * 600,
        "core/accent.cpp": "// caf\u00e9\n",
        "tests/fine.py": "# caf\u00e9\n",
        "docs/fine.md": "caf\u00e9\n",
        "docs/merged.md": "\n" + "<" * 7 + " HEAD\n",
        "core/model/twin.h": "namespace shardline {\nstruct Twin {\n};\n}  // namespace shardline\n",
        "optim/update/twin.cpp": "namespace shardline {\nnamespace {\nstruct Twin {\n};\n}  // namespace\n"
                                 "class Twin : public A {\n};\n}  // namespace shardline\n",
    }
    planted.update({f"models/families/{number}.{kind}": "\n" for number in range(16) for kind in ("h", "cpp")})
    planted.update({f"models/graph/{number}.{kind}": "\n" for number in range(15) for kind in ("h", "cpp")})
    expected = [
        "docs/merged.md:2", "core/accent.cpp:1", "core/attic/a.h:1", "core/files/a.h:1", "core/relative.cpp:1",
        "core/tested.cpp:1", "core/up.cpp:2", "engine/run/up.cpp:1", "models/files/lookalike.cpp:1",
        "optim/flat/side.h:1", "optim/flat/up.h:1", "partitioner/cut/executor.cpp:1", "tensor_parallel/ops/chain.cu:1",
        "tensor_parallel/ops/direct.cu:1", "tensor_parallel/ops/dnnl.cpp:1", "tests/core/catch_test.cpp:2",
        "tests/core/open_test.cpp:1", "tools/long.sh:601", "models/families:1", "pipeline:1",
        "optim/update/twin.cpp:6",
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
