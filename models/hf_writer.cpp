#include "models/hf_writer.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <utility>

#include "core/error.h"
#include "models/disk_file.h"
#include "models/hf_layout.h"
#include "models/safetensors.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct FileTensor {
  std::string name;
  std::vector<int64_t> shape;
  int64_t bytes;
};

// The tensors of a model's files, in model order. A parameter without sources has no place in such files.
std::vector<FileTensor> file_tensors(const ModelSpec& spec, at::ScalarType dtype) {
  std::vector<FileTensor> tensors;
  for (const auto& layer : spec.layers) {
    for (const auto& param : layer.params) {
      if (!param.tied_to.empty()) continue;
      SL_ASSERT(!param.sources.empty(), layer.full_name(param), " has no name in a file");
      for (const auto& source : param.sources) {
        auto shape = file_shape(param, source);
        const int64_t bytes = c10::multiply_integers(shape) * static_cast<int64_t>(c10::elementSize(dtype));
        tensors.push_back({source.tensor, std::move(shape), bytes});
      }
    }
  }
  return tensors;
}

// Fills one file after the other, in order.
std::vector<std::vector<FileTensor>> fill_files(std::vector<FileTensor> tensors, int64_t most_bytes) {
  std::vector<std::vector<FileTensor>> files(1);
  int64_t bytes = 0;
  for (auto& tensor : tensors) {
    if (!files.back().empty() && bytes + tensor.bytes > most_bytes) {
      files.emplace_back();
      bytes = 0;
    }
    bytes += tensor.bytes;
    files.back().push_back(std::move(tensor));
  }
  return files;
}

// "c10::BFloat16" is bfloat16 to transformers.
std::string dtype_name(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return "float64";
    case at::kFloat:
      return "float32";
    case at::kHalf:
      return "float16";
    case at::kBFloat16:
      return "bfloat16";
    default:
      throw InvariantError(cat("a model is not written as ", c10::toString(dtype)));
  }
}

}  // namespace

struct HfWriter::Shard {
  std::string name, unfinished;  // file name when done; path until then
  std::string head;              // first bytes of the file
  int64_t data_bytes = 0;
  std::optional<DiskFile> file;  // open on ranks that write

  DiskFile& opened() {
    if (!file) file.emplace(DiskFile::open(unfinished));
    return *file;
  }
  int64_t bytes() const { return static_cast<int64_t>(head.size()) + data_bytes; }
};

HfWriter::HfWriter(std::string directory, const ModelSpec& spec, at::ScalarType dtype, int64_t max_shard_bytes)
    : directory_(std::move(directory)), dtype_(dtype) {
  lay_out(spec, max_shard_bytes);
}

HfWriter::~HfWriter() = default;

void HfWriter::lay_out(const ModelSpec& spec, int64_t max_shard_bytes) {
  auto files = fill_files(file_tensors(spec, dtype_), max_shard_bytes);
  const auto count = static_cast<int>(files.size());
  for (int i = 0; i < count; ++i) {
    auto& tensors = files[static_cast<size_t>(i)];
    // Holes are not allowed, so tensors of an odd size come last: all others start at a multiple of 8 bytes.
    std::stable_partition(tensors.begin(), tensors.end(), [](const FileTensor& t) { return t.bytes % 8 == 0; });

    auto& shard = *shards_.emplace_back(std::make_unique<Shard>());
    shard.name = count == 1 ? kSingleFile : shard_file(i, count);
    shard.unfinished = file_in(directory_, shard.name + ".incomplete");
    json header = {{"__metadata__", {{"format", "pt"}}}};
    for (const auto& tensor : tensors) {
      header[tensor.name] = {{"dtype", safetensors_dtype(dtype_)},
                             {"shape", tensor.shape},
                             {"data_offsets", {shard.data_bytes, shard.data_bytes + tensor.bytes}}};
      const bool is_new = places_.emplace(tensor.name, Place{&shard, shard.data_bytes}).second;
      SL_ASSERT(is_new, "two parameters are stored as ", tensor.name);
      shard.data_bytes += tensor.bytes;
    }
    shard.head = safetensors_head(header.dump());
    for (const auto& tensor : tensors) places_.at(tensor.name).begin += static_cast<int64_t>(shard.head.size());
  }
}

int64_t HfWriter::total_bytes() const {
  int64_t bytes = 0;
  for (const auto& shard : shards_) bytes += shard->bytes();
  return bytes;
}

void HfWriter::create() try {
  std::error_code error;
  fs::create_directories(directory_, error);
  if (error) throw RunError(cat(directory_, ": cannot be made: ", error.message()));
  for (const auto& shard : shards_) {
    auto file = DiskFile::create(shard->unfinished);
    file.reserve(shard->bytes());
    file.write_at(0, shard->head);
    file.sync();
  }
} catch (const RunError&) {
  std::error_code ignored;
  for (const auto& shard : shards_) fs::remove(shard->unfinished, ignored);
  throw;
}

void HfWriter::write(const ParamSpec& param, const std::string& full_name, int t, int t_degree,
                     const at::Tensor& local) {
  SL_ASSERT(param.tied_to.empty(), full_name, " is written as ", param.tied_to);
  const at::NoGradGuard values_only;
  for (const auto& source : param.sources) {
    const auto part = shared_part(param, source, t, t_degree, local);
    const auto values = part.local.to(at::TensorOptions().device(at::kCPU).dtype(dtype_)).contiguous();
    if (values.numel() == 0) continue;

    // Of each index of the dimensions before the cut one, the file has a row, and the rank a contiguous piece of it.
    const auto view = file_view(param, source);
    const auto cut = static_cast<size_t>(part.dim);
    int64_t unit = values.element_size(), rows = 1;
    for (size_t d = 0; d < view.size(); ++d) (d < cut ? rows : unit) *= d == cut ? 1 : view[d];
    const int64_t row = view[cut] * unit, piece = part.range.length * unit;

    const Place& place = places_.at(source.tensor);
    const auto* bytes = static_cast<const char*>(values.const_data_ptr());
    for (int64_t r = 0; r < rows; ++r, bytes += piece)
      place.shard->opened().write_at(place.begin + r * row + part.range.begin * unit,
                                     {bytes, static_cast<size_t>(piece)});
  }
}

void HfWriter::flush() {
  for (const auto& shard : shards_)
    if (shard->file) shard->file->sync();
}

void HfWriter::finish(json config, const std::vector<std::string>& companions) {
  flush();
  remove_earlier_model();
  for (const auto& shard : shards_) {
    shard->file.reset();
    rename_file(shard->unfinished, file_in(directory_, shard->name));
  }
  if (shards_.size() > 1) write_index();
  for (const auto& path : companions) {
    const auto target = fs::path(directory_) / fs::path(path).filename();
    std::error_code error;
    if (fs::equivalent(path, target, error)) continue;
    fs::copy_file(path, target, fs::copy_options::overwrite_existing, error);
    if (error) throw RunError(cat(path, ": cannot be copied to ", directory_, ": ", error.message()));
  }
  // Version 5 of transformers writes dtype, version 4 torch_dtype; both obey it when they load.
  config[config.contains("torch_dtype") ? "torch_dtype" : "dtype"] = dtype_name(dtype_);
  sync_directory(directory_);
  write_file(file_in(directory_, kConfigFile), config.dump(2) + "\n");
  sync_directory(directory_);
}

// Without its config.json a directory is no model: it goes first, and the new one comes last.
void HfWriter::remove_earlier_model() const try {
  fs::remove(file_in(directory_, kConfigFile));
  sync_directory(directory_);
  fs::remove(file_in(directory_, kIndexFile));
  static const std::regex weights(R"(model(-\d+-of-\d+)?\.safetensors)");
  std::vector<fs::path> old;
  for (const auto& file : fs::directory_iterator(directory_))
    if (std::regex_match(file.path().filename().string(), weights)) old.push_back(file.path());
  for (const auto& file : old) fs::remove(file);
} catch (const fs::filesystem_error& error) {
  throw RunError(cat(directory_, ": the earlier model cannot be removed: ", error.what()));
}

void HfWriter::write_index() const {
  int64_t data_bytes = 0;
  json weight_map = json::object();
  for (const auto& shard : shards_) data_bytes += shard->data_bytes;
  for (const auto& [tensor, place] : places_) weight_map[tensor] = place.shard->name;
  const json index = {{"metadata", {{"total_size", data_bytes}}}, {"weight_map", weight_map}};
  write_file(file_in(directory_, kIndexFile), index.dump(2) + "\n");
}

}  // namespace shardline
