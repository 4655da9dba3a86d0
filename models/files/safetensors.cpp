#include "models/files/safetensors.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.h"
#include "core/files/json_data.h"
#include "models/files/little_endian.h"

namespace shardline {
namespace {

using nlohmann::json;

constexpr uint64_t kLengthBytes = 8;
constexpr size_t kMostDimensions = 64;

constexpr std::array<std::pair<const char*, at::ScalarType>, 11> kDtypes{{{"F64", at::kDouble},
                                                                          {"F32", at::kFloat},
                                                                          {"F16", at::kHalf},
                                                                          {"BF16", at::kBFloat16},
                                                                          {"I64", at::kLong},
                                                                          {"I32", at::kInt},
                                                                          {"I16", at::kShort},
                                                                          {"I8", at::kChar},
                                                                          {"U8", at::kByte},
                                                                          {"BOOL", at::kBool},
                                                                          {"C64", at::kComplexFloat}}};

// Reads one entry of the header, "name": {"dtype": ..., "shape": [...], "data_offsets": [begin, end]}.
class EntryReader {
 public:
  EntryReader(const std::string& file, const std::string& name, const json& value, uint64_t data_bytes)
      : file_(file), name_(name), value_(value), data_bytes_(data_bytes) {}

  TensorFile::Entry read() const {
    if (name_.size() > kLongestTensorName)
      fail(cat("a name has at most ", kLongestTensorName, " bytes; got ", name_.size()));
    if (!value_.is_object()) fail("must be an object with dtype, shape and data_offsets");
    for (const auto& [key, unused] : value_.items())
      if (key != "dtype" && key != "shape" && key != "data_offsets") fail(cat("unknown key \"", key, "\""));

    TensorFile::Entry entry{dtype(), {}, {}, 0, 0};
    for (const auto& size : list("shape")) entry.shape.push_back(count("shape", size));
    if (entry.shape.size() > kMostDimensions)
      fail(cat("at most ", kMostDimensions, " dimensions can be read; got ", entry.shape.size()));
    const auto& offsets = list("data_offsets");
    if (offsets.size() != 2) fail(cat("data_offsets must be [begin, end]; got ", offsets.size(), " numbers"));
    entry.begin = count("data_offsets", offsets[0]);
    entry.end = count("data_offsets", offsets[1]);
    check_extent(entry);
    entry.strides = row_major_strides(entry.shape);
    return entry;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw DataError(cat(file_, ": tensor ", name_.substr(0, kLongestTensorName), ": ", what, kDamagedFile));
  }

  const json& member(const char* key) const {
    const auto found = value_.find(key);
    if (found == value_.end()) fail(cat(key, " is missing"));
    return *found;
  }

  const json& list(const char* key) const {
    const auto& value = member(key);
    if (!value.is_array()) fail(cat(key, " must be a list; got ", value.type_name()));
    return value;
  }

  uint64_t count(const char* key, const json& value) const {
    constexpr uint64_t most = std::numeric_limits<int64_t>::max();
    if (!value.is_number_unsigned() || value.get<uint64_t>() > most)
      fail(cat(key, " must hold integers from 0 to ", most, "; got ",
               value.is_number() ? value.dump() : value.type_name()));
    return value.get<uint64_t>();
  }

  at::ScalarType dtype() const {
    const auto& value = member("dtype");
    std::string known;
    for (const auto& [name, dtype] : kDtypes) {
      if (value == name) return dtype;
      known += cat(known.empty() ? "" : ", ", name);
    }
    throw DataError(cat(file_, ": tensor ", name_, ": dtype must be one of ", known, "; got ",
                        value.is_string() ? value.get<std::string>().substr(0, 40) : value.type_name(),
                        "; convert the model to one of these"));
  }

  void check_extent(const TensorFile::Entry& entry) const {
    const auto bytes = bytes_of_shape(entry.shape, entry.dtype);
    if (!bytes) fail(cat("the sizes of ", at::IntArrayRef(entry.shape), " overflow 64 bits"));
    if (entry.begin > entry.end || entry.end > data_bytes_)
      fail(cat("data_offsets [", entry.begin, ", ", entry.end, "] must lie in the data, which has ", data_bytes_,
               " bytes"));
    if (entry.end - entry.begin != *bytes)
      fail(cat("data_offsets [", entry.begin, ", ", entry.end, "] span ", entry.end - entry.begin, " bytes, but shape ",
               at::IntArrayRef(entry.shape), " of ", safetensors_dtype(entry.dtype), " has ", *bytes));
  }

  const std::string& file_;
  const std::string& name_;
  const json& value_;
  uint64_t data_bytes_;
};

void check_metadata(const std::string& file, const json& metadata) {
  if (!metadata.is_object()) throw DataError(cat(file, ": __metadata__ must be an object", kDamagedFile));
  for (const auto& [key, value] : metadata.items())
    if (!value.is_string())
      throw DataError(
          cat(file, ": __metadata__ may hold only strings; \"", key, "\" is ", value.type_name(), kDamagedFile));
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path) : TensorFile(path) {
  read_header();
  check_data_is_indexed();
}

void SafetensorsFile::read_header() {
  if (bytes_.size() < kLengthBytes)
    throw DataError(cat(path_, ": a safetensors file has at least 8 bytes; got ", bytes_.size(), kDamagedFile));
  const uint64_t length = little_endian(bytes_.substr(0, kLengthBytes)), room = bytes_.size() - kLengthBytes;
  if (length > kLongestSafetensorsHeader)
    throw DataError(cat(path_, ": the header may have at most ", kLongestSafetensorsHeader, " bytes; the file says ",
                        length, "; this is not a safetensors file, or it is damaged"));
  if (length > room)
    throw DataError(cat(path_, ": the header has ", length, " bytes, but only ", room, " follow", kDamagedFile));
  header_ = bytes_.substr(kLengthBytes, length);
  data_ = bytes_.substr(kLengthBytes + length);
  // The JSON reader treats a zero byte as the end of its text.
  if (!header_.starts_with('{') || header_.find('\0') != std::string_view::npos)
    throw DataError(cat(path_,
                        ": the header must be a JSON object without zero bytes; this is not a safetensors file, ",
                        "or it is damaged"));

  const json header = parse_data_json(std::string(header_), cat(path_, " (header)"));
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__")
      check_metadata(path_, value);
    else
      tensors_.emplace(name, EntryReader(path_, name, value, data_.size()).read());
  }
}

// Every byte of the data must belong to exactly one tensor.
void SafetensorsFile::check_data_is_indexed() const {
  std::vector<std::pair<const std::string*, const Entry*>> in_file;
  for (const auto& [name, entry] : tensors_) in_file.emplace_back(&name, &entry);
  std::sort(in_file.begin(), in_file.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second->begin, a.second->end) < std::pair(b.second->begin, b.second->end);
  });
  uint64_t end = 0;
  for (const auto& [name, entry] : in_file) {
    if (entry->begin != end)
      throw DataError(cat(path_, ": tensor ", *name, ": data_offsets [", entry->begin, ", ", entry->end, "] ",
                          entry->begin < end ? "overlap the previous tensor, which ends at "
                                             : "leave a gap after the previous tensor, which ends at ",
                          end, kDamagedFile));
    end = entry->end;
  }
  if (end != data_.size())
    throw DataError(cat(path_, ": the data has ", data_.size(), " bytes, but its tensors end at ", end, kDamagedFile));
}

bool has_safetensors_dtype(at::ScalarType dtype) {
  return std::ranges::find(kDtypes, dtype, [](const auto& known) { return known.second; }) != kDtypes.end();
}

std::string safetensors_dtype(at::ScalarType dtype) {
  for (const auto& [name, known] : kDtypes)
    if (known == dtype) return name;
  throw InvariantError(cat("safetensors has no dtype for ", c10::toString(dtype)));
}

std::string safetensors_head(std::string text) {
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string length(kLengthBytes, '\0');
  for (size_t i = 0; i < kLengthBytes; ++i) length[i] = text.size() >> (8 * i) & 0xff;
  return length + text;
}

}  // namespace shardline
