#include "tensor_parallel/products/onednn/onednn.h"

#include <omp.h>

#include <array>
#include <atomic>
#include <dnnl.hpp>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace {

using dnnl::memory;

// A thread's cache that exceeds this is cleared, in case the sizes of batches keep changing.
constexpr size_t kMostPrimitives = 512;

std::atomic<int64_t> prepared{0};

// What a primitive is specific to: sizes, strides, types, bias or not, accumulate or not, threads.
using Key = std::array<int64_t, 13>;

struct Primitive {
  memory::desc a, b, bias, c, scratchpad;
  dnnl::matmul matmul;
};

dnnl::engine& cpu() {
  static auto* engine = new dnnl::engine(dnnl::engine::kind::cpu, 0);  // outlives every thread's primitives
  return *engine;
}

#if DNNL_VERSION_MAJOR < 3
// For many shapes whose sums have 31 terms more than a multiple of 32, the AMX kernels of oneDNN 2.6.3 raise an illegal
// instruction (SIGILL), and for a few they compute wrong sums. All other numbers of terms up to 2000 were correct.
bool breaks_on_amx(const ShardlineMatmul& x) {
  return x.bf16_factors && x.k % 32 == 31;
}
#endif

dnnl::matmul::primitive_desc describe(const Primitive& p, const dnnl::primitive_attr& attr, const ShardlineMatmul& x) {
#if DNNL_VERSION_MAJOR >= 3
  return x.bias != nullptr ? dnnl::matmul::primitive_desc(cpu(), p.a, p.b, p.bias, p.c, attr)
                           : dnnl::matmul::primitive_desc(cpu(), p.a, p.b, p.c, attr);
#else
  const auto desc = x.bias != nullptr ? dnnl::matmul::desc(p.a, p.b, p.bias, p.c) : dnnl::matmul::desc(p.a, p.b, p.c);
  dnnl::matmul::primitive_desc described(desc, attr, cpu());
  const auto on_amx = [&] { return std::string_view(described.impl_info_str()).find("amx") != std::string_view::npos; };
  while (breaks_on_amx(x) && on_amx() && described.next_impl()) {  // next_impl() reads `desc`
  }
  return described;
#endif
}

Primitive make(const ShardlineMatmul& x) {
  const auto type = [](bool bf16) { return bf16 ? memory::data_type::bf16 : memory::data_type::f32; };
  const auto factor = type(x.bf16_factors), result = type(x.bf16_result);
  Primitive p;
  p.a = memory::desc({x.m, x.k}, factor, memory::dims{x.a_row_stride, x.a_column_stride});
  p.b = memory::desc({x.k, x.n}, factor, memory::dims{x.b_row_stride, x.b_column_stride});
  p.c = memory::desc({x.m, x.n}, result, memory::dims{x.c_row_stride, 1});
  p.bias = memory::desc({1, x.n}, result, memory::dims{x.n, 1});
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (x.accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1);
    attr.set_post_ops(sum);
  }
  const auto described = describe(p, attr, x);
  p.scratchpad = described.scratchpad_desc();
  p.matmul = dnnl::matmul(described);
  return p;
}

const Primitive& primitive_for(const ShardlineMatmul& x) {
  thread_local std::map<Key, Primitive> cache;
  const Key key = {x.m,
                   x.n,
                   x.k,
                   x.a_row_stride,
                   x.a_column_stride,
                   x.b_row_stride,
                   x.b_column_stride,
                   x.c_row_stride,
                   x.accumulate,
                   x.bias != nullptr,
                   x.bf16_factors,
                   x.bf16_result,
                   omp_in_parallel() ? 1 : omp_get_max_threads()};
  if (const auto found = cache.find(key); found != cache.end()) return found->second;
  if (cache.size() >= kMostPrimitives) cache.clear();
  ++prepared;
  return cache.emplace(key, make(x)).first->second;
}

// One buffer per thread, as large as its largest primitive requires.
memory scratchpad(const memory::desc& desc) {
  thread_local memory buffer;
  thread_local size_t size = 0;
  if (size < desc.get_size()) {
    buffer = memory();  // frees the old one first, so that the two never exist together
    buffer = memory(desc, cpu());
    size = desc.get_size();
  }
  return memory(desc, cpu(), size == 0 ? nullptr : buffer.get_data_handle());
}

void run(const ShardlineMatmul& x) {
  thread_local dnnl::stream stream(cpu());
  const Primitive& p = primitive_for(x);
  // oneDNN only reads its inputs.
  const auto input = [](const memory::desc& desc, const void* data) {
    return memory(desc, cpu(), const_cast<void*>(data));
  };
  std::unordered_map<int, memory> arguments = {{DNNL_ARG_SRC, input(p.a, x.a)},
                                               {DNNL_ARG_WEIGHTS, input(p.b, x.b)},
                                               {DNNL_ARG_DST, memory(p.c, cpu(), x.c)},
                                               {DNNL_ARG_SCRATCHPAD, scratchpad(p.scratchpad)}};
  if (x.bias != nullptr) arguments.emplace(DNNL_ARG_BIAS, input(p.bias, x.bias));
  p.matmul.execute(stream, arguments);
  stream.wait();
}

}  // namespace

extern "C" {

const char* shardline_onednn_matmul(const ShardlineMatmul* matmul) {
  thread_local std::string error;
  try {
    run(*matmul);
    return nullptr;
  } catch (const std::exception& e) {
    error = e.what();
    return error.c_str();
  }
}

int64_t shardline_onednn_prepared() {
  return prepared;
}

int shardline_onednn_multiplies_bf16() {
  const auto bit = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_bf16);  // a set of instruction sets
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & bit) == bit;
}

const char* shardline_onednn_version() {
  static const std::string kVersion = [] {
    const dnnl_version_t* v = dnnl::version();
    return "oneDNN " + std::to_string(v->major) + "." + std::to_string(v->minor) + "." + std::to_string(v->patch);
  }();
  return kVersion.c_str();
}
}
