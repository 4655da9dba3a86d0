// The common part of formats whose rows consist of whole lines.
#pragma once
#include <string>
#include <string_view>

#include "core/error.h"
#include "engine/data/source/jsonl.h"
#include "engine/data/source/row_file.h"

namespace shardline {

class LineRows : public RowFile {
 public:
  explicit LineRows(const DataFile& file) : file_(file.path), rest_(file_.bytes()) {
    if (rest_.starts_with("\xEF\xBB\xBF")) rest_.remove_prefix(3);  // a mark of UTF-8
  }
  size_t done() const final { return file_.size() - rest_.size(); }

 protected:
  // Takes the next line, without its end; false at the end of the file.
  bool take(std::string_view& line) {
    if (rest_.empty()) return false;
    line = take_line(rest_);
    ++line_;
    return true;
  }
  std::string place() const { return cat(file_.path().string(), ":", line_); }  // of the line that was taken
  const MappedFile& file() const { return file_; }

 private:
  MappedFile file_;
  std::string_view rest_;
  int64_t line_ = 0;
};

}  // namespace shardline
