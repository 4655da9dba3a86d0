"""Answers of a served model: the same labels, scores and places as in predictions for a file, and texts as the
parameters request."""
import json
import random

import serve_test
from harness import ProgramTest, unittest

WORDS = ("[PAD] [UNK] [CLS] [SEP] [MASK] a film is good bad fine dull this that very not and the plot cast ##ly "
         "##ness").split()
NAMES = ["no", "maybe", "yes"]
BERT = {"model_type": "bert", "vocab_size": len(WORDS), "hidden_size": 24, "num_hidden_layers": 2,
        "num_attention_heads": 2, "intermediate_size": 40, "max_position_embeddings": 40, "initializer_range": 0.6,
        "id2label": dict(enumerate(NAMES)), "label2id": {name: i for i, name in enumerate(NAMES)}}
GPT2 = {"model_type": "gpt2", "vocab_size": 256, "n_positions": 128, "n_embd": 16, "n_layer": 2, "n_head": 2,
        "initializer_range": 0.6}
MOST = 24  # tokens


class Answers(ProgramTest):
    def setUp(self):
        super().setUp()
        (self.dir / "tokenizer").mkdir()
        (self.dir / "tokenizer/vocab.txt").write_text("\n".join(WORDS) + "\n")
        self.draw = random.Random(4)

    def words(self, most=8):
        """Returns different words, some of which become two tokens."""
        plain = [word for word in WORDS[5:] if not word.startswith("##")]
        chosen = self.draw.sample(plain, self.draw.randrange(1, most))
        return [word + self.draw.choice(["", "", "ly"]) for word in chosen]

    def both(self, task, rows, inputs, keys=BERT, data=None, **parameters):
        """The predictions for rows of a file, and the answers for the same inputs of a served model."""
        (self.dir / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        data = {"train": "rows.jsonl", "test": "rows.jsonl", "tokenizer": "tokenizer", "sequence_length": MOST,
                **(data or {})}
        config = self.config(task=task, model={"config": keys, "init": "random"}, data=data,
                             runtime={"dtype": "float64"})  # so that rounding depends less on the rest of a batch
        self.expect(0, "predict", config, "--output", "made.jsonl", says=f"wrote {len(rows)} predictions")
        predictions = [json.loads(line) for line in (self.dir / "made.jsonl").read_text().splitlines()]
        server = serve_test.Server(self, config)
        answers = server.ask(inputs, **parameters)
        server.stop()
        self.assertEqual(len(answers), len(predictions))
        return zip(predictions, answers)

    def assert_scores(self, some, others):
        self.assertEqual(len(some), len(others))
        for one, other in zip(some, others):
            self.assertAlmostEqual(one, other, 6)

    def test_labels(self):
        rows = [{"text": " ".join(self.words()), "pair": " ".join(self.words())} for _ in range(20)]
        texts = [row["text"] for row in rows]
        found = set()
        for prediction, answer in self.both("sequence-classification", rows, texts):
            found.add(prediction["label"])
            self.assertEqual(prediction["label"], answer["label"])
            self.assertAlmostEqual(prediction["score"], answer["score"], 6)
        self.assertGreater(len(found), 1)
        pairs = [{"text": row["text"], "text_pair": row["pair"]} for row in rows]
        for prediction, answer in self.both("sequence-classification", rows, pairs, data={"text_pair_column": "pair"}):
            self.assertEqual(prediction["label"], answer["label"])
            self.assertAlmostEqual(prediction["score"], answer["score"], 6)
        several = dict(BERT, problem_type="multi_label_classification")
        for prediction, answer in self.both("sequence-classification", rows, texts, several, top_k=None):
            self.assertEqual(set(prediction["labels"]), {one["label"] for one in answer if one["score"] > 0.5})
            for one in answer:
                self.assertAlmostEqual(prediction["scores"][one["label"]], one["score"], 6)
        number = {key: value for key, value in BERT.items() if key not in ("id2label", "label2id")}
        number.update(num_labels=1, problem_type="regression")
        for prediction, answer in self.both("sequence-classification", rows, texts, number):
            self.assertAlmostEqual(prediction["score"], answer["score"], 6)

    def test_tags(self):
        rows = [{"tokens": self.words()} for _ in range(20)]
        texts = [" ".join(row["tokens"]) for row in rows]
        for row, (prediction, answer) in zip(rows, self.both("token-classification", rows, texts, ignore_labels=[])):
            first = [token for token in answer if not token["word"].startswith("##")]
            self.assertEqual(prediction["tags"], [token["entity"] for token in first])
            self.assert_scores(prediction["scores"], [token["score"] for token in first])
            self.assertEqual([len(" ".join(row["tokens"][:i + 1])) - len(word) for i, word in enumerate(row["tokens"])],
                             [token["start"] for token in first])

    def test_spans(self):
        """In one window, both find the same tokens most probable."""
        rows = [{"question": " ".join(self.words(4)), "context": "\u00e9 " + " ".join(self.words(9))}
                for _ in range(20)]
        found = set()
        for row, (prediction, answer) in zip(rows, self.both(
                "question-answering", rows, rows, data={"doc_stride": 4}, max_seq_len=MOST, doc_stride=4,
                max_answer_len=30, align_to_words=False)):
            self.assertEqual([prediction[key] for key in ("answer", "start", "end")],
                             [answer[key] for key in ("answer", "start", "end")])
            self.assertEqual(row["context"][answer["start"]:answer["end"]], answer["answer"])
            found.add((answer["start"], answer["end"]))
        self.assertGreater(len(found), 5)

    def test_masked_words(self):
        texts = [" ".join(["[MASK]", *self.words()]) for _ in range(10)]
        rows = [{"text": text} for text in texts]
        for prediction, answer in self.both("masked-lm", rows, texts):
            (mask,) = prediction["masks"]
            self.assertEqual(mask["words"], [word["token_str"] for word in answer])
            self.assert_scores(mask["scores"], [word["score"] for word in answer])

    def test_wanted_words(self):
        """Requests for more words than usual and for certain words only, also on ranks that share the vocabulary."""
        expected = {}
        for name, layout in {"one": {}, "ranks": {"p": 2, "t": 2, "communicator": "threads"}}.items():
            server = serve_test.Server(self, self.config(
                task="masked-lm", model={"config": BERT, "init": "random"}, data={"tokenizer": "tokenizer"}, **layout))
            every = server.ask("this [MASK] is good", top_k=1000)
            self.assertEqual({word["token"] for word in every}, set(range(len(WORDS))))
            self.assertAlmostEqual(sum(word["score"] for word in every), 1, 5)
            chosen = server.ask("this [MASK] is good", targets=["film", "##ly", "plotly"])
            self.assertEqual({word["token_str"] for word in chosen}, {"film", "##ly", "plot"})
            scores = {word["token"]: word["score"] for word in every}
            for word in chosen:
                self.assertAlmostEqual(word["score"], scores[word["token"]], 6)
            server.refuses(400, {"inputs": "[MASK]", "parameters": {"targets": []}}, "/parameters/targets")
            server.stop()
            expected.setdefault("tokens", [word["token"] for word in every])
            self.assertEqual([word["token"] for word in every], expected["tokens"], name)

    def test_texts(self):
        """Stops, penalties and lengths, including those of requests that are continued together."""
        server = serve_test.Server(self, self.config(task="causal-lm", model={"config": GPT2, "init": "random"}, data={
            "tokenizer": "bytes"}))
        def made(prompt="abc", **parameters):
            return server.ask(prompt, return_full_text=False, **parameters)[0]["generated_text"]
        plain = made(max_new_tokens=40)
        self.assertEqual(made(max_length=43), plain)
        self.assertEqual(made(max_length=10, max_new_tokens=40), plain)
        printed = [c for c in plain[1:30] if c != "\ufffd"]
        stop = printed[-1]
        self.assertEqual(made(max_new_tokens=40, stop=stop), plain[:plain.index(stop) + 1])
        self.assertEqual(made(max_new_tokens=40, stop_strings=["no such text", stop]), plain[:plain.index(stop) + 1])
        self.assertEqual(made(max_new_tokens=40, stop=["no such text"]), plain)
        once = server.ask("abc", max_new_tokens=60, no_repeat_ngram_size=1)[0]["generated_text"].replace("\ufffd", "")
        self.assertEqual(len(once), len(set(once)))
        self.assertNotEqual(made(max_new_tokens=40, repetition_penalty=5.0), plain)
        together = server.ask(["abc", "x", "abc"], return_full_text=False, max_new_tokens=40, stop=stop)
        self.assertEqual([one[0]["generated_text"] for one in together],
                         [made(prompt, max_new_tokens=40, stop=stop) for prompt in ("abc", "x", "abc")])
        server.refuses(400, {"inputs": "x", "parameters": {"num_beams": 2}}, "beam search is not supported")
        server.refuses(400, {"inputs": "xyz", "parameters": {"max_length": 3}}, "parameters.max_length")
        server.stop()


if __name__ == "__main__":
    unittest.main()
