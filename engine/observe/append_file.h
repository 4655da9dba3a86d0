// A file that only grows. Every write reaches the operating system before the call returns, so that a killed run keeps
// its records, and a disk that is full is noticed at the record that did not fit.
#pragma once
#include <string>
#include <string_view>

namespace shardline {

class AppendFile {
 public:
  // Creates the file, or continues at its end. Throws RunError naming the path and the reason.
  explicit AppendFile(const std::string& path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  // Writes all bytes, or throws RunError and writes none, so that the file remains a sequence of whole records. One
  // writer at a time.
  void write(std::string_view bytes);

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int file_ = -1;
};

}  // namespace shardline
