// Long lists of cases: by default a test checks some of them, spread over the whole list.
#pragma once
#include <cstdlib>

namespace shardline {

// Whether all cases are to be checked (SHARDLINE_ALL_CASES=1), as the slow tests of ctest do.
inline bool checks_all_cases() {
  return std::getenv("SHARDLINE_ALL_CASES") != nullptr;
}

// Selects every n-th case. n should have no common divisor with the lengths of the loops, so that each of their values
// occurs.
class CaseSample {
 public:
  explicit CaseSample(int every) : every_(checks_all_cases() ? 1 : every) {}
  bool takes_next() { return next_++ % every_ == 0; }

 private:
  const int every_;
  int next_ = 0;
};

}  // namespace shardline
