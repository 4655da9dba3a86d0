#include "engine/data/source/file_window.h"

#include <algorithm>

#include "core/error.h"

namespace shardline {
namespace {

constexpr size_t kLeastRead = size_t{1} << 18;
constexpr size_t kMostAtHand = size_t{1} << 30;
constexpr std::string_view kMark = "\xEF\xBB\xBF";

}  // namespace

FileWindow::FileWindow(const std::filesystem::path& path)
    : name_(path.string()), file_(std::make_unique<const MappedFile>(path)), plain_(file_->bytes()) {
  const Compression compression = compression_of_file(*file_);
  if (compression != Compression::none) decompressor_ = open_decompressor(*file_, compression);
  skip_mark();
}

FileWindow::FileWindow(std::string_view bytes, std::string name) : name_(std::move(name)), plain_(bytes) {
  skip_mark();
}

void FileWindow::skip_mark() {
  while (rest().size() < kMark.size() && grow()) {
  }
  if (rest().starts_with(kMark)) take(kMark.size());
}

void FileWindow::take(size_t bytes) {
  SL_ASSERT(bytes <= rest().size(), bytes, " of ", rest().size(), " bytes");
  offset_ += bytes;
  if (decompressor_)
    taken_ += bytes;
  else
    plain_.remove_prefix(bytes);
}

bool FileWindow::grow() {
  if (!decompressor_) return false;
  buffer_.erase(0, taken_);
  taken_ = 0;
  const size_t before = buffer_.size();
  if (before >= kMostAtHand)
    throw DataError(cat(name_, ": has more than ", kMostAtHand, " bytes without the end of a line or row after byte ",
                        offset_, " of its text; decompress the file if this is intended"));
  buffer_.resize(before + std::max(before, kLeastRead));
  const size_t read = decompressor_->read(buffer_.data() + before, buffer_.size() - before);
  buffer_.resize(before + read);
  return read > 0;
}

std::string_view FileWindow::read_all() {
  while (grow()) {
  }
  return rest();
}

}  // namespace shardline
