"""Throughput of `shardline serve` and of servers around transformers, alternately.

    python tools/bench_serve.py build/tools/shardline MODEL_DIRECTORY [--task text-classification | text-generation]
        [--peers fastapi,transformers-serve] [--clients 64] [--requests 2000] [--rounds 5] [--cores 0,1] [--json FILE]

The servers run on the same cores, one at a time, and receive the same requests of mixed lengths from the same number of
clients, which run on the other cores if there are any. Prints requests per second and latencies of each round, and the
ratio of the medians to each peer. The peers:

- `fastapi` is a server in this script (--serve). It collects requests for up to 5 ms into batches of at most 32 and pads
  them; texts are continued in batches that start together.
- `transformers-serve` is `transformers serve` with its endpoint /v1/completions, for text generation only;
  `transformers-serve-cb` is the same with --continuous-batching.

Needs torch, transformers, fastapi, uvicorn, and `transformers[serving]` for the latter.
"""
import argparse
import asyncio
import http.client
import json
import os
import random
import statistics
import subprocess
import sys
import threading
import time

TEXT = """the plot of this film is not bad but a little dull and nobody that I know would return value for such a very
long import of self references where every scene if none else has one more function than the last""".split()
BATCH, PATIENCE = 32, 0.005


# ---- the peer

def answer_batch(task, model, tokenizer, texts, new_tokens):
    import torch
    inputs = tokenizer(texts, return_tensors="pt", padding=True)
    with torch.inference_mode():
        if task == "text-classification":
            scores, labels = model(**inputs).logits.softmax(-1).max(-1)
            names = model.config.id2label
            return [[{"label": names[int(label)], "score": float(score)}] for score, label in zip(scores, labels)]
        made = model.generate(**inputs, max_new_tokens=new_tokens, do_sample=False,
                              pad_token_id=tokenizer.pad_token_id)
    new = made[:, inputs["input_ids"].shape[1]:]
    return [[{"generated_text": text + tokenizer.decode(ids, skip_special_tokens=True)}]
            for text, ids in zip(texts, new)]


def run_peer(options):
    import fastapi
    import torch
    import transformers
    import uvicorn
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)
    if options.task == "text-classification":
        model = transformers.AutoModelForSequenceClassification.from_pretrained(options.model).eval()
    else:
        tokenizer.padding_side = "left"
        tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
        model = transformers.AutoModelForCausalLM.from_pretrained(options.model).eval()
    app, waiting = fastapi.FastAPI(), asyncio.Queue()

    async def compute():
        loop = asyncio.get_running_loop()
        while True:
            batch = [await waiting.get()]
            end = loop.time() + PATIENCE
            while len(batch) < BATCH:
                try:
                    batch.append(await asyncio.wait_for(waiting.get(), max(0, end - loop.time())))
                except asyncio.TimeoutError:
                    break
            texts = [text for text, _ in batch]
            answers = await loop.run_in_executor(None, answer_batch, options.task, model, tokenizer, texts,
                                                 options.new_tokens)
            for (_, future), answer in zip(batch, answers):
                future.set_result(answer)

    @app.on_event("startup")
    async def start():
        app.state.computing = asyncio.create_task(compute())

    @app.get("/ping")
    async def ping():
        return {}

    @app.post("/invocations")
    async def invocations(request: fastapi.Request):
        future = asyncio.get_running_loop().create_future()
        await waiting.put(((await request.json())["inputs"], future))
        return await future

    uvicorn.run(app, host="127.0.0.1", port=options.port, log_level="error")


# ---- the clients

def texts(count, longest):
    draw = random.Random(7)
    for _ in range(count):
        length = min(longest, max(3, int(draw.lognormvariate(3, 0.7))))
        yield " ".join(draw.choice(TEXT) for _ in range(length))


def body(options, server, text):
    if server.startswith("transformers-serve"):
        return json.dumps({"model": options.model, "prompt": text, "max_tokens": options.new_tokens, "temperature": 0})
    generation = options.task == "text-generation"
    return json.dumps({"inputs": text, "parameters": {"max_new_tokens": options.new_tokens} if generation else {}})


def load(options, server, count):
    """Requests per second, and the latencies."""
    path = "/v1/completions" if server.startswith("transformers-serve") else "/invocations"
    work = [body(options, server, text) for text in texts(count, options.longest)]
    lock, latencies, wrong = threading.Lock(), [], []

    def client():
        connection = http.client.HTTPConnection("127.0.0.1", options.port, timeout=300)
        while True:
            with lock:
                if not work:
                    return
                request = work.pop()
            begin = time.perf_counter()
            connection.request("POST", path, request, {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer = response.read()
            with lock:
                latencies.append(time.perf_counter() - begin)
                if response.status != 200:
                    wrong.append(answer)

    threads = [threading.Thread(target=client) for _ in range(options.clients)]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if wrong:
        sys.exit(f"{len(wrong)} requests failed: {wrong[0]!r}")
    return count / (time.perf_counter() - begin), sorted(latencies)


def command(options, server):
    port = str(options.port)
    if server == "shardline":
        return [options.program, "serve", options.model, "--port", port, "--task", options.task, "--workers",
                str(options.clients)]
    if server == "fastapi":
        return [sys.executable, __file__, options.program, options.model, "--task", options.task, "--port", port,
                "--new-tokens", str(options.new_tokens), "--serve"]
    return [sys.executable, "-m", "transformers.cli.transformers", "serve", options.model, "--host", "127.0.0.1",
            "--port", port, "--device", "cpu", "--dtype", "float32", "--log-level", "error",
            *(["--continuous-batching"] if server == "transformers-serve-cb" else [])]


def serve_and_load(options, name):
    health = "/health" if name.startswith("transformers-serve") else "/ping"
    cores = ",".join(map(str, options.cores))
    log = subprocess.DEVNULL if not options.log else open(options.log, "ab")
    server = subprocess.Popen(["taskset", "-c", cores, *command(options, name)], stdout=log,
                              stderr=log if options.log else None)
    try:
        for _ in range(600):
            time.sleep(0.2)
            try:
                connection = http.client.HTTPConnection("127.0.0.1", options.port, timeout=5)
                connection.request("GET", health)
                connection.getresponse().read()
                break
            except OSError:
                if server.poll() is not None:
                    sys.exit(f"{name} ended with {server.returncode}")
        load(options, name, min(options.requests, 4 * options.clients))
        return load(options, name, options.requests)
    finally:
        server.terminate()
        try:
            server.wait(60)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--task", default="text-classification", choices=["text-classification", "text-generation"])
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--longest", type=int, default=100, help="maximum number of words in a text")
    parser.add_argument("--cores", type=lambda text: [int(core) for core in text.split(",")],
                        default=sorted(os.sched_getaffinity(0)))
    parser.add_argument("--peers", type=lambda text: text.split(","), default=["fastapi"])
    parser.add_argument("--new-tokens", type=int, default=32, help="tokens to generate")
    parser.add_argument("--port", type=int, default=18080)
    parser.add_argument("--json", help="file for all numbers")
    parser.add_argument("--log", help="file for the output of the servers")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return run_peer(options)
    others = os.sched_getaffinity(0) - set(options.cores)
    if others:
        os.sched_setaffinity(0, others)
    rates = {name: [] for name in ["shardline", *options.peers]}
    for turn in range(options.rounds):
        for name in list(rates) if turn % 2 == 0 else list(rates)[::-1]:
            rate, latencies = serve_and_load(options, name)
            rates[name].append(rate)
            p50, p99 = latencies[len(latencies) // 2], latencies[len(latencies) * 99 // 100]
            print(f"{name:21} {rate:8.1f} requests/s  p50 {p50 * 1e3:7.1f} ms  p99 {p99 * 1e3:7.1f} ms", flush=True)
    ours = statistics.median(rates["shardline"])
    ratios = {name: ours / statistics.median(rates[name]) for name in options.peers}
    for name, ratio in ratios.items():
        rounds = [mine / theirs for mine, theirs in zip(rates["shardline"], rates[name])]
        print(f"{name}: ratio of the medians {ratio:.2f} (by round {min(rounds):.2f} to {max(rounds):.2f})")
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"rates": rates, "ratios": ratios}, file)


if __name__ == "__main__":
    main()
