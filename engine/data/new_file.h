// A file that appears under its name only when it is complete.
#pragma once
#include <filesystem>
#include <string_view>

namespace shardline {

// Writes to a temporary file beside `path`; commit() makes it durable and renames it, anything else removes it. Every
// failure (full disk, no rights) is a RunError with path, bytes written and the system's reason.
class NewFile {
 public:
  explicit NewFile(const std::filesystem::path& path);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void append(std::string_view bytes);
  void overwrite(size_t offset, std::string_view bytes);  // of what was appended
  void commit();

 private:
  [[noreturn]] void fail(const char* action) const;
  void write_at(size_t offset, std::string_view bytes);

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int fd_ = -1;
  size_t written_ = 0;
};

}  // namespace shardline
