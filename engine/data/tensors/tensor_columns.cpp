#include "engine/data/tensors/tensor_columns.h"

#include <ATen/ops/empty.h>
#include <c10/core/ScalarType.h>

#include <filesystem>

#include "core/error.h"
#include "engine/data/tensors/npy_file.h"
#include "models/files/safetensors.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;

// The file that a row names, which must be below the folder of the row's own file.
std::string file_of(const DataRow& row, const std::string& column) {
  if (const auto& value = column_of(row, column, "model.inputs"); !value.is_string())
    throw DataError(cat(row.where, ": '", column, "' is ", value.type_name(),
                        ", but rows name the .npy file of a sample's ",
                        "tensor; write it with numpy.save, or all samples as one tensor of a .safetensors file"));
  const std::string& name = text_of(row, column, "model.inputs");
  const fs::path path = fs::path(name).lexically_normal();
  if (path.empty() || path.is_absolute() || path.has_root_path() || *path.begin() == ".." ||
      name.find('\0') != std::string::npos)
    throw DataError(cat(row.where, ": '", column, "' is \"", name,
                        "\", but must be the path of a .npy file in the folder of the data file, relative to it"));
  if (path.extension() != ".npy")
    throw DataError(cat(row.where, ": '", column, "' names \"", name, "\"; name a .npy file, which numpy.save writes"));
  return (row.file.parent_path() / path).string();
}

}  // namespace

std::string TensorColumns::describe() const {
  std::string text;
  for (const auto& column : columns_)
    text += cat(text.empty() ? "" : ", ", column.name, ' ', at::IntArrayRef(column.sizes));
  return text;
}

std::vector<TensorPlace> TensorColumns::places(const DataRow& row) const {
  std::vector<TensorPlace> places;
  for (const auto& column : columns_) {
    const bool is_in_file = row.tensor_row >= 0;
    const TensorPlace place{is_in_file ? row.file.string() : file_of(row, column.name), row.tensor_row};
    try {
      view(column, place);
    } catch (const MissingColumn&) {
      throw;
    } catch (const DataError& error) {
      throw DataError(is_in_file ? error.what() : cat(row.where, ": ", error.what()));
    }
    places.push_back(place);
  }
  return places;
}

at::Tensor TensorColumns::read(int64_t column, std::span<const TensorPlace> places) const {
  at::Tensor all;
  for (size_t i = 0; i < places.size(); ++i) {
    const at::Tensor one = view(columns_[column], places[i]);
    const auto dtype = c10::promoteTypes(one.scalar_type(), columns_[column].dtype);
    if (!all.defined()) {
      std::vector<int64_t> sizes = {std::ssize(places)};
      sizes.insert(sizes.end(), one.sizes().begin(), one.sizes().end());
      all = at::empty(sizes, dtype);
    }
    // Files may have different types.
    if (all.scalar_type() != dtype) all = all.to(c10::promoteTypes(all.scalar_type(), dtype));
    all[i].copy_(one);
  }
  for (const auto& place : places)
    if (place.row >= 0) open(place).release(columns_[column].name);
  return all;
}

at::Tensor TensorColumns::view(const TensorColumn& column, const TensorPlace& place) const {
  const TensorFile file = open(place);
  const std::string name = place.row < 0 ? kNpyArray : column.name;
  const auto found = file.tensors().find(name);
  if (found == file.tensors().end()) {
    std::string names;
    for (const auto& [known, unused] : file.tensors()) names += cat(names.empty() ? "" : ", ", known);
    throw MissingColumn(cat(place.file, ": has no tensor ", column.name, ", only {", names, "}; set model.inputs"));
  }
  const auto& entry = found->second;
  const auto sizes = at::IntArrayRef(entry.shape).slice(place.row < 0 ? 0 : 1);
  if (sizes != at::IntArrayRef(column.sizes))
    throw DataError(cat(place.file, ": a sample's ", column.name, " has the sizes ", sizes, ", but the program takes ",
                        at::IntArrayRef(column.sizes), "; change the data, or export the program for them"));
  if (!c10::isFloatingType(column.dtype) && c10::promoteTypes(entry.dtype, column.dtype) != column.dtype)
    throw DataError(cat(place.file, ": ", column.name, " has the type ", entry.dtype,
                        ", whose values may not fit the type ", column.dtype, " that the program takes; write ",
                        column.dtype));
  if (place.row >= 0 && place.row >= entry.shape[0])
    throw DataError(cat(place.file, ": has ", entry.shape[0],
                        " samples, but had more before; do not change the data while it is in use"));
  const at::Tensor whole = file.view(name);
  return elements_of(place.row < 0 ? whole : whole[place.row], entry.dtype);
}

TensorFile TensorColumns::open(const TensorPlace& place) const {
  if (place.row < 0) {
    std::error_code ignored;
    if (!fs::is_regular_file(place.file, ignored))
      throw DataError(
          cat(place.file, ": does not exist or is not a file; paths are relative to the folder of the data file"));
    return NpyFile(place.file);
  }
  const std::scoped_lock lock(opening_);
  const auto found = open_.find(place.file);
  return (found == open_.end() ? open_.emplace(place.file, SafetensorsFile(place.file)).first : found)->second;
}

}  // namespace shardline
