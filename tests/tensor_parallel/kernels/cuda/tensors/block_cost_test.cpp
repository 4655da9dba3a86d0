// What a block of GPT-2 costs an accelerator with our kernels: launches, and bytes of device memory read and written,
// counted while it runs forward and backward as on GPUs, except that our kernels and the products compute nothing.
#include <ATen/ops/zeros.h>
#include <c10/core/AutogradState.h>
#include <torch/csrc/autograd/autograd.h>

#include <iomanip>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "core/comm/local_communicator.h"
#include "core/cuda/launch_log.h"
#include "core/cuda/twin/grid.h"
#include "core/model/layer.h"
#include "models/families/families.h"
#include "tensor_parallel/kernels/cuda/cuda_kernels.h"
#include "tests/fake_device/fake_device.h"

#include "tests/catch.h"

namespace shardline::block_cost_test {
namespace {

// The device without hardware with these kernels. Neither ours nor products compute anything.
class AsOnGpus {
 public:
  explicit AsOnGpus(const KernelTable& kernels) {
    use_table(fake::device().type(), &kernels);
    twin::only_counts = true;
    fake::make_products(false);
    c10::AutogradState::get_tls_state().set_multithreading_enabled(false);  // launches are logged by thread
  }
  ~AsOnGpus() {
    use_table(fake::device().type(), nullptr);
    twin::only_counts = false;
    fake::make_products(true);
    c10::AutogradState::get_tls_state().set_multithreading_enabled(true);
  }
};

// The bytes that the products of a linear layer read and write, as the device counts them: forward, input gradient, and
// weight gradient, which is accumulated in fp32.
int64_t bytes_of_products(int64_t tokens, int64_t in, int64_t out) {
  const int64_t half = 2, full = 4, each = half * (tokens * in + tokens * out);
  return 3 * each + 2 * half * in * out + 2 * full * in * out;
}

// The unit U is the size of a border: tokens x hidden values in half precision.
struct Cost {
  int64_t launches;
  double all, products;
};

Cost cost_of_block(double dropout, const KernelTable& kernels = cuda::kernel_table()) {
  const AsOnGpus as_on_gpus(kernels);
  const int64_t batch = 8, length = 1024, hidden = 768, tokens = batch * length;
  const ModelSpec spec =
      model_spec({{"model_type", "gpt2"}, {"attn_pdrop", dropout}, {"resid_pdrop", dropout}}, "config.json", false);
  const LayerSpec& block = spec.layers.at(1);
  const auto full = at::TensorOptions(fake::device()), half = full.dtype(at::kBFloat16), whole = full.dtype(at::kLong);
  std::vector<Parameter> parameters;
  for (const auto& param : block.params)
    parameters.push_back({.name = block.full_name(param),
                          .spec = &param,
                          .value = at::zeros(param.shape, half),
                          .grad = at::zeros(param.shape, full)});
  const CommunicatorPtr alone = make_local_world();
  LayerBuild build{.spec = &block, .tp = alone.get(), .index = 1};
  for (auto& parameter : parameters) build.params.push_back(&parameter);
  const auto layer = block.build(build);
  const Microbatch microbatch = causal_microbatch(at::zeros({batch, length}, whole), {}, at::zeros({batch}, whole));
  WeightGradQueue queue;
  queue.immediate = true;
  MicrobatchContext context{.batch = &microbatch, .seed = 1, .step = 1, .weight_grads = &queue};

  const at::Tensor input = at::zeros({tokens, hidden}, half).requires_grad_(true);
  const at::Tensor gradient = at::zeros({tokens, hidden}, half);
  fake::take_counts();
  const cuda::LaunchLog log;
  const at::Tensor output = layer->forward({input}, context).at(0);
  torch::autograd::backward({output}, {gradient});

  fake::Counts torchs = fake::take_counts();
  // One call of this operator starts three kernels: it prepares, computes, and converts the gradient of q.
  if (auto flash = torchs.launches.find("aten::_scaled_dot_product_flash_attention_backward");
      flash != torchs.launches.end())
    flash->second *= 3;
  std::map<std::string, std::pair<int64_t, int64_t>> ours;
  int64_t launches = torchs.launched(), bytes = torchs.bytes, products = 0;
  for (const auto& launch : log.launches()) {
    auto& [count, moved] = ours[launch.kernel];
    ++count;
    moved += launch.bytes_read + launch.bytes_written;
    ++launches;
    bytes += launch.bytes_read + launch.bytes_written;
  }
  for (const auto& [in, out] :
       {std::pair{hidden, 3 * hidden}, {hidden, hidden}, {hidden, 4 * hidden}, {4 * hidden, hidden}})
    products += bytes_of_products(tokens, in, out);
  const auto units = [&](int64_t some) { return static_cast<double>(some) / static_cast<double>(tokens * hidden * 2); };
  std::cout << "GPT-2 block, " << batch << " x " << length << ", bf16, dropout " << dropout
            << "; U = tokens x hidden x 2 bytes\n"
            << std::fixed << std::setprecision(2);
  for (const auto& [name, cost] : ours)
    std::cout << std::setw(30) << name << std::setw(4) << cost.first << " x " << std::setw(6) << units(cost.second)
              << " U\n";
  for (const auto& [name, count] : torchs.launches)
    std::cout << std::setw(30) << name << std::setw(4) << count << " x\n";
  std::cout << launches << " launches, " << units(bytes) << " U, of which the products' are " << units(products)
            << " U\n";
  CHECK(torchs.waits.empty());
  return {launches, units(bytes), units(products)};
}

// Uses torch's operators for everything; its flash attention is called as in our table.
KernelTable operators_of_torch() {
  KernelTable table = kernels_for(at::zeros({0}, at::TensorOptions(fake::device())));
  table.attention_forward = cuda::kernel_table().attention_forward;
  table.attention_backward = cuda::kernel_table().attention_backward;
  return table;
}

}  // namespace

TEST_CASE("a block of GPT-2 takes few launches and little memory traffic") {
  const Cost cost = cost_of_block(0.1);
  CHECK(cost.launches < 35);
  CHECK(cost.all - cost.products < 67);
}

TEST_CASE("a block of GPT-2 without dropout takes few launches and little memory traffic") {
  const Cost cost = cost_of_block(0);
  CHECK(cost.launches < 35);
  CHECK(cost.all - cost.products < 67);
}

TEST_CASE("besides products, a block of GPT-2 moves less than a third of the bytes that torch's operators move") {
  const KernelTable table = operators_of_torch();
  const Cost torchs = cost_of_block(0, table), ours = cost_of_block(0);
  CHECK(ours.launches < torchs.launches * 3 / 5);
  CHECK(ours.all - ours.products < (torchs.all - torchs.products) / 3);
}

}  // namespace shardline::block_cost_test
