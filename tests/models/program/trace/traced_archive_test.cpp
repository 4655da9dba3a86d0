#include "models/program/trace/traced_archive.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>
#include <torch/nn/functional/dropout.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "core/error.h"
#include "include/shardline/function.h"
#include "models/graph/torch_seed.h"
#include "models/program/layers/program_buffers.h"
#include "tests/models/program/program_run.h"

#include "tests/catch.h"

namespace shardline::traced_archive_test {
namespace {

using Catch::Matchers::Contains;
using Arguments = std::vector<at::Tensor>;

constexpr int64_t kWords = 31, kHidden = 12, kPositions = 9;

struct Block : torch::nn::Module {
  Block() : norm(torch::nn::LayerNormOptions({kHidden})), in(kHidden, 3 * kHidden), out(kHidden, kHidden) {
    register_module("norm", norm);
    register_module("in", in);
    register_module("out", out);
  }
  at::Tensor forward(const at::Tensor& x) {
    const auto heads = in(norm(x)).view({x.size(0), x.size(1), 3, 3, kHidden / 3}).permute({2, 0, 3, 1, 4});
    const auto mixed = at::scaled_dot_product_attention(heads[0], heads[1], heads[2], {}, 0.0, /*is_causal=*/true);
    return x +
           torch::nn::functional::dropout(out(mixed.transpose(1, 2).reshape(x.sizes())),
                                          torch::nn::functional::DropoutFuncOptions().p(drops).training(is_training()));
  }
  double drops = 0;
  torch::nn::LayerNorm norm;
  torch::nn::Linear in, out;
};

// A language model as a LibTorch user would write it: nested modules, a tied table, sizes from its arguments.
struct Net : torch::nn::Module {
  Net() : words(kWords, kHidden), positions(kPositions, kHidden), norm(torch::nn::LayerNormOptions({kHidden})) {
    register_module("words", words);
    register_module("positions", positions);
    register_module("blocks", blocks);
    for (int i = 0; i < 3; ++i) blocks->push_back(std::make_shared<Block>());
    register_module("norm", norm);
  }
  at::Tensor forward(const at::Tensor& ids) {
    auto x = words(ids) + positions(at::arange(ids.size(1), ids.options()));
    for (const auto& block : *blocks) x = block->as<Block>()->forward(x);
    return at::linear(norm(x), words->weight);
  }
  torch::nn::Embedding words, positions;
  torch::nn::ModuleList blocks;
  torch::nn::LayerNorm norm;
};

at::Tensor shifted_loss(const at::Tensor& logits, const at::Tensor& labels) {
  const auto rows = logits.narrow(1, 0, logits.size(1) - 1).reshape({-1, logits.size(2)});
  return at::cross_entropy_loss(rows, labels.narrow(1, 1, labels.size(1) - 1).reshape({-1}));
}

using Forward = std::function<at::Tensor(Net& net, const at::Tensor& ids)>;

TracedModel model_of(const Forward& forward) {
  TracedModel model{
      .vocab_size = kWords, .arguments = {"input_ids", "labels"}, .results = {"loss", "logits"}, .name = "words"};
  model.make = [forward] {
    const auto net = std::make_shared<Net>();
    return TracedModule{net, [net, forward](const Arguments& arguments) {
                          const auto logits = forward(*net, arguments.at(0));
                          return std::vector<at::Tensor>{shifted_loss(logits, arguments.at(1)), logits};
                        }};
  };
  return model;
}

Pt2Archive archive_of(const TracedModel& model, uint64_t seed = 3) {
  return traced_archive(model, {}, seed, kPositions);
}

TracedModel whole_model() {
  return model_of([](Net& net, const at::Tensor& ids) { return net.forward(ids); });
}

// ids with the same values on every machine
at::Tensor ids_of(int64_t samples, int64_t length) {
  return (at::arange(samples * length, at::kLong) * 7 % kWords).view({samples, length});
}

void check_refused(const Forward& forward, const std::string& message) {
  CAPTURE(message);
  CHECK_THROWS_WITH(archive_of(model_of(forward)), Contains("model words") && Contains(message));
}

struct Doubled : torch::autograd::Function<Doubled> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x * 2; }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*, torch::autograd::variable_list y) {
    return {y[0] * 3};
  }
};

// The values up to a limit, times the number of rows; the gradient is not that of forward.
struct Limited : torch::autograd::Function<Limited> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& scale,
                            double limit, int times) {
    context->save_for_backward({x, scale});
    context->saved_data["rows"] = x.size(0) * x.size(1);
    context->saved_data["limit"] = limit;
    return x.clamp_max(limit) * scale * (times * x.size(0) * x.size(1));
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list y) {
    const auto saved = context->get_saved_variables();
    const auto below = (saved[0] < context->saved_data["limit"].toDouble()).to(y[0].scalar_type());
    return {y[0] * below * 7, (y[0] * saved[0]).sum() / context->saved_data["rows"].toInt() * saved[1], {}, {}};
  }
};

at::Tensor doubled(const at::Tensor& x) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("traced_archive_test::doubled", "")
                             .typed<at::Tensor(const at::Tensor&)>();
  return op.call(x);
}

at::Tensor without_gradient(const at::Tensor& x) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("traced_archive_test::without_gradient", "")
                             .typed<at::Tensor(const at::Tensor&)>();
  return op.call(x);
}

TORCH_LIBRARY(traced_archive_test, library) {
  library.def("doubled(Tensor x) -> Tensor");
  library.def("without_gradient(Tensor x) -> Tensor");
}
TORCH_LIBRARY_IMPL(traced_archive_test, CPU, library) {
  library.impl("doubled", [](const at::Tensor& x) { return x * 2; });
  library.impl("without_gradient", [](const at::Tensor& x) {
    const at::AutoDispatchBelowAutograd as_kernels_with_pointers;  // autograd sees operators that a kernel calls
    return x * 2;
  });
}
TORCH_LIBRARY_IMPL(traced_archive_test, Autograd, library) {
  library.impl("doubled", [](const at::Tensor& x) { return Doubled::apply(x); });
}

}  // namespace

namespace {

// Checks that an operator is one call with its own gradient, on sizes that the trace has not seen.
void check_carried(const std::string& name, const std::function<at::Tensor(Net& net, const at::Tensor& x)>& of) {
  Pt2Archive archive = archive_of(model_of([&](Net& net, const at::Tensor& ids) { return of(net, net.forward(ids)); }));
  CHECK(std::ranges::count_if(archive.graph.nodes,
                              [&](const GraphNode& node) { return node.name.find(name) != std::string::npos; }) == 1);
  ProgramRun program(std::move(archive), kPositions, at::kDouble);
  const auto net = [] {
    const TorchSeed seed(3);
    return std::make_shared<Net>();
  }();
  net->to(at::kDouble);
  const auto ids = ids_of(2, 7);
  const auto loss = shifted_loss(of(*net, net->forward(ids)), ids);
  loss.backward();
  const LossTerm traced = program.train(causal_microbatch(ids, ids, at::arange(2)), 1.0 / 12);
  CHECK(traced.sum / traced.weight == Approx(loss.item<double>()).epsilon(1e-13));
  const auto gradients = program.gradients();
  for (const auto& item : net->named_parameters()) {
    CAPTURE(item.key());
    CHECK((gradients.at(item.key()) - item.value().grad()).abs().max().item<double>() < 1e-13);
  }
}

}  // namespace

TEST_CASE("an operator of the user's own is one call and keeps its gradient", "[trace]") {
  check_carried("traced_archive_test::doubled", [](Net&, const at::Tensor& x) { return doubled(x); });
}

TEST_CASE("a function that is applied as an operator is one call and keeps its gradient", "[trace]") {
  const auto limited = [](Net& net, const at::Tensor& x) {
    return apply_function<Limited>(x, net.norm->weight.sum(), 0.1, 2);
  };
  check_carried("shardline_functions::", limited);
  // As F::apply.
  const auto net = std::make_shared<Net>();
  const at::Tensor x = net->forward(ids_of(2, 5));
  CHECK(at::equal(limited(*net, x), Limited::apply(x, net->norm->weight.sum(), 0.1, 2)));
  const at::NoGradGuard no_grad;
  CHECK(at::equal(limited(*net, x), Limited::apply(x, net->norm->weight.sum(), 0.1, 2)));
}

TEST_CASE("calls belong to each of the modules that share a parameter", "[trace]") {
  struct Twice : torch::nn::Module {
    Twice() : words(kWords, kHidden), out(kHidden, kWords) {
      register_module("words", words);
      register_module("blocks", blocks);
      for (int i = 0; i < 2; ++i) blocks->push_back(torch::nn::Linear(kHidden, kHidden));
      blocks->push_back(blocks[0]);
      register_module("out", out);
    }
    at::Tensor forward(const at::Tensor& ids) {
      at::Tensor x = words(ids);
      for (const auto& block : *blocks) x = block->as<torch::nn::Linear>()->forward(x);
      return out(x);
    }
    torch::nn::Embedding words;
    torch::nn::ModuleList blocks;
    torch::nn::Linear out;
  };
  TracedModel model{.vocab_size = kWords,
                    .make = [] { return traced_module(std::make_shared<Twice>(), &Twice::forward); },
                    .name = "twice"};
  const auto program = cut_program(archive_of(model), {.loss_function = "cross_entropy"});
  const auto spec = spec_of_program(program, kPositions);
  CHECK(spec.block_count() == 3);
  CHECK(spec.param("blocks.2.weight").tied_to == "blocks.0.weight");
}

TEST_CASE("a traced module has the loss and the gradients of the module", "[trace]") {
  const int64_t samples = GENERATE(1, 4), length = GENERATE(2, 9);
  CAPTURE(samples, length);
  ProgramRun program(archive_of(whole_model()), kPositions, at::kDouble);
  CHECK(program.spec.block_count() == 3);
  CHECK(program.spec.vocab_size == kWords);
  CHECK(program.spec.max_positions == kPositions);
  CHECK(program.spec.param("head.words.weight").tied_to == "embedding.words.weight");

  const auto net = [] {
    const TorchSeed seed(3);
    return std::make_shared<Net>();
  }();
  net->to(at::kDouble);
  const auto ids = ids_of(samples, length);
  const auto loss = shifted_loss(net->forward(ids), ids);
  loss.backward();

  const LossTerm traced =
      program.train(causal_microbatch(ids, ids, at::arange(samples)), 1.0 / (samples * (length - 1)));
  CHECK(traced.sum / traced.weight == Approx(loss.item<double>()).epsilon(1e-13));
  const auto gradients = program.gradients();
  const auto parameters = net->named_parameters();
  CHECK(gradients.size() == parameters.size());
  for (const auto& item : parameters) {
    CAPTURE(item.key());
    CHECK((gradients.at(item.key()) - item.value().grad()).abs().max().item<double>() < 1e-13);
  }
}

TEST_CASE("dropout of a traced module is a function of seed and sample, and off in evaluation", "[trace]") {
  auto model = whole_model();
  model.make = [make = model.make] {
    const auto instance = make();
    for (const auto& module : instance.module->modules())
      if (auto* block = module->as<Block>()) block->drops = 0.4;
    return instance;
  };
  ProgramRun dropping(archive_of(model), kPositions, at::kDouble);
  ProgramRun whole(archive_of(whole_model()), kPositions, at::kDouble);
  const auto ids = ids_of(4, 9);
  const auto batch = causal_microbatch(ids, ids, at::arange(4));
  const double loss = dropping.train(batch).sum;
  CHECK(dropping.train(batch).sum == loss);
  CHECK(whole.train(batch).sum != loss);
  LossTerm evaluated;
  dropping.run(batch, Mode::evaluate, &evaluated);
  CHECK(evaluated.sum == Approx(whole.train(batch).sum).epsilon(1e-13));
}

TEST_CASE("a change in place becomes a new result if nothing else refers to the tensor", "[trace]") {
  const auto scaled = [](Net& net, const at::Tensor& ids) { return net.forward(ids).mul(2); };
  const auto in_place = [](Net& net, const at::Tensor& ids) { return net.forward(ids).mul_(2); };
  const auto ids = ids_of(2, 5);
  const auto batch = causal_microbatch(ids, ids, at::arange(2));
  ProgramRun one(archive_of(model_of(scaled)), kPositions, at::kDouble);
  ProgramRun other(archive_of(model_of(in_place)), kPositions, at::kDouble);
  CHECK(one.train(batch).sum == other.train(batch).sum);
}

TEST_CASE("a traced module may change its buffers if the new values depend only on buffers", "[trace]") {
  static bool follows_weights = false;
  struct Counting : Net {
    Counting() {
      steps = register_buffer("steps", at::zeros({}, at::kLong));
      share = register_buffer("share", at::ones({kWords}));
    }
    at::Tensor forward(const at::Tensor& ids) {
      steps.add_(1);
      share.mul_(0.5).add_(0.25);
      if (follows_weights) {
        const at::NoGradGuard no_grad;
        share.add_(words->weight.mean());
      }
      return Net::forward(ids) * (share + steps);
    }
    at::Tensor steps, share;
  };
  TracedModel model = model_of({});
  model.make = [] {
    const auto net = std::make_shared<Counting>();
    return TracedModule{net, [net](const Arguments& arguments) {
                          const auto logits = net->forward(arguments.at(0));
                          return std::vector<at::Tensor>{shifted_loss(logits, arguments.at(1)), logits};
                        }};
  };
  const Pt2Archive archive = archive_of(model);
  CHECK(archive.buffers == std::vector<std::string>{"steps", "share"});
  CHECK(archive.constants.at("steps").item<int64_t>() == 0);  // whatever the number of runs of the module
  const auto program = cut_program(archive);
  CHECK(buffer_values(*program, 3).at("steps").item<int64_t>() == 3);
  CHECK(buffer_values(*program, 3).at("share")[0].item<double>() == 0.5 + 0.5 / 8);
  const auto ids = ids_of(2, 5);
  ProgramRun run(program, at::kDouble);
  Counting net;
  // The same weights, called three times.
  const at::NoGradGuard no_grad;
  net.to(at::kDouble);
  for (auto& item : net.named_parameters()) item.value().copy_(archive.weights->tensor(item.key()));
  for (int64_t step = 1; step <= 3; ++step) {
    const double wanted = shifted_loss(net.forward(ids), ids).item<double>();
    const LossTerm loss = run.train(causal_microbatch(ids, ids, at::arange(2)), 1, step);
    CHECK(loss.sum / loss.weight == Approx(wanted).epsilon(1e-12));
  }
  follows_weights = true;
  CHECK_THROWS_WITH(cut_program(archive_of(model)),
                    Contains("changes its buffer share, whose new value depends on the parameter words.weight"));
}

TEST_CASE("copies that only some sizes need become calls for all sizes", "[trace]") {
  // With one sample, the transposed tensor is already contiguous.
  const auto transposed = [](Net& net, const at::Tensor& ids) {
    const auto logits = net.forward(ids).transpose(0, 1);
    return (logits.contiguous() + logits.tanh()).transpose(0, 1);
  };
  const auto without_copy = [](Net& net, const at::Tensor& ids) {
    const auto logits = net.forward(ids);
    return logits + logits.tanh();
  };
  // With five tokens, the first five are the whole tensor.
  const auto beginning = [](Net& net, const at::Tensor& ids) {
    const auto logits = net.forward(ids);
    const auto narrow = logits.narrow(1, 0, 5);
    return logits * (narrow.contiguous() + narrow.tanh()).mean(at::IntArrayRef({1, 2}), true);
  };
  const auto beginning_without_copy = [](Net& net, const at::Tensor& ids) {
    const auto logits = net.forward(ids);
    const auto narrow = logits.narrow(1, 0, 5);
    return logits * (narrow + narrow.tanh()).mean(at::IntArrayRef({1, 2}), true);
  };
  const int64_t samples = GENERATE(1, 3);
  const auto ids = ids_of(samples, 7);
  const auto batch = causal_microbatch(ids, ids, at::arange(samples));
  const auto check = [&](const Forward& copying, const Forward& plain) {
    ProgramRun one(archive_of(model_of(copying)), kPositions, at::kDouble);
    ProgramRun other(archive_of(model_of(plain)), kPositions, at::kDouble);
    CHECK(one.train(batch).sum == Approx(other.train(batch).sum).epsilon(1e-13));
    const auto gradients = one.gradients();
    for (const auto& [name, gradient] : other.gradients()) {
      CAPTURE(name);
      CHECK((gradients.at(name) - gradient).abs().max().item<double>() < 1e-13);
    }
  };
  check(transposed, without_copy);
  check(beginning, beginning_without_copy);
}

TEST_CASE("a call that a graph cannot express is refused by name", "[trace]") {
  check_refused([](Net& net, const at::Tensor& ids) { return without_gradient(net.forward(ids)); },
                "calls traced_archive_test::without_gradient, which has no gradient");
  check_refused([](Net& net, const at::Tensor& ids) { return net.forward(ids) * double(ids.max().item<int64_t>()); },
                "reads values of a tensor with aten::item");
  check_refused([](Net& net, const at::Tensor& ids) { return net.forward(ids.size(1) > 6 ? ids.flip(1) : ids); },
                "calls aten::arange for one batch but aten::flip for another, as call 1");
  check_refused(
      [](Net& net, const at::Tensor& ids) {
        return net.forward(ids).view({3, ids.size(1), kWords});
      },
      "fails with a batch of 4 samples of 5 tokens: ");
  check_refused([](Net& net, const at::Tensor& ids) { return net.forward(ids) * (1.0 / ids.size(1)); },
                "calls aten::mul.Scalar with different arguments for different batches");
  check_refused(
      [](Net& net, const at::Tensor& ids) { return net.forward(ids).index({at::ones({ids.size(0)}, at::kBool)}); },
      "indexes with a mask");
  check_refused([](Net& net, const at::Tensor& ids) { return Doubled::apply(net.forward(ids)); },
                "in words has a gradient of its own");
  check_refused([](Net& net, const at::Tensor& ids) { return Doubled::apply(net.forward(ids)); },
                "shardline::apply_function<F>(...) of <shardline/function.h> in place of F::apply(...)");
  check_refused(
      [](Net& net, const at::Tensor& ids) {
        return net.forward(ids).squeeze().view({-1, ids.size(1), kWords});
      },
      "computes the result of aten::squeeze in words with different dimensions or types for different sizes");
  check_refused(
      [](Net& net, const at::Tensor& ids) {
        return net.forward(ids) +
               at::batch_norm(net.words(ids).transpose(1, 2), {}, {}, {}, {}, true, 0.1, 1e-5, false).mean();
      },
      "in words calls aten::batch_norm, whose result for a sample depends on the other samples");
  check_refused(
      [](Net& net, const at::Tensor& ids) {
        const at::NoGradGuard no_grad;
        net.words->weight.mul_(0.9);
        return net.forward(ids);
      },
      "changes an argument or a parameter with aten::mul_");
  check_refused(
      [](Net& net, const at::Tensor& ids) {
        const auto logits = net.forward(ids);
        logits.select(2, 0).zero_();
        return logits;
      },
      "changes a tensor with aten::zero_ although it has views");
  check_refused([](Net& net, const at::Tensor& ids) { return net.forward(ids) * at::rand({kWords}); },
                "calls aten::rand; it draws from torch's random generator");
  check_refused(
      [](Net& net, const at::Tensor& ids) {
        return net.forward(ids) * at::arange(ids.size(1) * ids.size(1), at::kDouble).mean();
      },
      "has a size or a number in the result of aten::arange that does not follow from batch and length");
}

}  // namespace shardline::traced_archive_test
