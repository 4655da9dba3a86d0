// Files of torch.save: the input as a whole file, and as the pickle of an archive whose entries and storages are
// correct. Accepted tensors are inside the file and outside its pickle, and each can be read.
#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>

#include <memory>

#include "models/files/torch_file.h"
#include "tests/fuzz/fuzz.h"
#include "tests/models/files/torch_bytes.h"

namespace shardline::torch_file_fuzz {
namespace {

bool read_file(const std::string& bytes, size_t input_bytes) {
  const std::string path = fuzz::file_with("pytorch_model.bin", bytes);
  std::unique_ptr<const TorchFile> file;
  if (!fuzz::accepts(input_bytes, [&] { file = std::make_unique<TorchFile>(path); })) return false;
  const std::string_view header = file->header();
  FUZZ_REQUIRE(file->size() == bytes.size() && header.size() <= bytes.size(), header.size());
  for (const auto& [name, entry] : file->tensors()) {
    FUZZ_REQUIRE(entry.begin <= entry.end && entry.end <= bytes.size(), name, " ends at ", entry.end);
    FUZZ_REQUIRE(entry.strides.size() == entry.shape.size(), name, " has ", entry.strides.size(), " strides");
    int64_t elements = 1, last = 0;
    for (size_t d = 0; d < entry.shape.size(); ++d) {
      FUZZ_REQUIRE(entry.shape[d] >= 0 && entry.strides[d] >= 0, name, " has a negative size or stride");
      elements *= entry.shape[d];
    }
    for (size_t d = 0; d < entry.shape.size() && elements; ++d) last += (entry.shape[d] - 1) * entry.strides[d];
    const uint64_t size = elements ? (last + 1) * c10::elementSize(entry.dtype) : 0;
    FUZZ_REQUIRE(entry.end - entry.begin == size, name, " has ", entry.end - entry.begin, " bytes instead of ", size);
    const std::string_view part = file->bytes_of(name);
    FUZZ_REQUIRE(part.empty() || part.end() <= header.begin() || part.begin() >= header.end(), name,
                 " is in the pickle");
    const at::Tensor view = file->view(name);
    FUZZ_REQUIRE(view.sizes().slice(0, entry.shape.size()) == at::IntArrayRef(entry.shape), name, view.sizes());
    constexpr int64_t most = 1 << 12;
    if (elements > most) continue;  // a stride of 0 makes any number of them
    const at::Tensor tensor = file->tensor(name);
    FUZZ_REQUIRE(tensor.sizes() == at::IntArrayRef(entry.shape), name, " has the sizes ", tensor.sizes());
    FUZZ_REQUIRE(tensor.toType(at::kDouble).numel() == elements, name, " cannot be read");
    file->release(name);
  }
  return true;
}

}  // namespace

FUZZ_TARGET(torch_file) {
  const std::string input = fuzz::text_of(data, size), storage(64, '\1');
  const bool as_file = read_file(input, size);
  const bool as_pickle = read_file(torch_bytes::archive(input, {storage, storage}), size);
  return as_file || as_pickle;
}

}  // namespace shardline::torch_file_fuzz
