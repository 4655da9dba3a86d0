// manifest.json: the files of a checkpoint with their lengths and checksums, and a checksum of itself. It is written
// last: a directory without it is not a checkpoint.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace shardline {

inline constexpr const char* kManifestFile = "manifest.json";

// XXH3, 64 bits, of the bytes of a file from the end of the piece before it.
struct FilePiece {
  int64_t end = 0;
  uint64_t checksum = 0;
  bool operator==(const FilePiece&) const = default;
};

struct Manifest {
  int64_t step = 0;
  std::map<std::string, std::vector<FilePiece>> files;  // by name; pieces in order, the last one ends the file
  bool operator==(const Manifest&) const = default;
};

uint64_t checksum(std::string_view bytes);

std::string manifest_text(const Manifest& manifest);
// Throws DataError unless the text is, byte by byte, what manifest_text makes. `path` is for messages.
Manifest parse_manifest(const std::string& text, const std::string& path);

// Pieces of a file of these bytes: ends at multiples of block_bytes and at `borders` (of tensors), and at the end.
std::vector<int64_t> piece_ends(int64_t bytes, int64_t block_bytes, const std::vector<int64_t>& borders = {});
// The pieces of a short text.
std::vector<FilePiece> pieces_of(std::string_view text);

// Reads the manifest of a directory. Throws DataError.
Manifest read_manifest(const std::string& directory);

// Compares the files with the manifest. Returns a line for each file that is missing or has another length, and for
// each piece that differs or cannot be read: "model.safetensors: h.0.attn.c_attn.weight: bytes 4096 to 8192 differ from
// their checksum", "model.safetensors: bytes 4096 to 8192 cannot be read: Input/output error". Throws RunError if a
// file cannot be opened. Only pieces whose number over all files is `part` modulo `parts` are read; `read` receives
// their bytes.
std::vector<std::string> find_damage(const std::string& directory, const Manifest& manifest, int part = 0,
                                     int parts = 1, const std::function<void(int64_t bytes)>& read = {});

}  // namespace shardline
