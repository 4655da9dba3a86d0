#include "models/files/hf_directory.h"

#include <ATen/core/grad_mode.h>
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/files/json_data.h"
#include "core/files/json_reader.h"
#include "core/hex.h"
#include "core/memory/transposing_copy.h"
#include "models/files/hf_layout.h"
#include "models/files/safetensors.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class Hash {
 public:
  Hash() : state_(XXH3_createState(), &XXH3_freeState) { XXH3_64bits_reset(state_.get()); }
  // Adding the length of each field separates it from the next.
  void add(std::string_view bytes) {
    add(bytes.size());
    XXH3_64bits_update(state_.get(), bytes.data(), bytes.size());
  }
  void add(uint64_t number) { XXH3_64bits_update(state_.get(), &number, sizeof number); }
  std::string hex() const { return hex_digits(XXH3_64bits_digest(state_.get())); }

 private:
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state_;
};

using Names = std::map<std::string, std::string>;  // name for comparisons -> name as written

// Lines of an error message, of which only the first ones are shown.
class Listing {
 public:
  explicit Listing(const char* what) : what_(what) {}
  void add(const std::string& line) {
    if (is_open()) text_ += cat("\n  ", what_, ": ", line);
    ++lines_;
  }
  bool is_open() const { return lines_ < kMost; }
  std::string text() const {
    return lines_ <= kMost ? text_ : cat(text_, "\n  ", what_, ": ", lines_ - kMost, " more");
  }

 private:
  static constexpr size_t kMost = 20;
  const char* what_;
  std::string text_;
  size_t lines_ = 0;
};

// The names to suggest in place of another: none from a large set and no long ones, because a file may contain any
// number of names, and comparing them takes time.
std::vector<std::string> candidates_of(const Names& names) {
  constexpr size_t kMost = 1000, kLongest = 128;
  std::vector<std::string> candidates;
  if (names.size() > kMost) return candidates;
  for (const auto& [base, spelled] : names)
    if (base.size() <= kLongest) candidates.push_back(base);
  return candidates;
}

// "\n  missing: a (nearest in the files: b)" for the first few names.
std::string listed(const char* what, const Names& names, const char* where, const Names& others) {
  const auto candidates = candidates_of(others);
  Listing listing(what);
  for (const auto& [base, spelled] : names) {
    const std::string nearest = listing.is_open() ? nearest_word(base, candidates) : "";
    listing.add(nearest.empty() ? spelled : cat(spelled, " (nearest ", where, ": ", others.at(nearest), ")"));
  }
  return listing.text();
}

// Copies in file order, at most one piece at a time. from: (a part of) the view of a tensor of this type in a file.
void copy_in_pieces(const at::Tensor& from, at::ScalarType dtype, const at::Tensor& to,
                    const HfDirectory::Copied& copied) {
  if (to.nbytes() <= HfDirectory::kPieceBytes) {
    copy_transposing(to, elements_of(from, dtype));
    if (copied && to.numel() > 0) copied(to.nbytes());
    return;
  }
  int64_t dim = 0;
  while (to.size(dim) == 1) ++dim;
  const int64_t half = to.size(dim) / 2, rest = to.size(dim) - half;
  copy_in_pieces(from.narrow(dim, 0, half), dtype, to.narrow(dim, 0, half), copied);
  copy_in_pieces(from.narrow(dim, half, rest), dtype, to.narrow(dim, half, rest), copied);
}

// The source of a parameter in a file that has only `rows` rows of its dimension 0.
ParamSource with_rows(const ParamSpec& param, ParamSource source, int64_t rows) {
  if (rows == param.shape[0]) return source;
  SL_ASSERT(source.permute.empty() && source.offset.empty(), source.tensor, " does not have its words in dimension 0");
  const auto view = file_view(param, source), shape = file_shape(param, source);
  source.view = view;
  source.shape = shape;
  source.view[0] = source.shape[0] = rows;
  return source;
}

// The view of a tensor of this type, with other sizes.
at::Tensor in_sizes(const at::Tensor& view, at::ScalarType dtype, std::vector<int64_t> sizes) {
  if (view.scalar_type() != dtype) sizes.push_back(c10::elementSize(dtype));
  return view.reshape(sizes);
}

}  // namespace

std::vector<std::string> companion_files(const std::string& directory) {
  std::vector<std::string> found;
  for (const char* name : {"generation_config.json", "tokenizer.json", "tokenizer_config.json", "tokenizer.model",
                           "sentencepiece.bpe.model", "spiece.model", "special_tokens_map.json", "added_tokens.json",
                           "vocab.json", "vocab.txt", "merges.txt", "chat_template.jinja"})
    if (has_file(directory, name)) found.push_back(file_in(directory, name));
  return found;
}

std::vector<std::string> NameReport::notes(const ModelSpec& spec) const {
  constexpr size_t kMost = 12;
  std::vector<std::string> notes, frozen;
  for (const auto& layer : spec.layers)
    for (const auto& param : layer.params)
      for (const auto& source : param.sources)
        if (!param.trainable && std::ranges::find(missing, source.tensor) != missing.end())
          frozen.push_back(source.tensor);
  const auto note = [&](const char* what, const std::vector<std::string>& names) {
    if (names.empty()) return;
    std::string text = what;
    for (size_t i = 0; i < std::min(names.size(), kMost); ++i) text += cat(i == 0 ? ": " : ", ", names[i]);
    if (names.size() > kMost) text += cat(" and ", names.size() - kMost, " more");
    notes.push_back(text);
  };
  note("the model's files lack some tensors of the head; these start with initial values", missing);
  note("tensors that start with initial values keep these values, because training.trainable does not select them",
       frozen);
  note("tensors in the model's files that the model does not use are left out", left_out);
  note(
      "tensors in the model's files have too few rows for the tokens; new rows are drawn around the mean of the others",
      grown);
  return notes;
}

HfDirectory::HfDirectory(const std::string& path) : path_(path) {
  std::error_code ignored;
  if (!fs::is_directory(path_, ignored))
    throw DataError(
        cat(path_, ": is not a directory; a model is a directory with config.json and *.safetensors or ", kTorchFile));
  config_ = read_data_json(file_in(path_, kConfigFile));
  files_ = open_weights(path_);
  index_tensors();
}

HfDirectory::HfDirectory(const std::string& path, TensorFiles files)
    : path_(path), config_(json::object()), files_(std::move(files)) {
  index_tensors();
}

void HfDirectory::require_weights() const {
  if (!files_.empty()) return;
  throw DataError(cat(path_, ": contains none of ", kSingleFile, ", ", kIndexFile, ", ", kTorchFile, " and ",
                      kTorchIndexFile, "; give a model directory, or \"init\": \"random\" to start without weights"));
}

void HfDirectory::index_tensors() {
  for (const auto& [file_name, file] : files_) {
    for (const auto& [name, entry] : file.tensors()) {
      const auto [known, is_new] = tensors_.emplace(name, Place{&file, name});
      if (!is_new)
        throw DataError(
            cat(file.path(), ": tensor ", name, ": is also in ", known->second.file->path(), "; remove one of them"));
    }
  }
}

const HfDirectory::Place* HfDirectory::find(const ParamSource& source) const {
  auto found = tensors_.find(source.tensor);
  for (const auto& alias : source.aliases)
    if (found == tensors_.end()) found = tensors_.find(alias);
  if (found == tensors_.end()) found = tensors_.find(source.stand_in);
  return found == tensors_.end() ? nullptr : &found->second;
}

const HfDirectory::Place* HfDirectory::find(const BufferSpec& buffer) const {
  auto found = tensors_.find(buffer.name);
  for (const auto& other : buffer.other_names)
    if (found == tensors_.end()) found = tensors_.find(other);
  return found == tensors_.end() ? nullptr : &found->second;
}

bool HfDirectory::holds(const ParamSpec& param) const {
  return std::ranges::all_of(param.sources, [this](const ParamSource& source) { return find(source) != nullptr; });
}

int64_t HfDirectory::rows_of(const ParamSpec& param) const {
  if (!param.row_is_word) return param.shape[0];
  const Place* place = find(param.sources[0]);
  SL_ASSERT(place, param.name, " is not in the files");
  return place->file->tensors().at(place->name).shape[0];
}

// Why a tensor cannot be this source; empty if it can.
std::string HfDirectory::mistake(const ParamSpec& param, const ParamSource& source, const Place& place) const {
  const auto& entry = place.file->tensors().at(place.name);
  const auto wanted = file_shape(param, source);
  auto accepted = wanted;
  if (param.row_is_word && !entry.shape.empty() && entry.shape[0] > 0)
    accepted[0] = std::min(accepted[0], entry.shape[0]);
  if (entry.shape != accepted)
    return cat(place.name, " in ", place.file->path(), " has the shape ", at::IntArrayRef(entry.shape),
               ", but the model needs ", at::IntArrayRef(wanted));
  if (!c10::isFloatingType(entry.dtype))
    return cat(place.name, " in ", place.file->path(), " has the dtype ", safetensors_dtype(entry.dtype),
               ", but a parameter needs F64, F32, F16 or BF16 (quantized models are not supported)");
  return "";
}

std::string HfDirectory::mistake(const BufferSpec& buffer, const Place& place) const {
  const auto& entry = place.file->tensors().at(place.name);
  if (entry.shape != buffer.shape)
    return cat(place.name, " in ", place.file->path(), " has the shape ", at::IntArrayRef(entry.shape),
               ", but the model needs ", at::IntArrayRef(buffer.shape));
  const bool are_floating = c10::isFloatingType(entry.dtype) && c10::isFloatingType(buffer.dtype);
  if (entry.dtype != buffer.dtype && !are_floating)
    return cat(place.name, " in ", place.file->path(), " has the dtype ", safetensors_dtype(entry.dtype),
               ", but the model's buffer has ", safetensors_dtype(buffer.dtype));
  return "";
}

at::Tensor HfDirectory::buffer(const BufferSpec& buffer) const {
  const Place* place = find(buffer);
  if (!place) return {};
  if (const auto wrong = mistake(buffer, *place); !wrong.empty())
    throw DataError(cat(path_, ": ", wrong, "; use the files that belong to the model"));
  return place->file->tensor(place->name).to(buffer.dtype);
}

NameReport HfDirectory::check_names(const ModelSpec& spec) const {
  require_weights();
  NameReport report;
  Names missing, surplus;
  Listing mistakes("mismatch");
  std::set<std::string_view> used, ignored;
  const auto use = [&](const ParamSource& source) {
    const std::string* first = nullptr;
    const auto see = [&](const std::string& name) {
      used.insert(name);
      if (!tensors_.contains(name)) return;
      if (first) mistakes.add(cat(name, " is the same tensor as ", *first, "; remove one of them"));
      first = &name;
    };
    see(source.tensor);
    for (const auto& alias : source.aliases) see(alias);
    if (!first) see(source.stand_in);
  };
  for (const auto& layer : spec.layers) {
    ignored.insert(layer.ignored_tensors.begin(), layer.ignored_tensors.end());
    for (const auto& param : layer.params) {
      const bool may_be_missing = param.may_be_missing && std::ranges::none_of(param.sources, [&](const auto& source) {
                                    return find(source) != nullptr;
                                  });
      for (const auto& source : param.sources) {
        use(source);
        if (!param.tied_to.empty()) continue;
        const Place* place = find(source);
        if (!place && may_be_missing) {
          report.missing.push_back(source.tensor);
        } else if (!place) {
          missing.emplace(source.aliases.empty() ? source.tensor : source.aliases.front(), source.tensor);
        } else if (const auto wrong = mistake(param, source, *place); !wrong.empty()) {
          mistakes.add(wrong);
        } else if (rows_of(param) < param.shape[0]) {
          report.grown.push_back(cat(source.tensor, " (", rows_of(param), " -> ", param.shape[0], ')'));
        }
      }
    }
  }
  for (const auto& buffer : spec.buffers) {
    used.insert(buffer.name);
    used.insert(buffer.other_names.begin(), buffer.other_names.end());
    const Place* place = find(buffer);
    if (!place) continue;
    if (const auto wrong = mistake(buffer, *place); !wrong.empty()) mistakes.add(wrong);
  }
  const auto is_of_other_head = [&](const std::string& name) {
    return std::ranges::any_of(spec.surplus, [&](const auto& beginning) { return name.starts_with(beginning); });
  };
  for (const auto& [name, place] : tensors_) {
    if (used.contains(name)) continue;
    if (ignored.contains(name) || is_of_other_head(name))
      report.left_out.push_back(name);
    else
      surplus.emplace(name, name);
  }
  if (missing.empty() && surplus.empty() && mistakes.text().empty()) return report;
  throw DataError(cat(path_, ": the files do not contain the ", spec.family, " model that ", kConfigFile,
                      " describes:", mistakes.text(), listed("missing", missing, "in the files", surplus),
                      listed("surplus", surplus, "in the model", missing),
                      "\nuse the config.json that belongs to these files, or the files that belong to it"));
}

void HfDirectory::read(const ParamSpec& param, const std::string& full_name, int t, int t_degree,
                       at::Tensor destination, const Copied& copied) const {
  SL_ASSERT(param.tied_to.empty() && !param.sources.empty(), full_name, " has no tensors of its own in a file");
  require_weights();
  const at::NoGradGuard values_only;
  for (const auto& source : param.sources) {
    const Place* place = find(source);
    if (!place)
      throw DataError(cat(path_, ": parameter ", full_name, ": the files have no tensor ", source.tensor,
                          "; use the config.json that belongs to these files"));
    if (const auto wrong = mistake(param, source, *place); !wrong.empty())
      throw DataError(cat("parameter ", full_name, ": ", wrong, "; use the config.json that belongs to these files"));
    const ParamSource there = with_rows(param, source, rows_of(param));
    auto part = shared_part(param, there, t, t_degree, destination);
    const auto dtype = place->file->tensors().at(place->name).dtype;
    const auto in_file = in_sizes(place->file->view(place->name), dtype, file_view(param, there));
    copy_in_pieces(in_file.narrow(part.dim, part.range.begin, part.range.length), dtype, part.local, copied);
    place->file->release(place->name);
  }
}

std::string HfDirectory::digest() const {
  constexpr size_t first_bytes = 64;
  Hash hash;
  hash.add(config_.dump());
  for (const auto& [name, file] : files_) {
    hash.add(name);
    hash.add(file.size());
    hash.add(file.header());
    for (const auto& [tensor, entry] : file.tensors()) hash.add(file.bytes_of(tensor).substr(0, first_bytes));
  }
  return hash.hex();
}

}  // namespace shardline
