#include "tests/parity/point.h"

#include <map>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "tests/parity/traced_models.h"

namespace shardline::parity {
namespace {

constexpr int kLayers = 7;  // embedding, 5 blocks, head

const std::map<std::string, Shape> kShapes = {
    {"6 heads", {}},
    {"3 heads", {.heads = 3, .inner = 50}},
    {"1 head", {.heads = 1, .vocab = 3, .inner = 3}},
    {"2 tokens", {.sequence = 2}},
};

// Patterns of the units that stay whole.
const std::map<std::string, std::vector<std::string>> kWhole = {
    {"split", {}},
    {"whole", {"*"}},
    {"attention whole", {"*attn"}},
    {"mlp whole", {"*mlp"}},
    {"embedding whole", {"embedding.*"}},  // a tied head follows
    {"mixed", {"h.[02].attn", "h.[0134].mlp", "head.*"}},
};

const std::map<std::string, std::vector<std::string>> kTrained = {
    {"all", {}},
    {"head", {"head.*"}},  // and the embedding's table, if they are tied
    {"last blocks", {"h.[34].*"}},
    {"two layers", {"h.1.attn.*", "h.3.mlp.proj.weight"}},
    {"biases", {"*bias"}},
};

}  // namespace

std::string Point::name() const {
  return cat("D", d, " P", p, " T", t, " ", placement, " ", optimize, " ", pipeline, " m", microbatches, " a",
             accumulation, active ? cat(" active ", active) : "", dropout ? " dropout" : "", tied ? "" : " untied",
             short_batch ? " short" : "", ignored ? " ignored" : "", smoothing ? " smoothed" : "",
             checkpointing == "none" ? "" : " " + checkpointing, offload == "off" ? "" : cat(" offload ", offload),
             states_on_host ? " states on the host" : "", sharding == "none" ? "" : " " + sharding,
             units == "split" ? "" : " " + units, ", ", model == "gpt2" ? "" : model + " ",
             task == "causal-lm" ? "" : task + " ", packing == "off" ? "" : packing + " ",
             padding == "dynamic" ? "" : cat("padding ", padding, " "), shape,
             trained == "all" ? "" : cat(", trained: ", trained),
             dtype == "float64"   ? ""
             : dtype == "float32" ? " fp32"
                                  : " " + dtype,
             optim == Point().optim ? "" : " " + optim);
}

std::string Point::schedule() const {
  return pipeline.substr(0, pipeline.find(' '));
}

int Point::chunks_per_stage() const {
  if (const size_t v = pipeline.find(" v"); v != std::string::npos) return pipeline[v + 2] - '0';
  return pipeline == "zbv" || pipeline == "dualpipev" ? 2 : 1;
}

std::string Point::reference_key() const {
  return cat(dtype, " ", model, " ", task, " ", packing, " ", shape, " ", trained, " ", global_batch, dropout, tied,
             short_batch, ignored, smoothing, " ", optim, " ", steps);
}

Point Point::reference() const {
  return {.dtype = dtype,
          .dropout = dropout,
          .tied = tied,
          .short_batch = short_batch,
          .ignored = ignored,
          .smoothing = smoothing,
          .packing = packing,
          .model = model,
          .task = task,
          .shape = shape,
          .trained = trained,
          .optim = optim,
          .global_batch = global_batch,
          .steps = steps};
}

Shape shape_of(const Point& point) {
  return kShapes.at(point.shape);
}

nlohmann::json split_rules(const Point& point) {
  if (point.units == "by rule" || is_traced(point)) return nullptr;
  nlohmann::json rules = nlohmann::json::array();
  // Also cases in which some ranks get nothing; the words are excluded if a choice was made for one of the two tables.
  rules.push_back({{"pattern", point.units == "split" ? "*" : "h.*"}, {"split", true}});
  for (const auto& pattern : kWhole.at(point.units))
    if (point.task.ends_with("-lm") || point.task == "completions" ||
        pattern != "head.*")  // the heads of other tasks are never split
      rules.push_back({{"pattern", pattern}, {"split", false}});
  return rules;
}

bool has_head(const Point& point) {
  if (is_traced(point)) return point.task == task_of_traced(point.model);
  if (point.task == "seq2seq-lm") return false;
  const bool is_decoder = point.model.starts_with("gpt");
  if (point.task == "causal-lm" || point.task == "completions") return is_decoder;
  if (point.task == "masked-lm") return !is_decoder;
  const bool is_sequence = point.task != "token-classification" && point.task != "question-answering";
  if (point.model == "gptj") return is_sequence || point.task == "question-answering";
  return true;
}

nlohmann::json trained_patterns(const Point& point) {
  return kTrained.at(point.trained);
}

bool feasible(const Point& point) {
  if (point.chunks_per_stage() > 1 && (point.p == 1 || point.p * point.chunks_per_stage() > kLayers)) return false;
  if (point.sharding != "none" && point.d == 1) return false;
  if (point.sharding == "MiCS 2" && point.d % 2 != 0) return false;
  if (is_traced(point) && point.smoothing && point.task != "causal-lm") return false;
  if (point.packing != "off" && point.task != "causal-lm" && point.task != "completions") return false;
  if (point.padding != "dynamic" && (point.task == "causal-lm" || point.task == "seq2seq-lm")) return false;
  return has_head(point) && point.world() <= 16 && point.microbatches * point.accumulation * point.d <= 24;
}

Point with_batch(Point point) {
  const int unit = point.microbatches * point.accumulation * point.d;
  for (const int batch : {12, 14, 15, 16, 18, 20, 21, 24})
    if (batch % unit == 0) {
      point.global_batch = batch;
      return point;
    }
  point.global_batch = unit;
  return point;
}

Point with_few_steps(Point point) {
  if (!point.dtype.starts_with("fp16")) point.steps = kFewSteps;
  return point;
}

Limits limits_of(const std::string& dtype) {
  if (dtype == "float64")
    return {.gradient = 1e-10, .norm = 1e-10, .loss = 1e-12, .change = 1e-8, .zero = 1e-9, .rounding_moves = false};
  return {.gradient = 1e-5, .norm = 1e-6, .loss = 2e-6, .change = 1e-3, .zero = 1e-6, .rounding_moves = true};
}

Limits limits_of(const Point& point) {
  Limits limits = limits_of(point.dtype);
  limits.rounding_moves = limits.rounding_moves || point.optim == "adafactor";  // nothing is compared with its epsilon
  if (point.task == "question-answering")  // a softmax over rows does not change when a bias moves all of them
    limits.rounding_moves = limits.zero_layers = true;
  if (point.shape == "2 tokens") limits.rounding_moves = true;  // query biases hardly move a softmax over two keys
  return limits;
}

}  // namespace shardline::parity
