// The common part of formats whose rows consist of whole lines.
#pragma once
#include <algorithm>
#include <string>
#include <string_view>

#include "core/error.h"
#include "engine/data/source/file_window.h"
#include "engine/data/source/row_file.h"

namespace shardline {

class LineRows : public RowFile {
 public:
  explicit LineRows(const DataFile& file) : text_(file.path) {}
  size_t done() const final { return text_.done(); }

 protected:
  // Takes the next line, without its end; false at the end of the file. The line stays valid until the next call.
  bool take(std::string_view& line) {
    std::string_view rest = text_.rest();
    size_t end = rest.find('\n');
    while (end == std::string_view::npos && text_.grow()) {
      const size_t searched = rest.size();
      rest = text_.rest();
      end = rest.find('\n', searched);
    }
    if (rest.empty()) return false;
    line = rest.substr(0, end);
    offset_ = text_.offset();
    text_.take(std::min(line.size() + 1, rest.size()));
    ++line_;
    return true;
  }
  std::string place() const { return cat(name(), ":", line_); }  // the place of the line that was taken
  const std::string& name() const { return text_.name(); }
  size_t offset() const { return offset_; }  // where this line begins in the text

 private:
  FileWindow text_;
  int64_t line_ = 0;
  size_t offset_ = 0;
};

}  // namespace shardline
