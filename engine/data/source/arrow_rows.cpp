#include "engine/data/source/arrow_rows.h"

#include <dlfcn.h>

#include <filesystem>

#include "core/error.h"
#include "core/own_library.h"
#include "engine/data/arrow/arrow_module.h"

namespace shardline {
namespace {

struct Module {
  OpenArrowTable* open = nullptr;  // null: not there
  std::string why_not = {};
};

#if defined(SHARDLINE_ARROW_BUILT)
Module load() {
  const OwnLibrary library = load_own_library("shardline_arrow", reinterpret_cast<const void*>(&open_arrow),
                                              SHARDLINE_ARROW_BUILT, RTLD_NOW | RTLD_LOCAL);
  Module module{.why_not = library.why_not};
  if (library.handle != nullptr) library.find("shardline_open_arrow_table", module.open);
  return module;
}
#else
Module load() {
  return {.why_not = "this build of shardline does not include them (SHARDLINE_ARROW, the wheel pyarrow)"};
}
#endif

const Module& arrow_module() {
  static const Module kModule = load();
  return kModule;
}

class TableRows final : public RowFile {
 public:
  TableRows(const DataFile& file, std::unique_ptr<ArrowTable> table)
      : name_(file.path.string()), bytes_(std::filesystem::file_size(file.path)), table_(std::move(table)) {
    if (!table_->label_names().empty()) label_names_ = std::make_shared<const LabelNames>(table_->label_names());
  }

  bool next(DataRow& row) override {
    row.where = cat(name_, ", row ", ++row_);
    row.label_names = label_names_;
    try {
      has_ended_ = !table_->next(row.columns);
      return !has_ended_;
    } catch (const std::exception& error) {
      throw DataError(cat(row.where, ": ", error.what()));
    }
  }
  size_t done() const override { return has_ended_ ? bytes_ : static_cast<size_t>(bytes_ * table_->share_read()); }

 private:
  std::string name_;
  size_t bytes_;  // size of the file
  bool has_ended_ = false;
  std::unique_ptr<ArrowTable> table_;
  std::shared_ptr<const LabelNames> label_names_;
  int64_t row_ = 0;
};

}  // namespace

std::unique_ptr<RowFile> open_arrow(const DataFile& file) {
  const bool is_parquet = file.format == DataFormat::parquet;
  const Module& module = arrow_module();
  if (module.open == nullptr)
    throw DataError(cat(file.path.string(), ": ", is_parquet ? "Parquet" : "Arrow",
                        " files are read with Apache Arrow's libraries, but ", module.why_not,
                        "; build shardline with them, or save the data as JSON Lines"));
  try {
    return std::make_unique<TableRows>(file, std::unique_ptr<ArrowTable>(module.open(file.path.c_str(), is_parquet)));
  } catch (const std::exception& error) {
    throw DataError(cat(file.path.string(), ": is not ", is_parquet ? "a Parquet" : "an Arrow",
                        " file that can be read: ", error.what()));
  }
}

std::string why_no_arrow() {
  return arrow_module().open ? "" : arrow_module().why_not;
}

}  // namespace shardline
