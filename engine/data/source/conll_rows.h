// Sentences of CoNLL files; see row_file.h.
#pragma once
#include <memory>

#include "engine/data/source/row_file.h"

namespace shardline {

// Reading throws DataError for a line whose number of columns differs from that of the sentence's first line.
std::unique_ptr<RowFile> open_conll(const DataFile& file);

}  // namespace shardline
