#include <ATen/EmptyTensor.h>
#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/List.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <set>

#include "core/error.h"
#include "tests/fake_device/runtime.h"

namespace shardline::fake {
namespace {

bool is_fake(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == at::kPrivateUse1;
}

// One operator, from the moment when it is queued.
class Launch {
 public:
  Launch(std::string name, const c10::Stream& stream) : name_(std::move(name)) {
    launch(name_, stream, {});
    lock_.lock();
    stream_ = runtime().number(stream);
    time_ = runtime().clock(stream_)[stream_];
  }
  void uses(const at::Tensor& tensor, bool writes) { runtime().use(name_, stream_, time_, access_of(tensor, writes)); }
  // Counts the reads of memory that is also written.
  void also_reads(const at::Tensor& tensor) {
    const Access access = access_of(tensor, false);
    runtime().counts.bytes += static_cast<int64_t>(access.bytes - access.gaps);
  }
  // Copies a result to the device.
  at::Tensor made(const at::Tensor& result, at::Device on) {
    const at::Tensor moved = at::empty_strided(result.sizes(), result.strides(), result.options().device(on));
    cpu_alias(moved).copy_(result);
    uses(moved, true);
    return moved;
  }
  size_t stream() const { return stream_; }
  uint64_t time() const { return time_; }
  void wait() {
    runtime().count_wait();
    runtime().host_sees(runtime().clock(stream_));
  }

 private:
  std::string name_;
  std::unique_lock<std::recursive_mutex> lock_{runtime().mutex, std::defer_lock};
  size_t stream_ = 0;
  uint64_t time_ = 0;
};

// ---- memory

// Calls make(allocator, keys) on the wanted device.
template <class Make>
at::Tensor made_on(std::optional<at::Device> wanted, const Make& make) {
  const at::Device target = wanted && wanted->has_index() ? *wanted : device(current_device());
  if (target.index() != current_device()) {
    const std::scoped_lock lock(runtime().mutex);
    runtime().fault(cat("a tensor is made on device ", int{target.index()}, ", but device ", current_device(),
                        " is the thread's current one"));
  }
  const c10::DeviceGuard guard(target);
  return make(c10::GetAllocator(at::kPrivateUse1), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1));
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<at::ScalarType> type,
                         std::optional<at::Layout>, std::optional<at::Device> on, std::optional<bool>) {
  return made_on(on, [&](c10::Allocator* allocator, c10::DispatchKeySet keys) {
    return at::detail::empty_strided_generic(sizes, strides, allocator, keys, type.value_or(at::kFloat));
  });
}

at::Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> type, std::optional<at::Layout>,
                 std::optional<at::Device> on, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return made_on(on, [&](c10::Allocator* allocator, c10::DispatchKeySet keys) {
    return at::detail::empty_generic(sizes, allocator, keys, type.value_or(at::kFloat), format);
  });
}

void record_stream(at::Tensor& tensor, at::Stream stream) {
  c10::impl::VirtualGuardImpl(at::kPrivateUse1).recordDataPtrOnStream(tensor.storage().data_ptr(), stream);
}

// ---- copies

bool overlaps(const at::Tensor& a, const at::Tensor& b) {
  const Access one = access_of(a, false), other = access_of(b, false);
  const auto *begin = static_cast<const char*>(one.begin), *other_begin = static_cast<const char*>(other.begin);
  return begin < other_begin + other.bytes && other_begin < begin + one.bytes;
}

at::Tensor flat_clone(const at::Tensor& tensor) {
  return tensor.contiguous().clone();
}

void copy_to_host(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  Launch copy("copy to the host", current_stream(from.device().index()));
  copy.uses(from, false);
  const at::Tensor values = cpu_alias(from);
  if (!non_blocking || !is_pinned(to.const_data_ptr())) {
    to.copy_(values);
    if (is_pinned(to.const_data_ptr())) copy.uses(to, true);
    return copy.wait();
  }
  copy.uses(to, true);
  // Copies that precede this one, as has just been checked.
  std::erase_if(runtime().transfers, [&](Transfer& other) {
    if (!overlaps(other.host, to)) return false;
    if (!other.to_host) runtime().end_transfer(other);
    return true;
  });
  SL_ASSERT(to.is_contiguous(), "a copy to strided host memory that the host does not wait for");
  runtime().transfers.push_back({copy.stream(), copy.time(), true, to, flat_clone(values.to(to.scalar_type()))});
  to.view(-1).view(at::kByte).fill_(0xff);
}

void copy_to_device(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  Launch copy("copy to the device", current_stream(to.device().index()));
  copy.uses(to, true);
  if (!is_pinned(from.const_data_ptr())) {
    cpu_alias(to).copy_(from);
    if (!non_blocking) copy.wait();
    return;
  }
  copy.uses(from, false);
  // The contents of host memory after the copies on their way: streams see them, the host does not yet.
  std::vector<Transfer*> unseen;
  for (auto& transfer : runtime().transfers)
    if (transfer.to_host && overlaps(transfer.host, from)) unseen.push_back(&transfer);
  for (const auto* transfer : unseen) transfer->host.copy_(transfer->values);
  cpu_alias(to).copy_(from);
  for (const auto* transfer : unseen) transfer->host.view(-1).view(at::kByte).fill_(0xff);
  if (!non_blocking) return copy.wait();
  if (unseen.empty()) runtime().transfers.push_back({copy.stream(), copy.time(), false, from, flat_clone(from)});
}

// Between devices a copy waits for both, as CUDA's does.
void copy_on_devices(const at::Tensor& from, const at::Tensor& to) {
  const c10::Stream stream = current_stream(from.device().index());
  if (from.device() != to.device()) {
    const std::scoped_lock lock(runtime().mutex);
    runtime().fault(cat("a copy from ", from.device(), " to ", to.device(), ", which no rank needs"));
  }
  Launch copy("copy", stream);
  copy.uses(from, false);
  copy.uses(to, true);
  cpu_alias(to).copy_(cpu_alias(from));
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  if (!is_fake(to))
    copy_to_host(from, to, non_blocking);
  else if (!is_fake(from))
    copy_to_device(from, to, non_blocking);
  else
    copy_on_devices(from, to);
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  to.resize_(from.sizes());
  return copy_from(from, to, false);
}

at::Scalar local_scalar(const at::Tensor& tensor) {
  Launch copy("read a number", current_stream(tensor.device().index()));
  copy.uses(tensor, false);
  copy.wait();
  return at::_local_scalar_dense(cpu_alias(tensor));
}

// ---- all other operators

// Operators whose results have sizes that the host must learn.
const std::set<std::string> kSizedByValues = {
    "aten::nonzero",    "aten::masked_select",      "aten::_unique2",
    "aten::unique_dim", "aten::unique_consecutive", "aten::repeat_interleave.Tensor"};

// Operators that change a tensor without reading it. Others that change one in place read it, too.
const std::set<std::string> kOverwriting = {"aten::zero_", "aten::fill_.Scalar", "aten::fill_.Tensor", "aten::uniform_",
                                            "aten::normal_"};

// Products into given memory.
const std::set<std::string> kProducts = {"aten::mm.out", "aten::addmm.out", "aten::addmm_"};
std::atomic<bool> products_are_made = true;

bool is_in_place(const c10::FunctionSchema& schema) {
  return schema.name().ends_with('_');
}

bool is_written(const c10::Argument& argument) {
  const auto* alias = argument.alias_info();
  if (alias == nullptr) return false;
  bool written = alias->isWrite();
  for (const auto& contained : alias->containedTypes()) written = written || contained.isWrite();
  return written;
}

bool makes_view(const c10::FunctionSchema& schema) {
  return schema.name() == "aten::as_strided_" ||
         std::any_of(schema.returns().begin(), schema.returns().end(),
                     [](const c10::Argument& value) { return value.alias_info() != nullptr && !is_written(value); });
}

// The arguments of one call, passed on as CPU tensors that share the memory.
class Call {
 public:
  explicit Call(const c10::OperatorHandle& op)
      : op_(op),
        name_(c10::toString(op.operator_name())),
        reads_written_(is_in_place(op.schema()) && kOverwriting.count(name_) == 0) {}

  void pass_on(c10::IValue& value, bool writes) {
    if (value.isTensor()) {
      value = passed(value.toTensor(), writes);
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(passed(tensor, writes));
      value = list;
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const auto& tensor : value.toOptionalTensorVector())
        list.push_back(tensor ? std::optional(passed(*tensor, writes)) : std::nullopt);
      value = list;
    } else if (value.isDevice()) {
      value = at::Device(at::kCPU);
    }
  }

  void run(torch::jit::Stack* stack) {
    SL_ASSERT(!tensors_.empty(), name_, " has no tensor on the device");
    const int index = tensors_.front().original.device().index();
    for (const auto& tensor : tensors_)
      TORCH_CHECK(tensor.original.device().index() == index, name_, " has tensors of devices ", index, " and ",
                  int{tensor.original.device().index()});
    Launch queued(name_, current_stream(index));
    for (const auto& tensor : tensors_) {
      queued.uses(tensor.original, tensor.writes);
      if (tensor.writes && reads_written_) queued.also_reads(tensor.original);
    }
    if (products_are_made || kProducts.count(name_) == 0)
      op_.callBoxed(stack);
    else
      return_written(stack);
    for (const auto& tensor : tensors_)
      if (tensor.writes && tensor.alias.numel() > 0 && tensor.original.numel() == 0) {
        tensor.original.resize_(tensor.alias.sizes());
        cpu_alias(tensor.original).copy_(tensor.alias);
        queued.uses(tensor.original, true);
      }
    const size_t results = op_.schema().returns().size();
    bool waits = kSizedByValues.count(name_) > 0;
    for (auto& value : torch::jit::last(*stack, results).vec()) waits = waits || !holds_tensors(value);
    for (size_t i = stack->size() - results; i < stack->size(); ++i) take_back((*stack)[i], queued, index);
    if (waits) queued.wait();
  }

 private:
  struct Passed {
    at::Tensor original, alias;
    bool writes;
  };

  // Replaces a call that would write one tensor and return it.
  void return_written(torch::jit::Stack* stack) const {
    torch::jit::drop(*stack, op_.schema().arguments().size());
    torch::jit::push(*stack,
                     std::find_if(tensors_.begin(), tensors_.end(), [](const Passed& t) { return t.writes; })->alias);
  }

  at::Tensor passed(const at::Tensor& tensor, bool writes) {
    if (!tensor.defined()) return tensor;
    if (!is_fake(tensor)) {
      TORCH_CHECK(tensor.dim() == 0 && !writes, name_, ": expected all tensors on one device, but one of sizes ",
                  tensor.sizes(), " is on ", tensor.device());
      return tensor;
    }
    const bool may_grow = writes && tensor.dim() == 1 && tensor.numel() == 0;
    tensors_.push_back(
        {tensor, may_grow ? at::empty({0}, tensor.options().device(at::kCPU)) : cpu_alias(tensor), writes});
    return tensors_.back().alias;
  }

  static bool holds_tensors(const c10::IValue& value) {
    return value.isTensor() || value.isTensorList() || value.isNone();
  }

  at::Tensor on_device(const at::Tensor& result, Launch& queued, int index) const {
    if (!result.defined()) return result;
    for (const auto& tensor : tensors_)
      if (tensor.alias.is_same(result)) return tensor.original;
    for (const auto& tensor : tensors_)
      SL_ASSERT(result.numel() == 0 || result.storage().data() != tensor.alias.storage().data(), name_,
                " returns a view, and needs a kernel of its own");
    return queued.made(result, device(index));
  }

  void take_back(c10::IValue& value, Launch& queued, int index) const {
    if (value.isTensor()) {
      value = on_device(value.toTensor(), queued, index);
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(on_device(tensor, queued, index));
      value = list;
    }
  }

  const c10::OperatorHandle& op_;
  std::string name_;
  bool reads_written_;
  std::vector<Passed> tensors_;
};

void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const auto& arguments = op.schema().arguments();
  Call call(op);
  for (size_t i = 0; i < arguments.size(); ++i)
    call.pass_on((*stack)[stack->size() - arguments.size() + i], is_written(arguments[i]));
  call.run(stack);
}

// On accelerators the statistics of half-precision rows are fp32, and results are rounded once.
at::ScalarType wide_type(const at::Tensor& tensor) {
  return at::toOpMathType(tensor.scalar_type());
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> layer_norm(const at::Tensor& x, at::IntArrayRef shape,
                                                          const std::optional<at::Tensor>& weight,
                                                          const std::optional<at::Tensor>& bias, double epsilon) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  Launch queued("aten::native_layer_norm", current_stream(x.device().index()));
  queued.uses(x, false);
  const auto wide = [&](const std::optional<at::Tensor>& tensor) {
    if (tensor) queued.uses(*tensor, false);
    return tensor ? std::optional(cpu_alias(*tensor).to(wide_type(x))) : std::nullopt;
  };
  const auto [y, mean, rstd] =
      at::native_layer_norm(cpu_alias(x).to(wide_type(x)), shape, wide(weight), wide(bias), epsilon);
  return {queued.made(y.to(x.scalar_type()), x.device()), queued.made(mean, x.device()), queued.made(rstd, x.device())};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> layer_norm_backward(
    const at::Tensor& dy, const at::Tensor& x, at::IntArrayRef shape, const at::Tensor& mean, const at::Tensor& rstd,
    const std::optional<at::Tensor>& weight, const std::optional<at::Tensor>& bias, std::array<bool, 3> wanted) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  Launch queued("aten::native_layer_norm_backward", current_stream(x.device().index()));
  const auto wide = [&](const at::Tensor& tensor) {
    queued.uses(tensor, false);
    return cpu_alias(tensor).to(wide_type(tensor));
  };
  const auto if_given = [&](const std::optional<at::Tensor>& tensor) {
    return tensor ? std::optional(wide(*tensor)) : std::nullopt;
  };
  const auto [dx, dw, db] = at::native_layer_norm_backward(wide(dy), wide(x), shape, wide(mean), wide(rstd),
                                                           if_given(weight), if_given(bias), wanted);
  const auto rounded = [&](const at::Tensor& tensor) {
    return tensor.defined() ? queued.made(tensor.to(x.scalar_type()), x.device()) : tensor;
  };
  return {rounded(dx), rounded(dw), rounded(db)};
}

// torch chooses a kernel by the type of device; this is the one for CPUs.
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const std::optional<at::Tensor>& mask, double dropout, bool causal, std::optional<double> scale,
                     bool) {
  std::optional<at::Tensor> added = mask;
  if (mask && mask->scalar_type() == at::kBool)
    added = at::zeros_like(*mask, q.options().requires_grad(false))
                .masked_fill_(mask->logical_not(), -std::numeric_limits<double>::infinity());
  return std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, dropout, causal, added, scale));
}

// Flash attention, which torch has for CUDA; on CPUs another operator computes the same. Results are laid out as
// CUDA's.
at::Tensor by_tokens(const at::Tensor& heads) {
  return heads.transpose(1, 2).contiguous().transpose(1, 2);
}

at::TensorOptions on_cpu(const at::Tensor& tensor) {
  return tensor.options().device(at::kCPU).requires_grad(false);
}

using FlashResults = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt, at::Tensor,
                                at::Tensor, at::Tensor>;
FlashResults flash_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double dropout, bool causal,
                             bool, std::optional<double> scale) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  Launch queued("aten::_scaled_dot_product_flash_attention", current_stream(q.device().index()));
  for (const auto& tensor : {q, k, v}) queued.uses(tensor, false);
  const auto [out, log_sum_exp] =
      products_are_made ? at::_scaled_dot_product_flash_attention_for_cpu(cpu_alias(q), cpu_alias(k), cpu_alias(v),
                                                                          dropout, causal, {}, scale)
                        : std::tuple(at::empty(q.sizes(), on_cpu(q)),
                                     at::empty({q.size(0), q.size(1), q.size(2)}, on_cpu(q).dtype(at::kFloat)));
  const at::Tensor random_state = at::empty({2}, q.options().dtype(at::kUInt64));
  return {queued.made(by_tokens(out), q.device()),
          queued.made(log_sum_exp.contiguous(), q.device()),
          {},
          {},
          q.sym_size(2),
          k.sym_size(2),
          random_state,
          random_state,
          {}};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> flash_attention_backward(
    const at::Tensor& d_out, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& out,
    const at::Tensor& log_sum_exp, const at::Tensor&, const at::Tensor&, c10::SymInt, c10::SymInt, double dropout,
    bool causal, const at::Tensor&, const at::Tensor&, std::optional<double> scale) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  Launch queued("aten::_scaled_dot_product_flash_attention_backward", current_stream(q.device().index()));
  for (const auto& tensor : {d_out, q, k, v, out, log_sum_exp}) queued.uses(tensor, false);
  // Like CUDA's operator, which adds up dq and the sums over features in fp32, for whole blocks of 128 tokens and 32
  // features.
  const int64_t tokens = (q.size(2) + 127) / 128 * 128, features = (q.size(3) + 31) / 32 * 32;
  const at::Tensor dq_sum = at::empty({q.size(0), tokens, q.size(1), features}, q.options().dtype(at::kFloat));
  const at::Tensor feature_sums = at::empty({q.size(0), q.size(1), tokens}, q.options().dtype(at::kFloat));
  const auto [dq, dk, dv] = products_are_made
                                ? at::_scaled_dot_product_flash_attention_for_cpu_backward(
                                      cpu_alias(d_out), cpu_alias(q), cpu_alias(k), cpu_alias(v), cpu_alias(out),
                                      cpu_alias(log_sum_exp), dropout, causal, {}, scale)
                                : std::tuple(at::empty(q.sizes(), on_cpu(q)), at::empty(k.sizes(), on_cpu(k)),
                                             at::empty(v.sizes(), on_cpu(v)));
  const auto made = [&](const at::Tensor& tensor) { return queued.made(by_tokens(tensor), q.device()); };
  return {made(dq), made(dk), made(dv)};
}

// Half-precision factors and an fp32 sum, for which CPUs have no operator.
at::Tensor& wide_addmm_out(const at::Tensor& self, const at::Tensor& a, const at::Tensor& b, at::ScalarType type,
                           const at::Scalar& beta, const at::Scalar& alpha, at::Tensor& out) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  Launch queued("aten::addmm.dtype_out", current_stream(out.device().index()));
  for (const auto& tensor : {self, a, b}) queued.uses(tensor, false);
  queued.uses(out, true);
  if (!products_are_made) return out;
  at::Tensor sum = cpu_alias(out);
  at::addmm_out(sum, self.is_same(out) ? sum : cpu_alias(self), cpu_alias(a).to(type), cpu_alias(b).to(type), beta,
                alpha);
  return out;
}

}  // namespace

at::Tensor cpu_alias(const at::Tensor& tensor) {
  const auto& storage = tensor.storage();
  SL_ASSERT(tensor.numel() == 0 || storage.data() != nullptr, "a tensor of sizes ", tensor.sizes(),
            " is used while it has no memory");
  c10::Storage same(c10::Storage::use_byte_size_t(), storage.nbytes(),
                    at::DataPtr(const_cast<void*>(storage.data()), at::kCPU), nullptr, /*resizable=*/false);
  at::Tensor alias = at::detail::make_tensor<c10::TensorImpl>(
      std::move(same), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  alias.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  return alias;
}

Access access_of(const at::Tensor& tensor, bool writes) {
  if (tensor.numel() == 0) return {};
  const size_t bytes = at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize(), 0);
  return {tensor.const_data_ptr(), bytes, writes, bytes - std::min(bytes, tensor.nbytes())};
}

void make_products(bool made) {
  products_are_made = made;
}

void install_operators() {
  static torch::Library others(torch::Library::IMPL, "_", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  others.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());

  static torch::Library aten(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  aten.impl("empty.memory_format", TORCH_FN(empty));
  aten.impl("empty_strided", TORCH_FN(empty_strided));
  aten.impl("resize_", TORCH_FN(at::native::resize_));
  aten.impl("set_.source_Storage", static_cast<at::Tensor& (*)(at::Tensor&, at::Storage)>(at::native::set_));
  aten.impl("set_.source_Storage_storage_offset", TORCH_FN(at::native::set_storage_cpu_));
  aten.impl("set_.source_Tensor", TORCH_FN(at::native::set_tensor_));
  aten.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  aten.impl("view", TORCH_FN(at::native::view));
  aten.impl("view.dtype", TORCH_FN(at::native::view_dtype));
  aten.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  aten.impl("record_stream", TORCH_FN(record_stream));
  aten.impl("_copy_from", TORCH_FN(copy_from));
  aten.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  aten.impl("_local_scalar_dense", TORCH_FN(local_scalar));
  aten.impl("addmm.dtype_out", TORCH_FN(wide_addmm_out));
  aten.impl("_scaled_dot_product_flash_attention", TORCH_FN(flash_attention));
  aten.impl("_scaled_dot_product_flash_attention_backward", TORCH_FN(flash_attention_backward));
  aten.impl("native_layer_norm", TORCH_FN(layer_norm));
  aten.impl("native_layer_norm_backward", TORCH_FN(layer_norm_backward));
  // Operators that are composed of others have guards of their own, which would hide that the caller lacks one.
  for (const auto& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (op && name.name.starts_with("aten::") && !makes_view(op->schema()) &&
        op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional))
      aten.impl(c10::toString(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
  }
  aten.impl("scaled_dot_product_attention", TORCH_FN(attention));

  static torch::Library autograd(torch::Library::IMPL, "aten", c10::DispatchKey::AutogradPrivateUse1, __FILE__,
                                 __LINE__);
  autograd.impl("scaled_dot_product_attention", TORCH_FN(attention));
}

}  // namespace shardline::fake
