// Compressed files. The first line of an input specifies how many bytes to read at a time, and the rest is the file: it
// is decompressed to its end, or refused.
#include <algorithm>
#include <charconv>

#include "engine/data/compressed/decompressor.h"
#include "tests/fuzz/fuzz.h"

namespace shardline::compressed_fuzz {
namespace {

constexpr size_t kMostText = size_t{64} << 20;   // the whole of a decompression bomb is never read
constexpr size_t kMostHeld = size_t{130} << 20;  // zstd allocates the window that a frame asks for, at most 128 MiB

void read_all(const MappedFile& file, size_t part) {
  const auto opened = open_decompressor(file, compression_of_file(file));
  std::string buffer(part, '\0');
  size_t text = 0, done = 0;
  while (const size_t read = opened->read(buffer.data(), buffer.size())) {
    FUZZ_REQUIRE(read <= part, read, " bytes in a part of ", part);
    FUZZ_REQUIRE(opened->done() >= done && opened->done() <= file.size(), opened->done(), " bytes of ", file.size());
    done = opened->done();
    text += read;
    if (text > kMostText) return;
  }
  FUZZ_REQUIRE(opened->done() == file.size(), opened->done(), " bytes of ", file.size(), " at the end");
  FUZZ_REQUIRE(opened->read(buffer.data(), buffer.size()) == 0, "the end does not stay the end");
}

}  // namespace

FUZZ_TARGET(compressed) {
  const std::string text = fuzz::text_of(data, size);
  const size_t end = std::min(text.find('\n'), text.size());
  size_t part = 0;
  std::from_chars(text.data(), text.data() + end, part);
  const std::string_view content = std::string_view(text).substr(std::min(end + 1, text.size()));
  if (content.empty() || compression_of(content) == Compression::none) return false;
  const MappedFile file(fuzz::file_with("compressed", content));
  return fuzz::accepts(size, [&] { read_all(file, std::clamp<size_t>(part, 1, 1 << 16)); }, {.fixed = kMostHeld});
}

}  // namespace shardline::compressed_fuzz
