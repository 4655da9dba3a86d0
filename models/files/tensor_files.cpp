#include "models/files/tensor_files.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "core/files/json_data.h"
#include "models/files/hf_layout.h"
#include "models/files/safetensors.h"
#include "models/files/torch_file.h"

namespace shardline {
namespace {

using nlohmann::json;

struct Format {
  const char* extension;
  TensorFile (*open)(const std::string& path);
};
constexpr Format kSafetensors{".safetensors",
                              [](const std::string& path) -> TensorFile { return SafetensorsFile(path); }};
constexpr Format kTorch{".bin", [](const std::string& path) -> TensorFile { return TorchFile(path); }};

// {"weight_map": {tensor: file}} -> the tensors of each file. Files are names within the directory, never paths.
std::map<std::string, std::set<std::string>> read_index(const std::string& path, const char* extension) {
  const json index = read_data_json(path);
  const auto map = index.find("weight_map");
  if (map == index.end() || !map->is_object() || map->empty())
    throw DataError(cat(path, ": /weight_map must be an object that gives each tensor its file"));
  std::map<std::string, std::set<std::string>> tensors_of;
  for (const auto& [tensor, file] : map->items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (!name.ends_with(extension) || name.find('/') != std::string::npos || name.find('\0') != std::string::npos)
      throw DataError(cat(path, ": /weight_map: ", tensor, ": must name a ", extension,
                          " file in the same directory; got ", file.dump(-1, ' ', true), "; write the index again"));
    tensors_of[name].insert(tensor);
  }
  return tensors_of;
}

void check_shard(const TensorFile& file, const std::set<std::string>& promised, const std::string& index) {
  for (const auto& name : promised)
    if (!file.tensors().contains(name))
      throw DataError(cat(index, ": /weight_map: ", name, ": is in ", file.path(),
                          " according to the index, but that file does not contain it; download both again"));
  for (const auto& [name, entry] : file.tensors())
    if (!promised.contains(name))
      throw DataError(
          cat(file.path(), ": tensor ", name, ": ", index, " does not assign it to this file; download both again"));
}

TensorFiles open_files(const std::string& directory, const std::string& single, const std::string& index_name,
                       const Format& format) {
  TensorFiles files;
  if (has_file(directory, single)) {
    files.emplace(single, format.open(file_in(directory, single)));
  } else if (has_file(directory, index_name)) {
    const std::string index = file_in(directory, index_name);
    for (const auto& [name, promised] : read_index(index, format.extension)) {
      const auto& file = files.emplace(name, format.open(file_in(directory, name))).first->second;
      check_shard(file, promised, index);
    }
  }
  return files;
}

}  // namespace

TensorFiles open_safetensors(const std::string& directory, const std::string& stem) {
  return open_files(directory, stem + ".safetensors", stem + ".safetensors.index.json", kSafetensors);
}

TensorFiles open_weights(const std::string& directory) {
  auto files = open_files(directory, kSingleFile, kIndexFile, kSafetensors);
  return files.empty() ? open_files(directory, kTorchFile, kTorchIndexFile, kTorch) : files;
}

bool has_weights(const std::string& directory) {
  return std::ranges::any_of(std::array{kSingleFile, kIndexFile, kTorchFile, kTorchIndexFile},
                             [&](const char* name) { return has_file(directory, name); });
}

}  // namespace shardline
