// Letters, digits and marks that are newer than the Unicode version of the oldest PCRE2 that we support (14.0) and that
// the reference library (Unicode 16.0) knows. They make \p{..} mean the same with every PCRE2.
#pragma once
#include <cstdint>
#include <span>

namespace shardline {

struct UnicodeRange {
  char category[3];  // general category, two letters: "Lo"
  char32_t first;
  char32_t last;  // inclusive
};

std::span<const UnicodeRange> unicode_additions();

}  // namespace shardline
