#include "core/own_library.h"

#include <dlfcn.h>

#include <vector>

#include "core/error.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> places(const std::string& file, const void* address, const fs::path& built) {
  std::vector<fs::path> places;
  const auto add_neighbours = [&](const fs::path& neighbour) {
    std::error_code ignored;
    const fs::path folder = fs::canonical(neighbour, ignored).parent_path();
    if (folder.empty()) return;
    places.push_back(folder / file);
    places.push_back(folder.parent_path() / "lib" / file);
  };
  Dl_info here;
  if (dladdr(address, &here) != 0) add_neighbours(here.dli_fname);
  add_neighbours("/proc/self/exe");
  places.emplace_back(file);  // found through the run path of a user's program
  places.push_back(built);
  return places;
}

}  // namespace

void* OwnLibrary::address_of(const char* name) const {
  void* address = dlsym(handle, name);
  SL_ASSERT(address != nullptr, "the library has no ", name);
  return address;
}

OwnLibrary load_own_library(const std::string& name, const void* address, const fs::path& built, int flags) {
  OwnLibrary library;
  const std::string file = "lib" + name + ".so";
  for (const auto& place : places(file, address, built)) {
    if (place.has_parent_path() && !fs::exists(place)) continue;
    library.handle = dlopen(place.c_str(), flags);
    if (library.handle != nullptr) return library;
    if (place.has_parent_path()) library.why_not = dlerror();
  }
  if (library.why_not.empty()) library.why_not = file + " is neither next to the program nor in ../lib";
  return library;
}

}  // namespace shardline
