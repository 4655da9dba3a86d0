// Rows of CSV and TSV files; see row_file.h.
#pragma once
#include <memory>

#include "engine/data/source/row_file.h"

namespace shardline {

// Throws DataError for a file without rows, for columns that are named twice or not at all, and later for a quote that
// is not closed and, unless file.uneven is set, for a row whose number of fields differs from that of the columns. If
// it is set, a short row lacks the last columns, and the extra fields of a long one are left out.
std::unique_ptr<RowFile> open_delimited(const DataFile& file);
// The same for CSV in memory, which must outlive the rows; `name` stands for a file's in messages.
std::unique_ptr<RowFile> csv_rows_of(std::string_view bytes, const std::string& name);

}  // namespace shardline
