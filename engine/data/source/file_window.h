// The text of a data file, read from beginning to end, with a part of it in memory: all of a plain file, which is
// mapped, or some megabytes of a compressed one.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "core/files/mapped_file.h"
#include "engine/data/compressed/decompressor.h"

namespace shardline {

class FileWindow {
 public:
  // Leaves out a byte order mark. Throws DataError for a file that cannot be read, or that is not compressed although
  // its name has such an extension.
  explicit FileWindow(const std::filesystem::path& path);
  // For bytes in memory, which must outlive the window; `name` stands for a file's in messages.
  FileWindow(std::string_view bytes, std::string name);

  const std::string& name() const { return name_; }
  // The part in memory that has not been taken yet.
  std::string_view rest() const { return decompressor_ ? std::string_view(buffer_).substr(taken_) : plain_; }
  void take(size_t bytes);
  // Makes the rest longer; false: it already reaches the end of the text. Views of the rest become invalid. Throws
  // DataError for damaged data, and for a rest that would become too long, such as a line without an end.
  bool grow();
  // All of the text that has not been taken yet.
  std::string_view read_all();

  size_t offset() const { return offset_; }                                        // where the rest begins in the text
  size_t done() const { return decompressor_ ? decompressor_->done() : offset_; }  // bytes of the file that were read

 private:
  void skip_mark();

  std::string name_;
  std::unique_ptr<const MappedFile> file_;      // null: bytes in memory
  std::unique_ptr<Decompressor> decompressor_;  // null: the text is plain
  std::string_view plain_;                      // the rest of a plain text
  std::string buffer_;                          // holds the text of a compressed file
  size_t taken_ = 0;                            // bytes taken from the buffer
  size_t offset_ = 0;
};

}  // namespace shardline
