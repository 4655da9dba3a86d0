#include "engine/data/tensors/npy_file.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "core/error.h"
#include "models/files/little_endian.h"

namespace shardline {
namespace {

constexpr std::string_view kNpyMagic("\x93NUMPY", 6);
constexpr size_t kVersionBytes = 2;
constexpr size_t kLongestNpyHeader = 1 << 16;  // bytes
constexpr size_t kMostNpyDimensions = 32;

constexpr std::array<std::pair<const char*, at::ScalarType>, 7> kNpyDtypes{{{"<f2", at::kHalf},
                                                                            {"<f4", at::kFloat},
                                                                            {"<f8", at::kDouble},
                                                                            {"<i4", at::kInt},
                                                                            {"<i8", at::kLong},
                                                                            {"|u1", at::kByte},
                                                                            {"<u1", at::kByte}}};

struct NpyHeader {
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape;
};

// Reads {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }, with the keys in any order.
class NpyHeaderReader {
 public:
  NpyHeaderReader(const std::string& file, std::string_view text) : file_(file), text_(text) {}

  NpyHeader read() {
    NpyHeader header;
    bool has_dtype = false, has_order = false, has_shape = false;
    expect('{');
    while (!takes('}')) {
      const std::string_view key = text();
      expect(':');
      if (key == "descr" && !std::exchange(has_dtype, true))
        header.dtype = dtype();
      else if (key == "fortran_order" && !std::exchange(has_order, true))
        check_order();
      else if (key == "shape" && !std::exchange(has_shape, true))
        header.shape = shape();
      else
        fail("its header has an unknown key, or the same key twice");
      if (!takes(',') && !sees('}')) fail("its header has no comma after a value");
    }
    skip_space();
    if (!text_.empty()) fail("its header continues after the }");
    if (!has_dtype || !has_order || !has_shape) fail("its header lacks descr, fortran_order or shape");
    return header;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw DataError(cat(file_, ": is not a NumPy array: ", what, kDamagedFile));
  }
  [[noreturn]] void refuse(const std::string& what) const {
    throw DataError(cat(file_, ": ", what,
                        "; save it with numpy.save as a C-ordered array of float16, float32, float64, "
                        "int32, int64 or uint8"));
  }

  void skip_space() { text_.remove_prefix(std::min(text_.find_first_not_of(" \n"), text_.size())); }
  bool sees(char wanted) {
    skip_space();
    return text_.starts_with(wanted);
  }
  bool takes(char wanted) {
    if (!sees(wanted)) return false;
    text_.remove_prefix(1);
    return true;
  }
  void expect(char wanted) {
    if (!takes(wanted)) fail(cat("its header lacks a ", wanted));
  }

  std::string_view text() {
    expect('\'');
    const size_t end = text_.find('\'');
    if (end == std::string_view::npos) fail("its header has an unterminated string");
    const std::string_view found = text_.substr(0, end);
    text_.remove_prefix(end + 1);
    return found;
  }

  at::ScalarType dtype() {
    if (sees('[')) refuse("has records with fields");
    const std::string_view name = text();
    if (name.find('O') != std::string_view::npos)
      refuse("is an array of Python objects, which are pickled; pickles are not read");
    for (const auto& [known, dtype] : kNpyDtypes)
      if (name == known) return dtype;
    refuse(cat("has elements of the type '", name.substr(0, 16), "'"));
  }

  void check_order() {
    if (sees('T')) refuse("is in Fortran order");
    skip_space();
    if (!text_.starts_with("False")) fail("its fortran_order is neither True nor False");
    text_.remove_prefix(5);
  }

  std::vector<int64_t> shape() {
    std::vector<int64_t> sizes;
    expect('(');
    while (!takes(')')) {
      if (sizes.size() == kMostNpyDimensions) fail(cat("it has more than ", kMostNpyDimensions, " dimensions"));
      sizes.push_back(size());
      if (!takes(',') && !sees(')')) fail("its shape has no comma after a size");
    }
    return sizes;
  }

  int64_t size() {
    skip_space();
    int64_t value = 0;
    size_t digits = 0;
    for (; digits < text_.size() && text_[digits] >= '0' && text_[digits] <= '9'; ++digits)
      if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, text_[digits] - '0', &value))
        fail("its shape has a size of more than 63 bits");
    if (digits == 0) fail("its shape contains something other than sizes");
    text_.remove_prefix(digits);
    return value;
  }

  const std::string& file_;
  std::string_view text_;  // what has not been read
};

}  // namespace

NpyFile::NpyFile(const std::string& path) : TensorFile(path) {
  const auto fail = [&](const std::string& what) {
    throw DataError(cat(path_, ": is not a NumPy array: ", what, kDamagedFile));
  };
  if (!bytes_.starts_with(kNpyMagic) || bytes_.size() < kNpyMagic.size() + kVersionBytes)
    fail("it does not begin with \\x93NUMPY");
  const int version = static_cast<uint8_t>(bytes_[kNpyMagic.size()]);
  if (version < 1 || version > 3) fail(cat("it has the version ", version, ", but only versions 1 to 3 are supported"));
  const size_t length_bytes = version == 1 ? 2 : 4, begin = kNpyMagic.size() + kVersionBytes + length_bytes;
  if (bytes_.size() < begin) fail("it is too short");
  const uint64_t length = little_endian(bytes_.substr(begin - length_bytes, length_bytes));
  if (length > kLongestNpyHeader || length > bytes_.size() - begin)
    fail(cat("its header has ", length, " bytes, but ", bytes_.size() - begin, " follow and at most ",
             kLongestNpyHeader, " are read"));
  header_ = bytes_.substr(begin, length);
  data_ = bytes_.substr(begin + length);
  const NpyHeader header = NpyHeaderReader(path_, header_).read();
  const auto bytes = bytes_of_shape(header.shape, header.dtype);
  if (!bytes) fail(cat("the sizes of ", at::IntArrayRef(header.shape), " overflow 64 bits"));
  if (*bytes != data_.size())
    fail(cat("an array of ", at::IntArrayRef(header.shape), " has ", *bytes, " bytes, but it has ", data_.size()));
  tensors_.emplace(kNpyArray, Entry{header.dtype, header.shape, row_major_strides(header.shape), 0, *bytes});
}

}  // namespace shardline
