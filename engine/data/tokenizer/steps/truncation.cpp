#include "engine/data/tokenizer/steps/truncation.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "core/error.h"

namespace shardline {
namespace {

// The windows of at most `length` tokens, from one end of the text to the other.
std::vector<Encoding> windows_of(Encoding text, int64_t length, const ExampleOptions& options, TextSide side) {
  const int64_t size = text.size();
  // Tokens [begin, end), counted from the end of the text that is kept.
  const auto part = [&](int64_t begin, int64_t end) {
    return side == TextSide::left ? text.slice(size - end, size - begin) : text.slice(begin, end);
  };
  std::vector<Encoding> windows;
  if (length >= size) {
    windows.push_back(std::move(text));
    return windows;
  }
  if (!options.windows || length == 0) {
    windows.push_back(part(0, length));
    if (options.windows) windows.push_back(std::move(text));
    return windows;
  }
  if (options.stride < 0 || options.stride >= length) {
    throw DataError(cat("a window has room for ", length, " tokens of the text that is cut, so a stride of ",
                        options.stride, " leaves no new ones; use a smaller stride or a larger maximum length"));
  }
  for (int64_t begin = 0;; begin += length - options.stride) {
    const int64_t end = std::min(begin + length, size);
    windows.push_back(part(begin, end));
    if (end == size) return windows;
  }
}

// How many tokens two texts keep if the longer one is cut first, and then both alike.
std::pair<int64_t, int64_t> longest_first(int64_t first, int64_t second, int64_t room) {
  int64_t shorter = std::min(first, second);
  int64_t longer = shorter > room ? shorter : std::max(shorter, room - shorter);
  if (shorter + longer > room) {
    shorter = room / 2;
    longer = shorter + room % 2;
  }
  return first > second ? std::pair(longer, shorter) : std::pair(shorter, longer);
}

}  // namespace

TruncatedTexts truncated(Encoding first, const Encoding* second, int64_t special, const ExampleOptions& options,
                         TextSide side) {
  const int64_t first_size = first.size();
  const int64_t second_size = second ? second->size() : 0;
  const int64_t room = options.max_length - special;
  int64_t first_room = first_size;
  int64_t second_room = second_size;
  const int64_t surplus = first_size + second_size - room;
  if (options.truncation != Truncation::none && room < 0) {
    throw DataError(cat("a maximum length of ", options.max_length, " tokens is too small for the ", special,
                        " special tokens around a text"));
  }
  if (options.truncation == Truncation::longest_first && surplus > 0) {
    if (!second) {
      first_room = room;
    } else if (options.windows) {
      throw DataError("windows of a pair need a truncation that names the text to cut: only_first or only_second");
    } else {
      std::tie(first_room, second_room) = longest_first(first_size, second_size, room);
    }
  } else if (options.truncation != Truncation::none && surplus > 0) {
    const bool cuts_first = options.truncation == Truncation::only_first;
    if (!cuts_first && !second)
      throw DataError("the truncation only_second needs a pair of texts, but there is only one text");
    int64_t& cut = cuts_first ? first_room : second_room;
    if (cut <= surplus) {
      throw DataError(
          cat("the ", cuts_first ? "first" : "second", " text has ", cut, " tokens, but the maximum length of ",
              options.max_length, " tokens, less ", special, " special tokens and the ", first_size + second_size - cut,
              " of the other text, leaves no room for it; use a larger maximum length or another truncation"));
    }
    cut -= surplus;
  }
  TruncatedTexts out;
  out.first = windows_of(std::move(first), first_room, options, side);
  if (second) out.second = windows_of(*second, second_room, options, side);
  return out;
}

}  // namespace shardline
