"""Fine-tuning on labels, tags and answers: tables, layouts, metrics, and predictions of the saved model."""
import csv
import json
import random

from harness import ProgramTest, unittest

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] a film is good bad fine dull this that very not and the plot cast".split()
BERT = {"model_type": "bert", "vocab_size": len(WORDS), "hidden_size": 24, "num_hidden_layers": 3,
        "num_attention_heads": 3, "intermediate_size": 40, "max_position_embeddings": 40}
PLAIN = [w for w in WORDS[5:] if w not in ("good", "bad")]


def rows(count, seed):
    """Texts of two labels: one word decides."""
    draw = random.Random(seed)
    for _ in range(count):
        label = draw.choice(["positive", "negative"])
        words = [draw.choice(PLAIN) for _ in range(draw.randrange(1, 20))]
        words[draw.randrange(len(words))] = "good" if label == "positive" else "bad"
        yield {"sentence": " ".join(words), "label": label}


class Classification(ProgramTest):
    def setUp(self):
        super().setUp()
        (self.dir / "tokenizer").mkdir()
        (self.dir / "tokenizer/vocab.txt").write_text("\n".join(WORDS) + "\n")
        self.write("train.csv", list(rows(160, 1)))
        self.write("validation.jsonl", list(rows(37, 2)))

    def write(self, name, table):
        with open(self.dir / name, "w", newline="") as file:
            if name.endswith(".jsonl"):
                file.writelines(json.dumps(row) + "\n" for row in table)
            else:
                writer = csv.DictWriter(file, table[0].keys())
                writer.writeheader()
                writer.writerows(table)

    def write_conll(self, name, table):
        sentences = ["".join(f"X {word} {tag} -\n" for word, tag in zip(row["tokens"], row["tags"])) for row in table]
        (self.dir / name).write_text("-DOCSTART- -X- O O\n\n" + "\n".join(sentences))

    def task(self, **sections):
        data = {"train": "train.csv", "validation": "validation.jsonl", "tokenizer": "tokenizer",
                "text_column": "sentence", "sequence_length": 16, **sections.pop("data", {})}
        training = {"global_batch_size": 8, "max_steps": 60, "learning_rate": 3e-3, "do_eval": True,
                    **sections.pop("training", {})}
        return self.config(task=sections.pop("task", "sequence-classification"),
                           model={"config": dict(BERT, **sections.pop("keys", {}))}, data=data, training=training,
                           **sections)

    def test_layouts(self):
        """Losses and metrics are the same on every layout; the saved model has the labels of the data."""
        curves = {}
        for name, sections in {"one": {}, "p": {"p": 2}, "t": {"t": 2}, "d": {"mpi_options": {"processes_per_host": 2}},
                               "all": {"p": 2, "t": 2, "communicator": "threads"}}.items():
            with self.subTest(name):
                config = self.task(training={"overwrite_output_dir": True},
                                   runtime={"dtype": "float64"}, **sections)
                result_of_run = self.expect(0, "train", config).out
                lines = self.metrics()
                curves[name] = [line.get("loss", line.get("eval_loss")) for line in lines]
                evaluation = lines[-1]
                self.assertGreaterEqual(evaluation["eval_accuracy"], 0.9)
                for metric in ("eval_accuracy", "eval_f1", "eval_matthews_correlation"):
                    self.assertAlmostEqual(evaluation[metric], first[metric] if name != "one" else evaluation[metric], 12)
                if name == "one":
                    first = evaluation
                for got, expected in zip(curves[name], curves["one"], strict=True):
                    self.assertAlmostEqual(got, expected, delta=1e-9 * abs(expected))
        saved = json.loads((self.dir / "out/config.json").read_text())
        self.assertEqual(saved["id2label"], {"0": "negative", "1": "positive"})
        self.assertEqual(saved["architectures"], ["BertForSequenceClassification"])
        # Evaluates the saved model alone, with its own labels.
        result = self.expect(0, "eval", "out", "--set", "data.validation=validation.jsonl", "--set", "data.text_column=sentence", "--set",
                             "data.tokenizer=tokenizer", "--set", "data.sequence_length=16", "--set",
                             "runtime.dtype=float64")
        again = json.loads(result.out.splitlines()[-1])
        self.assertEqual(again["eval_samples"], 37)
        self.assertAlmostEqual(again["eval_loss"], first["eval_loss"], 6)
        self.assertEqual(again["eval_accuracy"], first["eval_accuracy"])
        self.assertRegex(result_of_run, r"\nlabels +2 classes: negative, positive\n")
        self.expect(2, "generate", "out", "--prompt", "a film", says=["/task: generate needs a language model", "predict"])
        self.expect(2, "predict", "out", "--set", "task=question-answering", "--set", "data.test=validation.jsonl",
                    "--set", "data.tokenizer=tokenizer", "--set", "data.sequence_length=16",
                    says=["/model/path", "qa_outputs", "task"])

    def test_predictions_of_a_run(self):
        """do_predict writes what `shardline predict` writes for the final model, which is the best one, on any layout,
        even if the run was continued."""
        self.write("test.csv", [{"sentence": row["sentence"]} for row in rows(30, 3)])
        best = {"do_predict": True, "max_steps": 30, "eval_strategy": "steps", "eval_steps": 10, "save_steps": 10,
                "load_best_model_at_end": True, "metric_for_best_model": "accuracy", "greater_is_better": False}
        for name, layout in {"one": {}, "ranks": {"p": 2, "t": 2, "communicator": "threads"}}.items():
            config = self.task(data={"test": "test.csv"}, training=best, output_dir=name, **layout)
            result = self.expect(0, "train", config, says=f"wrote 30 predictions to {name}/predictions.jsonl")
            self.assertIn("the best model is that of", result.out)
            written = (self.dir / name / "predictions.jsonl").read_text()
            used = ("--set", f"model.path={name}", "--set", "model.config={}", "--output")
            again = self.expect(0, "predict", config, *used, "again.jsonl").out
            self.assertEqual("in place of an earlier file" in again, name == "ranks")
            self.assertEqual((self.dir / "again.jsonl").read_text(), written)
            self.expect(2, "predict", config, *used, "absent/x.jsonl", says=["--output: there is no directory", "absent"])
            self.expect(2, "predict", config, *used, name, says=["--output:", "is a directory"])
        config = self.task(data={"test": "test.csv"}, output_dir="continued",
                           training={**best, "resume_from_checkpoint": "one/checkpoint-30"})
        self.expect(0, "train", config, says=["nothing is left to train", "wrote 30 predictions"])
        self.expect(2, "train", self.task(training={"do_predict": True}, output_dir="none"),
                    says=["/training/do_predict", "data.test"])
        self.expect(2, "train", self.task(data={"test": "absent.csv"}, training={"do_predict": True},
                                          output_dir="none"), says=["/data/test", "absent.csv"])

    def test_pairs_numbers_and_several_labels(self):
        draw = random.Random(3)
        table = [{"s1": " ".join(draw.choices(PLAIN, k=draw.randrange(1, 9))), "s2": draw.choice(PLAIN),
                  "score": draw.random(), "labels": draw.sample(["x", "y", "z"], draw.randrange(3))} for _ in range(40)]
        self.write("train.jsonl", table)
        self.write("integers.jsonl", [{**row, "score": round(row["score"])} for row in table])
        for column, metrics in {"score": {"eval_mse", "eval_pearson", "eval_spearmanr"},
                                "labels": {"eval_accuracy", "eval_f1"}}.items():
            with self.subTest(column):
                config = self.task(
                    data={"train": "train.jsonl", "validation": "train.jsonl", "text_column": "s1",
                          "text_pair_column": "s2", "label_column": column},
                    training={"overwrite_output_dir": True, "max_steps": 3})
                self.expect(0, "train", config)
                self.assertLessEqual(metrics, set(self.metrics()[-1]))
                # The saved directory alone says that it is a regression, or what its labels are.
                used = [word for setting in ("text_column=s1", "text_pair_column=s2", f"label_column={column}",
                                             "tokenizer=tokenizer", "sequence_length=16")
                        for word in ("--set", "data." + setting)]
                result = self.expect(0, "eval", "out", "--set", "data.validation=train.jsonl", *used)
                self.assertAlmostEqual(json.loads(result.out.splitlines()[-1])["eval_loss"],
                                       self.metrics()[-1]["eval_loss"], 5)
                self.expect(0, "predict", "out", "--set", "data.test=train.jsonl", *used, says="wrote 40 predictions")
                if column == "score":  # the head stays that of a regression, even if scores look like classes
                    result = self.expect(0, "eval", config, "--set", "model.path=out", "--set", "model.config={}",
                                         "--set", "data.train=integers.jsonl", "--set",
                                         "data.validation=integers.jsonl")
                    self.assertLessEqual(metrics, set(json.loads(result.out.splitlines()[-1])))
        best = {"eval_strategy": "steps", "eval_steps": 1, "save_steps": 1, "max_steps": 2,
                "load_best_model_at_end": True, "metric_for_best_model": "accuracy", "overwrite_output_dir": True}
        self.expect(2, "train", self.task(data={"train": "train.jsonl", "validation": "train.jsonl",
                                                "text_column": "s1", "label_column": "score"}, training=best),
                    says=["/training/metric_for_best_model", "pearson"])

    def test_tags(self):
        """The tag of a word is decided by the word; predictions are in the order of the rows, one for each word."""
        draw = random.Random(4)
        tag = {"film": "B-THING", "plot": "B-THING", "cast": "I-THING"}
        table = []
        for _ in range(60):
            words = draw.choices(PLAIN, k=draw.randrange(1, 11))
            table.append({"tokens": words, "tags": [tag.get(word, "O") for word in words]})
        self.write("train.jsonl", table)
        data = {"train": "train.jsonl", "validation": "train.jsonl", "label_column": "tags"}
        curves = []
        for sections in ({}, {"p": 2, "t": 2, "communicator": "threads"}):
            self.expect(0, "train", self.task(task="token-classification", data=data, runtime={"dtype": "float64"},
                                              training={"overwrite_output_dir": True, "max_steps": 80}, **sections))
            curves.append(self.metrics()[-1])
        self.assertAlmostEqual(curves[0]["eval_loss"], curves[1]["eval_loss"], delta=1e-9)
        self.assertGreater(curves[0]["eval_f1"], 0.9)
        self.assertEqual(curves[0]["eval_f1"], curves[1]["eval_f1"])
        self.write("test.jsonl", [{"tokens": row["tokens"]} for row in table])
        self.expect(0, "predict", "config.json", "--set", "model.path=out", "--set", "model.config={}", "--set",
                    "data.test=test.jsonl", says="wrote 60 predictions")
        predictions = [json.loads(line) for line in (self.dir / "out/predictions.jsonl").read_text().splitlines()]
        right = [p == t for row, given in zip(table, predictions, strict=True)
                 for p, t in zip(given["tags"], row["tags"], strict=True)]
        self.assertAlmostEqual(sum(right) / len(right), curves[0]["eval_accuracy"], 9)
        self.write_conll("train.conll", table)
        self.expect(0, "train", self.task(
            task="token-classification", runtime={"dtype": "float64"},
            data={"train": "train.conll", "validation": "train.conll", "tokens_column": "1", "label_column": "2"},
            training={"overwrite_output_dir": True, "max_steps": 80}))
        self.assertEqual(self.metrics()[-1]["eval_loss"], curves[0]["eval_loss"])

    def test_answers(self):
        """The answer is the word that judges; contexts are longer than a sample, and some have no answer."""
        draw = random.Random(5)
        table = []
        for i in range(60):
            words = draw.choices(PLAIN, k=draw.randrange(1, 30))
            answers = {"text": [], "answer_start": []}
            if i % 4:
                place = draw.randrange(len(words))
                words[place] = draw.choice(["good", "bad"])
                answers = {"text": [words[place]], "answer_start": [sum(len(word) + 1 for word in words[:place])]}
            table.append({"id": str(i), "question": "this film", "context": " ".join(words), "answers": answers})
        self.write("train.jsonl", table)
        data = {"train": "train.jsonl", "validation": "train.jsonl", "doc_stride": 4, "version_2_with_negative": True}
        curves = []
        for sections in ({}, {"p": 2, "mpi_options": {"processes_per_host": 4}}):
            self.expect(0, "train", self.task(task="question-answering", data=data, runtime={"dtype": "float64"},
                                              training={"overwrite_output_dir": True, "max_steps": 120}, **sections))
            curves.append(self.metrics()[-1])
        for metric in ("eval_loss", "eval_exact", "eval_f1", "eval_HasAns_exact", "eval_NoAns_exact"):
            self.assertAlmostEqual(curves[0][metric], curves[1][metric], 9)
        self.assertGreater(curves[0]["eval_exact"], 60)
        self.expect(0, "predict", "config.json", "--set", "model.path=out", "--set", "model.config={}",
                    "--output", "answers.jsonl", says="wrote 60 predictions to answers.jsonl")
        predictions = [json.loads(line) for line in (self.dir / "answers.jsonl").read_text().splitlines()]
        self.assertEqual([p["id"] for p in predictions], [row["id"] for row in table])
        exact = [p["answer"] == (row["answers"]["text"] or [""])[0] for p, row in zip(predictions, table)]
        self.assertAlmostEqual(100 * sum(exact) / len(exact), curves[0]["eval_exact"], 6)
        for given, row in zip(predictions, table):
            if given["answer"]:
                self.assertEqual(row["context"][given["start"]:given["end"]], given["answer"])

    def test_known_data(self):
        """MNLI from a folder with GLUE's files: its own columns and labels, and two sets to evaluate."""
        draw = random.Random(6)
        labels = ["entailment", "neutral", "contradiction"]
        marks = ["good", "dull", "bad"]
        (self.dir / "mnli").mkdir()
        for name, count in {"train": 120, "dev_matched": 30, "dev_mismatched": 21, "test_matched": 5}.items():
            table = ["index\tsentence1\tsentence2\tlabel1\tgold_label"]
            for i in range(count):
                label = draw.randrange(3)
                words = draw.choices("a film is the plot".split(), k=draw.randrange(1, 6)) + [marks[label]]
                table.append(f"{i}\t{' '.join(words)}\tthis\t-\t{labels[label]}")
            (self.dir / f"mnli/{name}.tsv").write_text("\n".join(table) + "\n")
        file = json.loads((self.dir / self.task()).read_text())
        file["data"] = {"train": "mnli", "validation": "mnli", "tokenizer": "tokenizer", "sequence_length": 16,
                        "task_name": "mnli"}
        file["training"].update({"metric_for_best_model": "accuracy_mm", "load_best_model_at_end": True,
                                 "eval_strategy": "steps", "eval_steps": 75, "save_steps": 75, "max_steps": 150})
        for layout in ({}, {"pipeline_parallel_degree": 2, "microbatches": 2}):
            file["smp_options"] = layout
            file["training"]["overwrite_output_dir"] = True
            (self.dir / "mnli.json").write_text(json.dumps(file))
            self.expect(0, "train", "mnli.json")
            last = self.metrics()[-1]
            self.assertGreater(last["eval_accuracy"], 0.9)
            self.assertGreater(last["eval_accuracy_mm"], 0.9)
            self.assertNotIn("eval_f1", last)
            self.assertNotEqual(last["eval_loss"], last["eval_loss_mm"])
        self.assertEqual(json.loads((self.dir / "out/config.json").read_text())["id2label"],
                         {str(i): label for i, label in enumerate(labels)})
        self.expect(0, "predict", "out", "--set", "data.task_name=mnli", "--set", "data.test=mnli", "--set",
                    "data.tokenizer=tokenizer", "--set", "data.sequence_length=16", says="wrote 5 predictions")
        # Evaluations on another mismatched set cannot be compared with those before.
        table = (self.dir / "mnli/dev_mismatched.tsv").read_text().splitlines()
        (self.dir / "mnli/dev_mismatched.tsv").write_text("\n".join(table[:-1]) + "\n")
        file["training"].update({"overwrite_output_dir": False, "resume_from_checkpoint": "out/checkpoint-75"})
        (self.dir / "mnli.json").write_text(json.dumps(file))
        self.expect(0, "train", "mnli.json", says="after step 75, no longer counts")
        self.expect(2, "train", self.task(data={"task_name": "mnli"}),
                    says=["/data/text_column: has no effect with task_name"])
        self.expect(2, "train", self.task(data={"task_name": "mnly"}), says=["/data/task_name", "mnli"])

    def test_tokenised_rows(self):
        """Rows that are already tokenised and padded train like their texts, for each task."""
        ids = {word: place for place, word in enumerate(WORDS)}

        def tokenised(*texts):
            tokens = [ids["[CLS]"]]
            types = [0]
            for i, text in enumerate(texts):
                tokens += [ids[word] for word in text.split()] + [ids["[SEP]"]]
                types += [i] * (len(tokens) - len(types))
            pad = 20 - len(tokens)
            return {"input_ids": tokens + [0] * pad, "attention_mask": [1] * len(tokens) + [0] * pad,
                    "token_type_ids": types + [0] * pad}

        draw = random.Random(7)
        texts, rows_of_task = {}, {}
        sentences = [" ".join(draw.choices(PLAIN, k=draw.randrange(2, 12))) for _ in range(40)]
        texts["sequence-classification"] = [{"text": s, "label": len(s.split()) % 2} for s in sentences]
        rows_of_task["sequence-classification"] = [{**tokenised(s), "labels": len(s.split()) % 2} for s in sentences]
        texts["token-classification"] = [{"tokens": s.split(), "label": [int(w == "film") for w in s.split()]}
                                         for s in sentences]
        rows_of_task["token-classification"] = [
            {**tokenised(s), "labels": ([-100] + [int(w == "film") for w in s.split()] + [-100] * 20)[:20]}
            for s in sentences]
        keys = {"token-classification": {"id2label": {"0": "O", "1": "B-THING"}}}
        texts["question-answering"] = [
            {"question": "film", "context": s, "answers": {"text": [s.split()[1]],
                                                           "answer_start": [len(s.split()[0]) + 1]}} for s in sentences]
        rows_of_task["question-answering"] = [{**tokenised("film", s), "start_positions": 4, "end_positions": 4}
                                              for s in sentences]
        texts["masked-lm"] = [{"text": s} for s in sentences]
        rows_of_task["masked-lm"] = [{**tokenised(s), "labels": tokenised(s)["input_ids"]} for s in sentences]
        for task, table in rows_of_task.items():
            with self.subTest(task):
                curves = []
                for rows_of_kind in (texts[task], table):
                    self.write("rows.jsonl", rows_of_kind)
                    data = {"train": "rows.jsonl", "validation": "rows.jsonl", "text_column": "text",
                            "max_predict_samples": 3}
                    self.expect(0, "train", self.task(
                        task=task, data=data, training={"overwrite_output_dir": True, "max_steps": 4},
                        keys=keys.get(task, {}),
                        runtime={"dtype": "float64"}))
                    curves.append([{key: value for key, value in line.items() if "loss" in key or key == "eval_f1"}
                                   for line in self.metrics()])
                self.assertEqual(curves[0], curves[1])
                if task != "masked-lm":
                    result = self.expect(0, "predict", "config.json", "--set", "model.path=out", "--set",
                                         "model.config={}", says="wrote 3 predictions")
                    self.assertIn("samples: 16 tokens", result.err)
    def test_mistakes_in_labels(self):
        self.write("validation.jsonl", [{"sentence": "a film", "label": "neutral"}])
        self.expect(1, "train", self.task(), says=["validation.jsonl:1", "neutral", "negative, positive"])
        self.expect(1, "plan", self.task(), says=["validation.jsonl:1", "neutral", "negative, positive"])
        self.expect(2, "train", self.task(data={"label_column": "target"}), says=["no 'target'", "data.label_column"])
        self.expect(2, "train", self.task(data={"text_column": "words"}), says=["no 'words'", "data.text_column"])
        self.expect(2, "plan", self.task(data={"train": "nowhere.csv"}), says=["nowhere.csv", "id2label"])
        self.expect(2, "train", self.task(keys={"model_type": "gpt3"}), says=["model_type"])


if __name__ == "__main__":
    unittest.main()
