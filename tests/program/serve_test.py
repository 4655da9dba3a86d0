"""A server of models: what it answers."""
import concurrent.futures
import csv
import io
import json
import os
import random
import shutil
import signal
import socket
import tarfile
import time

from harness import PROGRAM, unittest
from served import BERT, GPT2, POST, Server, Serving, WORDS


class Answers(Serving):
    def test_answers(self):
        """Requests of every content type have the same answers; errors name the mistakes."""
        server = Server(self, self.model())
        server.ping()
        single = server.ask("this film is good")
        self.assertEqual([set(answer) for answer in single], [{"label", "score"}])
        texts = ["this film is good", "a dull plot", "not bad"]
        batch = server.ask(texts)
        self.assert_same([batch[0]], single)
        self.assertEqual(len(batch), 3)
        self.assert_same([server.ask(text)[0] for text in texts], batch)
        every = server.ask(texts[0], top_k=None)
        self.assertEqual({answer["label"] for answer in every}, {"no", "maybe", "yes"})
        self.assertAlmostEqual(sum(answer["score"] for answer in every), 1, 6)
        pair = server.ask({"text": "a film", "text_pair": "the plot"})
        self.assertEqual(set(pair), {"label", "score"})

        lines = "".join(json.dumps({"inputs": text}) + "\n" for text in texts)
        status, headers, body = server.post(lines, "application/jsonlines")
        self.assertEqual((status, headers["Content-Type"]), (200, "application/jsonlines"))
        self.assert_same([json.loads(line) for line in body.splitlines()], batch)
        table = io.StringIO()
        csv.writer(table).writerows([["inputs"]] + [[text] for text in texts])
        status, _, body = server.post(table.getvalue(), "text/csv; charset=utf-8")
        self.assertEqual(status, 200)
        self.assert_same(json.loads(body), batch)
        status, headers, body = server.post(table.getvalue(), "text/csv", accept="text/csv")
        rows = list(csv.DictReader(io.StringIO(body.decode())))
        self.assertEqual([row["label"] for row in rows], [answer["label"] for answer in batch])
        status, _, body = server.post(texts[0], "text/plain")
        self.assertEqual(status, 200)
        self.assert_same(json.loads(body), single)

        server.refuses(400, {"inputs": "good", "parameters": {"top_k": 0}}, "/parameters/top_k: must be an integer >= 1")
        server.refuses(400, {"input": "good"}, '/input: unknown key; got "good"; did you mean inputs?')
        self.assertEqual(server.post({"inputs": "good", "options": {"use_cache": False}})[0], 200)
        server.refuses(400, {"inputs": "good", "parameters": {"topk": 1}}, "/parameters/topk: is not a parameter")
        server.refuses(400, {"inputs": ["good", 3]}, "/inputs/1: must be a string")
        server.refuses(400, {"inputs": ["good", "film " * 50]}, "/inputs/1: has more than 40 tokens")
        self.assertEqual(len(server.ask("film " * 50, truncation=True)), 1)
        server.refuses(400, {"inputs": []}, "/inputs: must have at least one input")
        server.refuses(400, {"parameters": {}}, "/inputs: is missing")
        server.refuses(400, b'{"inputs": "go', "the request:1:")
        server.refuses(400, b'{"inputs": "\xff"}', "the request:1:")
        server.refuses(400, b"a,b\n1,2\n", "CSV must name a column", "text/csv")
        server.refuses(415, b"<a/>", "application/xml", "application/xml")
        self.assertEqual(server.request("GET", "/invocations")[0], 405)
        self.assertEqual(server.request("POST", "/ping")[0], 405)
        self.assertEqual(server.request("GET", "/nothing")[0], 404)
        counts = server.request("GET", "/metrics")[2].decode()
        self.assertIn('shardline_requests_total{status="200"}', counts)
        self.assertIn('shardline_requests_total{status="400"}', counts)
        server.stop()

    def test_tasks(self):
        """The tasks that tag words, answer questions, fill in masked words and continue texts."""
        server = Server(self, self.model("token-classification"))
        tokens = server.ask("this film is good", ignore_labels=[])
        self.assertEqual([(t["word"], t["start"], t["end"]) for t in tokens],
                         [("this", 0, 4), ("film", 5, 9), ("is", 10, 12), ("good", 13, 17)])
        for strategy in ("simple", "first", "average", "max"):
            groups = server.ask("this film is good", aggregation_strategy=strategy)
            self.assertEqual((groups[0]["start"], groups[-1]["end"]), (0, 17))
        server.stop()

        server = Server(self, self.model("question-answering"))
        context = "the plot is very dull and the cast is fine " * 3
        answer = server.ask({"question": "is the film good", "context": context})
        self.assertEqual(answer["answer"], context[answer["start"]:answer["end"]])
        self.assertEqual(len(server.ask({"question": "is it", "context": context}, top_k=3)), 3)
        server.refuses(400, {"inputs": {"question": "is it"}}, "/inputs/context: is missing")
        server.stop()

        server = Server(self, self.model("masked-lm"))
        words = server.ask("this [MASK] is good")
        self.assertEqual(len(words), 5)
        self.assertEqual(words[0]["sequence"], f"this {words[0]['token_str']} is good")
        self.assertEqual(len(server.ask("this [MASK] is [MASK]", top_k=2)), 2)
        server.refuses(400, {"inputs": "no mask"}, "/inputs: has no [MASK]")
        server.stop()

    def test_no_data(self):
        """Commands that read no training data require none in their config."""
        config = json.loads((self.dir / self.model(training={"per_device_eval_batch_size": 2})).read_text())
        del config["data"]["train"]
        for name, degree in ("one.json", 1), ("two.json", 2):
            config["smp_options"] = {"pipeline_parallel_degree": degree}
            (self.dir / name).write_text(json.dumps(config))
            server = Server(self, name)
            self.assertIn(server.ask("this film is good")[0]["label"], ("no", "maybe", "yes"))
            server.stop()
        (self.dir / "test.jsonl").write_text('{"text": "this film is good"}\n')
        self.expect(0, "predict", "one.json", "--set", "data.test=test.jsonl", "--output", "predicted.jsonl")
        self.assertEqual(len((self.dir / "predicted.jsonl").read_text().splitlines()), 1)
        self.expect(2, "train", "one.json", says="/data/train: data.train or data.validation is required")
        for setting in [], ["--set", "data.validation_split_percentage=10"]:
            self.expect(2, "eval", "one.json", *setting, says="/data/validation: no data to evaluate on")
        config.update(task="causal-lm", model={"config": GPT2, "init": "random"}, data={"tokenizer": "bytes", "sequence_length": 16})
        (self.dir / "texts.json").write_text(json.dumps(config))
        self.expect(0, "generate", "texts.json", "--prompt", "a", "--max-new-tokens", "2")

    def test_task_of_a_model_without_its_head(self):
        """The class in a model directory may belong to no task or to another one; --task then selects a head that the
        directory also has."""
        self.expect(0, "train", self.model("masked-lm", training={"max_steps": 1}))
        config = json.loads((self.dir / "out/config.json").read_text())
        (self.dir / "out/config.json").write_text(json.dumps(config | {"architectures": ["BertForPreTraining"]}))
        server = Server(self, "out", "--task", "fill-mask")
        self.assertEqual(len(server.ask("this [MASK] is good")), 5)
        server.stop()

    def test_texts(self):
        """Continued prompts do not depend on what passes through the model along with them."""
        server = Server(self, self.model("causal-lm", GPT2))
        prompts = ["one", "a longer prompt", "x" * 40, "one"]
        alone = [server.ask(prompt, max_new_tokens=12)[0]["generated_text"] for prompt in prompts]
        together = server.ask(prompts, max_new_tokens=12)
        self.assertEqual([answer[0]["generated_text"] for answer in together], alone)
        self.assertTrue(alone[0].startswith("one"))
        drawn = dict(max_new_tokens=12, do_sample=True, top_k=0, return_full_text=False)
        self.assertEqual(server.ask("one", seed=3, **drawn), server.ask("one", seed=3, **drawn))
        self.assertNotEqual(server.ask("one", seed=3, **drawn), server.ask("one", seed=4, **drawn))
        several = server.ask("one", seed=3, num_return_sequences=3, **drawn)
        self.assertEqual(len({answer["generated_text"] for answer in several}), 3)
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            again = list(pool.map(lambda i: server.ask(prompts[i % 4], max_new_tokens=12)[0]["generated_text"], range(48)))
        self.assertEqual(again, alone * 12)
        server.refuses(400, {"inputs": "x" * 600}, "/inputs: has more than 512 tokens")
        server.refuses(400, {"inputs": "x", "parameters": {"temperature": 2}}, "/parameters/temperature: has no effect")
        server.stop()

    def test_batches(self):
        """Inputs of several requests pass through the model together."""
        for task, keys, parameters in (("sequence-classification", BERT, {}), ("causal-lm", GPT2, {"max_new_tokens": 30})):
            with self.subTest(task=task):
                server = Server(self, self.model(task, keys))
                for _ in range(5):
                    server.ask("film " * 30, **parameters)
                alone = server.count("passes_total"), server.count("items_total")
                self.assertEqual(*alone)
                with concurrent.futures.ThreadPoolExecutor(32) as pool:
                    list(pool.map(lambda _: server.ask("film " * 30, **parameters), range(320)))
                passes, items = server.count("passes_total") - alone[0], server.count("items_total") - alone[1]
                self.assertGreaterEqual(items, 320)
                self.assertLess(passes, items)
                print(f"{task}: {items / passes:.1f} inputs in a pass", flush=True)
                server.stop()

    def test_many_clients(self):
        """Requests of mixed sizes from many clients: none is lost, and each has the answer that it has alone."""
        count = int(os.environ.get("SHARDLINE_SERVED_REQUESTS", 300))
        server = Server(self, self.model())
        draw = random.Random(1)
        texts = [" ".join(draw.choice(WORDS[5:]) for _ in range(draw.randrange(1, 36))) for _ in range(60)]
        alone = [server.ask(text, top_k=None) for text in texts]
        work = [draw.sample(range(60), draw.choice([1, 1, 1, 4, 17])) for _ in range(count)]
        seconds = []
        def ask(chosen):
            begin = time.monotonic()
            answers = server.ask([texts[i] for i in chosen], top_k=None)
            seconds.append(time.monotonic() - begin)
            for i, answer in zip(chosen, answers, strict=True):
                scores, wanted = ({one["label"]: one["score"] for one in of} for of in (answer, alone[i]))
                self.assertEqual(scores.keys(), wanted.keys())
                for label, score in scores.items():
                    self.assertAlmostEqual(score, wanted[label], 5)
        with concurrent.futures.ThreadPoolExecutor(64) as pool:
            list(pool.map(ask, work))
        self.assertEqual(len(seconds), count)
        print(f"{count} requests, p99 {sorted(seconds)[count * 99 // 100] * 1e3:.0f} ms", flush=True)
        server.stop()

    def test_overload_and_end(self):
        """More than the queue holds is refused at once; what is accepted is answered even after a signal."""
        server = Server(self, self.model("causal-lm", GPT2), "--workers", "2", "--queue-length", "2")
        def ask(_):
            status, headers, body = server.post({"inputs": "x", "parameters": {"max_new_tokens": 400}})
            if status == 429:
                self.assertIn(b"the queue is full: 2 in progress, 2 waiting", body)
            return status, headers.get("Retry-After")
        with concurrent.futures.ThreadPoolExecutor(24) as pool:
            answers = list(pool.map(ask, range(24)))
        refused = [retry for status, retry in answers if status == 429]
        self.assertTrue(refused and all(int(retry) >= 1 for retry in refused), answers)
        self.assertGreaterEqual(sum(status == 200 for status, _ in answers), 4)
        self.assertEqual(len(refused) + sum(status == 200 for status, _ in answers), 24)

        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            running = [pool.submit(ask, i) for i in range(2)]
            self.wait_for(lambda: b"requests_working 2" in server.request("GET", "/metrics")[2], "two requests")
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual([future.result()[0] for future in running], [200] * 2)
        self.assertEqual(server.process.wait(60), 0)
        self.assertTrue(server.refuses_connections())
        self.assertEqual(server.lines[-1], "stopped\n")

        # New connections are refused at once, and a second signal does not wait for old ones.
        server = Server(self, self.model("causal-lm", GPT2))
        body = b'{"inputs": "x", "parameters": {"max_new_tokens": 1}}'
        half, silent = (server.raw(POST + b"Content-Length: %d\r\n\r\n" % len(body)) for _ in range(2))
        server.ask("x", max_new_tokens=1)
        server.process.send_signal(signal.SIGTERM)
        self.wait_for(server.refuses_connections, "the end of listening", 30)
        half.sendall(body)
        self.assertTrue(half.recv(1000).startswith(b"HTTP/1.1 200"))
        self.assertIsNone(server.process.poll())
        time.sleep(0.5)  # signals that come together are one
        server.process.send_signal(signal.SIGTERM)
        self.assertEqual(server.process.wait(30), 1)
        self.assertIn("ended by a second signal; some requests are not answered", server.process.stderr.read())
        silent.close()

    def test_ranks(self):
        """Ranks of a pipeline and of tensor parallelism answer as one does, even after a time without requests."""
        expected = {}
        training = {"ddp_timeout": 8}
        for name, sections in {"one": {}, "ranks": {"p": 2, "t": 2, "communicator": "threads", "training": training},
                               "mpi": {"p": 2, "communicator": "mpi"}}.items():
            for task, keys, text in (("sequence-classification", BERT, "this film is good"), ("causal-lm", GPT2, "ab")):
                with self.subTest(layout=name, task=task):
                    server = Server(self, self.model(task, keys, **sections))
                    if name == "ranks" and task == "causal-lm":
                        time.sleep(10)  # longer than ranks wait for others
                    answers = server.ask([text, text * 2], **({"max_new_tokens": 8} if task == "causal-lm" else {}))
                    expected.setdefault(task, answers)
                    if task == "causal-lm":
                        self.assertEqual(answers, expected[task])
                    else:
                        for got, wanted in zip(answers, expected[task], strict=True):
                            self.assertEqual(got["label"], wanted["label"])
                            self.assertAlmostEqual(got["score"], wanted["score"], 5)
                    server.stop()
        self.assert_all_gone()

    def train_classifier(self):
        """Trains a classifier into the folder `out`."""
        with open(self.dir / "train.csv", "w", newline="") as file:
            csv.writer(file).writerows([["text", "label"]] + 6 * [["good film", "yes"], ["bad film", "no"], ["a film", "maybe"]])
        self.expect(0, "train", self.config(task="sequence-classification", model={"config": BERT}, data={
            "train": "train.csv", "tokenizer": "tokenizer", "text_column": "text", "sequence_length": 16},
            training={"max_steps": 1}))

    def test_platform(self):
        """Without arguments, `serve` (also as the program's name) uses a platform's model path, port and addresses."""
        self.train_classifier()
        shutil.copytree(self.dir / "out", self.dir / "ml/model")
        (self.dir / "serve").symlink_to(PROGRAM)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.env.update(SAGEMAKER_BASE_DIR=str(self.dir / "ml"), SAGEMAKER_BIND_TO_PORT=str(port))
        for process in (lambda: self.start("serve"), lambda: self.start(program=self.dir / "serve")):
            server = Server(self, process=process())
            self.assertTrue(server.lines[-1].endswith(f" on http://0.0.0.0:{port}\n"), server.lines)
            socket.create_connection(("127.0.0.2", port)).close()
            self.assertEqual(len(server.ask("good")), 1)
            server.stop()
        server = Server(self, "ml/model")  # --port has precedence
        self.assertNotEqual(server.port, port)
        self.assertIn(" on http://127.0.0.1:", server.lines[-1])
        server.stop()
        self.env["SAGEMAKER_BASE_DIR"] = "/nowhere"
        self.expect(2, "serve", says="/nowhere/model, where hosting platforms put a model, does not exist")
        if not os.path.exists("/opt/ml/model"):
            del self.env["SAGEMAKER_BASE_DIR"]
            self.expect(2, "serve", says="/opt/ml/model, where hosting platforms put a model, does not exist")

    def test_hosting(self):
        """The conventions of hosting platforms: model.tar.gz, variables, the names of tasks."""
        self.train_classifier()
        self.expect(0, "pack", "out", "model.tar.gz", says="wrote model.tar.gz")
        with tarfile.open(self.dir / "model.tar.gz") as archive:
            self.assertIn("config.json", archive.getnames())
        self.env.update(SAGEMAKER_MODEL_SERVER_WORKERS="3", HF_TASK="text-classification")
        answers = []
        for place in ("out", "model.tar.gz"):
            server = Server(self, place)
            answers.append(server.ask("good"))
            server.stop()
        self.assertEqual(answers[0], answers[1])
        self.env["HF_TASK"] = "translation"
        self.expect(2, "serve", "out", says="HF_TASK: the task \"translation\" is not served")
        self.env["HF_TASK"] = "question-answering"
        self.expect(2, "serve", "out", says="which the task needs")
        self.env["HF_TASK"] = "text-classification"
        self.env["SAGEMAKER_MODEL_SERVER_WORKERS"] = "many"
        self.expect(2, "serve", "out", says="SAGEMAKER_MODEL_SERVER_WORKERS: must be an integer")
        del self.env["SAGEMAKER_MODEL_SERVER_WORKERS"]
        for name, kind in (("../outside", tarfile.REGTYPE), ("/outside", tarfile.REGTYPE), ("link", tarfile.SYMTYPE)):
            with tarfile.open(self.dir / "hostile.tar.gz", "w:gz") as archive:
                entry = tarfile.TarInfo(name)
                entry.type, entry.linkname = kind, "/etc/passwd"
                archive.addfile(entry, io.BytesIO())
            self.expect(1, "serve", "hostile.tar.gz", says="hostile.tar.gz: ")
            self.assertFalse((self.dir.parent / "outside").exists())
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            self.expect(2, "serve", "out", "--port", str(taken.getsockname()[1]), says="choose another port")


if __name__ == "__main__":
    unittest.main()
