// Attention without dropout on GPUs: which operators and kernels run, and whether they give the same results as our
// loops. The device without hardware computes torch's flash attention.
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/randn.h>

#include "core/cuda/launch_log.h"
#include "tensor_parallel/kernels/cuda/cuda_kernels.h"
#include "tests/fake_device/fake_device.h"

#include "tests/catch.h"

namespace shardline::flash_attention_test {
namespace {

constexpr const char* kForward = "aten::_scaled_dot_product_flash_attention";
constexpr const char* kBackward = "aten::_scaled_dot_product_flash_attention_backward";

class OurKernels {
 public:
  OurKernels() { use_table(fake::device().type(), &cuda::kernel_table()); }
  ~OurKernels() { use_table(fake::device().type(), nullptr); }
};

struct Ran {
  std::map<std::string, int64_t> torchs;
  int64_t ours = 0;
  bool by_tokens = false;  // whether the next layer takes the result without a copy
};

// Runs a forward and a backward pass and compares the results with those of the loops.
Ran compared(at::ScalarType type, int64_t head_dim, const AttentionDropout& dropout = {}) {
  CAPTURE(type, head_dim, dropout.probability);
  const at::Tensor qkv = at::randn({2, 37, 3, 3, head_dim}, at::kDouble).to(type);
  const at::Tensor d_out = at::randn({2, 37, 3, head_dim}, at::kDouble).to(type).transpose(1, 2);
  const auto [q, k, v] = parts_of_qkv(qkv);
  const ScoreScale scale = 1 / std::sqrt(static_cast<double>(head_dim));
  const auto [out, log_sum_exp] = attention_forward(q, k, v, scale, dropout);
  const at::Tensor gradient = attention_backward(d_out, q, k, v, out, log_sum_exp, scale, dropout);

  AttentionDropout there = dropout;
  if (there.samples.defined()) there.samples = there.samples.to(fake::device());
  const auto [q2, k2, v2] = parts_of_qkv(qkv.to(fake::device()));
  const at::Tensor d_out2 = d_out.transpose(1, 2).to(fake::device()).transpose(1, 2);
  const OurKernels kernels;
  fake::take_counts();
  const cuda::LaunchLog log;
  const auto [out2, log_sum_exp2] = attention_forward(q2, k2, v2, scale, there);
  const at::Tensor gradient2 = attention_backward(d_out2, q2, k2, v2, out2, log_sum_exp2, scale, there);
  const Ran ran{fake::take_counts().launches, std::ssize(log.launches()), out2.transpose(1, 2).is_contiguous()};

  const double step = type == at::kBFloat16 ? 3e-2 : type == at::kHalf ? 4e-3 : 2e-5;
  const auto check = [&](const at::Tensor& actual, const at::Tensor& expected) {
    REQUIRE(actual.sizes() == expected.sizes());
    REQUIRE(actual.scalar_type() == expected.scalar_type());
    CHECK(at::allclose(actual.cpu().to(at::kDouble), expected.to(at::kDouble), step, step));
  };
  check(out2, out);
  check(log_sum_exp2, log_sum_exp);
  check(gradient2, gradient);
  CHECK(gradient2.is_contiguous());
  CHECK(fake::take_faults() == std::vector<std::string>());
  return ran;
}

}  // namespace

TEST_CASE("attention in half precision without dropout runs torch's flash attention and copies the gradients once") {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf})
    for (const int64_t head_dim : {8, 64, 256}) {
      const Ran ran = compared(type, head_dim);
      CHECK(ran.torchs == std::map<std::string, int64_t>{{kForward, 1}, {kBackward, 1}, {"aten::cat", 1}});
      CHECK(ran.ours == 0);
      CHECK(ran.by_tokens);
    }
}

TEST_CASE("attention that flash attention does not support runs our kernels") {
  const AttentionDropout dropout{
      .seed = 3, .op = 9, .step = 2, .probability = 0.25, .samples = at::arange(2, at::kLong), .max_positions = 40};
  for (const auto& [type, head_dim, drops] :
       {std::tuple{at::kFloat, 64, false}, {at::kBFloat16, 12, false}, {at::kHalf, 64, true}}) {
    const Ran ran = compared(type, head_dim, drops ? dropout : AttentionDropout());
    CHECK(ran.torchs.empty());
    CHECK(ran.ours == 3);
    CHECK(ran.by_tokens);
  }
}

TEST_CASE("attention that neither flash attention nor our kernels support runs ATen") {
  for (const int64_t head_dim : {200, 264}) {
    const Ran ran = compared(at::kBFloat16, head_dim);
    CHECK(ran.torchs.count(kForward) == 0);
    CHECK(ran.ours == 0);
  }
}

}  // namespace shardline::flash_attention_test
