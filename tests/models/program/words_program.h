// The small exported program of golden/make_program.py, what PyTorch computes with it, and damaged copies of it.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "core/files/mapped_file.h"
#include "models/files/stored_zip.h"
#include "models/program/pt2_archive.h"
#include "tests/models/files/files.h"
#include "tests/models/files/torch_bytes.h"
#include "tests/models/golden.h"

namespace shardline::words_program {

inline constexpr int64_t kWords = 11, kPositions = 8, kFeatures = 4;

inline std::string path() {
  return golden("program/words.pt2");
}

inline nlohmann::json expected() {
  return nlohmann::json::parse(contents(golden("program/words.json")));
}

// [samples, length]
inline at::Tensor ids() {
  std::vector<int64_t> flat;
  const auto rows = expected()["ids"].get<std::vector<std::vector<int64_t>>>();
  for (const auto& row : rows) flat.insert(flat.end(), row.begin(), row.end());
  return at::tensor(flat).view({std::ssize(rows), -1});
}

// Writes a copy of an archive to `to` in which `change` has been applied to this entry; an empty string removes it.
inline void write_changed_copy(const std::string& from, const std::string& to, const std::string& entry,
                               const std::function<std::string(std::string)>& change) {
  const MappedFile file(from);
  std::vector<torch_bytes::ZipEntry> entries;
  for (const auto& [name, bytes] : zip_entries(file.bytes(), from)) {
    const std::string data = name == entry ? change(std::string(bytes)) : std::string(bytes);
    if (name != entry || !data.empty()) entries.push_back({name, data});
  }
  put(to, torch_bytes::zip(entries));
}

// The same for this archive, with an entry of its folder.
inline void write_changed(const std::string& to, const std::string& entry,
                          const std::function<std::string(std::string)>& change) {
  write_changed_copy(path(), to, "words/" + entry, change);
}

// The same with a JSON file.
inline void write_changed_json(const std::string& to, const std::string& entry,
                               const std::function<void(nlohmann::json&)>& change) {
  write_changed(to, entry, [&](const std::string& text) {
    auto json = nlohmann::json::parse(text);
    change(json);
    return json.dump();
  });
}

}  // namespace shardline::words_program
