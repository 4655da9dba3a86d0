"""A server of models: clients cannot harm it, and it continues after failures."""
import concurrent.futures
import json
import os
import select
import signal
import socket
import threading
import time

from harness import unittest
from served import BERT, GPT2, Load, POST, Server, Serving

UPLOAD = 300_000_000
LONG_LABELS = [letter * 1000 for letter in "abc"]  # make answers large


class Failures(Serving):
    def test_clients(self):
        """Bodies that are too large, clients that are slow or lost, and invalid HTTP do not affect other clients."""
        server = Server(self, self.model(), "--max-body", "0.5", "--timeout", "3")
        server.ask("good")
        before = server.peak_mib()
        status, _, _ = server.post(b'{"inputs": "' + b"x" * 600_000 + b'"}')
        self.assertEqual(status, 413)
        self.assertEqual(server.count('requests_total{status="413"}'), 1)
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
        self.assertEqual(server.count('requests_total{status="431"}'), 1)
        # If a body does not arrive in time, the connection is closed.
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

    def upload(self, server, is_chunked):
        """Sends 300 MB, or until the connection ends. Returns the answer, and how much was sent before it came."""
        client = server.raw(POST + (b"Transfer-Encoding: chunked" if is_chunked else b"Content-Length: %d" % UPLOAD) + 2 * b"\r\n")
        piece = b"10000\r\n" + b"x" * 65536 + b"\r\n" if is_chunked else b"x" * 65536
        answer, sent, sent_before, reads = b"", 0, None, [client]
        try:
            while sent < UPLOAD:
                readable, writable, _ = select.select(reads, [client], [], 60)
                if readable:
                    received = client.recv(65536)
                    sent_before = sent if sent_before is None else sent_before
                    answer += received
                    reads = [client] if received else []
                if writable:
                    client.sendall(piece)
                    sent += 65536
        except OSError:
            pass  # the server has ended the connection
        client.close()
        return answer, sent if sent_before is None else sent_before

    def slow_reader(self, server):
        """A client that takes only the beginning of an answer of 6 MB."""
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(60)
        client.connect(("127.0.0.1", server.port))
        body = json.dumps({"inputs": ["good"] * 2000, "parameters": {"top_k": None}}).encode()
        client.sendall(POST + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.assertEqual(client.recv(15), b"HTTP/1.1 200 OK")
        return client

    def test_uploads(self):
        """Uploads of 300 MB are refused early. Meanwhile others are answered, and the memory stays bounded."""
        server = Server(self, self.model(keys={**BERT, "id2label": dict(enumerate(LONG_LABELS)),
                                               "label2id": {name: i for i, name in enumerate(LONG_LABELS)}}),
                        "--max-body", "1", "--timeout", "6")
        server.ask("good")
        before = server.peak_mib()
        half = [server.raw(POST + b"Content-Length: 1000000\r\n\r\n" + b"x" * 500_000) for _ in range(20)]
        half += [server.raw(b"POST /invoc") for _ in range(20)]
        slow = [self.slow_reader(server) for _ in range(6)]
        pings, is_over = [], threading.Event()
        def ping():
            while not is_over.is_set():
                pings.append(server.ping())
                server.ask("good")
        with concurrent.futures.ThreadPoolExecutor(7) as pool:
            pinging = pool.submit(ping)
            uploads = list(pool.map(lambda i: self.upload(server, i % 2 == 0), range(12)))
            is_over.set()
            pinging.result()
        for answer, sent in uploads:
            self.assertTrue(answer.startswith(b"HTTP/1.1 413") or not answer, answer)
            self.assertLess(sent, UPLOAD / 8)
        self.assertTrue(any(answer for answer, _ in uploads))
        print(f"{len(pings)} pings during uploads of 300 MB, the slowest {max(pings) * 1e3:.0f} ms", flush=True)
        self.assertLess(max(pings), 2)
        # Clients that neither send nor read lose their connections.
        self.wait_for(lambda: server.count("connections") <= 21, "the end of slow connections", 30)
        for client in slow:
            taken = 0
            try:
                while received := client.recv(1 << 20):
                    taken += len(received)
            except OSError:
                pass
            self.assertLess(taken, 6_000_000)
        for client in half[:20]:
            self.assertEqual(client.recv(10), b"")
        for client in slow + half:
            client.close()
        grown = server.peak_mib() - before
        print(f"peak memory grew by {grown:.0f} MiB", flush=True)
        self.assertLess(grown, 200)
        server.stop()

    def test_held_bodies(self):
        """Unanswered bodies may take 128 MiB together; one more is refused."""
        server = Server(self, self.model(), "--max-body", "16")
        server.ask("good")
        before = server.peak_mib()
        held = []
        for _ in range(9):
            client = server.raw(POST + b"Content-Length: 16000000\r\n\r\n")
            held.append(client)
            try:
                client.sendall(b"x" * 15_999_999)
            except OSError:
                pass  # refused
        refused = self.wait_for(lambda: select.select(held, [], [], 0)[0], "a refusal", 30)[0]
        self.assertTrue(refused.recv(1000).startswith(b"HTTP/1.1 503"))
        self.assertLess(server.ping(), 2)
        server.ask("good")
        for client in held:
            client.close()
        self.wait_for(lambda: server.count("connections") == 1, "the end of the connections", 30)
        server.refuses(413, b"x" * 17_000_000, "--max-body")
        server.refuses(400, b"x" * 16_000_000, "the request:1:")
        self.assertLess(server.peak_mib() - before, 256)
        server.stop()

    def test_killed_processes(self):
        """Only requests inside a killed process fail: other clients wait for the next one."""
        for name, sections, serves, killed in (("one", {}, None, None),
                                               ("ranks", {"p": 2, "t": 2, "communicator": "mpi"}, 0, 3)):
            with self.subTest(layout=name):
                server = Server(self, self.model("causal-lm", GPT2, **sections))
                body = {"inputs": "ab", "parameters": {"max_new_tokens": 8}}
                expected = server.ask("ab", max_new_tokens=8)
                load = Load(server, body)
                load.wait_for(30)
                for count in range(2):
                    serving, victim = server.pid(serves), server.pid(killed)
                    os.kill(victim, signal.SIGKILL)
                    self.wait_for(lambda: serving not in self.processes(), "the end of the process")
                    gone = time.monotonic()
                    server.ping()
                    load.wait_for(30, gone)
                    late = [answer for begin, answer in list(load.requests) if begin >= gone]
                    self.assertEqual([answer for answer in late if answer != expected], [])
                    self.assertIsNone(server.process.poll())
                load.end()
                self.assertEqual([answer for _, answer in load.requests if answer not in (None, expected)], [])
                errors = server.stop()
                self.assertEqual(errors.count("restarting the server; connections wait meanwhile"), 2, errors)
                self.assertIn("was killed by signal 9 (Killed)", errors)
                self.assertEqual(sum(line.startswith("serving ") for line in server.lines), 3)
        self.assert_all_gone()

    def test_failures_in_succession(self):
        """A server that is killed again and again is given up, and one whose launcher is killed ends with it."""
        server = Server(self, self.model())
        kills = 0
        while server.process.poll() is None and kills < 20:
            self.wait_for(lambda: sum(line.startswith("serving ") for line in server.lines) > kills, "the server")
            victim = server.pid()
            os.kill(victim, signal.SIGKILL)
            kills += 1
            self.wait_for(lambda: victim not in self.processes(), "the end of the process")
            self.wait_for(lambda: server.process.poll() is not None or server.pid(), "the next process")
        errors = server.process.stderr.read()
        self.assertEqual((server.process.wait(), kills), (1, 6), errors)
        self.assertIn("the server failed 6 times in succession without having served for 60 s", errors)
        self.assertIn("error: the process that serves", errors.splitlines()[-1])
        server = Server(self, self.model())
        server.process.kill()
        self.assert_all_gone()

    def test_time_limit(self):
        """A request that takes too long is given up, and others are answered."""
        server = Server(self, self.model("causal-lm", GPT2), "--timeout", "1")
        begin = time.monotonic()
        server.refuses(504, {"inputs": ["x"] * 2000, "parameters": {"max_new_tokens": 400}}, "--timeout")
        self.assertLess(time.monotonic() - begin, 20)
        self.wait_for(lambda: server.count("items_waiting") == 0, "the end of the work", 30)
        self.assertEqual(len(server.ask("x", max_new_tokens=4)), 1)
        self.assertIn(b'shardline_requests_total{status="504"} 1\n', server.request("GET", "/metrics")[2])
        server.stop()


if __name__ == "__main__":
    unittest.main()
