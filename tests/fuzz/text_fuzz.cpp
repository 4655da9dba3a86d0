// Text and JSON Lines: reads the input as either. The pieces of a text together have the ids of the whole text; every
// line that is not blank is a document with a text or with tokens. The input is also read as a table of documents and
// as token ids, whose ids must be in the vocabulary.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "engine/data/compressed/decompressor.h"
#include "engine/data/source/data_source.h"
#include "engine/data/source/jsonl.h"
#include "engine/data/source/tokenised_row.h"
#include "tests/fuzz/fuzz.h"

namespace shardline::text_fuzz {
namespace {

TokenizerPtr words() {
  static const TokenizerPtr tokenizer = [] {
    const std::string path = fuzz::file_with("tokenizer.json", R"({"model": {"type": "BPE", "unk_token": "?",
      "vocab": {"?": 0, "a": 1, "b": 2, "ab": 3, "\u0120": 4, "\u0120a": 5, "\u010a": 6},
      "merges": ["a b", "\u0120 a"]}, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"Regex": "\\p{N}{1,3}"}, "behavior": "Isolated"},
      {"type": "ByteLevel", "add_prefix_space": false}]}})");
    return load_tokenizer(path);
  }();
  return tokenizer;
}

std::vector<int32_t> joined(const DataSource& source) {
  std::vector<int32_t> ids;
  Seam border;
  for (int64_t piece = 0; piece < source.pieces(); ++piece) {
    const auto more = source.join(piece, source.encode(piece).part, border);
    ids.insert(ids.end(), more.begin(), more.end());
  }
  return ids;
}

bool read_as_text(const std::string& text, const TokenizerPtr& tokenizer) {
  const DataFile file{fuzz::file_with("data.txt", text), DataFormat::text};
  fuzz::accepts(text.size(), [&] { open_data_source(file, {}); });
  const int64_t piece_bytes = std::max<int64_t>(11, std::ssize(text) / 8);
  const auto source = open_data_source(file, {.tokenizer = tokenizer, .piece_bytes = piece_bytes});
  int64_t bytes = 0;
  for (int64_t piece = 0; piece < source->pieces(); ++piece) bytes += source->piece_bytes(piece);
  FUZZ_REQUIRE(bytes == std::ssize(text), "pieces have ", bytes, " of ", text.size());
  std::vector<int32_t> ids;
  const bool accepted = fuzz::accepts(text.size(), [&] { ids = joined(*source); });
  FUZZ_REQUIRE(accepted == (text.find('\0') == std::string::npos), "text is refused if and only if it has a NUL byte");
  if (accepted) FUZZ_REQUIRE(ids == tokenizer->encode(text), "pieces have other ids than the whole");
  return accepted;
}

bool read_as_lines(const std::string& text, const TokenizerPtr& tokenizer) {
  const DataFile file{fuzz::file_with("data.jsonl", text), DataFormat::jsonl};
  std::unique_ptr<DataSource> source;
  std::vector<int32_t> ids, expected;
  constexpr int64_t kVocabulary = 256;
  const DataSourceOptions options{.tokenizer = tokenizer, .vocab_size = kVocabulary, .piece_bytes = 40};
  fuzz::accepts(text.size(), [&] { source = open_data_source(file, options); });
  FUZZ_REQUIRE(source, "a JSONL file is opened whatever its lines hold");
  int64_t bytes = 0;
  for (int64_t piece = 0; piece < source->pieces(); ++piece) bytes += source->piece_bytes(piece);
  FUZZ_REQUIRE(bytes == std::ssize(text), "pieces have ", bytes, " bytes of ", text.size());
  const bool accepted = fuzz::accepts(text.size(), [&] { ids = joined(*source); });
  fuzz::accepts(text.size(), [&] { check_data_files({file.path.string()}, DataFormat::jsonl, "text"); });
  if (!accepted) return false;
  std::vector<int64_t> ends;
  std::string_view rest = text;
  while (!rest.empty()) {
    const auto line = take_line(rest);
    if (is_blank_line(line)) continue;
    const DataRow row{nlohmann::json::parse(line), "the line"};
    const auto tokens = tokenised_row(row);
    const auto more = tokens ? tokens->ids : tokenizer->encode(row.columns.at("text").get<std::string>());
    for (const int32_t id : more) FUZZ_REQUIRE(id >= 0 && id < kVocabulary, "id ", id);
    expected.insert(expected.end(), more.begin(), more.end());
    ends.push_back(std::ssize(expected));
  }
  std::vector<int64_t> in_pieces;
  int64_t before = 0;
  for (int64_t piece = 0; piece < source->pieces(); ++piece) {
    const EncodedPiece encoded = source->encode(piece);
    for (const int64_t end : encoded.document_ends) in_pieces.push_back(before + end);
    before += std::ssize(encoded.part.ids);
  }
  FUZZ_REQUIRE(ids == expected && in_pieces == ends, ends.size(), " documents");
  return true;
}

bool read_as_pieces(const std::string& text, DataFormat format, const TokenizerPtr& tokenizer) {
  if (text.empty() || compression_of(text) != Compression::none) return false;  // compressed_fuzz.cpp
  const DataFile file{fuzz::file_with("data.bin", text), format};
  const int64_t vocabulary = std::max<int64_t>(256, tokenizer->vocab_size());
  return fuzz::accepts(text.size(), [&] {
    const auto source = open_data_source(file, {.tokenizer = tokenizer, .vocab_size = vocabulary, .piece_bytes = 40});
    for (const int32_t id : joined(*source)) FUZZ_REQUIRE(id >= 0 && id < vocabulary, "id ", id);
    for (int64_t piece = 0; piece < source->pieces(); ++piece) {
      const EncodedPiece encoded = source->encode(piece);
      FUZZ_REQUIRE(source->piece_bytes(piece) >= 0, "a piece of ", source->piece_bytes(piece), " bytes");
      FUZZ_REQUIRE(std::ranges::is_sorted(encoded.document_ends), "documents end out of order");
      for (const int64_t end : encoded.document_ends)
        FUZZ_REQUIRE(end >= 0 && end <= std::ssize(encoded.part.ids), "a document ends at ", end);
    }
  });
}

}  // namespace

FUZZ_TARGET(text) {
  const std::string text = fuzz::text_of(data, size);
  static const TokenizerPtr bytes = load_tokenizer("bytes");
  bool accepted = true;
  for (const auto& tokenizer : {bytes, words()}) {
    const bool as_text = read_as_text(text, tokenizer), as_lines = read_as_lines(text, tokenizer);
    const bool as_table = read_as_pieces(text, DataFormat::json, tokenizer);
    accepted &= text.starts_with('[') ? as_table : text.starts_with('{') ? as_lines : as_text;
    read_as_pieces(text, DataFormat::tokens, tokenizer);
  }
  return accepted;
}

}  // namespace shardline::text_fuzz
