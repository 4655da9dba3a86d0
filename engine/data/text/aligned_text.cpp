#include "engine/data/text/aligned_text.h"

#include <algorithm>

#include "core/error.h"
#include "engine/data/text/utf8.h"

namespace shardline {
namespace {

constexpr size_t kMostGrowth = 16;  // the longest compatibility decomposition has eleven times its character's bytes
constexpr size_t kGrowthOfFew = 64;

size_t longest_of(size_t source_bytes) {
  return kMostGrowth * source_bytes + kGrowthOfFew;
}

}  // namespace

AlignedText::AlignedText(std::string_view source) : longest_(longest_of(source.size())) {
  if (source.size() > kLongest) {
    throw DataError(cat("a text of ", source.size(), " bytes is too long for this tokenizer, which takes ", kLongest,
                        " at once; put its documents into rows of a JSONL file"));
  }
  text_.reserve(source.size());
  places_.reserve(source.size());
  for (size_t offset = 0; offset < source.size();) {
    const size_t begin = offset;
    const char32_t character = next_code_point(source, offset);
    append(character, {uint32_t(begin), uint32_t(offset)});
  }
}

void AlignedText::append(char32_t character, TextSpan place) {
  append_utf8(text_, character);
  places_.resize(text_.size(), place);
}

void AlignedText::append(std::string_view characters, TextSpan place) {
  text_ += characters;
  places_.resize(text_.size(), place);
}

void AlignedText::check_growth() const {
  if (text_.size() > longest_) throw DataError("the tokenizer's normalizer would make a text many times longer");
}

AlignedText AlignedText::slice(size_t begin, size_t end) const {
  AlignedText part;
  part.text_ = text_.substr(begin, end - begin);
  part.places_.assign(places_.begin() + begin, places_.begin() + end);
  part.begin_ = begin < end ? places_[begin].begin : begin_;
  part.longest_ = longest_of(end - begin);
  return part;
}

void AlignedText::edit(std::span<const CharacterEdit> edits, size_t removed) {
  const AlignedText old = std::move(*this);
  *this = AlignedText();
  begin_ = old.begin_;
  longest_ = old.longest_;
  size_t at = 0;  // bytes of the old text that are done
  const auto pass = [&](int64_t characters) {
    for (; characters > 0 && at < old.text_.size(); --characters) next_code_point(old.text_, at);
  };
  pass(removed);
  const TextSpan nowhere{begin_, begin_};
  for (const auto& [character, change] : edits) {
    const bool inserted = change > 0 || at == old.text_.size();
    append(character, !inserted ? old.places_[at] : at == 0 ? nowhere : old.places_[at - 1]);
    if (text_.size() > longest_) break;
    if (change <= 0) pass(1 - int64_t{change});
  }
  check_growth();
}

void AlignedText::replace(std::span<const Replacement> ranges, std::string_view content) {
  const AlignedText old = std::move(*this);
  *this = AlignedText();
  begin_ = old.begin_;
  longest_ = old.longest_;
  size_t done = 0;
  const auto keep_until = [&](size_t end) {
    text_.append(old.text_, done, end - done);
    places_.insert(places_.end(), old.places_.begin() + done, old.places_.begin() + end);
  };
  for (const auto& [begin, end] : ranges) {
    keep_until(begin);
    append(content, old.places_[end - 1]);
    done = end;
    if (text_.size() > longest_) break;
  }
  keep_until(old.text_.size());
  check_growth();
}

void AlignedText::prepend(std::string_view content) {
  if (text_.empty()) return;
  text_.insert(0, content);
  places_.insert(places_.begin(), content.size(), TextSpan(places_[0]));
  check_growth();
}

}  // namespace shardline
