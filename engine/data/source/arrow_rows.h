// Rows of Parquet and Arrow files, if this build of shardline can read them.
#pragma once
#include <memory>

#include "engine/data/source/row_file.h"

namespace shardline {

// parquet: a Parquet file; a few hundred of its rows are in memory at a time. arrow: an Arrow stream, as `datasets`
// writes it, or an Arrow file; these are mapped, and read one record batch at a time. Rows have the values that JSON
// Lines would have (engine/data/arrow/json_values.h). Throws DataError, including for a build without Apache Arrow's
// libraries, or if they are not found.
std::unique_ptr<RowFile> open_arrow(const DataFile& file);

// Why such files cannot be read here; empty: they can be.
std::string why_no_arrow();

}  // namespace shardline
