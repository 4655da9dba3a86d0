#include "engine/data/text/normal_form.h"

#include <unicode/normalizer2.h>
#include <unicode/uchar.h>

#include <algorithm>
#include <optional>

#include "core/error.h"
#include "engine/data/text/utf8.h"

namespace shardline {
namespace {

constexpr int kUnicode = 9;

const icu::Normalizer2& icu_rules(bool compatibility) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* rules =
      compatibility ? icu::Normalizer2::getNFKCInstance(status) : icu::Normalizer2::getNFCInstance(status);
  if (U_FAILURE(status)) throw RunError(cat("ICU cannot normalize a text: ", u_errorName(status)));
  return *rules;
}

bool is_known(char32_t c) {
  const UChar32 code_point = c;
  UVersionInfo age = {};
  u_charAge(code_point, age);
  return age[0] <= kUnicode;
}

int combining_class(char32_t c) {
  const UChar32 code_point = c;
  return c < 0x300 || !is_known(c) ? 0 : u_getCombiningClass(code_point);
}

// Decomposes characters and brings marks into canonical order.
class Decomposition {
 public:
  explicit Decomposition(bool compatibility) : rules_(icu_rules(compatibility)) {}

  void add(char32_t c) {
    const UChar32 code_point = c;
    icu::UnicodeString parts;
    if (c < 0x80 || !is_known(c) || !rules_.getDecomposition(code_point, parts)) return push(c, 0);
    for (int32_t at = 0; at < parts.length(); at = parts.moveIndex32(at, 1)) push(parts.char32At(at), at > 0 ? 1 : 0);
  }

  std::vector<CharacterEdit> take() {
    order();
    return std::move(edits_);
  }

 private:
  void push(char32_t c, int change) {
    const int rank = combining_class(c);
    if (rank == 0) order();
    edits_.push_back({c, change});
    ranks_.push_back(rank);
  }

  // Sorts the marks since the last character that is not a mark.
  void order() {
    const size_t count = ranks_.size();
    if (count > 1 && !std::is_sorted(ranks_.begin(), ranks_.end())) {
      std::vector<std::pair<int, CharacterEdit>> marks;
      const size_t first = edits_.size() - count;
      for (size_t i = 0; i < count; ++i) marks.emplace_back(ranks_[i], edits_[first + i]);
      std::stable_sort(marks.begin(), marks.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
      for (size_t i = 0; i < count; ++i) edits_[first + i] = marks[i].second;
    }
    ranks_.clear();
  }

  const icu::Normalizer2& rules_;
  std::vector<CharacterEdit> edits_;
  std::vector<int> ranks_;  // for the last edits
};

std::optional<char32_t> composed(char32_t left, char32_t right) {
  const UChar32 a = left;
  const UChar32 b = right;
  const UChar32 pair = icu_rules(false).composePair(a, b);
  const char32_t found = pair;
  return pair < 0 || !is_known(found) ? std::nullopt : std::optional(found);
}

// Composes decomposed characters. A mark joins the last starter before it unless a mark of its own or a higher class
// stands between them.
std::vector<CharacterEdit> compose(const std::vector<CharacterEdit>& parts) {
  std::vector<CharacterEdit> out;
  std::optional<size_t> starter;  // in `out`
  int last_class = -1;            // the class of the last mark after the starter; -1 if there is none
  for (const auto& [character, change] : parts) {
    const int rank = combining_class(character);
    if (starter && last_class < rank) {
      if (const auto joined = composed(out[*starter].character, character)) {
        out[*starter] = {*joined, out[*starter].change + change - 1};
        continue;
      }
    }
    out.push_back({character, change});
    if (rank == 0) {
      starter = out.size() - 1;
      last_class = -1;
    } else if (starter) {
      last_class = rank;
    }
  }
  return out;
}

}  // namespace

void normalize(AlignedText& text, NormalForm form) {
  const std::string_view bytes = text.text();
  const auto is_ascii = [](char byte) { return (byte & 0x80) == 0; };
  if (std::all_of(bytes.begin(), bytes.end(), is_ascii)) return;
  Decomposition parts(form == NormalForm::nfkc || form == NormalForm::nfkd);
  for (size_t offset = 0; offset < bytes.size();) parts.add(next_code_point(bytes, offset));
  const std::vector<CharacterEdit> decomposed = parts.take();
  const bool composes = form == NormalForm::nfc || form == NormalForm::nfkc;
  text.edit(composes ? compose(decomposed) : decomposed);
}

}  // namespace shardline
