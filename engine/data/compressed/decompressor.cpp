#include "engine/data/compressed/decompressor.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <limits>

#include "core/error.h"

namespace shardline {
namespace {

constexpr std::string_view kGzipMagic = "\x1f\x8b", kZstdMagic = "\x28\xb5\x2f\xfd";
constexpr std::string_view kSkippedMagic = "\x2a\x4d\x18";  // after a byte from 0x50 to 0x5f
constexpr size_t kInputBytes = size_t{1} << 20;             // given to the library at a time
constexpr int kGzipOnly = 15 + 16;                          // zlib: the largest window, and gzip's header

// The bytes of a file that have not been read yet; those that have been do not count as this process's memory.
class Input {
 public:
  explicit Input(const MappedFile& file) : file_(file), rest_(file.bytes()) {}

  std::string_view rest() const { return rest_; }
  std::string_view part() const { return rest_.substr(0, kInputBytes); }
  void take(size_t bytes) {
    const std::string_view taken = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    file_.release(taken);
  }
  size_t done() const { return file_.size() - rest_.size(); }
  [[noreturn]] void refuse(const std::string& what) const { throw DataError(cat(file_.path().string(), ": ", what)); }
  [[noreturn]] void refuse_damage(const char* reason) const {
    refuse(
        cat("the compressed data before byte ", done(), " is damaged (", reason, "); create or copy the file again"));
  }
  [[noreturn]] void refuse_end() const {
    refuse("the compressed data ends too early; the file is truncated, copy it again");
  }

 private:
  const MappedFile& file_;
  std::string_view rest_;
};

class GzipReader final : public Decompressor {
 public:
  explicit GzipReader(const MappedFile& file) : input_(file) {
    if (inflateInit2(&stream_, kGzipOnly) != Z_OK) throw OutOfMemory("zlib: not enough memory to decompress the file");
  }
  ~GzipReader() override { inflateEnd(&stream_); }
  GzipReader(const GzipReader&) = delete;
  GzipReader& operator=(const GzipReader&) = delete;

  size_t read(char* out, size_t size) override {
    size_t written = 0;
    while (written == 0 && size > 0) {
      if (is_between_ && !begin_member()) return 0;
      written = inflate_part(out, std::min<size_t>(size, std::numeric_limits<uInt>::max()));
    }
    return written;
  }
  size_t done() const override { return input_.done(); }

 private:
  // False at the end of the file, where trailing zeros are ignored, as in gzip.
  bool begin_member() {
    const size_t zeros = std::min(input_.rest().find_first_not_of('\0'), input_.rest().size());
    if (zeros == input_.rest().size()) {
      input_.take(zeros);
      return false;
    }
    if (compression_of(input_.rest()) != Compression::gzip)
      input_.refuse(cat("has ", input_.rest().size(), " bytes after the end of the compressed data; copy it again"));
    inflateReset(&stream_);
    is_between_ = false;
    return true;
  }

  size_t inflate_part(char* out, uInt size) {
    const std::string_view part = input_.part();
    if (part.empty()) input_.refuse_end();
    // zlib does not change its input, but declares it const only if ZLIB_CONST is defined.
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(part.data()));
    stream_.avail_in = part.size();
    stream_.next_out = reinterpret_cast<Bytef*>(out);
    stream_.avail_out = size;
    const int result = inflate(&stream_, Z_NO_FLUSH);
    input_.take(part.size() - stream_.avail_in);
    if (result == Z_MEM_ERROR) throw OutOfMemory("zlib: not enough memory to decompress the file");
    if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR)
      input_.refuse_damage(stream_.msg ? stream_.msg : "unknown format");
    is_between_ = result == Z_STREAM_END;
    return size - stream_.avail_out;
  }

  Input input_;
  z_stream stream_ = {};
  bool is_between_ = false;  // between two members
};

class ZstdReader final : public Decompressor {
 public:
  explicit ZstdReader(const MappedFile& file) : input_(file), stream_(ZSTD_createDStream(), ZSTD_freeDStream) {
    if (!stream_) throw OutOfMemory("zstd: not enough memory to decompress the file");
  }

  size_t read(char* out, size_t size) override {
    ZSTD_outBuffer written{out, size, 0};
    while (written.pos == 0 && size > 0) {
      const std::string_view part = input_.part();
      if (part.empty() && is_between_) return 0;
      ZSTD_inBuffer taken{part.data(), part.size(), 0};
      const size_t result = ZSTD_decompressStream(stream_.get(), &written, &taken);
      input_.take(taken.pos);
      if (ZSTD_isError(result) != 0) input_.refuse_damage(ZSTD_getErrorName(result));
      if (part.empty() && written.pos == 0) input_.refuse_end();
      is_between_ = result == 0;
    }
    return written.pos;
  }
  size_t done() const override { return input_.done(); }

 private:
  Input input_;
  std::unique_ptr<ZSTD_DStream, decltype(&ZSTD_freeDStream)> stream_;
  bool is_between_ = true;  // between two frames
};

// Whether zstd skips the frame that begins here; pzstd writes one with a size before each frame.
bool is_skipped_frame(std::string_view bytes) {
  return bytes.size() > 4 && (bytes[0] & 0xf0) == 0x50 && bytes.substr(1).starts_with(kSkippedMagic);
}

}  // namespace

Compression compression_of(std::string_view bytes) {
  if (bytes.starts_with(kGzipMagic)) return Compression::gzip;
  return bytes.starts_with(kZstdMagic) || is_skipped_frame(bytes) ? Compression::zstd : Compression::none;
}

Compression compression_of_name(const std::filesystem::path& path) {
  const std::string extension = path.extension().string();
  if (extension == ".gz") return Compression::gzip;
  return extension == ".zst" || extension == ".zstd" ? Compression::zstd : Compression::none;
}

Compression compression_of_file(const MappedFile& file) {
  const Compression compression = compression_of(file.bytes()), named = compression_of_name(file.path());
  if (named != Compression::none && compression != named)
    throw DataError(cat(file.path().string(), ": does not begin like a compressed file with this extension; rename it ",
                        "if it is not compressed, or copy it again"));
  return compression;
}

std::unique_ptr<Decompressor> open_decompressor(const MappedFile& file, Compression compression) {
  SL_ASSERT(compression != Compression::none, "the file is not compressed");
  if (compression == Compression::gzip) return std::make_unique<GzipReader>(file);
  return std::make_unique<ZstdReader>(file);
}

}  // namespace shardline
