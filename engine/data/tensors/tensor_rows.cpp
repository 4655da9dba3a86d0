#include "engine/data/tensors/tensor_rows.h"

#include <ATen/core/Tensor.h>

#include <cmath>
#include <optional>

#include "core/error.h"
#include "models/files/safetensors.h"

namespace shardline {
namespace {

using nlohmann::json;

constexpr int64_t kLongestList = 1 << 12;  // maximum number of labels: longer rows are tensors

class TensorRows final : public RowFile {
 public:
  explicit TensorRows(const DataFile& file) : file_(file.path.string()) {
    std::string first;
    for (const auto& [name, entry] : file_.tensors()) {
      if (entry.shape.empty())
        throw DataError(cat(
            file_.path(), ": the tensor ", name,
            " is a scalar, but the first dimension of every tensor must count the samples; leave it out of the file"));
      if (rows_ && *rows_ != entry.shape[0])
        throw DataError(
            cat(file_.path(), ": the tensor ", name, " has ", entry.shape[0], " samples, but ", first, " has ", *rows_,
                "; the first dimension of each tensor counts the samples, so it must be the same for all of them"));
      if (!rows_) first = name;
      rows_ = entry.shape[0];
      if (entry.shape.size() == 1 || (entry.shape.size() == 2 && entry.shape[1] <= kLongestList))
        columns_.emplace_back(name, file_.view(name));
    }
  }

  bool next(DataRow& row) override {
    if (row_ == rows_.value_or(0)) return false;
    row.columns = json::object();
    for (const auto& [name, tensor] : columns_)
      row.columns[name] = value_of(elements_of(tensor[row_], file_.tensors().at(name).dtype));
    row.tensor_row = row_++;
    row.where = cat(file_.path(), ", sample ", row_);
    return true;
  }
  size_t done() const override { return rows_.value_or(0) == 0 ? file_.size() : file_.size() / *rows_ * row_; }

 private:
  static json value_of(const at::Tensor& tensor) {
    if (tensor.dim() > 0) {
      json list = json::array();
      for (int64_t i = 0; i < tensor.size(0); ++i) list.push_back(value_of(tensor[i]));
      return list;
    }
    if (tensor.scalar_type() == at::kBool) return tensor.item<bool>();
    return tensor.is_floating_point() ? json(tensor.item<double>()) : json(tensor.item<int64_t>());
  }

  SafetensorsFile file_;
  std::optional<int64_t> rows_;
  std::vector<std::pair<std::string, at::Tensor>> columns_;
  int64_t row_ = 0;
};

}  // namespace

std::unique_ptr<RowFile> open_tensor_rows(const DataFile& file) {
  return std::make_unique<TensorRows>(file);
}

}  // namespace shardline
