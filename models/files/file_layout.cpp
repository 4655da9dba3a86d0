#include "models/files/file_layout.h"

#include <c10/util/accumulate.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "core/numbers/number_types.h"
#include "models/files/hf_layout.h"
#include "models/files/safetensors.h"

namespace shardline {
namespace {

using nlohmann::json;

// Fills one file after another, in order.
std::vector<std::vector<FileTensor>> fill_files(std::vector<FileTensor> tensors, int64_t most_bytes) {
  std::vector<std::vector<FileTensor>> files(1);
  int64_t bytes = 0;
  for (auto& tensor : tensors) {
    if (!files.back().empty() && bytes + tensor.bytes() > most_bytes) {
      files.emplace_back();
      bytes = 0;
    }
    bytes += tensor.bytes();
    files.back().push_back(std::move(tensor));
  }
  return files;
}

// The largest power of 2, up to 8, that divides the tensor's bytes.
int64_t alignment_after(const FileTensor& tensor) {
  return std::gcd(tensor.bytes(), int64_t{8});
}

std::string file_name(const std::string& stem, int index, int count) {
  if (count == 1) return stem + ".safetensors";
  char number[32];
  std::snprintf(number, sizeof number, "-%05d-of-%05d", index + 1, count);
  return cat(stem, number, ".safetensors");
}

}  // namespace

int64_t FileTensor::bytes() const {
  return c10::multiply_integers(shape) * width_of(dtype);
}

std::vector<FileTensor> file_tensors(const ModelSpec& spec, at::ScalarType dtype) {
  std::vector<FileTensor> tensors;
  for (const auto& layer : spec.layers) {
    for (const auto& param : layer.params) {
      if (!param.tied_to.empty()) continue;
      SL_ASSERT(!param.sources.empty(), layer.full_name(param), " has no name in a file");
      for (const auto& source : param.sources) tensors.push_back({source.tensor, file_shape(param, source), dtype});
    }
  }
  for (const auto& buffer : spec.buffers) tensors.push_back({buffer.name, buffer.shape, buffer.dtype});
  return tensors;
}

FileLayout::FileLayout(std::vector<FileTensor> tensors, const std::string& stem, int64_t most_bytes) : stem_(stem) {
  auto parts = fill_files(std::move(tensors), most_bytes);
  for (size_t i = 0; i < parts.size(); ++i) {
    // Gaps are not allowed, so tensors of odd sizes come last: then all start at a multiple of their elements' bytes.
    std::ranges::stable_sort(parts[i], std::greater(), alignment_after);
    File& file = files_.emplace_back();
    file.name = file_name(stem, i, parts.size());
    json header = {{"__metadata__", {{"format", "pt"}}}};
    for (const auto& tensor : parts[i]) {
      header[tensor.name] = {{"dtype", safetensors_dtype(tensor.dtype)},
                             {"shape", tensor.shape},
                             {"data_offsets", {file.bytes, file.bytes + tensor.bytes()}}};
      const bool is_new = places_.emplace(tensor.name, Place{i, file.bytes}).second;
      SL_ASSERT(is_new, "two parameters are stored as ", tensor.name);
      file.bytes += tensor.bytes();
    }
    file.head = safetensors_head(header.dump());
    file.bytes += file.head.size();
    for (const auto& tensor : parts[i]) places_.at(tensor.name).begin += file.head.size();
    file.tensors = std::move(parts[i]);
  }
}

int64_t FileLayout::total_bytes() const {
  int64_t bytes = 0;
  for (const auto& file : files_) bytes += file.bytes;
  return bytes;
}

std::string FileLayout::index() const {
  if (files_.size() == 1) return "";
  int64_t data_bytes = 0;
  json weight_map = json::object();
  for (const auto& file : files_) data_bytes += file.bytes - std::ssize(file.head);
  for (const auto& [tensor, place] : places_) weight_map[tensor] = files_[place.file].name;
  return json{{"metadata", {{"total_size", data_bytes}}}, {"weight_map", weight_map}}.dump(2) + "\n";
}

}  // namespace shardline
