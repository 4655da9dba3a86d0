#include "tensor_parallel/kernels/kernel_table.h"

#include <atomic>

#include "core/enum_array.h"
#include "tensor_parallel/kernels/aten/aten_kernels.h"
#ifdef SHARDLINE_CUDA
#include "tensor_parallel/kernels/cuda/cuda_kernels.h"
#endif

namespace shardline {
namespace {

EnumArray<at::DeviceType, std::atomic<const KernelTable*>, at::COMPILE_TIME_MAX_DEVICE_TYPES> chosen_tables;

const KernelTable kAten = {
    aten::layer_norm_forward,       aten::layer_norm_backward,     aten::rms_norm_forward,
    aten::rms_norm_backward,        aten::bias_activation_forward, aten::bias_activation_backward,
    aten::bias_dropout_add_forward, aten::bias_dropout_backward,   aten::rotate_pairs_,
    aten::cross_entropy_stats,      aten::cross_entropy_gradient_, aten::attention_forward,
    aten::attention_backward,       aten::add_column_sums,         nullptr};

}  // namespace

const KernelTable& kernels_for(const at::Tensor& tensor) {
  const at::DeviceType device = tensor.device().type();
  if (const KernelTable* table = chosen_tables[device]) return *table;
#ifdef SHARDLINE_CUDA
  if (device == at::kCUDA) return cuda::kernel_table();
#endif
  return kAten;
}

void use_table(at::DeviceType device, const KernelTable* table) {
  chosen_tables[device] = table;
}

}  // namespace shardline
