// The head and its loss on an accelerator: large blocks of tokens, rows of logits that begin at aligned addresses, and
// one wait of the host.
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/variable.h>

#include "core/comm/local_communicator.h"
#include "core/model/backward.h"
#include "tensor_parallel/kernels/kernel_table.h"
#include "tensor_parallel/ops/cross_entropy.h"
#include "tests/fake_device/fake_device.h"

#include "tests/catch.h"

namespace shardline::head_test {
namespace {

constexpr int64_t kVocabulary = 51, kHidden = 8;

std::vector<std::vector<int64_t>> blocks;  // sizes and row stride of the logits of each

// Records the logits, and lets ATen's operators compute.
class SeesLogits {
 public:
  SeesLogits() {
    blocks.clear();
    static KernelTable table;
    table = kernels_for(at::zeros({1}, fake::device()));
    table.whole_cross_entropy_ = [](at::Tensor logits, const at::Tensor&, at::Tensor, std::optional<double>) {
      blocks.push_back({logits.size(0), logits.size(1), logits.stride(0)});
      return false;
    };
    use_table(fake::device().type(), &table);
  }
  ~SeesLogits() { use_table(fake::device().type(), nullptr); }
};

struct Result {
  LossTerm loss;
  at::Tensor dx, dw;
};

Result run(const at::Tensor& ids, const at::Tensor& x, const at::Tensor& w, at::Device device) {
  const ParamSpec words{.name = "w", .shape = {kVocabulary, kHidden}, .split_dim = 0};
  const CommunicatorPtr alone = make_local_world();
  const Microbatch batch = causal_microbatch(ids.to(device), ids.to(device));
  Parameter parameter{.name = "w", .spec = &words, .value = w.to(device)};
  parameter.grad = at::zeros(w.sizes(), at::TensorOptions(device));
  const at::Tensor input = x.to(device).detach().requires_grad_(true);
  MicrobatchContext context{.batch = &batch, .mode = Mode::train, .loss_scale = 0.5};
  fake::take_counts();
  const at::Tensor loss = head_cross_entropy({alone.get(), false}, input, parameter, nullptr, 0, context);
  if (device.is_privateuseone())
    CHECK(fake::take_counts().waits == std::map<std::string, int64_t>{{"loss of a microbatch", 1}});
  backward_on_this_thread({torch::autograd::impl::gradient_edge(loss)}, {at::ones({})});
  return {context.loss, input.grad().cpu(), parameter.grad.cpu()};
}

}  // namespace

TEST_CASE("the head of an accelerator has few, large blocks with aligned rows, and the host waits once") {
  const SeesLogits sees;
  const int64_t samples = 6, length = 700, tokens = samples * length;
  const at::Tensor ids = at::randint(kVocabulary, {samples, length}, at::kLong);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    CAPTURE(type);
    blocks.clear();
    const at::Tensor x = at::randn({tokens, kHidden}).to(type), w = at::randn({kVocabulary, kHidden}).to(type);
    const Result cpu = run(ids, x, w, at::kCPU), device = run(ids, x, w, fake::device());
    const double close = type == at::kFloat ? 1e-5 : 2e-2;
    CHECK(device.loss.sum == Approx(cpu.loss.sum).epsilon(close));
    CHECK(device.loss.weight == samples * (length - 1));
    CHECK(at::allclose(device.dx.to(at::kFloat), cpu.dx.to(at::kFloat), close, close));
    CHECK(at::allclose(device.dw, cpu.dw, close, close * 30));
    const int64_t block = type == at::kFloat ? 2048 : 4096;
    std::vector<std::vector<int64_t>> expected;
    for (int64_t left = tokens; left > 0; left -= block) expected.push_back({std::min(left, block), kVocabulary, 64});
    CHECK(blocks == expected);
  }
  CHECK(head_block_tokens(at::kCPU, 4) == 256);
  CHECK(fake::take_faults() == std::vector<std::string>());
}

}  // namespace shardline::head_test
