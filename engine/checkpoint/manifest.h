// manifest.json: the files of a checkpoint with their lengths and checksums, and a checksum of itself. It is written
// last: a directory without it is not a checkpoint. The manifest of a part lists all pieces of the whole checkpoint,
// and which of them are in the part.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "engine/checkpoint/checkpoint_directory.h"

namespace shardline {

inline constexpr const char* kManifestFile = "manifest.json";

// A piece of a file: the bytes from the end of the piece before it up to `end`, and their XXH3 of 64 bits.
struct FilePiece {
  int64_t end = 0;
  uint64_t checksum = 0;
  bool operator==(const FilePiece&) const = default;
};

struct PieceRange {
  int64_t begin = 0, end = 0;  // numbers of pieces of a file: the first one, and one past the last
  bool operator==(const PieceRange&) const = default;
};

// The contents of the directory of a part of a checkpoint.
struct ManifestPart {
  PartNumber part;
  std::vector<std::string> hosts;                         // the hosts that wrote the parts, by number
  std::map<std::string, std::vector<PieceRange>> pieces;  // by name of the file; ascending, not empty
  bool operator==(const ManifestPart&) const = default;
};

struct Manifest {
  int64_t step = 0;
  std::map<std::string, std::vector<FilePiece>> files;  // by name; pieces in order, the last one ends the file
  std::optional<ManifestPart> part;                     // unset: every piece is there
  bool operator==(const Manifest&) const = default;
};

// Returns the manifest of the complete checkpoint.
Manifest whole_manifest(Manifest manifest);
// Adds a piece to the part. Pieces of a file are added in ascending order.
void add_piece(ManifestPart& part, const std::string& file, int64_t piece);

uint64_t checksum(std::string_view bytes);

// The manifest is intact, but of a version that this program does not read.
struct NewerManifest : DataError {
  using DataError::DataError;
};

std::string manifest_text(const Manifest& manifest);
// Throws NewerManifest, or DataError unless the text is, byte by byte, what manifest_text makes. `path` is for
// messages.
Manifest parse_manifest(const std::string& text, const std::string& path);

// Where the pieces of a file of `bytes` end: at multiples of block_bytes, at `borders` (of tensors), and at its end.
std::vector<int64_t> piece_ends(int64_t bytes, int64_t block_bytes, const std::vector<int64_t>& borders = {});
// The pieces of a short text.
std::vector<FilePiece> pieces_of(std::string_view text);
// Whether `text` is the contents of the file with these pieces.
bool matches(const std::vector<FilePiece>& pieces, std::string_view text);

// Reads the manifest of a directory. Throws NewerManifest or DataError, the latter also if tensor files were added to
// the directory, or if its name belongs to the checkpoint of another step.
Manifest read_manifest(const std::string& directory);
// The names of what is in the directory of a checkpoint or part, but not listed in its manifest.
std::vector<std::string> added_files(const std::string& directory, const Manifest& manifest);

}  // namespace shardline
