#include "engine/data/dataset/text_dataset.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "core/hex.h"
#include "engine/data/dataset/best_fit.h"

namespace shardline {
namespace {

constexpr int64_t kLeastTokens = 2;  // a shorter document predicts nothing

// "12 tokens in 1 document"
std::string size_text(int64_t tokens, int64_t documents) {
  return cat(tokens, tokens == 1 ? " token" : " tokens", " in ", documents,
             documents == 1 ? " document" : " documents");
}

}  // namespace

int64_t count_blocks(int64_t tokens, int64_t documents, int64_t sequence_length) {
  SL_ASSERT(sequence_length >= 1, "sequence_length is ", sequence_length);
  if (tokens >= sequence_length) return tokens / sequence_length;
  throw DataError(cat("the data has ", size_text(tokens, documents), ", less than one block of ", sequence_length,
                      "; use more data or a smaller data.sequence_length"));
}

bool counts_blocks(Packing packing) {
  return packing == Packing::wrapped || packing == Packing::wrapped_reset;
}

Selection text_units(const TokenCache& tokens, Packing packing, int64_t sequence_length) {
  if (counts_blocks(packing)) return {0, count_blocks(tokens.size(), tokens.documents(), sequence_length)};
  const DocumentEnds ends(tokens);
  SL_ASSERT(ends.documents() <= std::numeric_limits<uint32_t>::max(), ends.documents(), " documents");
  std::vector<uint32_t> documents;
  for (int64_t document = 0; document < ends.documents(); ++document)
    if (ends.end(document) - ends.begin(document) >= kLeastTokens) documents.push_back(document);
  if (documents.empty())
    throw DataError(cat("the data has ", size_text(tokens.size(), ends.documents()),
                        ", none of which has two tokens; use data.packing \"wrapped\", or other data"));
  return Selection(std::move(documents));
}

TextDataset::TextDataset(TokenCachePtr tokens, Packing packing, int64_t sequence_length, Selection units)
    : cache_(std::move(tokens)),
      packing_(packing),
      sequence_length_(sequence_length),
      units_(std::move(units)),
      dropped_(cache_->size() % sequence_length) {
  if (packing != Packing::wrapped) ends_ = std::make_shared<const DocumentEnds>(*cache_);
  if (counts_blocks(packing)) return;
  cut_documents();
  if (packing == Packing::bfd) pack_pieces();
}

void TextDataset::cut_documents() {
  dropped_ = 0;
  for (int64_t i = 0; i < units_.size(); ++i) {
    int64_t begin = ends_->begin(units_[i]);
    const int64_t end = ends_->end(units_[i]);
    const size_t most = packing_ == Packing::none ? pieces_.size() + 1 : std::numeric_limits<size_t>::max();
    while (end - begin >= kLeastTokens && pieces_.size() < most) {
      pieces_.push_back({begin, std::min(sequence_length_, end - begin)});
      begin = pieces_.back().end();
    }
    dropped_ += end - begin;
  }
}

void TextDataset::pack_pieces() {
  std::vector<int64_t> lengths;
  for (const Range& piece : pieces_) lengths.push_back(piece.length);
  Bins bins = best_fit_decreasing(lengths, sequence_length_);
  std::vector<Range> in_order;
  in_order.reserve(pieces_.size());
  for (const uint32_t piece : bins.items) in_order.push_back(pieces_[piece]);
  pieces_ = std::move(in_order);
  sample_ends_ = std::move(bins.ends);
}

int64_t TextDataset::size() const {
  if (counts_blocks(packing_)) return units_.size();
  return packing_ == Packing::bfd ? std::ssize(sample_ends_) : std::ssize(pieces_);
}

std::vector<Range> TextDataset::parts(int64_t sample) const {
  SL_ASSERT(sample >= 0 && sample < size(), "sample ", sample, " of ", size());
  if (packing_ == Packing::none) return {pieces_[sample]};
  if (packing_ == Packing::bfd) {
    const int64_t begin = sample == 0 ? 0 : sample_ends_[sample - 1];
    return {pieces_.begin() + begin, pieces_.begin() + sample_ends_[sample]};
  }
  const Range block{units_[sample] * sequence_length_, sequence_length_};
  if (packing_ == Packing::wrapped) return {block};
  std::vector<Range> parts;
  int64_t document = ends_->document_of(block.begin);
  for (int64_t begin = block.begin; begin < block.end(); begin = parts.back().end())
    parts.push_back({begin, std::min(ends_->end(document++), block.end()) - begin});
  return parts;
}

int64_t TextDataset::tokens(int64_t sample) const {
  if (counts_blocks(packing_)) return sequence_length_;
  int64_t tokens = 0;
  for (const Range& part : parts(sample)) tokens += part.length;
  return tokens;
}

std::string TextDataset::describe() const {
  const std::string blocks = cat(size(), " blocks of ", sequence_length_, " tokens");
  if (packing_ == Packing::wrapped) return blocks;
  if (packing_ == Packing::wrapped_reset) return cat(blocks, " cut from ", ends_->documents(), " documents");
  int64_t tokens = 0;
  for (const Range& piece : pieces_) tokens += piece.length;
  if (packing_ == Packing::none) return cat(size(), " documents, ", tokens, " tokens");
  return cat(size(), " samples of up to ", sequence_length_, " tokens, packed from ", units_.size(), " documents of ",
             tokens, " tokens");
}

std::string TextDataset::digest() const {
  const std::string of_ids = cat(std::hex, cache_->ids_checksum(), std::dec, ", ", units_.size());
  if (packing_ == Packing::wrapped) return cat(of_ids, " blocks ", units_.describe());
  return cat(of_ids, counts_blocks(packing_) ? " blocks " : " documents ", units_.describe(), ", ends ",
             hex_digits(cache_->ends_checksum()));
}

}  // namespace shardline
