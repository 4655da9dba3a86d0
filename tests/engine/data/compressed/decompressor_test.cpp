#include "engine/data/compressed/decompressor.h"

#include "core/error.h"
#include "tests/engine/data/compressed/compress.h"
#include "tests/engine/data/temp_folder.h"

#include "tests/catch.h"

namespace shardline::decompressor_test {
namespace {

using Catch::Contains;

// Text that compresses to a considerable size.
std::string some_text(size_t bytes) {
  std::string text;
  for (uint32_t i = 1; text.size() < bytes; i = i * 1664525 + 1013904223) text += std::to_string(i) + '\n';
  text.resize(bytes);
  return text;
}

std::string decompressed(const TempFolder& folder, const std::string& name, const std::string& bytes,
                         size_t part = 1000) {
  const MappedFile file(folder.write(name, bytes));
  const auto opened = open_decompressor(file, compression_of_file(file));
  std::string text, buffer(part, '\0');
  size_t done = 0;
  while (const size_t read = opened->read(buffer.data(), buffer.size())) {
    text.append(buffer, 0, read);
    CHECK(opened->done() >= done);
    done = opened->done();
  }
  CHECK(opened->read(buffer.data(), buffer.size()) == 0);  // further reads at the end return nothing
  CHECK(opened->done() == bytes.size());
  return text;
}

}  // namespace

TEST_CASE("compressed files, even those with several members, are read in parts, and padding is ignored") {
  const TempFolder folder;
  const std::string text = some_text(3 << 20), more = "more\n";
  CHECK(decompressed(folder, "a.gz", gzip_of(text)) == text);
  CHECK(decompressed(folder, "a.zst", zstd_of(text)) == text);
  CHECK(decompressed(folder, "a.gz", gzip_of(text) + gzip_of(more) + gzip_of("") + std::string(7, '\0')) ==
        text + more);
  CHECK(decompressed(folder, "a.zst", zstd_of(text) + zstd_of("") + zstd_of(more)) == text + more);
  const std::string skipped(
      "\x50\x2a\x4d\x18\x04\x00\x00\x00"
      "size",
      12);  // as pzstd writes before each frame
  CHECK(decompressed(folder, "a.zst", skipped + zstd_of(text) + skipped + zstd_of(more)) == text + more);
  CHECK(decompressed(folder, "by its contents", gzip_of(more), 1) == more);
  CHECK(decompressed(folder, "empty.gz", gzip_of("")).empty());
}

TEST_CASE("a decompressed text may be a thousand times larger than its file") {
  const TempFolder folder;
  const std::string bytes = gzip_of(std::string(50 << 20, 'x'));
  CHECK(bytes.size() < (60 << 10));
  const MappedFile file(folder.write("a.gz", bytes));
  const auto opened = open_decompressor(file, Compression::gzip);
  std::string buffer(4096, '\0');
  size_t read = 0;
  while (const size_t part = opened->read(buffer.data(), buffer.size())) read += part;
  CHECK(read == size_t{50} << 20);
}

TEST_CASE("damaged and truncated compressed files are refused by name") {
  const TempFolder folder;
  const std::string text = some_text(100000);
  for (const bool is_gzip : {true, false}) {
    const std::string good = is_gzip ? gzip_of(text) : zstd_of(text), name = is_gzip ? "a.gz" : "a.zst";
    const auto error_of = [&](const std::string& bytes) {
      return message_of<DataError>([&] { decompressed(folder, name, bytes); });
    };
    CAPTURE(name);
    for (const size_t kept : {good.size() / 2, good.size() - 1, size_t{5}})
      CHECK_THAT(error_of(good.substr(0, kept)), Contains(name + ": the compressed data ends too early"));
    std::string damaged = good;
    damaged[good.size() / 2] ^= 0x55;
    if (is_gzip)  // zstd files may have no checksum
      CHECK_THAT(error_of(damaged), Contains(name + ": the compressed data") && Contains("is damaged"));
    CHECK_THAT(error_of(good + "rest of it"), Contains(name + ": "));
    CHECK_THAT(error_of("plain text\n"), Contains(name + ": does not begin like a compressed file"));
  }
  std::string wrong_sum = gzip_of(text);
  wrong_sum[wrong_sum.size() - 6] ^= 1;
  CHECK_THAT(message_of<DataError>([&] { decompressed(folder, "a.gz", wrong_sum); }), Contains("is damaged"));
}

}  // namespace shardline::decompressor_test
