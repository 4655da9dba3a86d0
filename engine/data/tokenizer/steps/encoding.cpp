#include "engine/data/tokenizer/steps/encoding.h"

namespace shardline {
namespace {

template <class T>
void append_to(std::vector<T>& to, const std::vector<T>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

template <class T>
std::vector<T> part_of(const std::vector<T>& all, size_t begin, size_t end) {
  return {all.begin() + begin, all.begin() + end};
}

}  // namespace

void Encoding::append(const Encoding& other) {
  append_to(ids, other.ids);
  append_to(types, other.types);
  append_to(offsets, other.offsets);
  append_to(sequences, other.sequences);
  append_to(words, other.words);
}

Encoding Encoding::slice(size_t begin, size_t end) const {
  return {.ids = part_of(ids, begin, end),
          .types = part_of(types, begin, end),
          .offsets = part_of(offsets, begin, end),
          .sequences = part_of(sequences, begin, end),
          .words = part_of(words, begin, end)};
}

}  // namespace shardline
