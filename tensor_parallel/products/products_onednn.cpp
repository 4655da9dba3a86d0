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
// Next to the program or library that we are linked into, in its prefix's lib folder, where the loader finds it, or
// where it was built.
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
  places.emplace_back("libshardline_onednn.so");  // in the run path of a user's program
  places.emplace_back(SHARDLINE_ONEDNN_BUILT);
  return places;
}

template <class Function>
void find_function(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
}

OnednnLibrary load() {
  OnednnLibrary library;
  for (const auto& place : places()) {
    if (place.has_parent_path() && !std::filesystem::exists(place)) continue;
    void* handle = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    if (handle == nullptr) {
      if (place.has_parent_path()) library.why_not = dlerror();
      continue;
    }
    decltype(&shardline_onednn_version) version;
    decltype(&shardline_onednn_multiplies_bf16) multiplies_bf16;
    find_function(handle, "shardline_onednn_version", version);
    find_function(handle, "shardline_onednn_matmul", library.matmul);
    find_function(handle, "shardline_onednn_prepared", library.prepared);
    find_function(handle, "shardline_onednn_multiplies_bf16", multiplies_bf16);
    library.multiplies_bf16 = multiplies_bf16();
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
