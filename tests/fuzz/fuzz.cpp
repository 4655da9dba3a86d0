#include "tests/fuzz/fuzz.h"

#include <cxxabi.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <set>
#include <typeinfo>

#if __has_feature(address_sanitizer)
#include <sanitizer/allocator_interface.h>
#include <sanitizer/common_interface_defs.h>
#define SHARDLINE_COUNTS_MEMORY 1
#endif

namespace shardline::fuzz {
namespace {

namespace fs = std::filesystem;

// The bytes that this thread has allocated and not freed since the beginning of a read.
thread_local bool counting = false;
thread_local int64_t held = 0;
thread_local int64_t most_held = 0;

#ifdef SHARDLINE_COUNTS_MEMORY
void on_malloc(const volatile void*, size_t bytes) {
  if (!counting) return;
  held += static_cast<int64_t>(bytes);
  if (held <= most_held) return;
  counting = false;
  found(cat("the parser holds ", held, " bytes of memory; the input's size makes ", most_held, " plausible"));
}

void on_free(const volatile void* memory) {
  if (counting && memory) held -= static_cast<int64_t>(__sanitizer_get_allocated_size(memory));
}

[[maybe_unused]] const int hooks = __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
#endif

class MemoryCount {
 public:
  explicit MemoryCount(size_t most) {
    held = 0;
    most_held = static_cast<int64_t>(most);
    counting = true;
  }
  ~MemoryCount() { counting = false; }
};

std::string type_of(const std::exception& error) {
  int status = 0;
  char* name = abi::__cxa_demangle(typeid(error).name(), nullptr, nullptr, &status);
  return name ? name : typeid(error).name();  // the process ends with this thread
}

std::map<std::string, Target::Read>& targets() {
  static std::map<std::string, Target::Read> all;
  return all;
}
Target::Read selected = nullptr;
bool explains = false;

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "shardline-fuzz-XXXXXX").string();
    if (!::mkdtemp(name.data())) found("cannot make a folder below " + fs::temp_directory_path().string());
    path_ = name;
  }
  ~Folder() { fs::remove_all(path_); }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

}  // namespace

Target::Target(const char* name, Read read) {
  targets()[name] = read;
}

void found(const std::string& what) {
  std::fprintf(stderr, "FINDING: %s\n", what.c_str());
#ifdef SHARDLINE_COUNTS_MEMORY
  __sanitizer_print_stack_trace();
#endif
  std::abort();
}

bool accepts(size_t input_bytes, const std::function<void()>& read, Allowance allowance) {
  const MemoryCount count(allowance.fixed + allowance.per_byte * input_bytes);
  const auto has_message = [](const std::exception& error) {
    if (std::string_view(error.what()).empty()) found("the error has no message");
    if (explains) std::fprintf(stderr, "%s\n", error.what());
  };
  try {
    read();
    return true;
  } catch (const ConfigError& error) {
    has_message(error);
  } catch (const DataError& error) {
    has_message(error);
  } catch (const std::exception& error) {
    found(cat("the parser threw ", type_of(error), ": ", error.what()));
  }
  return false;
}

std::string text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

std::map<std::string, std::string> files_of(const uint8_t* data, size_t size,
                                            std::initializer_list<const char*> names) {
  constexpr std::string_view mark = "=== ";
  const std::set<std::string, std::less<>> known(names.begin(), names.end());
  std::map<std::string, std::string> files;
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  std::string* file = nullptr;
  bool is_first = true;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size() - 1) + 1;
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end);
    if (!line.starts_with(mark)) {
      if (is_first) file = &files[*names.begin()];
      is_first = false;
      if (file) *file += line;
      continue;
    }
    is_first = false;
    // The line break before a mark is the mark's.
    if (file && file->ends_with('\n')) file->pop_back();
    const std::string_view name = line.substr(mark.size(), line.find_last_not_of('\n') + 1 - mark.size());
    file = known.contains(name) ? &files[std::string(name)] : nullptr;
    if (file) file->clear();
  }
  return files;
}

const fs::path& folder() {
  static const Folder folder;
  return folder.path();
}

std::string file_with(const std::string& name, std::string_view bytes) {
  const std::string path = (folder() / name).string();
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const bool written = file >= 0 && ::write(file, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
  if (!written || ::close(file) != 0) found("cannot write " + path);
  return path;
}

void fill_folder(const std::map<std::string, std::string>& files) {
  static std::set<std::string> there;
  for (auto name = there.begin(); name != there.end();) {
    if (files.contains(*name)) {
      ++name;
      continue;
    }
    ::unlink((folder() / *name).c_str());
    name = there.erase(name);
  }
  for (const auto& [name, bytes] : files) {
    file_with(name, bytes);
    there.insert(name);
  }
}

}  // namespace shardline::fuzz

extern "C" int LLVMFuzzerInitialize(int* count, char*** arguments) {
  using namespace shardline::fuzz;
  constexpr std::string_view option = "--target=";
  for (int i = 1; i < *count; ++i) {
    const std::string_view argument = (*arguments)[i];
    if (argument.starts_with(option)) selected = targets()[std::string(argument.substr(option.size()))];
    explains |= argument == "--explain=1";
  }
  if (selected) return 0;
  std::fprintf(stderr, "give one of");
  for (const auto& [name, read] : targets())
    if (read) std::fprintf(stderr, " %s%s", option.data(), name.c_str());
  std::fprintf(stderr, "\n");
  return std::exit(1), 1;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const bool accepted = shardline::fuzz::selected(data, size);
  if (shardline::fuzz::explains) std::fprintf(stderr, accepted ? "accepted\n" : "refused\n");
  return 0;
}
