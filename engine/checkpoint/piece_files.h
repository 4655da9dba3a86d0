// Reads the pieces of a checkpoint, or of a part of one, and compares them with its manifest.
//
// The files of a part never have the names of a model's files ("model.safetensors.part"). They contain only the pieces
// of the part, one after the other: a missing piece is never read as zeros.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoint/manifest.h"

namespace shardline {

// The name of a checkpoint's file in the directory of a checkpoint, or of a part of one.
std::string stored_name(const std::string& file, bool in_part);

// A piece of a checkpoint. Pieces are numbered over all files, in the order of the manifest.
struct CheckpointPiece {
  std::string file;
  int64_t begin = 0, end = 0;  // bytes of the complete file
  uint64_t checksum = 0;
};
std::vector<CheckpointPiece> all_pieces(const Manifest& manifest);

class PieceFiles {
 public:
  // Throws RunError if a file cannot be opened.
  PieceFiles(const std::string& directory, const Manifest& manifest);
  ~PieceFiles();
  PieceFiles(const PieceFiles&) = delete;
  PieceFiles& operator=(const PieceFiles&) = delete;

  const std::vector<CheckpointPiece>& pieces() const { return pieces_; }
  // A line for each file that is missing or whose length does not match its pieces.
  const std::vector<std::string>& wrong_files() const { return wrong_files_; }
  // Whether the manifest lists the piece.
  bool lists(size_t piece) const { return places_[piece].listed; }
  // Whether it is listed and its file has the right length.
  bool has(size_t piece) const { return places_[piece].file != nullptr; }
  // Why a piece that is there is damaged: "model.safetensors: h.0.attn.c_attn.weight: bytes 4096 to 8192 do not match
  // their checksum", "model.safetensors: bytes 4096 to 8192 cannot be read: Input/output error". Empty if it is intact.
  std::string damage_of(size_t piece) const;
  // The bytes of a piece that is there. Throws RunError.
  std::string read(size_t piece) const;
  // "model.safetensors: h.0.attn.c_attn.weight: bytes 4096 to 8192"; without the tensor if the head of its file, with
  // the names of its tensors, is not there.
  std::string describe(size_t piece) const;

 private:
  class File;
  struct Head;
  struct Place {
    bool listed = false;
    const File* file = nullptr;
    int64_t begin = 0;           // in the file
    const File* head = nullptr;  // where the first bytes of a safetensors file are, even if this piece is missing
  };
  const File* open(const std::string& path, int64_t bytes, int64_t first_bytes);
  std::string owner_of(size_t piece) const;

  std::vector<CheckpointPiece> pieces_;
  std::vector<Place> places_;  // by piece
  std::vector<std::unique_ptr<File>> files_;
  std::vector<std::string> wrong_files_;
};

// Compares the files with the manifest. Returns a line for each file that is missing or has the wrong length, and for
// each piece that is damaged. Throws RunError if a file cannot be opened. Reads only the pieces whose number is `part`
// modulo `parts`, and passes their bytes to `read`.
std::vector<std::string> find_damage(const std::string& directory, const Manifest& manifest, int part = 0,
                                     int parts = 1, const std::function<void(int64_t bytes)>& read = {});

}  // namespace shardline
