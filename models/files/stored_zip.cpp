#include "models/files/stored_zip.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/plain_text.h"
#include "models/files/little_endian.h"
#include "models/files/tensor_file.h"

namespace shardline {
namespace {

constexpr std::string_view kLocal = "PK\3\4", kCentral = "PK\1\2", kEnd = "PK\5\6";
constexpr std::string_view kZip64End = "PK\6\6", kZip64Locator = "PK\6\7";
constexpr uint64_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22;  // without fields of variable length
constexpr uint64_t kZip64EndBytes = 56, kZip64LocatorBytes = 20;
constexpr uint64_t kLongestComment = 0xffff;
constexpr uint64_t kIn64Bits = 0xffffffff;  // in place of a size or offset that is in the zip64 field
constexpr uint64_t kZip64Field = 1;

// The position of the central directory, and how much it contains.
struct Directory {
  uint64_t entries, offset, bytes;
};

// An entry's header and data: no other entry may overlap it.
struct Extent {
  uint64_t begin, end;
  const std::string* name;
};

class ZipReader {
 public:
  ZipReader(std::string_view archive, const std::string& path) : archive_(archive), path_(path) {}

  ZipEntries read() {
    const Directory directory = find_directory();
    data_end_ = directory.offset;
    ZipEntries entries;
    std::vector<Extent> extents;
    std::string_view rest = part(directory.offset, directory.bytes, "the central directory");
    while (!rest.empty()) {
      const auto [entry, extent] = read_entry(rest);
      const auto [place, is_new] = entries.insert(entry);
      if (!is_new) fail(cat("the entry ", plain_text(entry.first), " occurs twice"));
      extents.push_back({extent.begin, extent.end, &place->first});
    }
    if (entries.size() != directory.entries)
      fail(cat("the central directory has ", entries.size(), " entries, but the archive's end says ",
               directory.entries));
    check_overlap(extents);
    return entries;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw DataError(cat(path_, ": ", what, kDamagedFile)); }

  std::string_view part(uint64_t offset, uint64_t bytes, const char* what) const {
    if (offset > archive_.size() || bytes > archive_.size() - offset)
      fail(cat(what, " would be ", bytes, " bytes at byte ", offset, " of an archive of ", archive_.size()));
    return archive_.substr(offset, bytes);
  }

  // Takes bytes from the front of a record of the central directory.
  std::string_view take(std::string_view& from, uint64_t bytes) const {
    if (bytes > from.size()) fail("the central directory ends in the middle of an entry");
    const auto taken = from.substr(0, bytes);
    from.remove_prefix(bytes);
    return taken;
  }

  // The end record is the last one whose comment extends to the end of the archive.
  uint64_t find_end() const {
    for (uint64_t comment = 0; comment <= kLongestComment && comment + kEndBytes <= archive_.size(); ++comment) {
      const uint64_t at = archive_.size() - comment - kEndBytes;
      const auto record = archive_.substr(at, kEndBytes);
      if (record.starts_with(kEnd) && little_endian(record.substr(20, 2)) == comment) return at;
    }
    fail("a zip archive must have an end of its central directory");
  }

  Directory find_directory() const {
    uint64_t end = find_end();
    const auto record = archive_.substr(end, kEndBytes);
    Directory directory{little_endian(record.substr(10, 2)), little_endian(record.substr(16, 4)),
                        little_endian(record.substr(12, 4))};
    if (end >= kZip64LocatorBytes && archive_.substr(end - kZip64LocatorBytes).starts_with(kZip64Locator)) {
      const uint64_t locator = end - kZip64LocatorBytes;
      end = little_endian(archive_.substr(locator + 8, 8));
      const auto zip64 = part(end, kZip64EndBytes, "the zip64 end of the central directory");
      if (!zip64.starts_with(kZip64End) || end + kZip64EndBytes > locator)
        fail(cat("byte ", end, " must be the zip64 end of the central directory"));
      directory = {little_endian(zip64.substr(32, 8)), little_endian(zip64.substr(48, 8)),
                   little_endian(zip64.substr(40, 8))};
    }
    if (directory.offset > end || directory.bytes != end - directory.offset)
      fail(cat("the central directory must reach from byte ", directory.offset, " to its end at byte ", end,
               "; it has ", directory.bytes, " bytes"));
    return directory;
  }

  // Takes one entry from the central directory.
  std::pair<ZipEntries::value_type, Extent> read_entry(std::string_view& directory) const {
    const auto head = take(directory, kCentralBytes);
    if (!head.starts_with(kCentral)) fail("the central directory must consist of entries");
    const std::string name(take(directory, little_endian(head.substr(28, 2))));
    const auto extra = take(directory, little_endian(head.substr(30, 2)));
    take(directory, little_endian(head.substr(32, 2)));  // a comment
    check_name(name);
    uint64_t size = little_endian(head.substr(24, 4)), stored = little_endian(head.substr(20, 4));
    uint64_t offset = little_endian(head.substr(42, 4));
    replace_by_zip64(extra, {&size, &stored, &offset}, name);
    check_stored(name, little_endian(head.substr(8, 2)), little_endian(head.substr(10, 2)));
    if (stored != size) fail(cat("the entry ", name, " is stored, but has ", stored, " bytes for ", size));

    const auto local = part(offset, kLocalBytes, "the header of an entry");
    const uint64_t name_bytes = little_endian(local.substr(26, 2));
    const uint64_t data = offset + kLocalBytes + name_bytes + little_endian(local.substr(28, 2));
    if (!local.starts_with(kLocal) || part(offset + kLocalBytes, name_bytes, "the name of an entry") != name)
      fail(cat("byte ", offset, " must be the header of the entry ", name));
    if (data > data_end_ || size > data_end_ - data)
      fail(cat("the entry ", name, " would reach from byte ", data, " over ", size,
               " bytes, but the central directory begins at byte ", data_end_));
    return {{name, archive_.substr(data, size)}, {offset, data + size, nullptr}};
  }

  // No files are written under these names, but they have no reason to lead elsewhere.
  void check_name(const std::string& name) const {
    const bool is_plain = std::ranges::all_of(name, [](char c) { return c >= ' ' && c <= '~' && c != '\\'; });
    if (!is_plain || name.empty() || name.starts_with('/') || cat('/', name, '/').find("/../") != std::string::npos)
      fail(cat("an entry must be named by a relative path of plain characters; got \"",
               plain_text(name.substr(0, kLongestTensorName)), "\""));
  }

  void check_stored(const std::string& name, uint64_t flags, uint64_t method) const {
    if (flags & 1)
      throw DataError(cat(path_, ": the entry ", name, " is encrypted; write the file without encryption"));
    if (method != 0)
      throw DataError(cat(path_, ": the entry ", name, " is compressed (method ", method,
                          "), but tensors are read from the file as it is; write it with torch.save"));
  }

  // The zip64 field holds, in this order, those numbers that do not fit in 32 bits.
  void replace_by_zip64(std::string_view extra, std::initializer_list<uint64_t*> numbers,
                        const std::string& name) const {
    std::optional<std::string_view> field;
    while (extra.size() >= 4 && !field) {
      const uint64_t id = little_endian(extra.substr(0, 2)), bytes = little_endian(extra.substr(2, 2));
      extra.remove_prefix(4);
      if (id == kZip64Field) field = extra.substr(0, bytes);
      extra.remove_prefix(std::min<uint64_t>(bytes, extra.size()));
    }
    for (uint64_t* number : numbers) {
      if (*number != kIn64Bits) continue;
      if (!field || field->size() < 8) fail(cat("the entry ", name, " lacks a number in its zip64 field"));
      *number = little_endian(field->substr(0, 8));
      field->remove_prefix(8);
    }
  }

  void check_overlap(std::vector<Extent>& extents) const {
    std::ranges::sort(extents, {}, &Extent::begin);
    for (size_t i = 1; i < extents.size(); ++i)
      if (extents[i].begin < extents[i - 1].end)
        fail(cat("the entries ", *extents[i - 1].name, " and ", *extents[i].name, " overlap at byte ",
                 extents[i].begin));
  }

  std::string_view archive_;
  const std::string& path_;
  uint64_t data_end_ = 0;  // where the central directory begins
};

}  // namespace

bool is_zip(std::string_view archive) {
  return archive.starts_with(kLocal);
}

ZipEntries zip_entries(std::string_view archive, const std::string& path) {
  return ZipReader(archive, path).read();
}

}  // namespace shardline
