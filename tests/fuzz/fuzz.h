// Shared parts of the fuzz targets: the guarantees of every parser, whatever the bytes, and files in memory.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>

#include "core/error.h"

namespace shardline::fuzz {

// Reports a broken guarantee: prints it and ends the process, which the fuzzer reports together with the input.
[[noreturn]] void found(const std::string& what);

#define FUZZ_REQUIRE(condition, ...)                                                                           \
  do {                                                                                                         \
    if (!(condition)) ::shardline::fuzz::found(::shardline::cat(#condition, " does not hold: ", __VA_ARGS__)); \
  } while (false)

// The memory that a parser may hold at any time: a JSON value such as "0," takes two bytes of text, but 24 in memory.
struct Allowance {
  size_t fixed = 1 << 20;
  size_t per_byte = 256;
};

// A target: FUZZ_TARGET(name) { ... } reads `size` bytes at `data`, checks the result, and returns whether they are
// accepted as a whole: --explain=1 prints that for each input, and the reasons of refusals. The program runs the
// one that its argument --target=NAME selects; targets share programs because compiling a program takes long.
struct Target {
  using Read = bool (*)(const uint8_t* data, size_t size);
  Target(const char* name, Read read);
};
#define FUZZ_TARGET(name)                                            \
  static bool read_input(const uint8_t* data, size_t size);          \
  static const ::shardline::fuzz::Target target(#name, &read_input); \
  static bool read_input([[maybe_unused]] const uint8_t* data, [[maybe_unused]] size_t size)

// Calls `read` on an input of this size. Returns whether it accepts the input. It is a finding if it throws anything
// but a ConfigError or a DataError with a message, or if it holds more memory than the input's size makes plausible.
bool accepts(size_t input_bytes, const std::function<void()>& read, Allowance allowance = {});

// The input as text.
std::string text_of(const uint8_t* data, size_t size);

// An input that stands for several files: each begins after a line "=== NAME". Text before the first such line belongs
// to the first of `names`; files with other names are left out.
std::map<std::string, std::string> files_of(const uint8_t* data, size_t size, std::initializer_list<const char*> names);

// A temporary folder of this process, below TMPDIR; removed at the end.
const std::filesystem::path& folder();
// The path of a file in it with these bytes.
std::string file_with(const std::string& name, std::string_view bytes);
// Makes the folder contain exactly these files.
void fill_folder(const std::map<std::string, std::string>& files);

}  // namespace shardline::fuzz
