"""A server of models: what it answers, and what clients cannot do to it."""
import concurrent.futures
import csv
import http.client
import io
import json
import os
import pathlib
import random
import socket
import tarfile
import threading
import time

from harness import ProgramTest, signal, unittest

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] a film is good bad fine dull this that very not and the plot cast".split()
BERT = {"model_type": "bert", "vocab_size": len(WORDS), "hidden_size": 24, "num_hidden_layers": 2,
        "num_attention_heads": 2, "intermediate_size": 40, "max_position_embeddings": 40,
        "id2label": {"0": "no", "1": "maybe", "2": "yes"}, "label2id": {"no": 0, "maybe": 1, "yes": 2}}
GPT2 = {"model_type": "gpt2", "vocab_size": 256, "n_positions": 512, "n_embd": 16, "n_layer": 2, "n_head": 2}


class Server:
    """A running `shardline serve`; `port` is known once it serves."""
    def __init__(self, test, *arguments, **options):
        self.test = test
        self.process = test.start("serve", *arguments, "--port", "0", **options)
        self.lines = []
        self.serving = threading.Event()
        self.port = None
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        test.addCleanup(self.kill)
        if not self.serving.wait(120) or self.port is None:
            self.process.kill()
            test.fail(f"no server: {self.process.communicate()}")

    def read(self):
        for line in self.process.stdout:
            self.lines.append(line)
            if line.startswith("serving "):
                self.port = int(line.rsplit(":", 1)[1])
                self.serving.set()
        self.serving.set()

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stdout.close()
        self.process.stderr.close()

    def connect(self, timeout=60):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def request(self, method, path, body=None, headers=None):
        connection = self.connect()
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return response.status, response.headers, response.read()
        finally:
            connection.close()

    def post(self, body, content_type="application/json", accept=None):
        headers = {"Content-Type": content_type}
        if accept:
            headers["Accept"] = accept
        return self.request("POST", "/invocations", body if isinstance(body, (bytes, str)) else json.dumps(body), headers)

    def ask(self, inputs, **parameters):
        status, _, body = self.post({"inputs": inputs, "parameters": parameters})
        self.test.assertEqual(status, 200, body)
        return json.loads(body)

    def refuses(self, status, body, says, content_type="application/json"):
        got, headers, answer = self.post(body, content_type)
        self.test.assertEqual(got, status, answer)
        self.test.assertIn(says, json.loads(answer)["message"])
        return headers

    def ping(self):
        begin = time.monotonic()
        status, _, _ = self.request("GET", "/ping")
        self.test.assertEqual(status, 200)
        return time.monotonic() - begin

    def raw(self, data):
        client = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        client.sendall(data)
        return client

    def peak_mib(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) / 1024

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.test.assertEqual(self.process.wait(60), 0, self.process.stderr.read())


class Serving(ProgramTest):
    def setUp(self):
        super().setUp()
        (self.dir / "tokenizer").mkdir()
        (self.dir / "tokenizer/vocab.txt").write_text("\n".join(WORDS) + "\n")

    def model(self, task="sequence-classification", keys=None, **sections):
        return self.config(task=task, model={"config": keys or BERT, "init": "random"},
                           data={"tokenizer": "bytes" if task == "causal-lm" else "tokenizer"}, **sections)

    def assert_same(self, answers, expected):
        """Products for other batch sizes may round in another order."""
        self.assertEqual([answer["label"] for answer in answers], [answer["label"] for answer in expected])
        for answer, of in zip(answers, expected):
            self.assertAlmostEqual(answer["score"], of["score"], 6)

    def test_answers(self):
        """Every content type has the same answers; mistakes are named."""
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
        server.refuses(400, {"inputs": "good", "parameters": {"topk": 1}}, "/parameters/topk: is not a parameter")
        server.refuses(400, {"inputs": ["good", 3]}, "/inputs/1: must be a text")
        server.refuses(400, {"inputs": ["good", "film " * 50]}, "/inputs/1: has more than the 40 tokens")
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
        """Tags, answers, masked words and texts."""
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

    def test_texts(self):
        """Continued prompts do not depend on what passes through the model beside them."""
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
        server.refuses(400, {"inputs": "x" * 600}, "/inputs: has more than the 512 tokens")
        server.refuses(400, {"inputs": "x", "parameters": {"temperature": 2}}, "/parameters/temperature: has no effect")
        server.stop()

    def test_clients(self):
        """Bodies that are too large, slow and lost clients, and invalid HTTP do not affect other clients."""
        server = Server(self, self.model(), "--max-body", "0.5", "--timeout", "3")
        server.ask("good")
        before = server.peak_mib()
        # With a length, the body is not even read; without, it ends at the limit.
        client = server.raw(b"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Length: 300000000\r\n\r\n")
        self.assertIn(b"413", client.recv(1000))
        client.close()
        client = server.raw(b"POST /invocations HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
        sent = 0
        try:
            while sent < 300_000_000:
                client.sendall(chunk)
                sent += 65536
        except OSError:
            pass
        client.close()
        status, _, _ = server.post(b'{"inputs": "' + b"x" * 600_000 + b'"}')
        self.assertEqual(status, 413)
        self.assertLess(server.peak_mib() - before, 60)

        slow = [server.raw(b"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{") for _ in range(40)]
        half_open = [server.raw(b"POST /invoc") for _ in range(40)]
        for _ in range(3):
            self.assertLess(server.ping(), 2)
            server.ask("good")
        lost = server.raw(b'POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Length: 18\r\n\r\n{"inputs": "good"}')
        lost.close()
        for garbage in (b"\x00\xff\x13 nothing\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"POST /invocations HTTP/1.1\r\nContent-Length: x\r\n\r\n",
                        b"GET /ping HTTP/1.1\r\n" + b"A: " + b"b" * 30000 + b"\r\n\r\n"):
            client = server.raw(garbage)
            self.assertTrue(client.recv(1000).startswith(b"HTTP/1.1 4"), garbage[:40])
            client.close()
        # A body that does not arrive in time ends its connection.
        slow[0].settimeout(30)
        self.assertEqual(slow[0].recv(10), b"")
        for client in slow + half_open:
            client.close()
        # Connections are kept.
        connection = server.connect()
        for _ in range(3):
            connection.request("POST", "/invocations", json.dumps({"inputs": "good"}), {"Content-Type": "application/json"})
            self.assertEqual(connection.getresponse().read()[:1], b"[")
        connection.close()
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
        """More than the queue holds is refused at once; what is accepted is answered also after a signal."""
        server = Server(self, self.model("causal-lm", GPT2), "--workers", "2", "--queue-length", "2")
        def ask(_):
            status, headers, body = server.post({"inputs": "x", "parameters": {"max_new_tokens": 400}})
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
        self.assertRaises(OSError, server.raw, b"GET /ping HTTP/1.1\r\n\r\n")
        self.assertEqual(server.lines[-1], "stopped\n")

    def test_ranks(self):
        """Ranks of a pipeline and of tensor parallelism answer as one does, also after a time without requests."""
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

    def test_hosting(self):
        """The conventions of hosting platforms: model.tar.gz, variables, the names of tasks."""
        with open(self.dir / "train.csv", "w", newline="") as file:
            csv.writer(file).writerows([["text", "label"]] + 6 * [["good film", "yes"], ["bad film", "no"], ["a film", "maybe"]])
        self.expect(0, "train", self.config(task="sequence-classification", model={"config": BERT}, data={
            "train": "train.csv", "tokenizer": "tokenizer", "text_column": "text", "sequence_length": 16},
            training={"max_steps": 1}))
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
