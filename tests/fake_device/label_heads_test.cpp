// The ops of small heads on an accelerator give the same numbers as on a CPU, and the host waits only where a reason is
// named.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/variable.h>

#include <functional>

#include "core/comm/local_communicator.h"
#include "core/device/accelerator.h"
#include "core/model/backward.h"
#include "tensor_parallel/ops/label_loss.h"
#include "tensor_parallel/ops/picked_rows.h"
#include "tests/fake_device/fake_device.h"

#include "tests/catch.h"

namespace shardline::label_heads_test {
namespace {

constexpr int64_t kRows = 9, kLabels = 4;

Microbatch batch_on(at::Device device) {
  const auto targets = at::tensor(std::vector<int64_t>{0, 1, kNoLabel, kNoLabel, 2, 2}, at::kLong).view({3, 2});
  const auto labels = at::tensor(std::vector<int64_t>{kNoLabel, 1, 3, kNoLabel, 0, 2, kNoLabel, 1, 1}, at::kLong);
  return {.ids = at::zeros({kRows}, at::kLong).to(device),
          .labels = labels.to(device),
          .targets = targets.to(device),
          .ends = {2, 5, kRows}};
}

struct Result {
  LossTerm loss;
  at::Tensor gradient;
  std::map<std::string, int64_t> waits;
};

using Head = std::function<at::Tensor(const TensorParallel&, const at::Tensor& x, MicrobatchContext&)>;

Result run(const at::Tensor& values, at::Device device, const Head& head) {
  const CommunicatorPtr alone = make_local_world();
  const Microbatch batch = batch_on(device);
  const at::Tensor x = values.to(device).detach().requires_grad_(true);
  MicrobatchContext context{.batch = &batch, .loss_scale = 0.5};
  fake::take_counts();
  const at::Tensor loss = head({alone.get(), false}, x, context);
  const auto waits = fake::take_counts().waits;
  backward_on_this_thread({torch::autograd::impl::gradient_edge(loss)}, {at::ones({})});
  return {context.loss, x.grad().cpu(), waits};
}

void check(const at::Tensor& values, const std::map<std::string, int64_t>& waits, const Head& head) {
  const Result cpu = run(values, at::kCPU, head), device = run(values, fake::device(), head);
  CHECK(fake::take_faults().empty());
  CHECK(device.waits == waits);
  CHECK(device.loss.sum == cpu.loss.sum);
  CHECK(device.loss.weight == cpu.loss.weight);
  CHECK(at::equal(device.gradient, cpu.gradient));
}

}  // namespace

TEST_CASE("small heads on an accelerator wait only for values that the host needs") {
  const std::map<std::string, int64_t> once = {{"loss of a microbatch", 1}};
  check(at::randn({kRows, kLabels}), once, [](const auto& tp, const at::Tensor& x, MicrobatchContext& context) {
    return class_loss(tp, x, kRows, context.batch->labels, context);
  });
  check(at::randn({kRows, kLabels}), once, [](const auto& tp, const at::Tensor& x, MicrobatchContext& context) {
    const at::Tensor rows = last_rows(*context.batch);
    return squared_loss(tp, picked_rows(tp, x, kRows, rows), 3, on_device(at::ones({3, kLabels}), x.device()), context);
  });
  check(at::randn({kRows, kLabels}), {{"loss of a microbatch", 1}, {"number of labelled rows", 1}},
        [](const auto& tp, const at::Tensor& x, MicrobatchContext& context) {
          const at::Tensor rows = labelled_rows(*context.batch, 1);
          return binary_loss(tp, picked_rows(tp, x, kRows, rows), rows.numel(),
                             on_device(at::ones({rows.numel(), kLabels}), x.device()), context);
        });
  check(at::randn({kRows, 2}), {{"logits of answers", 1}, {"answers of a microbatch", 1}},
        [](const auto& tp, const at::Tensor& x, MicrobatchContext& context) { return answer_loss(tp, x, context); });
}

}  // namespace shardline::label_heads_test
