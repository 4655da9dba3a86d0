#include "tensor_parallel/products/products_onednn.h"

#include <dlfcn.h>

#include "core/own_library.h"

namespace shardline {
namespace {

#if !defined(SHARDLINE_ONEDNN_BUILT)
OnednnLibrary load() {
  return {.why_not = "this build does not include it (SHARDLINE_ONEDNN, libdnnl-dev)"};
}
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
OnednnLibrary load() {
  return {.why_not = "sanitizers do not allow RTLD_DEEPBIND"};
}
#else
OnednnLibrary load() {
  const OwnLibrary loaded = load_own_library("shardline_onednn", reinterpret_cast<const void*>(&onednn_library),
                                             SHARDLINE_ONEDNN_BUILT, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  OnednnLibrary library{.why_not = loaded.why_not};
  if (loaded.handle == nullptr) return library;
  decltype(&shardline_onednn_version) version;
  decltype(&shardline_onednn_multiplies_bf16) multiplies_bf16;
  loaded.find("shardline_onednn_version", version);
  loaded.find("shardline_onednn_matmul", library.matmul);
  loaded.find("shardline_onednn_prepared", library.prepared);
  loaded.find("shardline_onednn_multiplies_bf16", multiplies_bf16);
  library.multiplies_bf16 = multiplies_bf16();
  library.name = version();
  return library;
}
#endif

}  // namespace

const OnednnLibrary& onednn_library() {
  static const OnednnLibrary kLibrary = load();
  return kLibrary;
}

}  // namespace shardline
