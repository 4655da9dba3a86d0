#include "tests/parity/traced_models.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/silu.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <tuple>

#include "models/traced/traced_family.h"
#include "tests/parity/random_examples.h"

namespace shardline::parity {
namespace {

using at::Tensor;
using nlohmann::json;
using torch::nn::Embedding;
using torch::nn::LayerNorm;
using torch::nn::Linear;
using torch::nn::ModuleList;

constexpr int64_t kWidth = 24, kPositions = 40, kBlocks = 5;

struct Sizes {
  int64_t words, heads, inner;
  double dropout;
  bool tied;
};

LayerNorm norm_of_width() {
  return LayerNorm(torch::nn::LayerNormOptions({kWidth}));
}

Tensor positions_of(const Tensor& ids) {
  return at::arange(ids.size(1), ids.options());
}

// Queries from x and keys and values from `of`.
struct Attention : torch::nn::Module {
  explicit Attention(const Sizes& s)
      : sizes(s),
        head(std::max<int64_t>(kWidth / s.heads, 1)),
        q(kWidth, s.heads * head),
        kv(kWidth, 2 * s.heads * head),
        out(s.heads * head, kWidth) {
    register_module("q", q);
    register_module("kv", kv);
    register_module("out", out);
  }
  // mask: [batch, 1, 1, keys], the keys to attend to; undefined: causal
  Tensor forward(const Tensor& x, const Tensor& of, const Tensor& mask) {
    const auto by_head = [&](const Tensor& y) {
      return y.view({y.size(0), y.size(1), sizes.heads, -1}).transpose(1, 2);
    };
    const auto both = kv(of).chunk(2, -1);
    const auto seen = mask.defined() ? std::optional(mask) : std::nullopt;
    const auto mixed = at::scaled_dot_product_attention(by_head(q(x)), by_head(both[0]), by_head(both[1]), seen,
                                                        is_training() ? sizes.dropout : 0.0, !seen);
    return out(mixed.transpose(1, 2).flatten(2));
  }
  const Sizes sizes;
  const int64_t head;
  Linear q, kv, out;
};

struct Mlp : torch::nn::Module {
  explicit Mlp(const Sizes& s) : sizes(s), gate(kWidth, s.inner), up(kWidth, s.inner), down(s.inner, kWidth) {
    register_module("gate", gate);
    register_module("up", up);
    register_module("down", down);
  }
  Tensor forward(const Tensor& x) { return at::dropout(down(at::silu(gate(x)) * up(x)), sizes.dropout, is_training()); }
  const Sizes sizes;
  Linear gate, up, down;
};

// A block of an encoder, or of a decoder that has a source.
struct Block : torch::nn::Module {
  explicit Block(const Sizes& s, bool has_source = false, std::shared_ptr<Mlp> shared = nullptr)
      : norm1(norm_of_width()),
        norm2(norm_of_width()),
        own(std::make_shared<Attention>(s)),
        mlp(shared ? shared : std::make_shared<Mlp>(s)) {
    register_module("norm1", norm1);
    register_module("own", own);
    if (has_source) {
      norm_of_source = norm_of_width();
      register_module("norm_of_source", norm_of_source);
      source = register_module("source", std::make_shared<Attention>(s));
    }
    register_module("norm2", norm2);
    register_module("mlp", mlp);
  }
  Tensor forward(Tensor x, const Tensor& mask = {}, const Tensor& of = {}, const Tensor& mask_of_source = {}) {
    const auto y = norm1(x);
    x = x + own->forward(y, y, mask);
    if (source) x = x + source->forward(norm_of_source(x), of, mask_of_source);
    return x + mlp->forward(norm2(x));
  }
  LayerNorm norm1, norm2, norm_of_source = nullptr;
  std::shared_ptr<Attention> own, source;
  std::shared_ptr<Mlp> mlp;
};

ModuleList blocks_of(const Sizes& s, int64_t count, bool has_source = false) {
  ModuleList blocks;
  for (int64_t i = 0; i < count; ++i) blocks->push_back(std::make_shared<Block>(s, has_source));
  return blocks;
}

struct Embedded : torch::nn::Module {
  explicit Embedded(const Sizes& s) : words(s.words, kWidth), positions(kPositions, kWidth) {
    register_module("words", words);
    register_module("positions", positions);
  }
  Tensor forward(const Tensor& ids) { return words(ids) + positions(positions_of(ids)); }
  Embedding words, positions;
};

// Logits from the tied table, or from a separate one.
struct Head : torch::nn::Module {
  explicit Head(const Sizes& s) : norm(norm_of_width()) {
    register_module("norm", norm);
    if (!s.tied) own = register_parameter("own", Linear(kWidth, s.words)->weight);
  }
  Tensor forward(const Tensor& x, const Embedded& embedded) {
    return at::linear(norm(x), own.defined() ? own : embedded.words->weight);
  }
  LayerNorm norm;
  Tensor own;
};

// Nested modules.
struct Nested : torch::nn::Module {
  struct Body : torch::nn::Module {
    explicit Body(const Sizes& s) : layers(blocks_of(s, kBlocks)) { register_module("layers", layers); }
    Tensor forward(Tensor x) {
      for (const auto& layer : *layers) x = layer->as<Block>()->forward(x);
      return x;
    }
    ModuleList layers;
  };
  explicit Nested(const Sizes& s) {
    front = register_module("front", std::make_shared<Embedded>(s));
    body = register_module("body", std::make_shared<Body>(s));
    head = register_module("head", std::make_shared<Head>(s));
  }
  Tensor forward(const Tensor& ids) { return head->forward(body->forward(front->forward(ids)), *front); }
  std::shared_ptr<Embedded> front;
  std::shared_ptr<Body> body;
  std::shared_ptr<Head> head;
};

// The results of early blocks are inputs of late ones, across all stages between them; computes its own loss.
struct Skips : torch::nn::Module {
  explicit Skips(const Sizes& s) : blocks(blocks_of(s, kBlocks)) {
    front = register_module("front", std::make_shared<Embedded>(s));
    register_module("blocks", blocks);
    register_module("joins", joins);
    for (int64_t i = 0; i < kBlocks / 2; ++i) joins->push_back(Linear(2 * kWidth, kWidth));
    head = register_module("head", std::make_shared<Head>(s));
  }
  std::tuple<Tensor, Tensor> forward(const Tensor& ids, const Tensor& labels) {
    Tensor x = front->forward(ids);
    std::vector<Tensor> early;
    for (int64_t i = 0; i < kBlocks; ++i) {
      if (i > kBlocks / 2) {
        x = joins->ptr<torch::nn::LinearImpl>(i - kBlocks / 2 - 1)->forward(at::cat({x, early.back()}, -1));
        early.pop_back();
      }
      x = blocks->ptr<Block>(i)->forward(x);
      if (i < kBlocks / 2) early.push_back(x);
    }
    const auto logits = head->forward(x, *front);
    const auto rows = logits.narrow(1, 0, logits.size(1) - 1).reshape({-1, logits.size(2)});
    return {at::cross_entropy_loss(rows, labels.narrow(1, 1, labels.size(1) - 1).reshape({-1})), logits};
  }
  std::shared_ptr<Embedded> front;
  ModuleList blocks, joins;
  std::shared_ptr<Head> head;
};

// An encoder and a decoder, with three inputs.
struct Pairs : torch::nn::Module {
  explicit Pairs(const Sizes& s) : encoder(blocks_of(s, 3)), decoder(blocks_of(s, 3, true)), norm(norm_of_width()) {
    front = register_module("front", std::make_shared<Embedded>(s));
    register_module("encoder", encoder);
    register_module("norm", norm);
    register_module("decoder", decoder);
    head = register_module("head", std::make_shared<Head>(s));
  }
  Tensor forward(const Tensor& ids, const Tensor& attention_mask, const Tensor& target) {
    const auto seen = attention_mask.to(at::kBool).unsqueeze(1).unsqueeze(1);
    Tensor x = front->forward(ids);
    for (const auto& block : *encoder) x = block->as<Block>()->forward(x, seen);
    const auto source = norm(x);
    Tensor y = front->forward(target);
    for (const auto& block : *decoder) y = block->as<Block>()->forward(y, {}, source, seen);
    return head->forward(y, *front);
  }
  std::shared_ptr<Embedded> front;
  ModuleList encoder, decoder;
  LayerNorm norm;
  std::shared_ptr<Head> head;
};

// All blocks have the same MLP, and the first one is also the last one.
struct Shared : torch::nn::Module {
  explicit Shared(const Sizes& s) {
    front = register_module("front", std::make_shared<Embedded>(s));
    register_module("blocks", blocks);
    const auto mlp = std::make_shared<Mlp>(s);
    for (int64_t i = 0; i + 1 < kBlocks; ++i) blocks->push_back(std::make_shared<Block>(s, false, mlp));
    blocks->push_back(blocks[0]);
    head = register_module("head", std::make_shared<Head>(s));
  }
  Tensor forward(const Tensor& ids) {
    Tensor x = front->forward(ids);
    for (const auto& block : *blocks) x = block->as<Block>()->forward(x);
    return head->forward(x, *front);
  }
  std::shared_ptr<Embedded> front;
  ModuleList blocks;
  std::shared_ptr<Head> head;
};

// A convolutional network before the blocks, and classes for samples of any length.
struct Conv : torch::nn::Module {
  explicit Conv(const Sizes& s)
      : conv1(torch::nn::Conv1dOptions(kWidth, 2 * kWidth, 3).padding(1)),
        conv2(torch::nn::Conv1dOptions(2 * kWidth, kWidth, 5).padding(2)),
        blocks(blocks_of(s, kBlocks)),
        classes(kWidth, kLabels) {
    front = register_module("front", std::make_shared<Embedded>(s));
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("blocks", blocks);
    register_module("classes", classes);
  }
  Tensor forward(const Tensor& ids, const Tensor& attention_mask) {
    const auto seen = attention_mask.to(at::kBool).unsqueeze(1).unsqueeze(1);
    Tensor x = front->forward(ids);
    const auto of_rows = attention_mask.unsqueeze(1).to(x.scalar_type());
    x = at::relu(conv1(x.transpose(1, 2) * of_rows)) * of_rows;
    x = conv2(x).transpose(1, 2);
    for (const auto& block : *blocks) x = block->as<Block>()->forward(x, seen);
    const auto weights = of_rows.transpose(1, 2);
    return (classes(x) * weights).sum(1) / weights.sum(1);
  }
  std::shared_ptr<Embedded> front;
  torch::nn::Conv1d conv1, conv2;
  ModuleList blocks;
  Linear classes;
};

// An encoder with a number of outputs for each token.
struct Encoder : torch::nn::Module {
  Encoder(const Sizes& s, int64_t count) : blocks(blocks_of(s, 3)), outputs(kWidth, count) {
    front = register_module("front", std::make_shared<Embedded>(s));
    register_module("blocks", blocks);
    register_module("outputs", outputs);
  }
  Tensor forward(const Tensor& ids, const Tensor& attention_mask) {
    const auto seen = attention_mask.to(at::kBool).unsqueeze(1).unsqueeze(1);
    Tensor x = front->forward(ids);
    for (const auto& block : *blocks) x = block->as<Block>()->forward(x, seen);
    return outputs(x);
  }
  Tensor of_first(const Tensor& ids, const Tensor& attention_mask) { return forward(ids, attention_mask).select(1, 0); }
  std::tuple<Tensor, Tensor, Tensor> answers(const Tensor& ids, const Tensor& attention_mask, const Tensor& first,
                                             const Tensor& last) {
    const auto ends = forward(ids, attention_mask).unbind(-1);
    const auto loss = [&](const Tensor& logits, const Tensor& place) {
      return at::cross_entropy_loss(logits, place, {}, at::Reduction::Mean, ids.size(1));
    };
    return {(loss(ends[0], first) + loss(ends[1], last)) / 2, ends[0], ends[1]};
  }
  std::shared_ptr<Embedded> front;
  ModuleList blocks;
  Linear outputs;
};

struct Traced {
  std::string task;
  std::function<TracedModel(const Sizes&)> make;
};

template <class Net>
TracedModel model_of(const Sizes& sizes, std::vector<std::string> arguments,
                     std::vector<std::string> results = {"logits"}) {
  return {.vocab_size = sizes.words, .arguments = std::move(arguments), .results = std::move(results), .make = [sizes] {
            return traced_module(std::make_shared<Net>(sizes), &Net::forward);
          }};
}

template <class Forward>
Traced encoder(const std::string& task, int64_t outputs, Forward forward) {
  return {task, [=](const Sizes& s) {
            TracedModel model{.vocab_size = s.words, .arguments = {"input_ids", "attention_mask"}};
            model.make = [=] {
              return traced_module(std::make_shared<Encoder>(s, outputs > 0 ? outputs : s.words), forward);
            };
            if (task != "question-answering") return model;
            model.arguments.insert(model.arguments.end(), {"start_positions", "end_positions"});
            model.results = {"loss", "start_logits", "end_logits"};
            return model;
          }};
}

const std::map<std::string, Traced>& traced() {
  static const std::map<std::string, Traced> all = {
      {"traced regression", encoder("regression", 1, &Encoder::of_first)},
      {"traced several labels", encoder("several labels", kLabels, &Encoder::of_first)},
      {"traced token-classification", encoder("token-classification", kLabels, &Encoder::forward)},
      {"traced question-answering", encoder("question-answering", 2, &Encoder::answers)},
      {"traced masked-lm", encoder("masked-lm", 0, &Encoder::forward)},
      {"traced nested", {"causal-lm", [](const Sizes& s) { return model_of<Nested>(s, {"input_ids"}); }}},
      {"traced skips",
       {"causal-lm",
        [](const Sizes& s) {
          return model_of<Skips>(s, {"input_ids", "labels"}, {"loss", "logits"});
        }}},
      {"traced pairs",
       {"seq2seq-lm",
        [](const Sizes& s) {
          return model_of<Pairs>(s, {"input_ids", "attention_mask", "decoder_input_ids"});
        }}},
      {"traced shared", {"causal-lm", [](const Sizes& s) { return model_of<Shared>(s, {"input_ids"}); }}},
      {"traced conv", {"sequence-classification", [](const Sizes& s) {
                         return model_of<Conv>(s, {"input_ids", "attention_mask"});
                       }}}};
  return all;
}

// Called before any config is read, because the names that configs accept are listed only once.
const bool kAdded = [] {
  for (const auto& [name, model] : traced()) {
    const auto make = [make_sized = model.make](const json& config) {
      return make_sized({.words = config.at("words"),
                         .heads = config.at("heads"),
                         .inner = config.at("inner"),
                         .dropout = config.at("dropout"),
                         .tied = config.at("tied")});
    };
    const bool is_sequence = model.task == "regression" || model.task == "several labels";
    const auto kind = kind_of_task(is_sequence ? kSequenceClassification : model.task);
    add_family(name, family_of_traced(name, *kind, make));
  }
  return true;
}();

}  // namespace

bool is_traced(const Point& point) {
  return traced().contains(point.model);
}

const std::vector<std::string>& traced_models() {
  static const auto names = [] {
    std::vector<std::string> all;
    for (const auto& [name, model] : traced())
      if (name != "traced " + model.task) all.push_back(name);
    return all;
  }();
  return names;
}

std::vector<std::string> traced_encoders() {
  std::vector<std::string> all;
  for (const auto& [name, model] : traced())
    if (name == "traced " + model.task) all.push_back(name);
  return all;
}

std::string task_of_traced(const std::string& model) {
  return traced().at(model).task;
}

json traced_config(const Point& point) {
  const Shape shape = shape_of(point);
  return {{"model_type", point.model},
          {"words", shape.vocab},
          {"heads", shape.heads},
          {"inner", shape.inner},
          {"dropout", point.dropout ? 0.1 : 0.0},
          {"tied", point.tied}};
}

}  // namespace shardline::parity
