#include "engine/data/source/token_file.h"

#include <cstring>
#include <map>
#include <numeric>
#include <string>

#include "core/error.h"

namespace shardline {
namespace {

constexpr int32_t kLlmcGpt2Magic = 20240520;
constexpr int32_t kLlmcLlama3Magic = 20240801;
constexpr int64_t kLlmcHeaderBytes = 256 * sizeof(int32_t);
constexpr std::string_view kMegatronMagic("MMIDIDX\0\0", 9);
constexpr int64_t kHeader = 34;  // bytes before the lists of a Megatron index

template <class T>
T load(std::string_view bytes, int64_t offset) {
  SL_ASSERT(offset >= 0 && offset + int64_t{sizeof(T)} <= std::ssize(bytes), "load at ", offset);
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

}  // namespace

TokenFile::TokenFile(const std::filesystem::path& path) : file_(std::make_shared<MappedFile>(path)) {
  const auto index = std::filesystem::path(path).replace_extension(".idx");
  if (std::filesystem::exists(index)) {
    open_megatron(index);
    return;
  }
  const int32_t magic = file_->size() >= sizeof(int32_t) ? load<int32_t>(file_->bytes(), 0) : 0;
  if (magic == kLlmcGpt2Magic || magic == kLlmcLlama3Magic) {
    open_llmc();
  } else {
    open_raw();
  }
}

// The index: magic (9 bytes), u64 version, u8 type, u64 sequences, u64 document bounds, i32 lengths[], i64 byte
// offsets[], i64 bounds[] (from 0 to sequences), and i8 modes[] in multimodal sets.
void TokenFile::open_megatron(const std::filesystem::path& index_path) {
  format_ = "Megatron";
  index_ = std::make_shared<MappedFile>(index_path);
  const std::string_view index = index_->bytes();
  const int64_t size = index.size();
  const auto check = [&](bool good, const auto&... message) {
    if (!good) throw DataError(cat(index_path.string(), ": ", message...));
  };
  check(size >= kHeader, "has ", size, " bytes; a Megatron index has at least ", kHeader);
  check(index.starts_with(kMegatronMagic), "does not begin with MMIDIDX, as a Megatron index does; rename it if the ",
        file_->path().filename().string(), " next to it is not a Megatron file");
  check(load<uint64_t>(index, 9) == 1, "has version ", load<uint64_t>(index, 9), "; only version 1 is supported");

  static const std::map<int, std::pair<Kind, int64_t>> kinds = {{1, {Kind::u8, 1}},  {2, {Kind::i8, 1}},
                                                                {3, {Kind::i16, 2}}, {4, {Kind::i32, 4}},
                                                                {5, {Kind::i64, 8}}, {8, {Kind::u16, 2}}};
  const int type = load<uint8_t>(index, 17);
  check(kinds.count(type) > 0, "has element type ", type, "; token ids are 1 u8, 2 i8, 3 i16, 4 i32, 5 i64 or 8 u16");
  const auto [kind, width] = kinds.at(type);
  kind_ = kind;

  const auto sequences = load<uint64_t>(index, 18);
  const auto bounds = load<uint64_t>(index, 26);
  const uint64_t limit = size;  // keeps the products below from overflowing
  check(sequences <= limit && bounds >= 1 && bounds <= limit, "claims ", sequences, " sequences and ", bounds,
        " document bounds, more than its ", size, " bytes can hold");
  const int64_t n = sequences;
  const int64_t m = bounds;
  const int64_t expected = kHeader + 12 * n + 8 * m;
  check(size == expected || size == expected + n, "has ", size, " bytes, but ", n, " sequences and ", m,
        " document bounds take ", expected);

  int64_t end = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t length = load<int32_t>(index, kHeader + 4 * i);
    const int64_t begin = load<int64_t>(index, kHeader + 4 * n + 8 * i);
    check(length >= 0 && begin == end, "sequence ", i, " has length ", length, " and begins at byte ", begin,
          " of the .bin, where ", end, " was expected");
    end += length * width;
  }
  check(end == bytes(), "describes ", end, " bytes of tokens, but ", file_->path().string(), " has ", bytes(),
        "; the two files do not belong together, or one is truncated");
  int64_t previous = 0;
  for (int64_t i = 0; i < m; ++i) {
    const auto bound = load<int64_t>(index, kHeader + 12 * n + 8 * i);
    check(bound >= previous && bound <= n && (i > 0 || bound == 0), "document bound ", i, " is ", bound, " after ",
          previous, " with ", n, " sequences");
    previous = bound;
  }
  check(previous == n, "its documents end at sequence ", previous, " of ", n);
  size_ = end / width;
  documents_ = m - 1;
  sequences_ = n;
  width_ = width;
}

// Tokens before the end of a document.
int64_t TokenFile::document_end(int64_t document) const {
  if (!index_) return size_;
  const auto bound = load<int64_t>(index_->bytes(), kHeader + 12 * sequences_ + 8 * (document + 1));
  return bound == sequences_ ? size_ : load<int64_t>(index_->bytes(), kHeader + 4 * sequences_ + 8 * bound) / width_;
}

std::vector<int64_t> TokenFile::document_ends(int64_t first, int64_t count) const {
  int64_t document = 0;  // found by bisection: the first one that ends after `first`
  for (int64_t above = documents_; document < above;) {
    const int64_t middle = std::midpoint(document, above);
    if (document_end(middle) <= first)
      document = middle + 1;
    else
      above = middle;
  }
  std::vector<int64_t> ends;
  for (; document < documents_ && document_end(document) <= first + count; ++document)
    ends.push_back(document_end(document) - first);
  return ends;
}

// The header has 256 i32: magic, version, number of tokens. Version 1: u16 (GPT-2); version 7: u32 (Llama 3).
void TokenFile::open_llmc() {
  const std::string name = file_->path().string();
  if (bytes() < kLlmcHeaderBytes) {
    throw DataError(cat(name, ": has ", bytes(), " bytes; an llm.c file begins with ", kLlmcHeaderBytes));
  }
  const bool gpt2 = load<int32_t>(file_->bytes(), 0) == kLlmcGpt2Magic;
  const auto version = load<int32_t>(file_->bytes(), 4);
  if (version != (gpt2 ? 1 : 7)) {
    throw DataError(cat(name, ": llm.c version ", version, ", but only version ", gpt2 ? 1 : 7,
                        " is supported; write it again with a current llm.c"));
  }
  format_ = gpt2 ? "llm.c (GPT-2)" : "llm.c (Llama 3)";
  kind_ = gpt2 ? Kind::u16 : Kind::u32;
  offset_ = kLlmcHeaderBytes;
  size_ = load<int32_t>(file_->bytes(), 8);
  const int64_t expected = kLlmcHeaderBytes + size_ * (gpt2 ? 2 : 4);
  if (size_ < 0 || bytes() != expected) {
    throw DataError(cat(name, ": the llm.c header says ", size_, " tokens, which take ", expected,
                        " bytes, but the file has ", bytes()));
  }
}

void TokenFile::open_raw() {
  format_ = "raw u16";
  if (bytes() % 2 != 0) {
    throw DataError(cat(file_->path().string(), ": has ", bytes(),
                        " bytes, an odd number; without a Megatron .idx next to it or llm.c's magic, a tokens file is "
                        "read as nanoGPT's raw u16"));
  }
  size_ = bytes() / 2;
}

int64_t TokenFile::token(int64_t index) const {
  const std::string_view data = file_->bytes().substr(offset_);
  switch (kind_) {
    case Kind::u8:
      return load<uint8_t>(data, index);
    case Kind::i8:
      return load<int8_t>(data, index);
    case Kind::i16:
      return load<int16_t>(data, 2 * index);
    case Kind::i32:
      return load<int32_t>(data, 4 * index);
    case Kind::i64:
      return load<int64_t>(data, 8 * index);
    case Kind::u16:
      return load<uint16_t>(data, 2 * index);
    case Kind::u32:
      return load<uint32_t>(data, 4 * index);
  }
  return 0;
}

std::vector<int32_t> TokenFile::read(int64_t first, int64_t count, int64_t vocab_size) const {
  std::vector<int32_t> ids(count);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t id = token(first + i);
    if (id < 0 || id >= vocab_size) {
      throw DataError(cat(file_->path().string(), ": token ", first + i, " is ", id, ", outside the vocabulary of ",
                          vocab_size, " (read as ", format_,
                          "); the data was made with another tokenizer, or this is not a tokens file"));
    }
    ids[i] = id;
  }
  return ids;
}

}  // namespace shardline
