// The samples of a causal language model: parts of the tokens of all documents.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/model/model_spec.h"
#include "engine/data/cache/document_ends.h"
#include "engine/data/cache/token_cache.h"
#include "engine/data/dataset/selection.h"
#include "engine/data/text/packing.h"

namespace shardline {

// The number of blocks that these tokens fill. Throws DataError if there is none.
int64_t count_blocks(int64_t tokens, int64_t documents, int64_t sequence_length);

// Whether samples are blocks of sequence_length tokens, cut from the stream of all documents.
bool counts_blocks(Packing packing);
// The units that are held out for validation and counted by max_train_samples: blocks or documents. Documents of one
// token, which predict nothing, are left out. Throws DataError if there are no units.
Selection text_units(const TokenCache& tokens, Packing packing, int64_t sequence_length);

class TextDataset {
 public:
  // units: some of text_units(). wrapped, wrapped_reset: documents are concatenated, and the tokens at the
  // end that fill no block are dropped, as in run_clm. bfd: documents of more than sequence_length tokens are cut into
  // pieces; a last piece of one token is dropped. none: documents are cut off.
  TextDataset(TokenCachePtr tokens, Packing packing, int64_t sequence_length, Selection units);

  int64_t size() const;  // samples
  // The runs of tokens that make up a sample. Attention stays within each run, whose positions begin at 0.
  std::vector<Range> parts(int64_t sample) const;
  int64_t tokens(int64_t sample) const;
  // Tokens that are in no sample: of the whole stream with blocks, otherwise of the chosen documents.
  int64_t dropped_tokens() const { return dropped_; }
  const TokenCache& cache() const { return *cache_; }
  std::string describe() const;  // "2490 blocks of 128 tokens"
  // Equal for equal samples, wherever their files are.
  std::string digest() const;

 private:
  void cut_documents();
  void pack_pieces();

  TokenCachePtr cache_;
  Packing packing_;
  int64_t sequence_length_;
  Selection units_;
  std::shared_ptr<const DocumentEnds> ends_;  // null: every part is a block
  int64_t dropped_ = 0;
  // Without blocks: the documents, or pieces of them, in the order of the samples.
  std::vector<Range> pieces_;
  std::vector<int64_t> sample_ends_;  // for bfd: number of pieces before the end of each sample
};

}  // namespace shardline
