// Files that already contain token ids: Megatron's .bin with .idx, llm.c's .bin (two magic numbers), nanoGPT's raw u16
// .bin.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "core/files/mapped_file.h"

namespace shardline {

// A view of the ids of one file, in file order. The format is Megatron's if there is an .idx file next to it, llm.c's
// if the file has that magic number, otherwise raw u16. Everything that the headers state is checked against the file
// sizes when the file is opened; a DataError gives the numbers and a hint.
class TokenFile {
 public:
  explicit TokenFile(const std::filesystem::path& path);

  const char* format() const { return format_; }
  int64_t size() const { return size_; }            // tokens
  int64_t documents() const { return documents_; }  // 1 if the format has none
  int64_t bytes() const { return file_->size(); }

  // Where documents end among tokens [first, first + count): how many of these are before the end of each, ascending.
  std::vector<int64_t> document_ends(int64_t first, int64_t count) const;
  // Returns tokens [first, first + count). Throws a DataError that names the place of an id outside 0..vocab_size-1.
  std::vector<int32_t> read(int64_t first, int64_t count, int64_t vocab_size) const;

 private:
  enum class Kind { u8, i8, i16, i32, i64, u16, u32 };
  void open_megatron(const std::filesystem::path& index);
  void open_llmc();
  void open_raw();
  int64_t token(int64_t index) const;
  int64_t document_end(int64_t document) const;

  std::shared_ptr<MappedFile> file_;
  const char* format_ = "";
  Kind kind_ = Kind::u16;
  int64_t offset_ = 0;  // the byte at which the first token begins
  int64_t size_ = 0;
  int64_t documents_ = 1;
  std::shared_ptr<MappedFile> index_;  // for a Megatron pair
  int64_t sequences_ = 0, width_ = 0;  // in the index; bytes of a token there
};

}  // namespace shardline
