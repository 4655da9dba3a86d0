#include "engine/data/source/conll_rows.h"

#include <vector>

#include "core/error.h"
#include "engine/data/source/line_rows.h"

namespace shardline {
namespace {

using nlohmann::json;

std::vector<std::string> fields_of(std::string_view line) {
  constexpr std::string_view kSpace = " \t\r";
  std::vector<std::string> fields;
  for (size_t begin = line.find_first_not_of(kSpace); begin < line.size();) {
    const size_t end = std::min(line.find_first_of(kSpace, begin), line.size());
    fields.emplace_back(line.substr(begin, end - begin));
    begin = line.find_first_not_of(kSpace, end);
  }
  return fields;
}

class ConllRows final : public LineRows {
 public:
  using LineRows::LineRows;

  bool next(DataRow& row) override {
    std::vector<json> columns;
    for (std::string_view line; take(line);) {
      const std::vector<std::string> fields = fields_of(line);
      if (fields.empty() || fields[0] == "-DOCSTART-") {
        if (columns.empty()) continue;
        break;
      }
      const std::string here = place();
      if (columns.empty()) {
        columns.assign(fields.size(), json::array());
        row.where = here;
      }
      if (fields.size() != columns.size())
        throw DataError(cat(here, ": has ", fields.size(), " columns, but the sentence that begins at ", row.where,
                            " has ", columns.size(), "; sentences are separated by blank lines"));
      for (size_t i = 0; i < fields.size(); ++i) columns[i].push_back(fields[i]);
    }
    if (columns.empty()) return false;
    row.columns = {{"tokens", columns.front()}};
    if (columns.size() > 1) row.columns["label"] = columns.back();
    for (size_t i = 0; i < columns.size(); ++i) row.columns[std::to_string(i)] = std::move(columns[i]);
    return true;
  }
};

}  // namespace

std::unique_ptr<RowFile> open_conll(const DataFile& file) {
  return std::make_unique<ConllRows>(file);
}

}  // namespace shardline
