"""Training on parts of texts: masked words (text by lines and in chunks, layouts, resuming, evaluation, filling in words)
and completions of prompts."""
import json
import random

from harness import ProgramTest, unittest

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] a film is good ##ly bad fine ##st dull this that very".split()
CYCLE = "a film is goodly bad finest dull this".split()  # each word determines the next one
BERT = {"model_type": "bert", "vocab_size": len(WORDS), "hidden_size": 24, "num_hidden_layers": 2,
        "num_attention_heads": 3, "intermediate_size": 40, "max_position_embeddings": 40}


def texts(count, seed):
    draw = random.Random(seed)
    for _ in range(count):
        first = draw.randrange(len(CYCLE))
        yield " ".join(CYCLE[(first + i) % len(CYCLE)] for i in range(draw.randrange(3, 14)))


class MaskedLm(ProgramTest):
    def setUp(self):
        super().setUp()
        (self.dir / "tokenizer").mkdir()
        (self.dir / "tokenizer/vocab.txt").write_text("\n".join(WORDS) + "\n")
        (self.dir / "train.txt").write_text("\n".join(texts(150, 1)) + "\n")
        (self.dir / "validation.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts(41, 2)))

    def task(self, name="config.json", **sections):
        data = {"train": "train.txt", "validation": "validation.jsonl", "tokenizer": "tokenizer", "line_by_line": True,
                "sequence_length": 20, **sections.pop("data", {})}
        training = {"global_batch_size": 16, "max_steps": 25, "learning_rate": 5e-3, "do_eval": True,
                    "overwrite_output_dir": True, **sections.pop("training", {})}
        return self.config(name, task="masked-lm", model={"config": dict(BERT, **sections.pop("keys", {}))}, data=data,
                           training=training, **sections)

    def numbers(self, folder="out"):
        return [line.get("loss", line.get("eval_loss")) for line in self.metrics(folder)]

    def test_layouts(self):
        """Masks, losses and metrics are the same on every layout."""
        runs = {}
        for name, sections in {"one": {}, "p": {"p": 2}, "t": {"t": 2}, "d": {"mpi_options": {"processes_per_host": 3}},
                               "all": {"p": 2, "t": 2, "communicator": "threads"}}.items():
            with self.subTest(name):
                training = {"global_batch_size": 18} if name == "d" else {}
                reference = "one of 18" if name == "d" else "one"
                if reference not in runs:
                    self.expect(0, "train", self.task(runtime={"dtype": "float64"}, training=training))
                    runs[reference] = self.numbers(), self.metrics()[-1]
                self.expect(0, "train", self.task(runtime={"dtype": "float64"}, training=training, **sections))
                for got, expected in zip(self.numbers(), runs[reference][0], strict=True):
                    self.assertAlmostEqual(got, expected, delta=1e-9 * abs(expected))
                self.assertEqual(self.metrics()[-1]["eval_accuracy"], runs[reference][1]["eval_accuracy"])

    def test_life_of_a_model(self):
        """A run learns, and continues like an uninterrupted one; its model is evaluated with the same masks and fills
        in words."""
        training = {"max_steps": 400, "save_steps": 250, "lr_scheduler_type": "constant", "learning_rate": 3e-3}
        keys = {"hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0, "initializer_range": 0.1}
        self.expect(0, "train", self.task(training=training, keys=keys))
        last = self.metrics()[-1]
        self.assertGreater(last["eval_accuracy"], 0.8)
        self.assertAlmostEqual(last["eval_perplexity"], 2.718281828459045 ** last["eval_loss"], 6)
        self.expect(0, "train", self.task(training=dict(training, resume_from_checkpoint="out/checkpoint-250"),
                                          keys=keys, output_dir="continued"))
        self.assertEqual(self.numbers("continued"), self.numbers()[250:])  # from a different epoch on
        self.expect(2, "train", self.task(training=dict(training, resume_from_checkpoint="out/checkpoint-250"),
                                          keys=keys, data={"mlm_probability": 0.2}, output_dir="other"),
                    says=["/data/mlm_probability: 0.15 in the checkpoint, 0.2 now"])
        options = ["--set", "data.tokenizer=tokenizer", "--set", "data.sequence_length=20", "--set",
                   "data.line_by_line=true"]
        result = self.expect(0, "eval", "out", "--set", "data.validation=validation.jsonl", *options)
        again = json.loads(result.out.splitlines()[-1])
        self.assertEqual(again["eval_samples"], 41)
        self.assertEqual(again["eval_accuracy"], last["eval_accuracy"])
        self.assertAlmostEqual(again["eval_loss"], last["eval_loss"], 5)
        (self.dir / "test.txt").write_text("a film [MASK] goodly\n\nbad [MASK]est dull [MASK] a film\n")
        self.expect(0, "predict", "out", "--set", "data.test=test.txt", *options, says="wrote 2 predictions")
        first, second = [json.loads(line) for line in (self.dir / "out/predictions.jsonl").read_text().splitlines()]
        self.assertEqual(first["text"], "a film is goodly")
        self.assertEqual(first["masks"][0]["words"][0], "is")
        self.assertGreater(first["masks"][0]["scores"][0], first["masks"][0]["scores"][1])
        self.assertEqual(len(second["masks"]), 2)
        saved = json.loads((self.dir / "out/config.json").read_text())
        self.assertEqual(saved["architectures"], ["BertForMaskedLM"])
        (self.dir / "test.txt").write_text("a film\n")
        self.expect(1, "predict", "out", "--set", "data.test=test.txt", *options, says=["test.txt:1", "has no [MASK]"])

    def test_chunks_and_whole_words(self):
        """All lines are joined and cut into samples of one length; the rest is counted."""
        result = self.expect(0, "train", self.task(data={"line_by_line": False, "whole_word_mask": True},
                                                   training={"max_steps": 60}))
        lines = (self.dir / "train.txt").read_text().split("\n")[:-1]
        pieces = sum(2 + len(line.split()) + line.count("goodly") + line.count("finest") for line in lines)
        self.assertIn(f"{pieces // 20} examples, {pieces // 20 * 20} tokens, longest 20, {pieces % 20} tokens left over",
                      result.out)
        losses = self.numbers()
        self.assertLess(losses[-1], losses[0])

    def test_mistakes(self):
        self.expect(2, "train", self.task(data={"tokenizer": "bytes", "sequence_length": 8}),
                    says=["/data/tokenizer"])
        self.expect(2, "plan", self.config("gpt.json", task="masked-lm"), says=["/task", "masked-lm"])


class Completions(ProgramTest):
    def test_layouts(self):
        """The completion of a prompt is its first letter three times; the prompt itself cannot be predicted."""
        draw = random.Random(3)
        with open(self.dir / "train.jsonl", "w") as file:
            for _ in range(120):
                prompt = "".join(draw.choices("abcdefgh", k=draw.randrange(2, 9)))
                file.write(json.dumps({"prompt": prompt + "=", "completion": prompt[0] * 3}) + "\n")
        runs = []
        for sections in ({}, {"p": 2, "t": 2, "communicator": "threads"}, {"mpi_options": {"processes_per_host": 2}}):
            self.expect(0, "train", self.config(
                data={"train": "train.jsonl", "validation": "train.jsonl", "completion_only_loss": True},
                training={"max_steps": 120, "do_eval": True, "overwrite_output_dir": True},
                runtime={"dtype": "float64"}, **sections))
            runs.append([line.get("loss", line.get("eval_loss")) for line in self.metrics()])
        for run in runs[1:]:
            for got, expected in zip(run, runs[0], strict=True):
                self.assertAlmostEqual(got, expected, delta=1e-9 * abs(expected))
        self.assertLess(runs[0][-1], 1)  # the loss of the prompt's letters would be more than 2
        self.assertAlmostEqual(self.metrics()[-1]["eval_perplexity"], 2.718281828459045 ** runs[2][-1], 6)
        self.expect(2, "train", self.config(data={"train": "text.txt", "completion_only_loss": True}),
                    says=["text.txt:1: has no 'prompt', only {text}", "data.completion_only_loss"])
        self.expect(2, "train", self.config(task="masked-lm", data={"completion_only_loss": True}),
                    says=["/data/completion_only_loss"])


if __name__ == "__main__":
    unittest.main()
