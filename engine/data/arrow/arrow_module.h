// The border of libshardline_arrow.so, the only code that sees Apache Arrow. It is loaded when the first Parquet or
// Arrow file is read, so that programs run without Arrow's libraries, too.
#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace shardline {

// The rows of a Parquet or Arrow file, in order. All functions throw std::exception for a file that cannot be read; the
// message does not name the file.
class ArrowTable {
 public:
  virtual ~ArrowTable() = default;
  // Sets `columns` to the next row, an object; false at the end.
  virtual bool next(nlohmann::json& columns) = 0;
  virtual double share_read() const = 0;  // the share of the file, from 0 to 1
  // The names, by number, of the columns whose feature is a ClassLabel of `datasets`, or a list of them.
  virtual const std::map<std::string, std::vector<std::string>>& label_names() const = 0;
};

// The caller owns the table. Nothing but the schema and the first rows is read.
using OpenArrowTable = ArrowTable*(const char* path, bool is_parquet);
extern "C" OpenArrowTable shardline_open_arrow_table;

}  // namespace shardline
