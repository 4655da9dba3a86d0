#include "engine/checkpoint/manifest.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files/json_data.h"
#include "models/files/hf_layout.h"
#include "models/files/safetensors.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kFormat = "shardline checkpoint";
constexpr int kVersion = 1;
constexpr size_t kLargestManifest = 256 << 20;  // bytes: of more than 30 TB of files
constexpr size_t kSmallManifest = 1 << 20;
constexpr double kLargestFile = 1LL << 53;

std::string hex(uint64_t number) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(number));
  return text;
}

uint64_t from_hex(const JsonValue& value) {
  const std::string text = value.text();
  if (text.size() != 16 || text.find_first_not_of("0123456789abcdef") != std::string::npos)
    value.fail("must be a checksum of 16 hexadecimal digits");
  return std::stoull(text, nullptr, 16);
}

json body_of(const Manifest& manifest) {
  json files = json::object();
  for (const auto& [name, pieces] : manifest.files) {
    json& list = files[name] = json::array();
    for (const auto& piece : pieces) list.push_back({piece.end, hex(piece.checksum)});
  }
  return {{"format", kFormat}, {"version", kVersion}, {"step", manifest.step}, {"files", std::move(files)}};
}

// A name within the directory, never a path.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name.size() <= 255 && name != "." && name != ".." && name != kManifestFile &&
         name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
}

std::vector<FilePiece> read_pieces(const JsonValue& list) {
  list.require(json_array());
  std::vector<FilePiece> pieces;
  for (const auto& item : list.items()) {
    item.require(json_array());
    const auto values = item.items();
    if (values.size() != 2) item.fail("must be [end, checksum]");
    const double least = pieces.empty() ? 0 : pieces.back().end + 1.0;
    pieces.push_back({values[0].require(json_integer(least, kLargestFile)).get<int64_t>(), from_hex(values[1])});
  }
  if (pieces.empty()) list.fail("must have a piece");
  return pieces;
}

// Of the other files of its directory, which a manifest that describes them is shorter than, unless it is small.
size_t bytes_beside(const fs::path& manifest) {
  size_t bytes = 0;
  std::error_code error;
  for (fs::directory_iterator entry(manifest.parent_path(), error), end; !error && entry != end; entry.increment(error))
    if (std::error_code ignored; entry->path() != manifest && entry->is_regular_file(ignored))
      bytes += entry->file_size(ignored);
  return bytes;
}

// A file that is read, not mapped: where a disk fails that is an error, and not the end of the process.
class PieceReader {
 public:
  explicit PieceReader(const std::string& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (fd_ < 0) throw RunError(cat(path, ": cannot be opened: ", std::strerror(errno)));
  }
  ~PieceReader() { ::close(fd_); }
  PieceReader(const PieceReader&) = delete;
  PieceReader& operator=(const PieceReader&) = delete;

  // Calls take(bytes) for the bytes from `begin` to `end`, in parts. Throws RunError.
  template <class Take>
  void read(int64_t begin, int64_t end, const Take& take) {
    while (begin < end) {
      const ssize_t count = ::pread(fd_, buffer_.data(), std::min<int64_t>(buffer_.size(), end - begin), begin);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) throw RunError(cat("cannot be read: ", std::strerror(errno)));
      if (count == 0) throw RunError("are no longer there");
      take(std::string_view(buffer_.data(), count));
      begin += count;
    }
  }

  uint64_t checksum(int64_t begin, int64_t end) {
    XXH3_64bits_reset(state_.get());
    read(begin, end, [&](std::string_view bytes) { XXH3_64bits_update(state_.get(), bytes.data(), bytes.size()); });
    return XXH3_64bits_digest(state_.get());
  }

 private:
  int fd_;
  std::vector<char> buffer_ = std::vector<char>(1 << 20);
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state_{XXH3_createState(), XXH3_freeState};
};

// "h.0.attn.c_attn.weight: ", or what else has these bytes of a file.
std::string owner_of(const std::string& path, int64_t begin) {
  if (!path.ends_with(".safetensors")) return "";
  try {
    PieceReader reader(path);
    uint64_t header = 0;
    reader.read(0, sizeof header, [&](std::string_view bytes) { std::memcpy(&header, bytes.data(), bytes.size()); });
    const int64_t data = sizeof header + std::min<uint64_t>(header, begin);
    reader.read(0, data, [](std::string_view) {});  // it is mapped next
    if (begin < data) return "header: ";
    const SafetensorsFile file(path);
    for (const auto& [name, entry] : file.tensors())
      if (begin >= data + static_cast<int64_t>(entry.begin) && begin < data + static_cast<int64_t>(entry.end))
        return name + ": ";
  } catch (const RunError&) {  // the header itself is damaged
  }
  return "header: ";
}

// Why a piece is damaged; empty if it is not.
std::string damage_of(PieceReader& reader, const std::string& path, int64_t begin, const FilePiece& piece) {
  const std::string place = cat("bytes ", begin, " to ", piece.end, " ");
  try {
    if (reader.checksum(begin, piece.end) == piece.checksum) return "";
  } catch (const RunError& error) {
    return cat(place, error.what());
  }
  return cat(owner_of(path, begin), place, "differ from their checksum");
}

}  // namespace

uint64_t checksum(std::string_view bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::string manifest_text(const Manifest& manifest) {
  json text = body_of(manifest);
  text["checksum"] = hex(checksum(text.dump()));
  return text.dump() + "\n";
}

Manifest parse_manifest(const std::string& text, const std::string& path) {
  const json parsed = parse_data_json(text, path);
  const JsonValue root(parsed, path);
  root.require_keys_among({"format", "version", "step", "files", "checksum"});
  for (const char* key : {"format", "version", "step", "files", "checksum"})
    if (!root.has(key)) root.fail(cat("must have \"", key, '"'), "take another checkpoint");
  if (root.at("format").text() != kFormat) root.at("format").fail(cat("must be \"", kFormat, '"'));
  if (root.at("version").integer(1) != kVersion)
    root.at("version").fail(cat("must be ", kVersion), "read it with the version of shardline that wrote it");
  Manifest manifest;
  manifest.step = root.at("step").require(json_integer(0, kLargestFile)).get<int64_t>();
  root.at("files").require(json_object());
  for (const auto& [name, list] : root.at("files").members()) {
    if (!is_plain_name(name)) list.fail("must be the list of a file in the same directory");
    manifest.files[name] = read_pieces(list);
  }
  // Any other text with the same contents, and any other contents with this checksum, is damage.
  if (manifest_text(manifest) != text) root.fail("differs from its checksum", "it is damaged; take another checkpoint");
  return manifest;
}

Manifest read_manifest(const std::string& directory) {
  const std::string path = file_in(directory, kManifestFile);
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  if (error) throw DataError(cat(path, ": cannot be read: ", error.message(), "; a checkpoint is complete with it"));
  const size_t most = std::min(kLargestManifest, std::max(kSmallManifest, bytes_beside(path)));
  if (bytes > most)
    throw DataError(cat(path, ": has ", bytes, " bytes, but may have ", most, " beside the files here; it is damaged"));
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) throw DataError(cat(path, ": cannot be read"));
  return parse_manifest(text, path);
}

std::vector<int64_t> piece_ends(int64_t bytes, int64_t block_bytes, const std::vector<int64_t>& borders) {
  std::vector<int64_t> ends = {bytes};
  for (int64_t end = block_bytes; end < bytes; end += block_bytes) ends.push_back(end);
  for (const int64_t border : borders)
    if (border > 0 && border < bytes) ends.push_back(border);
  std::ranges::sort(ends);
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  return ends;
}

std::vector<FilePiece> pieces_of(std::string_view text) {
  return {{static_cast<int64_t>(text.size()), checksum(text)}};
}

std::vector<std::string> find_damage(const std::string& directory, const Manifest& manifest, int part, int parts,
                                     const std::function<void(int64_t)>& read) {
  std::vector<std::string> damage;
  int64_t number = 0;
  for (const auto& [name, pieces] : manifest.files) {
    const std::string path = file_in(directory, name);
    std::error_code error;
    const auto bytes = fs::is_regular_file(path, error) ? fs::file_size(path, error) : 0;
    const int64_t wanted = pieces.back().end;
    if (error || (bytes == 0 && wanted > 0)) {
      damage.push_back(cat(name, ": is missing or empty"));
    } else if (static_cast<int64_t>(bytes) != wanted) {
      damage.push_back(cat(name, ": has ", bytes, " bytes instead of ", wanted));
    } else if (wanted > 0) {
      PieceReader reader(path);
      int64_t begin = 0;
      for (const auto& piece : pieces) {
        if (number++ % parts == part) {
          if (const auto reason = damage_of(reader, path, begin, piece); !reason.empty())
            damage.push_back(cat(name, ": ", reason));
          if (read) read(piece.end - begin);
        }
        begin = piece.end;
      }
    }
  }
  return damage;
}

}  // namespace shardline
