// Safetensors files from inputs that hold only the header's JSON.
#pragma once
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "models/files/safetensors.h"
#include "tests/fuzz/fuzz.h"

namespace shardline::fuzz {

// The file of this header, with as much data as its last tensor states, but at most a page.
inline std::string safetensors_of(const std::string& header) {
  constexpr uint64_t most = 4096;
  uint64_t end = 0;
  const auto parsed = nlohmann::json::parse(header, nullptr, false);
  if (parsed.is_object())
    for (const auto& [name, entry] : parsed.items()) {
      const auto offsets = entry.is_object() ? entry.find("data_offsets") : entry.end();
      if (offsets == entry.end() || !offsets->is_array() || offsets->size() != 2) continue;
      if ((*offsets)[1].is_number_unsigned()) end = std::max(end, (*offsets)[1].get<uint64_t>());
    }
  std::string file = safetensors_head(header);
  for (uint64_t byte = 0; byte < std::min(end, most); ++byte) file += static_cast<char>(byte % 61);
  return file;
}

}  // namespace shardline::fuzz
