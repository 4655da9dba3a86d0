// One point of the layout matrix: a layout, and the model and batch that run on it.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace shardline::parity {

// Tiny models with sizes that do not divide evenly: 5 layers, hidden 24.
struct Shape {
  int heads = 6, vocab = 1009, inner = 96, sequence = 33;
};

inline constexpr int kSteps = 10, kFewSteps = 4;

struct Point {
  int d = 1, p = 1, t = 1;
  std::string optimize = "speed", pipeline = "interleaved", placement = "DPT";
  // "float64", "float32", "bf16", "bf16 fp32 residuals" (and attention in fp32), "fp16", "fp16 scaled scores", "fp16
  // overflowing" (some steps are skipped)
  std::string dtype = "float64";
  int microbatches = 1, accumulation = 1, active = 0;
  bool dropout = false;  // with probability 0.1; in float64 with noise on the embeddings
  bool tied = true;
  bool short_batch = false;  // every other step has fewer than half the samples: some microbatches are empty
  bool ignored = false;      // some labels do not count
  bool smoothing = false;    // smooths labels by 0.1
  std::string checkpointing = "none";
  std::string offload = "off";  // or an offload_scope
  bool states_on_host = false;  // on accelerators
  // Across all replicas, or "MiCS 2" across pairs of replicas, without gathering ahead. "ZeRO-3 weights" does not shard
  // small parameters.
  std::string sharding = "none";
  std::string units = "split";  // "split": T splits all units; otherwise, split_rules() leaves some whole
  // For causal-lm and completions. "packed": each sample consists of several documents. "apart": each of these
  // documents is a sample, so that a step has more samples than global_batch says.
  std::string packing = "off";
  // How samples of tasks with labels and completions are passed. "dynamic": each with its own length. "left", "right":
  // as tokenised rows that are padded to one length and masked, which must make no difference. "counted": padded on the
  // right, with a mask that includes all tokens.
  std::string padding = "dynamic";
  // "gpt2", "gptj" or "gpt_neo"; with a task other than causal-lm also "bert", "roberta", "xlm-roberta" or
  // "distilbert"; or one of traced_models(), each with its task.
  std::string model = "gpt2";
  // Other tasks have samples of any length up to the sequence. Also "regression" and "several labels", which are
  // sequence classification, and "completions", which is causal-lm. "seq2seq-lm" is for a traced model.
  std::string task = "causal-lm";
  std::string shape = "6 heads";
  std::string trained = "all";              // or a name whose trained_patterns() select parameters; others are frozen
  std::string optim = "adamw_torch_fused";  // "sgd": with momentum
  int global_batch = 12;
  int steps = kSteps;  // optimizer steps, learning rate 1e-3

  int world() const { return d * p * t; }
  // The parts of `pipeline`: "interleaved_1f1b v3" is a schedule with 3 chunks on each stage.
  std::string schedule() const;
  int chunks_per_stage() const;
  std::string name() const;
  // Points with equal keys describe the same run of the same model and must give the same numbers.
  std::string reference_key() const;
  // That run: one process, one microbatch.
  Point reference() const;
};

// "6 heads"; "3 heads" with an inner size that is not a multiple of anything; "1 head" with 3 words and 3 inner
// features, so that of 4 ranks some have none; "2 tokens", fewer than ranks.
Shape shape_of(const Point& point);

// smp_options.tensor_parallel_layers of the point.
nlohmann::json split_rules(const Point& point);

// Whether transformers has a head for the task of the point in its model.
bool has_head(const Point& point);

// training.trainable of the point.
nlohmann::json trained_patterns(const Point& point);

// The world has at most 16 ranks; there are samples for every microbatch, a layer for every chunk, and stages where
// chunks need them.
bool feasible(const Point& point);
// The point with the smallest of a few global batch sizes that its microbatches divide.
Point with_batch(Point point);
// The point with few steps if more would repeat what they do: the loss scale of fp16 changes later.
Point with_few_steps(Point point);

// The limits of the differences between two runs of a point: gradients of step 1 and norm relative to the largest,
// losses relative, parameter change in relative L2 per tensor.
struct Limits {
  double gradient, norm, loss, change;
  double zero;               // relative to the layer's largest gradient: smaller ones are zero except for rounding
  bool rounding_moves;       // the optimizer turns such rounding into steps, so the change of those elements is ignored
  bool zero_layers = false;  // all gradients of a layer may be exactly zero: compared with the model's largest
};
Limits limits_of(const std::string& dtype);
Limits limits_of(const Point& point);

}  // namespace shardline::parity
