#include "engine/data/text/character_places.h"

namespace shardline {

CharacterPlaces::CharacterPlaces(std::string_view text) {
  before_.reserve(text.size() + 1);
  int64_t count = 0;
  for (const char c : text) {
    const bool begins = (c & 0xC0) != 0x80;
    before_.push_back(begins ? count : count - 1);
    count += begins;
  }
  before_.push_back(count);
}

}  // namespace shardline
