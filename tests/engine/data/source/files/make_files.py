#!/usr/bin/env python3
"""Makes the files in this folder, from which the unit tests read rows: pip install pyarrow==26.0.1 datasets==5.2.0

  python3 make_files.py
"""
import decimal
import json
import pathlib
import shutil

import datasets
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq

HERE = pathlib.Path(__file__).parent

# A column of every type that becomes a value of JSON; the test has the same rows as JSON Lines.
TYPES = pa.table({
    "text": pa.array(["a", None, "\u00fc\"\n"], pa.string()),
    "large_text": pa.array(["b", "", None], pa.large_string()),
    "coded": pa.array(["x", "y", "x"]).dictionary_encode(),
    "i8": pa.array([-1, 2, None], pa.int8()),
    "i16": pa.array([-300, 2, 3], pa.int16()),
    "i32": pa.array([-70000, 2, 3], pa.int32()),
    "i64": pa.array([-(2**40), 2, 3], pa.int64()),
    "u8": pa.array([200, 2, 3], pa.uint8()),
    "u16": pa.array([60000, 2, 3], pa.uint16()),
    "u32": pa.array([4000000000, 2, 3], pa.uint32()),
    "u64": pa.array([2**64 - 1, 2, 3], pa.uint64()),
    "f16": pa.array([0.5, 1.0, None], pa.float16()),
    "f32": pa.array([0.25, float("nan"), 3.0], pa.float32()),
    "f64": pa.array([0.1, float("inf"), 3.0], pa.float64()),
    "flag": pa.array([True, False, None], pa.bool_()),
    "list": pa.array([[1, 2], [], None], pa.list_(pa.int32())),
    "large_list": pa.array([["p"], [None], ["q", "r"]], pa.large_list(pa.string())),
    "pair": pa.array([[1.5, 2.5], [0.0, 1.0], [3.0, 4.0]], pa.list_(pa.float32(), 2)),
    "answers": pa.array([{"text": ["t"], "answer_start": [4]}, {"text": [], "answer_start": []}, None],
                        pa.struct({"text": pa.list_(pa.string()), "answer_start": pa.list_(pa.int32())})),
    "price": pa.array([decimal.Decimal("1.50"), None, None], pa.decimal128(6, 2)),
    "day": pa.array([1, None, None], pa.date32()),
})


def write_types():
    # Row groups of one row, so that a reader has to go from one to the next.
    pq.write_table(TYPES, HERE / "types.parquet", row_group_size=1)
    for codec in ["none", "snappy", "gzip", "zstd", "lz4"]:
        table = pa.table({"text": [f"text {i} " * 20 for i in range(3)], "label": [0, 1, 2]})
        pq.write_table(table, HERE / f"codec-{codec}.parquet", compression=codec, row_group_size=2)
    with pa.OSFile(str(HERE / "types-stream.arrow"), "wb") as out, pa.ipc.new_stream(out, TYPES.schema) as stream:
        stream.write_table(TYPES, max_chunksize=2)
    feather.write_feather(TYPES, HERE / "types.feather", compression="lz4")


def write_datasets():
    features = datasets.Features({
        "sentence": datasets.Value("string"),
        "label": datasets.ClassLabel(names=["positive", "negative", "mixed"]),
        "tokens": datasets.Sequence(datasets.Value("string")),
        "tags": datasets.Sequence(datasets.ClassLabel(names=["O", "B-X"])),
    })

    def rows(begin, end):
        return datasets.Dataset.from_dict({
            "sentence": [f"sentence {i}" for i in range(begin, end)],
            "label": [i % 2 for i in range(begin, end)],
            "tokens": [[f"word{i}", "."] for i in range(begin, end)],
            "tags": [[1, 0] for _ in range(begin, end)],
        }, features=features)

    folder = HERE / "saved"
    shutil.rmtree(folder, ignore_errors=True)
    splits = datasets.DatasetDict({"train": rows(0, 6), "validation": rows(6, 8)})
    splits.save_to_disk(folder, num_shards={"train": 2, "validation": 1})
    rows(0, 6).to_parquet(HERE / "features.parquet")
    # The same rows; Python has no zstd of its own before 3.14.
    lines = "".join(json.dumps(row) + "\n" for row in rows(0, 6))
    with pa.output_stream(str(HERE / "features.jsonl.zst"), compression="zstd") as out:
        out.write(lines.encode())


write_types()
write_datasets()
