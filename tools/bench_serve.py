"""Throughput of `shardline serve` and of a FastAPI server around transformers that batches dynamically, in turns.

    python tools/bench_serve.py build/tools/shardline MODEL_DIRECTORY [--task text-classification | text-generation]
        [--clients 64] [--requests 2000] [--rounds 5] [--cores 0,1] [--json FILE]

Both servers run on the same cores, one at a time, and get the same requests of mixed lengths from the same number of
clients, which run on the other cores if there are any. Prints requests per second and latencies of each round, and the
ratio of the medians. The peer, which this script also is (--peer), collects requests for up to 5 ms into batches of at
most 32 and pads them; texts are continued in batches that start together. Needs torch, transformers, fastapi, uvicorn.
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
NEW_TOKENS = 32
BATCH, PATIENCE = 32, 0.005


# ---- the peer

def answer_batch(task, model, tokenizer, texts):
    import torch
    inputs = tokenizer(texts, return_tensors="pt", padding=True)
    with torch.inference_mode():
        if task == "text-classification":
            scores, labels = model(**inputs).logits.softmax(-1).max(-1)
            names = model.config.id2label
            return [[{"label": names[int(label)], "score": float(score)}] for score, label in zip(scores, labels)]
        made = model.generate(**inputs, max_new_tokens=NEW_TOKENS, do_sample=False,
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
            answers = await loop.run_in_executor(None, answer_batch, options.task, model, tokenizer, texts)
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

def bodies(options):
    draw = random.Random(7)
    parameters = {"max_new_tokens": NEW_TOKENS} if options.task == "text-generation" else {}
    for _ in range(options.requests):
        length = min(options.longest, max(3, int(draw.lognormvariate(3, 0.7))))
        yield json.dumps({"inputs": " ".join(draw.choice(TEXT) for _ in range(length)), "parameters": parameters})


def load(options, port):
    """Requests per second, and the latencies."""
    work, lock, latencies, wrong = list(bodies(options)), threading.Lock(), [], []

    def client():
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        while True:
            with lock:
                if not work:
                    return
                body = work.pop()
            begin = time.perf_counter()
            connection.request("POST", "/invocations", body, {"Content-Type": "application/json"})
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
    return options.requests / (time.perf_counter() - begin), sorted(latencies)


def serve_and_load(options, name):
    port = options.port
    if name == "shardline":
        command = [options.program, "serve", options.model, "--port", str(port), "--task", options.task, "--workers",
                   str(options.clients)]
    else:
        command = [sys.executable, __file__, options.program, options.model, "--task", options.task, "--port",
                   str(port), "--peer"]
    cores = ",".join(map(str, options.cores))
    server = subprocess.Popen(["taskset", "-c", cores, *command], stdout=subprocess.DEVNULL)
    try:
        for _ in range(600):
            time.sleep(0.2)
            try:
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
                connection.request("GET", "/ping")
                connection.getresponse().read()
                break
            except OSError:
                if server.poll() is not None:
                    sys.exit(f"{name} ended with {server.returncode}")
        warm = argparse.Namespace(**{**vars(options), "requests": 4 * options.clients})
        load(warm, port)
        return load(options, port)
    finally:
        server.terminate()
        server.wait(60)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--task", default="text-classification", choices=["text-classification", "text-generation"])
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--longest", type=int, default=100, help="words of a text at most")
    parser.add_argument("--cores", type=lambda text: [int(core) for core in text.split(",")],
                        default=sorted(os.sched_getaffinity(0)))
    parser.add_argument("--port", type=int, default=18080)
    parser.add_argument("--json", help="file for all numbers")
    parser.add_argument("--peer", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        return run_peer(options)
    others = os.sched_getaffinity(0) - set(options.cores)
    if others:
        os.sched_setaffinity(0, others)
    rates = {"shardline": [], "peer": []}
    for turn in range(options.rounds):
        for name in list(rates) if turn % 2 == 0 else list(rates)[::-1]:
            rate, latencies = serve_and_load(options, name)
            rates[name].append(rate)
            p50, p99 = latencies[len(latencies) // 2], latencies[len(latencies) * 99 // 100]
            print(f"{name:10} {rate:8.1f} requests/s  p50 {p50 * 1e3:7.1f} ms  p99 {p99 * 1e3:7.1f} ms", flush=True)
    ratio = statistics.median(rates["shardline"]) / statistics.median(rates["peer"])
    print(f"ratio of the medians: {ratio:.2f}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"rates": rates, "ratio": ratio}, file)


if __name__ == "__main__":
    main()
