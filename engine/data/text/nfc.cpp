#include "engine/data/text/nfc.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uniset.h>

#include <limits>
#include <utility>

#include "core/error.h"
#include "engine/data/text/utf8.h"

namespace shardline {
namespace {

void check_icu(UErrorCode status) {
  if (U_FAILURE(status)) throw RunError(cat("ICU cannot normalize a text: ", u_errorName(status)));
}

// The rules of Unicode 9, which the reference library knows.
const icu::Normalizer2& nfc_rules() {
  static const icu::UnicodeSet known = [] {
    UErrorCode status = U_ZERO_ERROR;
    icu::UnicodeSet set(u"[:age=9.0:]", status);
    check_icu(status);
    set.freeze();
    return set;
  }();
  static const icu::FilteredNormalizer2 rules = [] {
    UErrorCode status = U_ZERO_ERROR;
    const icu::Normalizer2* all = icu::Normalizer2::getNFCInstance(status);
    check_icu(status);
    return icu::FilteredNormalizer2(*all, known);
  }();
  return rules;
}

bool may_cut_before(std::string_view text, size_t offset) {
  return nfc_rules().hasBoundaryBefore(next_code_point(text, offset));
}

}  // namespace

NfcText::NfcText(std::string_view text) : source_(text) {
  if (std::cmp_greater(text.size(), std::numeric_limits<int32_t>::max())) {
    throw DataError(cat("a piece of text of ", text.size(), " bytes is too long for NFC normalization"));
  }
  const icu::StringPiece input(text.data(), text.size());
  UErrorCode status = U_ZERO_ERROR;
  if (nfc_rules().isNormalizedUTF8(input, status) && U_SUCCESS(status)) return;
  changed_ = true;
  icu::StringByteSink<std::string> sink(&normalized_);
  nfc_rules().normalizeUTF8(0, input, sink, &edits_, status);
  check_icu(status);
  place_.emplace(edits_.getFineIterator());
}

std::optional<size_t> NfcText::cut_in_source(size_t offset) {
  size_t found = offset;
  if (changed_ && offset < normalized_.size()) {
    UErrorCode status = U_ZERO_ERROR;
    const bool inside = place_->findDestinationIndex(offset, status);
    check_icu(status);
    SL_ASSERT(inside, "place ", offset, " of ", normalized_.size());
    const int32_t into_place = offset - place_->destinationIndex();
    if (place_->hasChange() && into_place > 0) return std::nullopt;
    found = place_->sourceIndex() + into_place;
  } else if (changed_) {
    found = source_.size();
  }
  if (found < source_.size() && !may_cut_before(source_, found)) return std::nullopt;
  return found;
}

size_t last_nfc_cut(std::string_view text) {
  size_t offset = text.size();
  while (offset > 0) {
    previous_code_point(text, offset);
    if (may_cut_before(text, offset)) break;
  }
  return offset;
}

std::string nfc(std::string_view text) {
  return std::string(NfcText(text).text());
}

}  // namespace shardline
