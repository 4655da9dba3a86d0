// Rows of CSV and TSV files; see row_file.h.
#pragma once
#include <memory>

#include "engine/data/source/row_file.h"

namespace shardline {

// Throws DataError for a file without rows, for columns that are named twice or not at all, and later for a quote that
// is not closed and, unless file.uneven allows it, for a row with another number of fields than there are columns.
// There, a row lacks its last columns, or its last fields are left out.
std::unique_ptr<RowFile> open_delimited(const DataFile& file);

}  // namespace shardline
