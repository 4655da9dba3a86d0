"""The training step of transformers with torch.compile on random weights and ids; prints one JSON line.

  python3 gpu_peer.py '{"model_type": "gpt2", ...}' --batch 8 --microbatches 4 [--weights fp32|bf16] [--device cuda]

AdamW (fused), gradients clipped to norm 1, every step on the same ids. With fp32 weights products are bf16 by autocast;
with bf16 weights everything is bf16, including the optimizer's states. Started by gpu_check.py.
"""
import argparse
import json
import statistics
import time

import torch
from transformers import AutoConfig, AutoModelForCausalLM


def train_step(options, config):
    device = torch.device(options.device)
    with device:
        model = AutoModelForCausalLM.from_config(
            config, dtype=torch.bfloat16 if options.weights == "bf16" else torch.float32).train()
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.0, fused=True)
    torch.manual_seed(0)
    ids = torch.randint(config.vocab_size, (options.microbatches, options.batch, config.n_positions), device=device)

    def step():
        total = torch.zeros((), device=device)
        for part in ids:
            with torch.autocast(device.type, torch.bfloat16, enabled=options.weights == "fp32"):
                loss = compiled(input_ids=part, labels=part, use_cache=False).loss / options.microbatches
            loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return total.item()  # waits for the device

    return step


def measure(options):
    config = AutoConfig.for_model(**json.loads(options.config))
    try:
        step = train_step(options, config)
        losses, seconds = [], []
        for _ in range(options.warmup + options.steps):
            start = time.perf_counter()
            losses.append(step())
            if options.device == "cuda":
                torch.cuda.synchronize()
            seconds.append(time.perf_counter() - start)
    except torch.cuda.OutOfMemoryError as error:
        return {"out_of_memory": str(error)}
    measured = seconds[options.warmup:]
    median = statistics.median(measured)
    return {"torch": torch.__version__, "attention": getattr(config, "_attn_implementation", None), "loss": losses,
            "weights": options.weights, "step_seconds": median, "all_step_seconds": measured,
            "length": config.n_positions,
            "tokens_per_second": options.microbatches * options.batch * config.n_positions / median,
            "peak_bytes": torch.cuda.max_memory_allocated() if options.device == "cuda" else 0}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    for name, default in (("batch", 4), ("microbatches", 1), ("warmup", 2), ("steps", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--weights", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    print(json.dumps(measure(parser.parse_args())), flush=True)


if __name__ == "__main__":
    main()
