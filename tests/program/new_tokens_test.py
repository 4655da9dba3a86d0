"""Tokenizers with more tokens than the model has words: training adds rows to the embedding and to the parameters tied
to it."""
import json
import struct

from harness import ProgramTest, unittest

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] a film is good bad fine dull this that very not and the plot cast".split()
NEW = ["sequel", "prequel", "trailer"]
BERT = {"model_type": "bert", "vocab_size": len(WORDS), "hidden_size": 24, "num_hidden_layers": 3,
        "num_attention_heads": 3, "intermediate_size": 40, "max_position_embeddings": 40}
TENSORS = {"bert.embeddings.word_embeddings.weight": [24], "cls.predictions.bias": []}


class NewTokens(ProgramTest):
    def setUp(self):
        super().setUp()
        for name, words in {"tokenizer": WORDS, "larger": WORDS + NEW}.items():
            (self.dir / name).mkdir()
            (self.dir / name / "vocab.txt").write_text("\n".join(words) + "\n")
        lines = [" ".join(WORDS[5 + (i * k) % 15] for k in range(1, 3 + i % 9)) for i in range(120)]
        (self.dir / "text.txt").write_text("\n".join(lines) + "\n")
        lines = [line + " " + NEW[i % 3] for i, line in enumerate(lines)]
        (self.dir / "new.txt").write_text("\n".join(lines) + "\n")
        self.expect(0, "train", self.task({"config": BERT}, "tokenizer", "text.txt", output_dir="base"))

    def task(self, model, tokenizer, text, training=None, **sections):
        data = {"train": text, "validation": text, "max_eval_samples": 20, "line_by_line": True,
                "tokenizer": tokenizer, "sequence_length": 16}
        training = {"global_batch_size": 8, "max_steps": 4, "learning_rate": 3e-3, "do_eval": True, **(training or {})}
        config = self.config(task="masked-lm", data=data, training=training,
                             runtime={"dtype": "float64", "threads_per_rank": 1}, **sections)
        written = json.loads((self.dir / config).read_text())
        written["model"] = model
        (self.dir / config).write_text(json.dumps(written))
        return config

    def shapes(self, folder):
        with open(self.dir / folder / "model.safetensors", "rb") as file:
            header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        return {name: header[name]["shape"] for name in TENSORS}

    def test_layouts(self):
        """Losses are the same on every layout; the saved model has the rows, and needs no more to train."""
        curves = {}
        for name, layout in {"one": {}, "p": {"p": 2}, "t": {"t": 2}, "d": {"mpi_options": {"processes_per_host": 2}},
                             "all": {"p": 2, "t": 2, "communicator": "threads"}}.items():
            with self.subTest(name):
                config = self.task({"path": "base"}, "larger", "new.txt", output_dir=name, **layout)
                result = self.expect(0, "train", config)
                self.assertIn("cls.predictions.bias (20 -> 23)", result.out)
                self.assertIn("bert.embeddings.word_embeddings.weight (20 -> 23)", result.out)
                self.assertRegex(result.out, "(?m)^warning: the vocabulary grows from the 20 words of the model in base to "
                                             "the 23 of the tokenizer larger; ")
                curves[name] = [line.get("loss", line.get("eval_loss")) for line in self.metrics(name)]
                for got, expected in zip(curves[name], curves["one"], strict=True):
                    self.assertAlmostEqual(got, expected, delta=1e-9 * abs(expected))
                self.assertEqual(json.loads((self.dir / name / "config.json").read_text())["vocab_size"], 23)
                self.assertEqual(self.shapes(name), {tensor: [23] + rest for tensor, rest in TENSORS.items()})
        resolved = json.loads((self.dir / "one/config.resolved.json").read_text())
        self.assertEqual(resolved["model"]["config"]["vocab_size"], 23)
        result = self.expect(0, "eval", "one", "--set", "data.validation=new.txt", "--set", "data.tokenizer=larger",
                             "--set", "data.line_by_line=true", "--set", "data.max_eval_samples=20", "--set",
                             "data.sequence_length=16")
        self.assertAlmostEqual(json.loads(result.out.splitlines()[-1])["eval_loss"], curves["one"][-1], 5)
        result = self.expect(0, "train", self.task({"path": "one"}, "larger", "new.txt", output_dir="again"))
        self.assertNotIn("around the mean", result.out)
        self.assertNotIn("the vocabulary grows", result.out)

    def test_resume(self):
        """A checkpoint has the rows, so a run continues with the same bits, even on another layout."""
        saving = {"max_steps": 6, "save_steps": 3}
        self.expect(0, "train", self.task({"path": "base"}, "larger", "new.txt", saving, output_dir="whole"))
        for name, layout in {"same": {}, "other": {"t": 2}}.items():
            self.expect(0, "train", self.task({"path": "base"}, "larger", "new.txt",
                                              {**saving, "resume_from_checkpoint": "whole/checkpoint-3"},
                                              output_dir=name, **layout))
            for got, expected in zip(self.metrics(name), self.metrics("whole")[3:], strict=True):
                value = "loss" if "loss" in got else "eval_loss"
                self.assertAlmostEqual(got[value], expected[value], delta=0 if name == "same" else 1e-9)
        # Without the new tokens, the model is a different one.
        self.expect(1, "train", self.task({"path": "base"}, "tokenizer", "text.txt",
                                          {**saving, "resume_from_checkpoint": "whole/checkpoint-3",
                                           "resume_with_changes": True}, output_dir="fewer"), says="shape")

    def test_refused(self):
        """Only training adds rows, and only to a model whose vocab_size the config does not set."""
        use = ["--set", "data.tokenizer=larger", "--set", "data.sequence_length=16", "--set", "data.line_by_line=true"]
        self.expect(2, "eval", "base", "--set", "data.validation=new.txt", *use,
                    says=["/data/tokenizer", "ids up to 22", "train the model with this tokenizer first"])
        self.expect(2, "predict", "base", "--set", "data.test=new.txt", *use, says=["/data/tokenizer"])
        self.expect(2, "eval", "base", "--set", "data.validation=new.txt", "--set", "model.config.vocab_size=23", *use,
                    says=["/model/config/vocab_size", "(20 -> 23)"])
        self.expect(2, "train", self.task({"path": "base", "config": {"vocab_size": 20}}, "larger", "new.txt"),
                    says=["/data/tokenizer", "set model.config.vocab_size to at least 23"])
        self.expect(2, "train", self.task({"path": "base", "config": {"vocab_size": 19}}, "tokenizer", "text.txt"),
                    says=["vocab_size"])


if __name__ == "__main__":
    unittest.main()
