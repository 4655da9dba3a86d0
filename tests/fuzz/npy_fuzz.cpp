// Arrays of numpy: the input as a whole file, and as the header of a file whose length and data are correct. An
// accepted array has exactly the bytes of the data, and can be read.
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <memory>

#include "engine/data/tensors/npy_file.h"
#include "tests/fuzz/fuzz.h"

namespace shardline::npy_fuzz {
namespace {

constexpr size_t kMostData = 64;

bool read_file(const std::string& bytes) {
  const std::string path = fuzz::file_with("array.npy", bytes);
  std::unique_ptr<const NpyFile> file;
  if (!fuzz::accepts(bytes.size(), [&] { file = std::make_unique<NpyFile>(path); })) return false;
  FUZZ_REQUIRE(file->tensors().size() == 1, file->tensors().size());
  const auto& [name, entry] = *file->tensors().begin();
  const auto data = file->bytes_of(name);
  FUZZ_REQUIRE(data.size() == entry.end - entry.begin, name, " has ", data.size(), " bytes");
  FUZZ_REQUIRE(bytes.ends_with(data), "the data are not at the end");
  const at::Tensor tensor = file->tensor(name);
  FUZZ_REQUIRE(tensor.sizes() == at::IntArrayRef(entry.shape), "the sizes are ", tensor.sizes());
  FUZZ_REQUIRE(tensor.nbytes() == data.size(), tensor.nbytes(), " bytes as a tensor");
  FUZZ_REQUIRE(data.empty() || std::equal(data.begin(), data.end(), static_cast<const char*>(tensor.data_ptr())),
               "other bytes as a tensor");
  return true;
}

}  // namespace

FUZZ_TARGET(npy) {
  const std::string input = fuzz::text_of(data, size);
  bool accepted = read_file(input);
  if (input.size() > 0xffff) return accepted;
  std::string head = std::string("\x93NUMPY\x01\0", 8) + char(input.size() & 0xff) + char(input.size() >> 8);
  for (size_t bytes = 0; bytes <= kMostData; bytes += 4) accepted |= read_file(head + input + std::string(bytes, '\1'));
  return accepted;
}

}  // namespace shardline::npy_fuzz
