#include "engine/data/tokenizer/files/sentence_piece_model.h"

#include <cmath>
#include <cstring>
#include <functional>

#include "core/error.h"
#include "core/files/mapped_file.h"
#include "engine/data/text/utf8.h"

namespace shardline {
namespace {

constexpr size_t kMostPieces = 1 << 24;

// A field of a message: its number, and its value or its bytes.
struct Field {
  uint64_t number = 0;
  uint64_t value = 0;
  std::string_view bytes;
};

class Message {
 public:
  Message(std::string_view bytes, const std::string& file) : rest_(bytes), file_(file) {}

  void for_each_field(const std::function<void(const Field&)>& use) {
    while (!rest_.empty()) use(next());
  }

 private:
  Field next() {
    const uint64_t key = varint();
    Field field{.number = key >> 3};
    switch (key & 7) {
      case 0:
        field.value = varint();
        break;
      case 1:
        field.bytes = take(8);
        break;
      case 2:
        field.bytes = take(varint());
        break;
      case 5:
        field.bytes = take(4);
        break;
      default:
        damaged();
    }
    return field;
  }

  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const unsigned char byte = take(1)[0];
      const uint64_t bits = byte & 0x7F;
      value |= bits << shift;
      if (byte < 0x80) return value;
    }
    damaged();
  }

  std::string_view take(uint64_t size) {
    if (size > rest_.size()) damaged();
    const std::string_view bytes = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return bytes;
  }

  [[noreturn]] void damaged() const { throw DataError(cat(file_, ": is not a SentencePiece model, or is damaged")); }

  std::string_view rest_;
  const std::string& file_;
};

SentencePieceModel::Piece read_piece(std::string_view bytes, const std::string& file, size_t id) {
  SentencePieceModel::Piece piece;
  Message(bytes, file).for_each_field([&](const Field& field) {
    if (field.number == 1) piece.text = field.bytes;
    if (field.number == 2 && field.bytes.size() == sizeof(float)) {
      float score = 0;
      std::memcpy(&score, field.bytes.data(), sizeof score);
      piece.score = score;
    }
    if (field.number == 3) piece.type = field.value;
  });
  if (piece.text.empty() || !is_valid_utf8(piece.text))
    throw DataError(cat(file, ": piece ", id, " is empty or invalid UTF-8"));
  if (!std::isfinite(piece.score)) throw DataError(cat(file, ": the score of piece ", id, " is ", piece.score));
  return piece;
}

}  // namespace

SentencePieceModel read_sentence_piece_model(const std::filesystem::path& path) {
  const MappedFile mapped(path);
  const std::string file = path.string();
  SentencePieceModel model;
  Message(mapped.bytes(), file).for_each_field([&](const Field& field) {
    if (field.number == 1) {
      if (model.pieces.size() == kMostPieces)
        throw DataError(cat(file, ": a model may have at most ", kMostPieces, " pieces"));
      model.pieces.push_back(read_piece(field.bytes, file, model.pieces.size()));
    } else if (field.number == 2) {
      Message(field.bytes, file).for_each_field([&](const Field& option) {
        if (option.number == 3) model.algorithm = option.value;
      });
    } else if (field.number == 3) {
      Message(field.bytes, file).for_each_field([&](const Field& option) {
        if (option.number == 2) model.charsmap = option.bytes;
      });
    }
  });
  return model;
}

}  // namespace shardline
