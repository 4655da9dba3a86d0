// Shared libraries of shardline that are loaded only when needed, because they load further libraries.
#pragma once
#include <filesystem>
#include <string>

namespace shardline {

// A loaded library, or the reason why it could not be loaded.
struct OwnLibrary {
  void* handle = nullptr;
  std::string why_not = {};

  // Returns the function with this name, which the library must define.
  template <class Function>
  void find(const char* name, Function*& function) const {
    function = reinterpret_cast<Function*>(address_of(name));
  }

 private:
  void* address_of(const char* name) const;
};

// Loads libNAME.so from the first place that has it: the folder of the program or library that contains `address`, its
// ../lib, the folder of the program, its ../lib, the loader's search path, `built`. flags: as for dlopen.
OwnLibrary load_own_library(const std::string& name, const void* address, const std::filesystem::path& built,
                            int flags);

}  // namespace shardline
