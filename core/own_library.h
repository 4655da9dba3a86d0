// Shared libraries of shardline that are loaded at run time, because they bring others with them.
#pragma once
#include <filesystem>
#include <string>

namespace shardline {

// A loaded library, or why it is not loaded.
struct OwnLibrary {
  void* handle = nullptr;
  std::string why_not = {};

  // The function with this name, which the library must have.
  template <class Function>
  void find(const char* name, Function*& function) const {
    function = reinterpret_cast<Function*>(address_of(name));
  }

 private:
  void* address_of(const char* name) const;
};

// Loads libNAME.so from next to the program or library that `address` belongs to, next to the program, their prefix's
// lib folder, where the loader finds it, or `built`, in this order. flags: of dlopen.
OwnLibrary load_own_library(const std::string& name, const void* address, const std::filesystem::path& built,
                            int flags);

}  // namespace shardline
