// Safetensors files: the input as a whole file, and as the header of a file whose length and data are correct. Accepted
// tensors cover the data exactly once, and each can be read.
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <memory>

#include "models/files/safetensors.h"
#include "tests/fuzz/safetensors_input.h"

namespace shardline::safetensors_fuzz {
namespace {

bool read_file(const std::string& bytes) {
  const std::string path = fuzz::file_with("model.safetensors", bytes);
  std::unique_ptr<const SafetensorsFile> file;
  if (!fuzz::accepts(bytes.size(), [&] { file = std::make_unique<SafetensorsFile>(path); })) return false;
  FUZZ_REQUIRE(file->size() == bytes.size(), file->size());
  const uint64_t room = file->size() - 8 - file->header().size();
  uint64_t covered = 0;
  for (const auto& [name, entry] : file->tensors()) {
    FUZZ_REQUIRE(entry.begin <= entry.end && entry.end <= room, name, " ends at ", entry.end, " of ", room);
    covered += entry.end - entry.begin;
    const auto view = file->bytes_of(name);
    FUZZ_REQUIRE(view.size() == entry.end - entry.begin, name, " has ", view.size(), " bytes");
    const at::Tensor tensor = file->tensor(name);
    FUZZ_REQUIRE(tensor.sizes() == at::IntArrayRef(entry.shape), name, " has the sizes ", tensor.sizes());
    FUZZ_REQUIRE(tensor.nbytes() == view.size(), name, " has ", tensor.nbytes(), " bytes as a tensor");
    FUZZ_REQUIRE(view.empty() || std::equal(view.begin(), view.end(), static_cast<const char*>(tensor.data_ptr())),
                 name, " has other bytes as a tensor");
    file->release(name);
  }
  FUZZ_REQUIRE(covered == room, covered, " bytes of ", room, " belong to tensors");
  return true;
}

}  // namespace

FUZZ_TARGET(safetensors) {
  const std::string input = fuzz::text_of(data, size);
  const bool as_file = read_file(input), as_header = read_file(fuzz::safetensors_of(input));
  return as_file || as_header;
}

}  // namespace shardline::safetensors_fuzz
