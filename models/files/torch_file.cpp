#include "models/files/torch_file.h"

#include <algorithm>

#include "core/error.h"
#include "models/files/little_endian.h"
#include "models/files/pickle_reader.h"
#include "models/files/stored_zip.h"

namespace shardline {
namespace {

constexpr std::string_view kPickleEntry = "data.pkl";
constexpr std::string_view kMagic = "\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";  // the magic number of the older format
constexpr int64_t kOlderVersion = 1001;

bool is_long(const PickleValue& value, std::string_view bytes) {
  const auto* number = std::get_if<PickleLong>(&value);
  return number && number->bytes == bytes;
}

std::string shown_key(std::string_view key) {
  return to_string(PickleValue(key));
}

}  // namespace

TorchFile::TorchFile(const std::string& path) : TensorFile(path) {
  data_ = bytes_;
  if (is_zip(bytes_))
    read_archive();
  else
    read_older_format();
}

void TorchFile::fail(const std::string& what) const {
  throw DataError(cat(path_, ": ", what, kDamagedFile));
}

// NAME/data.pkl, NAME/byteorder, and the storages NAME/data/0, NAME/data/1, ...
void TorchFile::read_archive() {
  const ZipEntries entries = zip_entries(bytes_, path_);
  const auto is_pickle = [](const auto& entry) {
    const size_t slash = entry.first.find('/');
    return slash != std::string::npos && entry.first.substr(slash + 1) == kPickleEntry;
  };
  const auto pickle = std::ranges::find_if(entries, is_pickle);
  if (pickle == entries.end() || std::ranges::count_if(entries, is_pickle) != 1)
    fail(cat("an archive of torch.save must have exactly one entry NAME/", kPickleEntry));
  const std::string prefix = pickle->first.substr(0, pickle->first.size() - kPickleEntry.size());
  const auto order = entries.find(prefix + "byteorder");
  if (order != entries.end() && order->second != "little")
    throw DataError(cat(path_, ": must have the byte order \"little\"; got ", shown_key(order->second),
                        "; save the model again on a machine of this byte order"));

  header_ = pickle->second;
  std::string_view rest = header_;
  const TorchStateDict dict = read_state_dict(rest, path_);
  if (!rest.empty()) fail(cat(pickle->first, " has ", rest.size(), " bytes after its pickle"));
  Storages storages;
  for (const auto& [key, storage] : dict.storages) {
    const auto found = entries.find(cat(prefix, "data/", key));
    if (found == entries.end()) fail(cat("there is no entry for the storage ", shown_key(key)));
    storages.emplace(key, found->second);
  }
  add_tensors(dict, storages);
}

// Pickles of a number, a version, a description of the writer, the state dict and the keys of its storages; then the
// storages in this order, each preceded by its number of elements.
void TorchFile::read_older_format() {
  PickleHeap heap;
  std::string_view rest = bytes_;
  const auto read = [&] { return read_pickle(rest, heap, {}, path_); };
  if (!rest.starts_with('\x80') || !is_long(read(), kMagic))
    throw DataError(cat(path_, ": is not a file of torch.save, neither a zip archive nor in the format before",
                        " PyTorch 1.6; download or write it again"));
  const auto version = read();
  if (const auto* number = std::get_if<int64_t>(&version); !number || *number != kOlderVersion)
    fail(cat("the version of the format must be ", kOlderVersion, "; got ", to_string(version)));
  if (const auto facts = read(); !std::holds_alternative<PickleDict*>(facts))
    fail(cat("the description of the writer must be a dict; got ", to_string(facts)));
  const TorchStateDict dict = read_state_dict(rest, path_);
  const PickleValue keys = read();
  if (!std::holds_alternative<PickleList*>(keys))
    fail(cat("the keys of storages must be a list; got ", to_string(keys)));
  header_ = bytes_.substr(0, bytes_.size() - rest.size());

  Storages storages;
  for (const auto& value : std::get<PickleList*>(keys)->items) {
    const auto* key = std::get_if<std::string_view>(&value);
    const auto known = key ? dict.storages.find(*key) : dict.storages.end();
    if (known == dict.storages.end()) fail(cat("no tensor is in the storage ", to_string(value)));
    constexpr size_t number = 8;
    if (rest.size() < number) fail(cat("ends before the storage ", shown_key(*key)));
    const uint64_t elements = little_endian(rest.substr(0, number));
    rest.remove_prefix(number);
    const uint64_t element = c10::elementSize(known->second.dtype);
    if (elements > rest.size() / element)
      fail(cat("the storage ", shown_key(*key), " would have ", elements, " elements of ", element, " bytes, but only ",
               rest.size(), " bytes follow"));
    if (!storages.emplace(*key, rest.substr(0, elements * element)).second)
      fail(cat("the storage ", shown_key(*key), " occurs twice"));
    rest.remove_prefix(elements * element);
  }
  if (storages.size() != dict.storages.size())
    fail(cat("tensors are in ", dict.storages.size(), " storages, but the file has ", storages.size()));
  if (!rest.empty()) fail(cat(rest.size(), " bytes follow the last storage"));
  add_tensors(dict, storages);
}

void TorchFile::add_tensors(const TorchStateDict& dict, const Storages& storages) {
  for (const auto& [key, storage] : dict.storages)
    if (storage.elements > storages.at(key).size() / c10::elementSize(storage.dtype))
      fail(cat("the storage ", shown_key(key), " must have ", storage.elements, " elements of ",
               c10::elementSize(storage.dtype), " bytes; it has ", storages.at(key).size(), " bytes"));
  for (const auto& [name, tensor] : dict.tensors) {
    const TorchStorage& storage = dict.storages.at(tensor.storage);
    const auto bytes = storages.at(tensor.storage).substr(0, storage.elements * c10::elementSize(storage.dtype));
    tensors_.emplace(name, entry_in(bytes, name, storage.dtype, tensor.shape, tensor.strides, tensor.offset));
  }
}

}  // namespace shardline
