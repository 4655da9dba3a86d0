// The file of a SentencePiece model: a protocol buffer, of which we read what tokenizers need.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace shardline {

struct SentencePieceModel {
  struct Piece {
    std::string text;
    double score = 0;
    int type = 1;
  };
  static constexpr int kControl = 3, kUserDefined = 4;  // types
  static constexpr int kUnigram = 1, kBpe = 2;          // algorithms

  std::vector<Piece> pieces;  // by id
  int algorithm = kUnigram;
  std::string charsmap;  // the table of normalizations (text/charsmap.h); may be empty
};

// Throws DataError for a file that is damaged or has empty or invalid pieces.
SentencePieceModel read_sentence_piece_model(const std::filesystem::path& file);

}  // namespace shardline
