#include "engine/checkpoint/piece_files.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "models/files/hf_layout.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// The tensor that has this byte of the data, by the header of a safetensors file; empty if there is none.
std::string tensor_at(std::string_view header, uint64_t byte) {
  const json parsed = json::parse(header, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) return "";
  for (const auto& [name, entry] : parsed.items()) {
    const json offsets = entry.is_object() ? entry.value("data_offsets", json()) : json();
    if (offsets.is_array() && offsets.size() == 2 && offsets[0].is_number_unsigned() &&
        offsets[1].is_number_unsigned() && byte >= offsets[0].get<uint64_t>() && byte < offsets[1].get<uint64_t>())
      return name;
  }
  return "";
}

}  // namespace

// It is read, not mapped: where a disk fails that is an error, and not the end of the process.
class PieceFiles::File {
 public:
  explicit File(const std::string& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (fd_ < 0) throw RunError(cat(path, ": cannot be opened: ", std::strerror(errno)));
  }
  ~File() { ::close(fd_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  void read(char* bytes, int64_t begin, int64_t end) const {
    while (begin < end) {
      const ssize_t count = ::pread(fd_, bytes, end - begin, begin);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) throw RunError(cat("cannot be read: ", std::strerror(errno)));
      if (count == 0) throw RunError("are no longer there");
      bytes += count;
      begin += count;
    }
  }

  std::string text(int64_t begin, int64_t end) const {
    std::string bytes(end - begin, '\0');
    read(bytes.data(), begin, end);
    return bytes;
  }

  uint64_t checksum(int64_t begin, int64_t end) const {
    std::vector<char> buffer(std::min<int64_t>(1 << 20, end - begin));
    const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), XXH3_freeState);
    XXH3_64bits_reset(state.get());
    while (begin < end) {
      const int64_t count = std::min<int64_t>(buffer.size(), end - begin);
      read(buffer.data(), begin, begin + count);
      XXH3_64bits_update(state.get(), buffer.data(), count);
      begin += count;
    }
    return XXH3_64bits_digest(state.get());
  }

 private:
  int fd_;
};

std::string stored_name(const std::string& file, bool in_part) {
  return in_part ? file + ".part" : file;
}

std::vector<CheckpointPiece> all_pieces(const Manifest& manifest) {
  std::vector<CheckpointPiece> pieces;
  for (const auto& [name, of_file] : manifest.files) {
    int64_t begin = 0;
    for (const auto& piece : of_file) {
      pieces.push_back({name, begin, piece.end, piece.checksum});
      begin = piece.end;
    }
  }
  return pieces;
}

PieceFiles::PieceFiles(const std::string& directory, const Manifest& manifest)
    : pieces_(all_pieces(manifest)), places_(pieces_.size()) {
  size_t first = 0;  // of the file's pieces
  for (const auto& [name, of_file] : manifest.files) {
    std::vector<PieceRange> here = {{0, std::ssize(of_file)}};
    if (manifest.part) here = manifest.part->pieces.contains(name) ? manifest.part->pieces.at(name) : decltype(here)();
    std::vector<std::pair<size_t, int64_t>> begins;  // by piece, in the file
    int64_t bytes = 0;
    for (const auto& range : here)
      for (int64_t i = range.begin; i < range.end; ++i) {
        const auto& piece = pieces_[first + i];
        begins.emplace_back(first + i, bytes);
        bytes += piece.end - piece.begin;
      }
    const File* file = begins.empty() ? nullptr : open(file_in(directory, stored_name(name, !!manifest.part)), bytes);
    for (const auto& [piece, begin] : begins) places_[piece] = {true, file, begin};
    first += of_file.size();
  }
}

PieceFiles::~PieceFiles() = default;

// Null if it is not as long as its pieces.
const PieceFiles::File* PieceFiles::open(const std::string& path, int64_t bytes) {
  const std::string name = fs::path(path).filename().string();
  std::error_code error;
  const int64_t length = fs::is_regular_file(path, error) ? fs::file_size(path, error) : 0;
  if (error || (length == 0 && bytes > 0)) {
    wrong_files_.push_back(name + ": is missing or empty");
  } else if (length != bytes) {
    wrong_files_.push_back(cat(name, ": has ", length, " bytes instead of ", bytes));
  } else {
    files_.push_back(std::make_unique<File>(path));
    return files_.back().get();
  }
  return nullptr;
}

std::string PieceFiles::damage_of(size_t piece) const {
  const auto& [name, begin, end, wanted] = pieces_[piece];
  const auto& place = places_[piece];
  try {
    if (place.file->checksum(place.begin, place.begin + end - begin) == wanted) return "";
  } catch (const RunError& error) {
    return cat(name, ": bytes ", begin, " to ", end, ' ', error.what());
  }
  return describe(piece) + " differ from their checksum";
}

std::string PieceFiles::read(size_t piece) const try {
  const auto& place = places_[piece];
  return place.file->text(place.begin, place.begin + pieces_[piece].end - pieces_[piece].begin);
} catch (const RunError& error) {
  throw RunError(cat(describe(piece), ' ', error.what()));
}

std::string PieceFiles::describe(size_t piece) const {
  return cat(pieces_[piece].file, ": ", owner_of(piece), "bytes ", pieces_[piece].begin, " to ", pieces_[piece].end);
}

// "h.0.attn.c_attn.weight: ", or "header: ".
std::string PieceFiles::owner_of(size_t piece) const try {
  const auto& [name, begin, end, wanted] = pieces_[piece];
  size_t first = piece;
  while (pieces_[first].begin > 0) --first;
  size_t last = first;  // the first run of pieces that are there, which begins with the head
  while (last < pieces_.size() && pieces_[last].file == name && has(last)) ++last;
  if (!name.ends_with(".safetensors") || last == first) return "";
  const File& file = *places_[first].file;
  const int64_t there = pieces_[last - 1].end;
  uint64_t header = 0;
  file.read(reinterpret_cast<char*>(&header), 0, std::min<int64_t>(sizeof header, there));
  const uint64_t data = sizeof header + std::min<uint64_t>(header, begin);
  if (static_cast<uint64_t>(begin) < data) return "header: ";
  if (data > static_cast<uint64_t>(there)) return "";
  const std::string tensor = tensor_at(file.text(sizeof header, data), begin - data);
  return tensor.empty() ? "header: " : tensor + ": ";  // which is damaged itself
} catch (const RunError&) {
  return "";
}

std::vector<std::string> find_damage(const std::string& directory, const Manifest& manifest, int part, int parts,
                                     const std::function<void(int64_t)>& read) {
  const PieceFiles files(directory, manifest);
  std::vector<std::string> damage = files.wrong_files();
  for (size_t piece = part; piece < files.pieces().size(); piece += parts) {
    if (!files.has(piece)) continue;
    if (auto reason = files.damage_of(piece); !reason.empty()) damage.push_back(std::move(reason));
    if (read) read(files.pieces()[piece].end - files.pieces()[piece].begin);
  }
  return damage;
}

}  // namespace shardline
