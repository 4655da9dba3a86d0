"""Training that ends before its last step because evaluations stop improving."""
import json

from harness import ProgramTest, unittest

# Nothing is learned, so only the first evaluation is a gain.
IDLE = {"max_steps": 40, "learning_rate": 0, "eval_strategy": "steps", "eval_steps": 2, "save_steps": 4,
        "early_stopping_patience": 3}


class EarlyStopping(ProgramTest):
    def train(self, folder="out", data=None, layout=None, **training):
        data = {"validation": "text.txt", "max_eval_samples": 4, **(data or {})}
        return self.expect(0, "train", self.config(data=data, training={**IDLE, **training}, output_dir=folder,
                                                   **(layout or {})))

    def steps(self, folder="out"):
        return max(line["step"] for line in self.metrics(folder) if "loss" in line)

    def test_patience(self):
        """The count survives a resume, and the ranks agree on the end."""
        result = self.train()
        self.assertIn("stopped early after step 8 of 40: eval_loss has not improved in 3 evaluations", result.out)
        self.assertIn("saved the model in out", result.out)
        self.assertEqual(self.steps(), 8)
        self.assertEqual(self.files("out/checkpoint-8")[:1], ["config.json"])
        self.train("ranks", layout={"p": 2, "communicator": "threads"})
        self.assertEqual(self.steps("ranks"), 8)
        self.train("again", resume_from_checkpoint="out/checkpoint-4")
        self.assertEqual(self.steps("again"), 8)
        self.train("longer", resume_from_checkpoint="out/checkpoint-4", early_stopping_patience=5)
        self.assertEqual(self.steps("longer"), 12)
        result = self.train("over", resume_from_checkpoint="out/checkpoint-8")
        self.assertIn("stopped early after step 8 of 40", result.out)
        self.assertEqual([line for line in self.metrics("over") if "loss" in line], [])
        # Perplexity is another metric: earlier evaluations no longer count.
        self.train("other", resume_from_checkpoint="out/checkpoint-4", metric_for_best_model="perplexity")
        self.assertEqual(self.steps("other"), 12)

    def test_gains(self):
        """A run that improves continues, improvements that are too small do not count, and the best model is saved at
        the end."""
        self.train(learning_rate=1e-2, max_steps=12)
        self.assertEqual(self.steps(), 12)
        self.train("strict", learning_rate=1e-2, early_stopping_threshold=100, load_best_model_at_end=True)
        self.assertEqual(self.steps("strict"), 8)
        evaluations = [line["eval_loss"] for line in self.metrics("strict") if "eval_loss" in line]
        self.assertEqual(len(evaluations), 4)

    def test_no_number(self):
        """An evaluation whose metric is not a number counts as one without a gain, even if it is the first one. Here, all
        labels are equal, so the correlation is undefined."""
        rows = [{"text": f"line {i}", "label": 0.5} for i in range(20)]
        (self.dir / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        config = self.config(task="sequence-classification", data={"train": "rows.jsonl", "validation": "rows.jsonl"},
                             training={**IDLE, "metric_for_best_model": "pearson"})
        result = self.expect(0, "train", config)
        self.assertIn("eval_pearson has not improved in 3 evaluations, all of which gave a value that is not a number", result.out)
        self.assertEqual(self.steps(), 6)
        config = self.config(task="sequence-classification", data={"train": "rows.jsonl", "validation": "rows.jsonl"},
                             training={**IDLE, "metric_for_best_model": "pearson",
                                       "resume_from_checkpoint": "out/checkpoint-4"}, output_dir="again")
        self.expect(0, "train", config)
        self.assertEqual(self.steps("again"), 6)
        # The step after which training ended early has a checkpoint, too; with more patience, the run continues from
        # it.
        self.assertEqual((self.dir / "out/newest").read_text().strip(), "checkpoint-6")
        self.expect(0, "train", config, "--set", "training.early_stopping_patience=4", "--set", "output_dir=more", "--set",
                    "training.resume_from_checkpoint=out/checkpoint-6")
        self.assertEqual([line["step"] for line in self.metrics("more") if "loss" in line], [7, 8])

    def test_missing_metric(self):
        """A metric that evaluations lack is an error and does not end training early or choose a model: no question here
        lacks an answer."""
        rows = [{"question": "what?", "context": f"it is {i}", "answers": {"text": [str(i)], "answer_start": [6]}}
                for i in range(20)]
        (self.dir / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        config = self.config(task="question-answering", data={
            "train": "rows.jsonl", "validation": "rows.jsonl", "version_2_with_negative": True, "sequence_length": 32},
            training={**IDLE, "metric_for_best_model": "NoAns_exact"})
        self.expect(1, "train", config, says=["/training/metric_for_best_model", 'no "eval_NoAns_exact"', '"eval_HasAns_exact"'])

    def test_mistakes(self):
        config = self.config(training={"early_stopping_patience": 3}, data={"validation": "text.txt"})
        self.expect(2, "train", config, says=["/training/early_stopping_patience", "eval_strategy"])
        config = self.config(training={"early_stopping_threshold": 3})
        self.expect(2, "train", config, says=["/training/early_stopping_threshold", "early_stopping_patience"])


if __name__ == "__main__":
    unittest.main()
