#include "tensor_parallel/products/products_onednn.h"

#include <dlfcn.h>

#include <filesystem>
#include <vector>

namespace shardline {
namespace {

#if !defined(SHARDLINE_ONEDNN_BUILT)
OnednnLibrary load() {
  return {.why_not = "this build is without it (SHARDLINE_ONEDNN, libdnnl-dev)"};
}
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
OnednnLibrary load() {
  return {.why_not = "sanitizers do not allow RTLD_DEEPBIND"};
}
#else
// Next to the program or library that we are linked into, in its prefix's lib folder, or where it was built.
std::vector<std::filesystem::path> places() {
  namespace fs = std::filesystem;
  std::vector<fs::path> places;
  const auto add_neighbours = [&](const fs::path& file) {
    std::error_code ignored;
    const fs::path folder = fs::canonical(file, ignored).parent_path();
    if (folder.empty()) return;
    places.push_back(folder / "libshardline_onednn.so");
    places.push_back(folder.parent_path() / "lib" / "libshardline_onednn.so");
  };
  Dl_info here;
  if (dladdr(reinterpret_cast<const void*>(&onednn_library), &here) != 0) add_neighbours(here.dli_fname);
  add_neighbours("/proc/self/exe");
  places.emplace_back(SHARDLINE_ONEDNN_BUILT);
  return places;
}

OnednnLibrary load() {
  OnednnLibrary library;
  for (const auto& place : places()) {
    if (!std::filesystem::exists(place)) continue;
    void* handle = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    if (handle == nullptr) {
      library.why_not = dlerror();
      continue;
    }
    const auto version =
        reinterpret_cast<decltype(&shardline_onednn_version)>(dlsym(handle, "shardline_onednn_version"));
    library.matmul = reinterpret_cast<decltype(&shardline_onednn_matmul)>(dlsym(handle, "shardline_onednn_matmul"));
    library.prepared =
        reinterpret_cast<decltype(&shardline_onednn_prepared)>(dlsym(handle, "shardline_onednn_prepared"));
    library.multiplies_bf16 = reinterpret_cast<decltype(&shardline_onednn_multiplies_bf16)>(
        dlsym(handle, "shardline_onednn_multiplies_bf16"))();
    library.name = version();
    return library;
  }
  if (library.why_not.empty()) library.why_not = "libshardline_onednn.so is neither next to the program nor in ../lib";
  return library;
}
#endif

}  // namespace

const OnednnLibrary& onednn_library() {
  static const OnednnLibrary kLibrary = load();
  return kLibrary;
}

}  // namespace shardline
