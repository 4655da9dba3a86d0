#include "models/program/pt2_writer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <caffe2/serialize/inline_container.h>

#include <cstring>
#include <exception>

#include "core/error.h"
#include "core/files/disk_file.h"
#include "core/files/mapped_file.h"
#include "models/files/stored_zip.h"

namespace shardline {
namespace {

constexpr size_t kMostPadding = 256;    // bytes by which an entry, or the end, may be longer than in the source
constexpr uint64_t kFormatVersion = 6;  // the container's version, as written by torch.export.save

// Replaces the values of tensors in a record, which begins at this byte of the archive.
void change_values(const TensorFile& tensors, const std::function<at::Tensor(const std::string&)>& value_of,
                   uint64_t begin, std::string& record) {
  for (const auto& [name, entry] : tensors.tensors()) {
    if (entry.begin == entry.end || entry.begin < begin || entry.end > begin + record.size()) continue;
    const at::Tensor value = value_of(name);
    if (!value.defined()) continue;
    // The written tensor is not aligned in the record.
    at::Tensor there = at::from_blob(record.data(), {std::ssize(record)}, at::kByte);
    const int64_t element = c10::elementSize(entry.dtype), count = (entry.end - entry.begin) / element;
    at::Tensor numbers = there.narrow(0, entry.begin - begin, count * element).clone().view(entry.dtype);
    numbers.as_strided(entry.shape, entry.strides).copy_(value);
    std::memcpy(record.data() + (entry.begin - begin), numbers.const_data_ptr(), numbers.nbytes());
  }
}

bool is_made_by_writer(const std::string& record) {
  return record == ".data/version" || record == ".data/serialization_id" || record == "version";
}

}  // namespace

void reserve_pt2(const Pt2Archive& archive, const std::string& path) {
  const MappedFile source(archive.path);
  const size_t entries = zip_entries(source.bytes(), archive.path).size();
  DiskFile::create(path).reserve(source.bytes().size() + entries * kMostPadding + kMostPadding);
}

void write_pt2(const Pt2Archive& archive, const std::function<at::Tensor(const std::string& name)>& value_of,
               const std::string& path) {
  const at::NoGradGuard values_only;
  const MappedFile source(archive.path);
  const ZipEntries entries = zip_entries(source.bytes(), archive.path);
  DiskFile file = DiskFile::create(path);
  int64_t written = 0;
  std::exception_ptr failure;  // must not reach the writer, which finishes the archive when it is destroyed
  {
    caffe2::serialize::PyTorchStreamWriter writer([&](const void* data, size_t bytes) {
      try {
        if (!failure) file.write_at(written, {static_cast<const char*>(data), bytes});
      } catch (...) {
        failure = std::current_exception();
      }
      written += bytes;
      return bytes;
    });
    writer.setMinVersion(kFormatVersion);
    for (const auto& [name, bytes] : entries) {
      const std::string record = name.substr(name.find('/') + 1);
      if (is_made_by_writer(record)) continue;
      std::string changed(bytes);
      for (const auto& tensors : {archive.weights, archive.constant_file})
        if (tensors) change_values(*tensors, value_of, bytes.data() - source.bytes().data(), changed);
      writer.writeRecord(record, changed.data(), changed.size());
    }
    writer.writeEndOfFile();
  }
  if (failure) std::rethrow_exception(failure);
  file.reserve(written);  // the reserved file may be longer
  file.sync();
}

}  // namespace shardline
