// Rows of CSV and TSV files; see row_file.h.
#pragma once
#include <memory>

#include "engine/data/source/row_file.h"

namespace shardline {

// Throws DataError for a file without rows, for columns that are named twice or not at all, and later for a row with
// another number of fields than the first one and for a quote that is not closed.
std::unique_ptr<RowFile> open_delimited(const DataFile& file);

}  // namespace shardline
