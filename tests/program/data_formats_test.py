"""The same rows in other kinds of files give the same run: compressed texts, Parquet and data sets saved by `datasets`.
Also splits of folders, mixtures of files with weights, and the counts of labels."""
import gzip
import json
import pathlib
import shutil

from harness import ProgramTest, unittest

FILES = pathlib.Path(__file__).parent.parent / "engine/data/source/files"  # made by make_files.py there
BERT = {"model_type": "bert", "vocab_size": 256, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
        "intermediate_size": 16, "max_position_embeddings": 64}
GPT2 = {"model_type": "gpt2", "vocab_size": 256, "n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 16}
ROWS = [{"sentence": f"sentence {i}", "label": i % 2, "tokens": [f"word{i}", "."], "tags": [1, 0]} for i in range(6)]
TASKS = {
    "sequence-classification": ({**BERT, "num_labels": 3}, {"text_column": "sentence", "sequence_length": 32}),
    "token-classification": ({**BERT, "num_labels": 2}, {"label_column": "tags", "sequence_length": 32}),
    "causal-lm": (GPT2, {"text_column": "sentence", "sequence_length": 8}),
}


def json_lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


class DataFormats(ProgramTest):
    def setUp(self):
        super().setUp()
        (self.dir / "rows.jsonl").write_text(json_lines(ROWS))
        (self.dir / "rows.jsonl.gz").write_bytes(gzip.compress(json_lines(ROWS).encode()))

    def run_of(self, task, train, model=None, data=None, **sections):
        keys, columns = TASKS[task]
        training = {"global_batch_size": 2, "max_steps": 8, "learning_rate": 1e-2, "overwrite_output_dir": True,
                    "logging_steps": 1, **sections.pop("training", {})}
        return self.config(task=task, model={"config": model or keys, "init": "random"},
                           data={"tokenizer": "bytes", "train": train, **columns, **(data or {})}, training=training,
                           **sections)

    def losses(self):
        return [line["loss"] for line in self.metrics() if "loss" in line]

    def require_arrow(self):
        result = self.run_program("train", self.run_of("causal-lm", str(FILES / "features.parquet")))
        if result.code != 0 and "Apache Arrow's libraries" in result.err:
            self.skipTest("this build does not read Parquet")

    def test_same_losses(self):
        """Every format of the same rows gives the same bits."""
        self.require_arrow()
        files = {"gzip": "rows.jsonl.gz", "zstd": str(FILES / "features.jsonl.zst"),
                 "Parquet": str(FILES / "features.parquet"), "shards of Arrow": str(FILES / "saved/train"),
                 "a dictionary of splits": str(FILES / "saved")}
        for task in TASKS:
            self.expect(0, "train", self.run_of(task, "rows.jsonl"))
            expected = self.losses()
            self.assertEqual(len(expected), 8)
            for name, path in files.items():
                with self.subTest(task, file=name):
                    self.expect(0, "train", self.run_of(task, path))
                    self.assertEqual(self.losses(), expected)

    def test_names_of_labels(self):
        """The names of a ClassLabel become those of the model, in their order, and the counts are printed."""
        self.require_arrow()
        result = self.expect(0, "train", self.run_of("sequence-classification", str(FILES / "saved"), model=BERT,
                                                     data={"validation": str(FILES / "saved")},
                                                     training={"do_eval": True}))
        self.assertIn("positive 3 (50.0 %), negative 3 (50.0 %), mixed 0 (0.0 %)", result.out)
        saved = json.loads((self.dir / "out/config.json").read_text())
        self.assertEqual(saved["id2label"], {"0": "positive", "1": "negative", "2": "mixed"})
        self.assertIn(self.metrics()[-1]["eval_accuracy"], (0, 0.5, 1))  # the split has two rows

    def test_changed_data(self):
        """A run does not resume when the contents of its compressed file have changed."""
        training = {"max_steps": 4, "save_steps": 2, "save_strategy": "steps"}
        self.expect(0, "train", self.run_of("causal-lm", "rows.jsonl.gz", training=training))
        (self.dir / "rows.jsonl.gz").write_bytes(gzip.compress(json_lines(ROWS[1:] + ROWS[:1]).encode()))
        self.expect(2, "train", self.run_of("causal-lm", "rows.jsonl.gz", output_dir="other",
                                            training={**training, "resume_from_checkpoint": "out/checkpoint-2"}),
                    says="data")

    def test_damaged_files(self):
        """A damaged archive ends a run with an error that names it."""
        good = (self.dir / "rows.jsonl.gz").read_bytes()
        (self.dir / "cut.jsonl.gz").write_bytes(good[:-9])
        for task in TASKS:
            self.expect(1, "train", self.run_of(task, "cut.jsonl.gz"), says=["cut.jsonl.gz", "ends too early"])
        shutil.copy(self.dir / "rows.jsonl", self.dir / "plain.jsonl.gz")
        self.expect(1, "train", self.run_of("causal-lm", "plain.jsonl.gz"), says=["plain.jsonl.gz", "does not begin"])

    def test_mixtures(self):
        """Weights determine the shares; an interrupted mixture continues with the same samples."""
        (self.dir / "a.jsonl").write_text(json_lines(ROWS[:2]))
        (self.dir / "b.jsonl").write_text(json_lines(ROWS[2:]))
        data = {"train_weights": [3, 1]}
        for task in ("sequence-classification", "causal-lm"):
            training = {"max_steps": 12, "save_steps": 5, "save_strategy": "steps", "dataloader_drop_last": False}
            run = dict(train=["a.jsonl", "b.jsonl"], data=data, training=training)
            result = self.expect(0, "train", self.run_of(task, **run))
            self.assertIn("b.jsonl: ", result.out)
            self.assertIn("of an epoch (", result.out)
            if task == "causal-lm":
                self.assertRegex(result.out, r"data +a.jsonl: \d+ blocks of .*, b.jsonl: \d+ blocks of .* left over")
            with self.subTest(task, files=1):  # a weight changes nothing
                self.expect(0, "train", self.run_of(task, ["rows.jsonl"], data={"train_weights": [2]},
                                                    output_dir="one"))
                self.assertTrue(any("loss" in line for line in self.metrics("one")))
            expected = self.losses()
            again = dict(training, resume_from_checkpoint="out/checkpoint-5")
            for layout in ({}, {"mpi_options": {"processes_per_host": 2}, "communicator": "threads"}):
                with self.subTest(task, layout=layout):
                    self.expect(0, "train", self.run_of(task, **{**run, "training": again}, output_dir="again",
                                                        **layout))
                    lines = [line["loss"] for line in self.metrics("again") if "loss" in line]
                    for got, wanted in zip(lines, expected[5:], strict=True):
                        self.assertAlmostEqual(got, wanted, delta=1e-5 * wanted)
        self.expect(2, "train", self.run_of("causal-lm", ["a.jsonl", "b.jsonl"], data={"train_weights": [1]}),
                    says="/data/train_weights: must have a number for each of the 2 files")


if __name__ == "__main__":
    unittest.main()
