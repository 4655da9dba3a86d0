#include "models/files/safetensors_files.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "core/files/json_data.h"
#include "models/files/hf_layout.h"

namespace shardline {
namespace {

using nlohmann::json;

// {"weight_map": {tensor: file}} -> file -> its tensors. Files are names within the directory, never paths.
std::map<std::string, std::set<std::string>> read_index(const std::string& path) {
  const json index = read_data_json(path);
  const auto map = index.find("weight_map");
  if (map == index.end() || !map->is_object() || map->empty())
    throw DataError(cat(path, ": /weight_map must be an object that gives each tensor its file"));
  std::map<std::string, std::set<std::string>> tensors_of;
  for (const auto& [tensor, file] : map->items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (!name.ends_with(".safetensors") || name.find('/') != std::string::npos || name.find('\0') != std::string::npos)
      throw DataError(cat(path, ": /weight_map: ", tensor,
                          ": must name a .safetensors file in the same directory; got ", file.dump(-1, ' ', true),
                          "; write the index again"));
    tensors_of[name].insert(tensor);
  }
  return tensors_of;
}

void check_shard(const SafetensorsFile& file, const std::set<std::string>& promised, const std::string& index) {
  for (const auto& name : promised)
    if (!file.tensors().contains(name))
      throw DataError(cat(index, ": /weight_map: ", name, ": is in ", file.path(),
                          " according to the index, but that file does not contain it; download both again"));
  for (const auto& [name, entry] : file.tensors())
    if (!promised.contains(name))
      throw DataError(
          cat(file.path(), ": tensor ", name, ": ", index, " does not give it to this file; fetch both again"));
}

}  // namespace

std::map<std::string, SafetensorsFile> open_safetensors(const std::string& directory, const std::string& stem) {
  std::map<std::string, SafetensorsFile> files;
  const std::string single = stem + ".safetensors", index = file_in(directory, stem + ".safetensors.index.json");
  std::error_code ignored;
  if (std::filesystem::exists(file_in(directory, single), ignored)) {
    files.emplace(single, SafetensorsFile(file_in(directory, single)));
  } else if (std::filesystem::exists(index, ignored)) {
    for (const auto& [name, promised] : read_index(index)) {
      const auto& file = files.emplace(name, SafetensorsFile(file_in(directory, name))).first->second;
      check_shard(file, promised, index);
    }
  }
  return files;
}

}  // namespace shardline
