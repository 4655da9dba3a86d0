#include "engine/checkpoint/piece_files.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/error.h"
#include "models/files/hf_layout.h"
#include "models/files/safetensors.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

}  // namespace

// The contents of the header of a safetensors file.
struct PieceFiles::Head {
  struct Tensor {
    uint64_t end = 0;
    std::string name;
  };
  uint64_t data = 0;                   // the byte of the file at which the data begin
  std::map<uint64_t, Tensor> tensors;  // by their first byte of the data; from a damaged header, those that can be read

  static std::map<uint64_t, Tensor> tensors_in(std::string_view header);
  // "h.0.attn.c_attn.weight: ", or "header: ": for the header, and for data that a damaged header assigns to no tensor.
  std::string owner_of(uint64_t byte) const {
    const auto after = byte < data ? tensors.begin() : tensors.upper_bound(byte - data);
    if (after == tensors.begin()) return "header: ";
    const auto& [end, name] = std::prev(after)->second;
    return (byte - data < end ? name : "header") + ": ";
  }
};

std::map<uint64_t, PieceFiles::Head::Tensor> PieceFiles::Head::tensors_in(std::string_view header) {
  std::map<uint64_t, Tensor> tensors;
  const json parsed = json::parse(header, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) return tensors;
  for (const auto& [name, entry] : parsed.items()) {
    const json offsets = entry.is_object() ? entry.value("data_offsets", json()) : json();
    if (offsets.is_array() && offsets.size() == 2 && offsets[0].is_number_unsigned() &&
        offsets[1].is_number_unsigned() && offsets[0] < offsets[1])
      tensors[offsets[0].get<uint64_t>()] = {offsets[1].get<uint64_t>(), name};
  }
  return tensors;
}

// The file is read, not mapped, so that a failing disk causes an error instead of killing the process.
class PieceFiles::File {
 public:
  // first_bytes: how many of the first bytes of the checkpoint's file are here.
  File(const std::string& path, uint64_t first_bytes)
      : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)), first_bytes_(first_bytes) {
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

  // What the byte of the checkpoint's file belongs to; empty if the head of a safetensors file is not here.
  std::string owner_of(uint64_t byte) const {
    if (!head_) head_ = read_head();
    return byte < head_->data || head_->data <= first_bytes_ ? head_->owner_of(byte) : "";
  }

 private:
  Head read_head() const {
    uint64_t length = 0;
    read(reinterpret_cast<char*>(&length), 0, std::min(sizeof length, first_bytes_));
    const Head without{.data = sizeof length + std::min<uint64_t>(length, std::numeric_limits<int64_t>::max())};
    if (length > kLongestSafetensorsHeader || without.data > first_bytes_) return without;
    return {without.data, Head::tensors_in(text(sizeof length, without.data))};
  }

  int fd_;
  uint64_t first_bytes_;
  mutable std::optional<Head> head_;  // read when it is first needed
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
  size_t first = 0;  // the first of the file's pieces
  for (const auto& [name, of_file] : manifest.files) {
    std::vector<PieceRange> here = {{0, std::ssize(of_file)}};
    if (manifest.part) here = manifest.part->pieces.contains(name) ? manifest.part->pieces.at(name) : decltype(here)();
    std::vector<std::pair<size_t, int64_t>> begins;  // by piece, in the file
    int64_t bytes = 0, first_bytes = 0;
    for (const auto& range : here)
      for (int64_t i = range.begin; i < range.end; ++i) {
        const auto& piece = pieces_[first + i];
        begins.emplace_back(first + i, bytes);
        bytes += piece.end - piece.begin;
        if (bytes == piece.end) first_bytes = bytes;
      }
    const File* file =
        begins.empty() ? nullptr : open(file_in(directory, stored_name(name, !!manifest.part)), bytes, first_bytes);
    for (const auto& [piece, begin] : begins) places_[piece] = {.listed = true, .file = file, .begin = begin};
    if (name.ends_with(".safetensors") && first_bytes > 0)
      for (size_t piece = first; piece < first + of_file.size(); ++piece) places_[piece].head = file;
    first += of_file.size();
  }
}

PieceFiles::~PieceFiles() = default;

// Returns null if the file is not as long as its pieces.
const PieceFiles::File* PieceFiles::open(const std::string& path, int64_t bytes, int64_t first_bytes) {
  const std::string name = fs::path(path).filename().string();
  std::error_code error;
  const int64_t length = fs::is_regular_file(path, error) ? fs::file_size(path, error) : 0;
  if (error || (length == 0 && bytes > 0)) {
    wrong_files_.push_back(name + ": is missing or empty");
  } else if (length != bytes) {
    wrong_files_.push_back(cat(name, ": has ", length, " bytes instead of ", bytes));
  } else {
    files_.push_back(std::make_unique<File>(path, first_bytes));
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
  return describe(piece) + " do not match their checksum";
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

std::string PieceFiles::owner_of(size_t piece) const try {
  return places_[piece].head ? places_[piece].head->owner_of(pieces_[piece].begin) : "";
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
