#include "models/files/hf_writer.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <utility>

#include "core/error.h"
#include "core/files/disk_file.h"
#include "models/files/hf_layout.h"
#include "models/files/safetensors.h"

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
        const int64_t bytes = c10::multiply_integers(shape) * c10::elementSize(dtype);
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
  std::string name;  // of the file
  std::string head;  // its first bytes
  int64_t data_bytes = 0;
  std::optional<DiskFile> file;  // open on ranks that write

  int64_t bytes() const { return head.size() + data_bytes; }
};

HfWriter::HfWriter(std::string directory, const ModelSpec& spec, at::ScalarType dtype, int64_t max_shard_bytes)
    : directory_(std::move(directory)), dtype_(dtype) {
  lay_out(spec, max_shard_bytes);
}

HfWriter::~HfWriter() = default;

void HfWriter::lay_out(const ModelSpec& spec, int64_t max_shard_bytes) {
  auto files = fill_files(file_tensors(spec, dtype_), max_shard_bytes);
  const int count = files.size();
  for (int i = 0; i < count; ++i) {
    auto& tensors = files[i];
    // Holes are not allowed, so tensors of an odd size come last: all others start at a multiple of 8 bytes.
    std::stable_partition(tensors.begin(), tensors.end(), [](const FileTensor& t) { return t.bytes % 8 == 0; });

    auto& shard = *shards_.emplace_back(std::make_unique<Shard>());
    shard.name = count == 1 ? kSingleFile : shard_file(i, count);
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
    for (const auto& tensor : tensors) places_.at(tensor.name).begin += shard.head.size();
  }
}

int64_t HfWriter::total_bytes() const {
  int64_t bytes = 0;
  for (const auto& shard : shards_) bytes += shard->bytes();
  return bytes;
}

std::string HfWriter::path_of(const std::string& name) const {
  return file_in(directory_, name);
}

std::string HfWriter::unfinished(const std::string& name) const {
  return path_of(name + ".incomplete");
}

void HfWriter::create(json config, const std::map<std::string, std::string>& companions) try {
  // Version 5 of transformers writes dtype, version 4 torch_dtype; both obey it when they load.
  config[config.contains("torch_dtype") ? "torch_dtype" : "dtype"] = dtype_name(dtype_);
  auto small_files = companions;
  if (shards_.size() > 1) small_files[kIndexFile] = index();
  small_files[kConfigFile] = config.dump(2) + "\n";

  std::error_code error;
  fs::create_directories(directory_, error);
  if (error) throw RunError(cat(directory_, ": cannot be created: ", error.message()));
  const auto make = [&](const std::string& name, std::string_view begin, int64_t bytes) {
    const auto size = created_ ? fs::file_size(unfinished(name), error) : 0;
    if (created_ && !error && std::cmp_equal(size, bytes)) return;  // its room is reserved
    auto file = DiskFile::create(unfinished(name));
    file.reserve(bytes);
    file.write_at(0, begin);
    file.sync();
  };
  small_files_.clear();
  for (const auto& [name, text] : small_files) small_files_.push_back(name);
  for (const auto& [name, text] : small_files) make(name, text, text.size());
  for (const auto& shard : shards_) make(shard->name, shard->head, shard->bytes());
  created_ = true;
} catch (const RunError&) {
  if (!created_) discard();
  throw;
}

void HfWriter::discard() const {
  std::error_code ignored;
  for (const auto& name : small_files_) fs::remove(unfinished(name), ignored);
  for (const auto& shard : shards_) fs::remove(unfinished(shard->name), ignored);
}

void HfWriter::write(const ParamSpec& param, const std::string& full_name, int t, int t_degree, const at::Tensor& local,
                     const Written& written) {
  SL_ASSERT(param.tied_to.empty(), full_name, " is written as ", param.tied_to);
  const at::NoGradGuard values_only;
  for (const auto& source : param.sources) {
    const auto part = shared_part(param, source, t, t_degree, local);
    const auto values = part.local.to(at::TensorOptions().device(at::kCPU).dtype(dtype_)).contiguous();
    if (values.numel() == 0) continue;

    // The file has a row for each index of the dimensions before the cut one, and the rank a contiguous piece of each
    // row. A rank that has all of the cut dimension has the whole tensor in one piece.
    const auto view = file_view(param, source);
    const bool is_whole = part.range.length == view[part.dim];
    const size_t cut = is_whole ? 0 : part.dim;
    const Range range = is_whole ? Range{0, view[0]} : part.range;
    int64_t unit = values.element_size(), rows = 1;
    for (size_t d = 0; d < view.size(); ++d) (d < cut ? rows : unit) *= d == cut ? 1 : view[d];
    const int64_t row = view[cut] * unit, piece = range.length * unit;

    const Place& place = places_.at(source.tensor);
    const auto* bytes = static_cast<const char*>(values.const_data_ptr());
    for (int64_t r = 0; r < rows; ++r, bytes += piece)
      write_bytes(*place.shard, place.begin + r * row + range.begin * unit, std::string_view(bytes, piece), written);
  }
}

// Written data goes to the disk immediately: otherwise all of it could still be in memory when flush() is called, which
// would then take its time without progress.
void HfWriter::write_bytes(Shard& shard, int64_t offset, std::string_view bytes, const Written& written) {
  if (!shard.file) shard.file.emplace(DiskFile::open(unfinished(shard.name)));
  while (!bytes.empty()) {
    const auto piece = bytes.substr(0, kPieceBytes);
    const int64_t length = piece.size();
    shard.file->write_at(offset, piece);
    unsynced_bytes_ += length;
    if (unsynced_bytes_ >= kPieceBytes) {
      shard.file->sync();
      unsynced_bytes_ = 0;
    }
    if (written) written(length);
    offset += length;
    bytes.remove_prefix(piece.size());
  }
}

void HfWriter::flush() {
  for (const auto& shard : shards_)
    if (shard->file) shard->file->sync();
}

void HfWriter::finish() {
  flush();
  remove_earlier_model();
  const auto give_name = [this](const std::string& name) { rename_file(unfinished(name), path_of(name)); };
  for (const auto& shard : shards_) {
    shard->file.reset();
    give_name(shard->name);
  }
  for (const auto& name : small_files_)
    if (name != kConfigFile) give_name(name);
  sync_directory(directory_);
  give_name(kConfigFile);
  sync_directory(directory_);
}

// Without config.json a directory is not a model: it goes first, and the new one comes last.
void HfWriter::remove_earlier_model() const try {
  fs::remove(path_of(kConfigFile));
  sync_directory(directory_);
  fs::remove(path_of(kIndexFile));
  static const std::regex weights(R"(model(-\d+-of-\d+)?\.safetensors)");
  std::vector<fs::path> old;
  for (const auto& file : fs::directory_iterator(directory_))
    if (std::regex_match(file.path().filename().string(), weights)) old.push_back(file.path());
  for (const auto& file : old) fs::remove(file);
} catch (const fs::filesystem_error& error) {
  throw RunError(cat(directory_, ": the earlier model cannot be removed: ", error.what()));
}

std::string HfWriter::index() const {
  int64_t data_bytes = 0;
  json weight_map = json::object();
  for (const auto& shard : shards_) data_bytes += shard->data_bytes;
  for (const auto& [tensor, place] : places_) weight_map[tensor] = place.shard->name;
  return json{{"metadata", {{"total_size", data_bytes}}}, {"weight_map", weight_map}}.dump(2) + "\n";
}

}  // namespace shardline
