"""A running `shardline serve`, its clients, and small models for it."""
import http.client
import json
import pathlib
import socket
import threading
import time

from harness import ProgramTest, signal

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] a film is good bad fine dull this that very not and the plot cast".split()
BERT = {"model_type": "bert", "vocab_size": len(WORDS), "hidden_size": 24, "num_hidden_layers": 2,
        "num_attention_heads": 2, "intermediate_size": 40, "max_position_embeddings": 40,
        "id2label": {"0": "no", "1": "maybe", "2": "yes"}, "label2id": {"no": 0, "maybe": 1, "yes": 2}}
GPT2 = {"model_type": "gpt2", "vocab_size": 256, "n_positions": 512, "n_embd": 16, "n_layer": 2, "n_head": 2}
POST = b"POST /invocations HTTP/1.1\r\nHost: x\r\n"


class Server:
    """A running `shardline serve`; `port` is known once it serves."""
    def __init__(self, test, *arguments, process=None):
        self.test = test
        self.process = process or test.start("serve", *arguments, "--port", "0")
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

    def pid(self, rank=None):
        """The id of the serving process, or of a rank; None while it does not run. `process` is the one the test started."""
        found = self.test.processes().items()
        return next((pid for pid, of in found if of == rank and pid != self.process.pid), None)

    def peak_mib(self):
        status = pathlib.Path(f"/proc/{self.pid()}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) / 1024

    def count(self, name):
        text = self.request("GET", "/metrics")[2].decode()
        return float(next(line for line in text.splitlines() if line.startswith(f"shardline_{name} ")).split()[1])

    def refuses_connections(self):
        try:
            self.raw(b"").close()
            return False
        except ConnectionRefusedError:
            return True

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(60)
        errors = self.process.stderr.read()
        self.test.assertEqual(code, 0, errors)
        return errors


class Load:
    """Clients that repeat the same request, each time on a new connection, until `end` is called."""
    def __init__(self, server, body, clients=6):
        self.server, self.body = server, body
        self.requests = []  # for each request, the time when it began, and its answer or None
        self.is_over = threading.Event()
        self.threads = [threading.Thread(target=self.run) for _ in range(clients)]
        for thread in self.threads:
            thread.start()
        server.test.addCleanup(self.end)

    def run(self):
        while not self.is_over.is_set():
            begin, answer = time.monotonic(), None
            try:
                status, _, body = self.server.post(self.body)
                answer = json.loads(body) if status == 200 else None
            except (OSError, http.client.HTTPException):
                time.sleep(0.01)
            self.requests.append((begin, answer))

    def wait_for(self, count, since=0.0):
        """Waits for `count` answers to requests that began at `since` or later."""
        self.server.test.wait_for(
            lambda: sum(begin >= since and answer is not None for begin, answer in list(self.requests)) >= count,
            f"{count} answers", 120)

    def end(self):
        self.is_over.set()
        for thread in self.threads:
            thread.join()


class Serving(ProgramTest):
    def setUp(self):
        super().setUp()
        (self.dir / "tokenizer").mkdir()
        (self.dir / "tokenizer/vocab.txt").write_text("\n".join(WORDS) + "\n")

    def model(self, task="sequence-classification", keys=None, **sections):
        return self.config(task=task, model={"config": keys or BERT, "init": "random"},
                           data={"tokenizer": "bytes" if task == "causal-lm" else "tokenizer"}, **sections)

    def assert_same(self, answers, expected):
        """Compares scores with a tolerance: the order of rounding may depend on the size of the batch."""
        self.assertEqual([answer["label"] for answer in answers], [answer["label"] for answer in expected])
        for answer, of in zip(answers, expected):
            self.assertAlmostEqual(answer["score"], of["score"], 6)
