#include "engine/data/cache/unpacked_file.h"

#include "core/error.h"
#include "engine/data/cache/document_ends.h"
#include "engine/data/cache/token_cache.h"
#include "engine/data/source/arrow_rows.h"
#include "tests/engine/data/compressed/compress.h"
#include "tests/engine/data/temp_folder.h"

#include "tests/catch.h"

namespace shardline::unpacked_file_test {
namespace {

using Catch::Contains;
namespace fs = std::filesystem;

const fs::path kFiles = fs::path(SHARDLINE_DATA_TESTS) / "source/files";

struct Tokens {
  std::string text;
  std::vector<int64_t> ends;  // where documents end
  bool operator==(const Tokens&) const = default;
};

TokenDataOptions options_for(const TempFolder& folder, const std::string& path) {
  TokenDataOptions options;
  options.paths = {path};
  options.text_column = "sentence";
  options.tokenizer = load_tokenizer("bytes");
  options.vocab_size = 256;
  options.cache_folder = folder.path() / "cache";
  options.threads = 2;
  return options;
}

Tokens tokens_of(const TempFolder& folder, const std::string& path) {
  const auto cache = open_token_cache(prepare_token_cache(options_for(folder, path)));
  std::vector<int64_t> ids(cache->size());
  cache->read(0, cache->size(), ids.data());
  Tokens tokens{{ids.begin(), ids.end()}, {}};
  const DocumentEnds ends(*cache);
  for (int64_t i = 0; i < ends.documents(); ++i) tokens.ends.push_back(ends.end(i));
  for (const auto& entry : fs::directory_iterator(folder.path() / "cache"))
    CHECK(entry.path().string().find("unpacked") == std::string::npos);  // copies are removed
  return tokens;
}

}  // namespace

TEST_CASE("token caches of compressed files equal those of plain files") {
  const TempFolder folder;
  std::string text = "\xEF\xBB\xBF", lines;
  for (int i = 0; i < 200000; ++i) text += "word " + std::to_string(i * 7919) + (i % 9 == 0 ? "\r\n" : "\n");
  for (int i = 0; i < 20000; ++i) lines += "{\"sentence\": \"line " + std::to_string(i) + "\"}\n";
  const Tokens of_text = tokens_of(folder, folder.write("a.txt", text));
  CHECK((tokens_of(folder, folder.write("a.txt.gz", gzip_of(text))) == of_text));
  CHECK((tokens_of(folder, folder.write("a.txt.zst", zstd_of(text))) == of_text));
  const Tokens of_lines = tokens_of(folder, folder.write("a.jsonl", lines));
  CHECK(of_lines.ends.size() == 20000);
  CHECK((tokens_of(folder, folder.write("a.jsonl.gz", gzip_of(lines))) == of_lines));
}

TEST_CASE("token caches of Parquet and Arrow files equal those of JSON Lines") {
  if (!why_no_arrow().empty()) return;
  const TempFolder folder;
  std::string lines;
  for (int i = 0; i < 6; ++i) lines += "{\"sentence\": \"sentence " + std::to_string(i) + "\"}\n";
  const Tokens expected = tokens_of(folder, folder.write("a.jsonl", lines));
  CHECK((tokens_of(folder, (kFiles / "features.parquet").string()) == expected));
  CHECK((tokens_of(folder, (kFiles / "saved/train").string()) == expected));
  CHECK((tokens_of(folder, (kFiles / "features.jsonl.zst").string()) == expected));
  auto options = options_for(folder, (kFiles / "features.parquet").string());
  options.text_column = "none";
  CHECK_THAT(message_of<DataError>([&] { prepare_token_cache(options); }),
             Contains("features.parquet, row 1: has no 'none', only {label, sentence, tags, tokens}"));
}

TEST_CASE("changed contents of a compressed file lead to another cache, and a damaged file leads to none") {
  const TempFolder folder;
  const std::string path = folder.write("a.txt.gz", gzip_of("one text"));
  const auto first = prepare_token_cache(options_for(folder, path));
  CHECK(prepare_token_cache(options_for(folder, path)) == first);
  folder.write("a.txt.gz", gzip_of("another text"));
  CHECK(prepare_token_cache(options_for(folder, path)) != first);
  folder.write("a.txt.gz", gzip_of("a text that is cut").substr(0, 15));
  CHECK_THAT(message_of<DataError>([&] { prepare_token_cache(options_for(folder, path)); }),
             Contains("a.txt.gz: the compressed data ends too early"));
  folder.write("a.jsonl.gz", gzip_of("{\"sentence\": \"a\"}\n{\"text\": 1}\n"));
  CHECK_THAT(
      message_of<DataError>([&] { prepare_token_cache(options_for(folder, (folder.path() / "a.jsonl.gz").string())); }),
      Contains("a.jsonl.gz:2: has no 'sentence'"));
}

TEST_CASE("a copy that a killed process has completed is reused") {
  const TempFolder folder;
  const DataFile file{folder.write("a.txt.gz", gzip_of("a text")), DataFormat::text};
  CHECK(needs_unpacking(file));
  CHECK_FALSE(needs_unpacking({folder.write("a.txt", "a text"), DataFormat::text}));
  CHECK_FALSE(needs_unpacking({folder.write("a.csv", "a,b\n"), DataFormat::csv}));
  const UnpackOptions options{.path = folder.path() / "copy", .text_column = "text", .working = [] {}};
  const DataFile copy = unpacked(file, options);
  CHECK(read_file(copy.path) == "a text");
  CHECK(copy.shown_name() == file.path.string());
  folder.write("copy", "the same copy");
  CHECK(read_file(unpacked(file, options).path) == "the same copy");
}

}  // namespace shardline::unpacked_file_test
