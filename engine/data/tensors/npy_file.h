// An array that numpy.save wrote: magic, version, header (a Python dict with descr, fortran_order and shape), data.
#pragma once
#include <string>

#include "models/files/tensor_file.h"

namespace shardline {

// The name of its one tensor.
inline constexpr const char* kNpyArray = "array";

// Versions 1 to 3, with little-endian float16, float32, float64, int32, int64 or uint8 in C order.
class NpyFile : public TensorFile {
 public:
  // Checks the header and the number of bytes. Throws a DataError that names what is wrong; for arrays of Python
  // objects, it says that they would have to be unpickled.
  explicit NpyFile(const std::string& path);
};

}  // namespace shardline
