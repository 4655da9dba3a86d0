#include "engine/data/source/data_source.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files/json_data.h"
#include "core/files/mapped_file.h"
#include "engine/data/source/jsonl.h"
#include "engine/data/source/row_file.h"
#include "engine/data/source/token_file.h"
#include "engine/data/source/tokenised_row.h"
#include "engine/data/text/utf8.h"

namespace shardline {
namespace {

// A thread that encodes a piece begins a little before it, without knowing the seam there. It lists the seams at the
// beginning of the piece, where the previous piece most probably ends.
constexpr size_t kLeadBytes = 1 << 10;
constexpr size_t kListedBytes = 1 << 14;
constexpr size_t kSharedWindow = 1 << 18;  // bytes of text whose words several threads encode

constexpr size_t kScannedBytes = size_t{64} << 20;  // between two calls of DataSourceOptions::scanned

const EncodedPart::Listed* find_seam(const EncodedPart& part, const Seam& seam) {
  const auto by_place = [](const EncodedPart::Listed& listed, size_t offset) { return listed.seam.offset < offset; };
  auto found = std::lower_bound(part.listed.begin(), part.listed.end(), seam.offset, by_place);
  for (; found != part.listed.end() && found->seam.offset == seam.offset; ++found) {
    if (found->seam == seam) return &*found;
  }
  return nullptr;
}

}  // namespace

Document document_in(const DataRow& row, const std::string& text_column, int64_t vocab_size) {
  std::optional<TokenisedRow> tokens = tokenised_row(row);
  if (!tokens) return text_of(row, text_column, "data.text_column");
  for (const int32_t id : tokens->ids)
    if (id >= vocab_size)
      throw DataError(cat(row.where, ": 'input_ids' has the id ", id, ", outside the vocabulary of ", vocab_size,
                          "; use the tokenizer that made it, or a larger model.config.vocab_size"));
  refuse_types(row, *tokens);
  constexpr const char* kAdvice =
      "; set data.completion_only_loss to true, with which rows are samples and only their labels are predicted";
  if (has_column(row, "labels")) {
    const auto labels = values_of_tokens(row, *tokens, "labels");
    for (size_t token = 0; token < labels.size(); ++token)
      if (labels[token] != tokens->ids[token])
        throw DataError(cat(row.where, ": 'labels' has ", labels[token].dump(), " where 'input_ids' has ",
                            tokens->ids[token], kAdvice));
  }
  if (std::ranges::count(predicted_tokens(row, *tokens), false) > 0)
    throw DataError(cat(row.where, ": 'completion_mask' or 'assistant_masks' leaves out tokens", kAdvice));
  return std::move(tokens->ids);
}

namespace {

// Documents that are encoded one after the other.
class Documents {
 public:
  explicit Documents(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  void add(const Document& document) {
    const auto* text = std::get_if<std::string>(&document);
    const TokenIds more = text ? tokenizer_.encode(*text) : std::get<TokenIds>(document);
    piece_.part.ids.insert(piece_.part.ids.end(), more.begin(), more.end());
    piece_.document_ends.push_back(std::ssize(piece_.part.ids));
  }
  EncodedPiece take() { return std::move(piece_); }

 private:
  const Tokenizer& tokenizer_;
  EncodedPiece piece_;
};

class TextSource final : public DataSource {
 public:
  TextSource(const DataFile& file, const DataSourceOptions& options)
      : file_(file.path),
        name_(file.shown_name()),
        tokenizer_(options.tokenizer),
        piece_bytes_(options.piece_bytes),
        threads_(options.threads) {}

  int64_t pieces() const override { return (file_.size() + piece_bytes_ - 1) / piece_bytes_; }
  int64_t piece_bytes(int64_t piece) const override { return begin(piece + 1) - begin(piece); }

  EncodedPiece encode(int64_t piece) const override {
    const std::string_view text = file_.bytes();
    const size_t first = begin(piece);
    const size_t end = begin(piece + 1);
    check_is_text(name_, text.substr(first, end - first), first);
    const size_t lead = code_point_start(text, first - std::min(first, kLeadBytes));
    EncodedPart part = tokenizer_->encode_part(
        text, {.offset = lead}, {.until = end, .listed_from = first, .listed_until = first + kListedBytes});
    file_.release(text.substr(first, end - first));
    return {std::move(part), {}};
  }

  TokenIds join(int64_t piece, EncodedPart part, Seam& border) const override {
    const std::string_view text = file_.bytes();
    const size_t first = begin(piece);
    const size_t end = begin(piece + 1);
    if (border.offset >= end) return {};  // a word of the previous pieces covers this one
    if (const auto* same = find_seam(part, border)) {
      part.ids.erase(part.ids.begin(), part.ids.begin() + same->ids);
      border = std::move(part.end);
      return std::move(part.ids);
    }
    // Continues from the border to the first seam that the part also has; if there is none, the guess was wrong.
    const size_t listed = std::min(end, first + kListedBytes);
    EncodedPart proven =
        tokenizer_->encode_part(text, border, {.until = listed, .listed_from = first, .listed_until = listed});
    for (const auto& [seam, count] : proven.listed) {
      const auto* same = find_seam(part, seam);
      if (!same) continue;
      proven.ids.resize(count);
      proven.ids.insert(proven.ids.end(), part.ids.begin() + same->ids, part.ids.end());
      border = std::move(part.end);
      return std::move(proven.ids);
    }
    const EncodedPart rest =
        tokenizer_->encode_part(text, proven.end, {.until = end, .window = kSharedWindow, .threads = threads_});
    proven.ids.insert(proven.ids.end(), rest.ids.begin(), rest.ids.end());
    border = rest.end;
    return std::move(proven.ids);
  }

 private:
  size_t begin(int64_t piece) const {
    return code_point_start(file_.bytes(), std::min(file_.size(), piece * piece_bytes_));
  }

  MappedFile file_;
  std::string name_;
  TokenizerPtr tokenizer_;
  size_t piece_bytes_;
  int threads_;
};

class JsonlSource final : public DataSource {
 public:
  JsonlSource(const DataFile& file, const DataSourceOptions& options)
      : file_(file.path),
        name_(file.shown_name()),
        tokenizer_(options.tokenizer),
        column_(options.text_column),
        vocab_size_(options.vocab_size) {
    std::string_view rest = file_.bytes();
    size_t reported = 0;
    for (int64_t line = 1; !rest.empty(); ++line) {
      const size_t begin = file_.size() - rest.size();
      if (pieces_.empty() || std::cmp_greater_equal(begin - pieces_.back().begin, options.piece_bytes)) {
        pieces_.push_back({begin, begin, line});
        if (begin - reported >= kScannedBytes && options.scanned) {
          options.scanned();
          reported = begin;
        }
      }
      take_line(rest);
      pieces_.back().end = file_.size() - rest.size();
    }
  }

  int64_t pieces() const override { return pieces_.size(); }
  int64_t piece_bytes(int64_t piece) const override { return pieces_[piece].end - pieces_[piece].begin; }

  EncodedPiece encode(int64_t piece) const override {
    const Piece& lines = pieces_[piece];
    std::string_view rest = file_.bytes().substr(lines.begin, lines.end - lines.begin);
    Documents documents(*tokenizer_);
    for (int64_t number = lines.first_line; !rest.empty(); ++number) {
      const std::string_view line = take_line(rest);
      if (is_blank_line(line)) continue;
      const std::string where = cat(name_, ":", number);
      documents.add(document_in({parse_data_json(line, where), where}, column_, vocab_size_));
    }
    file_.release(file_.bytes().substr(lines.begin, lines.end - lines.begin));
    return documents.take();
  }
  TokenIds join(int64_t, EncodedPart part, Seam&) const override { return std::move(part.ids); }

 private:
  struct Piece {
    size_t begin;
    size_t end;
    int64_t first_line;
  };

  MappedFile file_;
  std::string name_;
  TokenizerPtr tokenizer_;
  std::string column_;
  int64_t vocab_size_;
  std::vector<Piece> pieces_;
};

// Other tables: all documents are in memory, because a row may have line breaks anywhere.
class TableSource final : public DataSource {
 public:
  TableSource(const DataFile& file, const DataSourceOptions& options) : tokenizer_(options.tokenizer) {
    DataRow row;
    for (const auto rows = open_rows(file); rows->next(row);) {
      if (pieces_.empty() || std::cmp_greater_equal(pieces_.back().bytes, options.piece_bytes)) pieces_.push_back({});
      Piece& piece = pieces_.back();
      const auto& added = piece.documents.emplace_back(document_in(row, options.text_column, options.vocab_size));
      piece.bytes += std::visit([](const auto& values) { return values.size() * sizeof(values[0]); }, added);
    }
  }

  int64_t pieces() const override { return pieces_.size(); }
  int64_t piece_bytes(int64_t piece) const override { return pieces_[piece].bytes; }
  EncodedPiece encode(int64_t piece) const override {
    Documents documents(*tokenizer_);
    for (const Document& document : pieces_[piece].documents) documents.add(document);
    return documents.take();
  }
  TokenIds join(int64_t, EncodedPart part, Seam&) const override { return std::move(part.ids); }

 private:
  struct Piece {
    std::vector<Document> documents;
    size_t bytes = 0;
  };

  TokenizerPtr tokenizer_;
  std::vector<Piece> pieces_;
};

class TokenSource final : public DataSource {
 public:
  TokenSource(const DataFile& file, const DataSourceOptions& options)
      : file_(file.path), vocab_size_(options.vocab_size), piece_tokens_(options.piece_bytes) {}

  int64_t pieces() const override { return (file_.size() + piece_tokens_ - 1) / piece_tokens_; }
  int64_t piece_bytes(int64_t piece) const override {
    return file_.size() == 0 ? 0 : count(piece) * (file_.bytes() / file_.size());
  }
  EncodedPiece encode(int64_t piece) const override {
    const int64_t first = piece * piece_tokens_;
    return {{.ids = file_.read(first, count(piece), vocab_size_)}, file_.document_ends(first, count(piece))};
  }
  TokenIds join(int64_t, EncodedPart part, Seam&) const override { return std::move(part.ids); }

 private:
  int64_t count(int64_t piece) const { return std::min(piece_tokens_, file_.size() - piece * piece_tokens_); }

  TokenFile file_;
  int64_t vocab_size_;
  int64_t piece_tokens_;
};

}  // namespace

ConfigError missing_tokenizer(const DataFile& text) {
  return ConfigError(
      cat("data.tokenizer is missing, and ", text.path.string(), " is text; name a tokenizer or \"bytes\""));
}

std::unique_ptr<DataSource> open_data_source(const DataFile& file, const DataSourceOptions& options) {
  if (file.format == DataFormat::tokens) return std::make_unique<TokenSource>(file, options);
  if (!options.tokenizer) throw missing_tokenizer(file);
  if (file.format == DataFormat::text) return std::make_unique<TextSource>(file, options);
  if (file.format == DataFormat::jsonl) return std::make_unique<JsonlSource>(file, options);
  return std::make_unique<TableSource>(file, options);
}

}  // namespace shardline
