#include "models/files/hf_writer.h"

#include <ATen/core/grad_mode.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <utility>

#include "core/error.h"
#include "core/memory/tensor_data.h"
#include "models/files/hf_layout.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// "c10::BFloat16" is called bfloat16 by transformers.
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
      throw InvariantError(cat("a model cannot be saved with the dtype ", c10::toString(dtype)));
  }
}

}  // namespace

std::string config_text(json config, at::ScalarType dtype) {
  // Version 5 of transformers writes dtype, version 4 torch_dtype; both respect it when they load.
  config[config.contains("torch_dtype") ? "torch_dtype" : "dtype"] = dtype_name(dtype);
  return config.dump(2) + "\n";
}

HfWriter::HfWriter(std::string directory, const ModelSpec& spec, at::ScalarType dtype, int64_t most_bytes)
    : directory_(std::move(directory)), dtype_(dtype), layout_(file_tensors(spec, dtype), "model", most_bytes) {
  open_.resize(layout_.files().size());
}

HfWriter::~HfWriter() = default;

std::string HfWriter::path_of(const std::string& name) const {
  return file_in(directory_, name);
}

std::string HfWriter::unfinished(const std::string& name) const {
  return path_of(name + ".incomplete");
}

void HfWriter::create(const json& config, const std::map<std::string, std::string>& companions) try {
  auto small_files = companions;
  if (const auto index = layout_.index(); !index.empty()) small_files[kIndexFile] = index;
  small_files[kConfigFile] = config_text(config, dtype_);

  std::error_code error;
  fs::create_directories(directory_, error);
  if (error) throw RunError(cat(directory_, ": cannot be created: ", error.message()));
  const auto make = [&](const std::string& name, std::string_view begin, int64_t bytes) {
    const auto size = created_ ? fs::file_size(unfinished(name), error) : 0;
    if (created_ && !error && std::cmp_equal(size, bytes)) return;  // its space is reserved
    auto file = DiskFile::create(unfinished(name));
    file.reserve(bytes);
    file.write_at(0, begin);
    file.sync();
  };
  small_files_.clear();
  for (const auto& [name, text] : small_files) small_files_.push_back(name);
  for (const auto& [name, text] : small_files) make(name, text, text.size());
  for (const auto& file : layout_.files()) make(file.name, file.head, file.bytes);
  created_ = true;
} catch (const RunError&) {
  if (!created_) discard();
  throw;
}

void HfWriter::discard() const {
  std::error_code ignored;
  for (const auto& name : small_files_) fs::remove(unfinished(name), ignored);
  for (const auto& file : layout_.files()) fs::remove(unfinished(file.name), ignored);
}

void HfWriter::write(const ParamSpec& param, const std::string& full_name, int t, int t_degree, const at::Tensor& local,
                     const Written& written) {
  SL_ASSERT(param.tied_to.empty(), full_name, " is written as ", param.tied_to);
  const at::NoGradGuard values_only;
  for (const auto& source : param.sources) {
    const auto part = shared_part(param, source, t, t_degree, local);
    const auto values = part.local.to(at::TensorOptions().device(at::kCPU).dtype(dtype_)).contiguous();
    if (values.numel() == 0) continue;

    // The file has a row for each index of the dimensions before the cut one, and the rank has a contiguous piece of
    // each row. If the rank has all of the cut dimension, it has the whole tensor in one piece.
    const auto view = file_view(param, source);
    const bool is_whole = part.range.length == view[part.dim];
    const size_t cut = is_whole ? 0 : part.dim;
    const Range range = is_whole ? Range{0, view[0]} : part.range;
    int64_t unit = values.element_size(), rows = 1;
    for (size_t d = 0; d < view.size(); ++d) (d < cut ? rows : unit) *= d == cut ? 1 : view[d];
    const int64_t row = view[cut] * unit, piece = range.length * unit;

    const auto& place = layout_.place(source.tensor);
    const auto* bytes = data_of<char>(values);
    for (int64_t r = 0; r < rows; ++r, bytes += piece)
      write_bytes(place.file, place.begin + r * row + range.begin * unit, std::string_view(bytes, piece), written);
  }
}

void HfWriter::write(const BufferSpec& buffer, const at::Tensor& values, const Written& written) {
  SL_ASSERT(values.scalar_type() == buffer.dtype && values.sizes() == at::IntArrayRef(buffer.shape), buffer.name,
            " is ", buffer.dtype, " ", at::IntArrayRef(buffer.shape), ", got ", values.scalar_type(), " ",
            values.sizes());
  const at::Tensor whole = values.cpu().contiguous();
  const auto& place = layout_.place(buffer.name);
  write_bytes(place.file, place.begin, std::string_view(data_of<char>(whole), whole.nbytes()), written);
}

// Sends written data to disk immediately: otherwise all of it could still be in memory when flush() is called, which
// would then take long without progress.
void HfWriter::write_bytes(size_t file, int64_t offset, std::string_view bytes, const Written& written) {
  auto& open = open_[file];
  if (!open) open.emplace(DiskFile::open(unfinished(layout_.files()[file].name)));
  while (!bytes.empty()) {
    const auto piece = bytes.substr(0, kPieceBytes);
    const int64_t length = piece.size();
    open->write_at(offset, piece);
    unsynced_bytes_ += length;
    if (unsynced_bytes_ >= kPieceBytes) {
      open->sync();
      unsynced_bytes_ = 0;
    }
    if (written) written(length);
    offset += length;
    bytes.remove_prefix(piece.size());
  }
}

// Closes the files: finish(), which another rank may call, gives away their names, and later writes go to new
// files.
void HfWriter::flush() {
  for (auto& file : open_) {
    if (file) file->sync();
    file.reset();
  }
}

std::vector<std::string> HfWriter::unfinished_weights() const {
  std::vector<std::string> paths;
  for (const auto& file : layout_.files()) paths.push_back(unfinished(file.name));
  return paths;
}

void HfWriter::finish() {
  flush();
  remove_earlier_model();
  const auto give_name = [this](const std::string& name) { rename_file(unfinished(name), path_of(name)); };
  for (const auto& file : layout_.files()) give_name(file.name);
  for (const auto& name : small_files_)
    if (name != kConfigFile) give_name(name);
  sync_directory(directory_);
  give_name(kConfigFile);
  sync_directory(directory_);
}

// Without config.json, a directory is not a model: so it is removed first, and the new one is added last.
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

}  // namespace shardline
