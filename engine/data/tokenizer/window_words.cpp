#include "engine/data/tokenizer/window_words.h"

#include <algorithm>

#include "core/error.h"
#include "engine/data/text/nfc.h"
#include "engine/data/text/regex_dialect.h"
#include "engine/data/text/utf8.h"
#include "engine/data/tokenizer/steps/pre_tokenizer.h"

namespace shardline {
namespace {

constexpr size_t kLongWord = 256;    // longer words are cut where that does not change their ids
constexpr size_t kMarkStride = 256;  // bytes between marks, unless every mark is needed

AddedTokenMatcher matcher(const WordRules& rules, bool in_normalized_text) {
  std::vector<AddedToken> chosen;
  for (AddedToken token : rules.added) {
    if (token.normalized != in_normalized_text) continue;
    if (in_normalized_text && rules.nfc) token.content = nfc(token.content);
    chosen.push_back(std::move(token));
  }
  return AddedTokenMatcher(std::move(chosen));
}

void append_number(std::string& out, size_t value) {
  for (; value >= 0x80; value >>= 7) out += value | 0x80;
  out += value;
}

size_t take_number(std::string_view& in) {
  size_t value = 0;
  for (int shift = 0; !in.empty() && shift < 63; shift += 7) {
    const unsigned char byte = in[0];
    const size_t bits = byte & 0x7F;
    in.remove_prefix(1);
    value |= bits << shift;
    if (byte < 0x80) break;
  }
  return value;
}

bool begins_code_point(std::string_view text, size_t offset) {
  return offset >= text.size() || (text[offset] & 0xC0) != 0x80;
}

bool within(const AddedTokenMatcher::Intervals& intervals, size_t offset) {
  return std::any_of(intervals.begin(), intervals.end(),
                     [&](const auto& interval) { return interval.first < offset && offset < interval.second; });
}

}  // namespace

// One call of WordSplitter::split. A piece of text passes through the levels (WordSplitter::look_back_); each cuts it
// into pieces for the next one. A seam is a place where every level can start again: its state says how far back the
// piece of each level began, as far as that matters, and contains the text that lookbehinds may see.
class TextWindow {
 public:
  TextWindow(const WordSplitter& rules, std::string_view text, const Seam& from, size_t end, size_t dense_from,
             size_t dense_until)
      : rules_(rules), text_(text), from_(from), end_(end), dense_from_(dense_from), dense_until_(dense_until) {}

  WindowWords run() {
    read_state();
    repair();
    wanted_ = next_wanted(from_.offset);
    rules_.raw_added_.split(repaired_, start_, end_ == text_.size(), raw_unbroken_,
                            [&](const AddedTokenMatcher::Piece& piece) {
                              if (piece.id == AddedTokenMatcher::kNone) return split_gap(piece);
                              out_.words.push_back({{}, piece.id});
                              add_mark(piece.end, {});
                            });
    return std::move(out_);
  }

 private:
  using AddedPiece = AddedTokenMatcher::Piece;

  // A piece at one level: offsets in `view_`.
  struct Frame {
    size_t seen = 0;  // where the part of the piece that a lookbehind sees begins
    size_t begin = 0, end = 0;
    bool closed = true;     // false: the piece may continue after the window
    bool is_match = false;  // a match of the split above, which cannot be found again from its middle
  };

  size_t levels() const { return rules_.look_back_.size(); }
  size_t byte_level() const { return levels() - 2; }

  void read_state() {
    behind_.assign(levels(), 0);
    if (from_.state.empty()) return;
    std::string_view state = from_.state;
    for (size_t& bytes : behind_) bytes = take_number(state);
    context_ = state;
  }

  // Makes valid UTF-8 of the window and of the code point before it.
  void repair() {
    raw_begin_ = from_.offset;
    if (raw_begin_ > 0) previous_code_point(text_, raw_begin_);
    repaired_ = text_.substr(raw_begin_, end_ - raw_begin_);
    start_ = from_.offset - raw_begin_;
    if (is_valid_utf8(repaired_)) return;
    start_ = replace_invalid_utf8(repaired_.substr(0, start_)).size();
    repaired_ = out_.buffers.emplace_back(replace_invalid_utf8(repaired_, &repairs_));
  }

  // Maps a place in the repaired text to the raw text. Called with ascending places.
  size_t raw_place(size_t offset) {
    while (next_repair_ < repairs_.size() && repairs_[next_repair_].repaired_end <= offset) ++next_repair_;
    if (next_repair_ == 0) return raw_begin_ + offset;
    const Utf8Repair& last = repairs_[next_repair_ - 1];
    return raw_begin_ + last.end + (offset - last.repaired_end);
  }

  // Text between two added tokens of the raw text.
  void split_gap(const AddedPiece& gap) {
    gap_ = gap;
    std::string_view source = repaired_.substr(gap.begin, gap.end - gap.begin);
    if (rules_.nfc_) {
      if (!gap.closed) source = source.substr(0, last_nfc_cut(source));
      normalized_.emplace(source);
      source = normalized_->text();
    }
    if (source.empty()) return;
    at_start_ = gap.begin == start_ && behind_[0] > 0;
    first_ = at_start_ ? context_.size() : 0;
    view_ = source;
    if (first_ > 0 || (rules_.nfc_ && source.data() != repaired_.data() + gap.begin)) {
      view_ = out_.buffers.emplace_back(cat(at_start_ ? context_ : "", source));
    }
    verbatim_ = repairs_.empty() && (!rules_.nfc_ || source.data() == repaired_.data() + gap.begin);
    frames_.assign(levels(), {});
    enter(0, first_, view_.size(), gap.closed, false);
    unbroken_.clear();
    const Frame& frame = frames_[0];
    rules_.normalized_added_.split(view_.substr(frame.seen), frame.begin - frame.seen, gap.closed, unbroken_,
                                   [&, seen = frame.seen](const AddedPiece& piece) {
                                     if (piece.id == AddedTokenMatcher::kNone) {
                                       return split_piece(1, seen + piece.begin, seen + piece.end, piece.closed, false);
                                     }
                                     out_.words.push_back({{}, piece.id});
                                     mark(seen + piece.end, 1);
                                   });
  }

  void enter(size_t level, size_t begin, size_t end, bool closed, bool is_match) {
    size_t seen = begin;
    if (goes_on(level, begin)) seen = begin - std::min(begin, behind_[level]);
    while (seen < begin && !begins_code_point(view_, seen)) ++seen;
    frames_[level] = {seen, begin, end, closed, is_match};
  }

  // Whether the piece of this level that begins here began before the window.
  bool goes_on(size_t level, size_t begin) const { return at_start_ && begin == first_ && behind_[level] > 0; }

  // Applies the splits from `level` on, then the byte level.
  void split_piece(size_t level, size_t begin, size_t end, bool closed, bool is_match) {
    enter(level, begin, end, closed, is_match);
    if (level == byte_level()) return split_byte_level(begin, end, closed);
    const size_t seen = frames_[level].seen;
    rules_.splits_[level - 1].split(
        view_.substr(seen, end - seen), begin - seen, closed, [&](const SplitPattern::Piece& piece) {
          if (piece.kept) {
            split_piece(level + 1, seen + piece.begin, seen + piece.end, piece.closed, piece.match);
          } else {
            size_t last = seen + piece.end;
            if (!piece.closed) previous_code_point(view_, last);  // the piece may end with the text, or later
            mark(last, level + 1);
          }
        });
  }

  void split_byte_level(size_t begin, size_t end, bool closed) {
    std::string_view piece = view_.substr(begin, end - begin);
    size_t added = 0;
    if (rules_.add_prefix_space_ && !goes_on(byte_level(), begin) && !piece.starts_with(' ')) {
      piece = out_.buffers.emplace_back(cat(" ", piece));
      added = 1;
    }
    if (!rules_.byte_level_split_) return add_word(piece, end, closed, false);
    rules_.byte_level_split_->split(piece, 0, closed, [&](const SplitPattern::Piece& word) {
      add_word(piece.substr(word.begin, word.end - word.begin), begin + word.end - added, word.closed, word.match);
    });
  }

  // `word` ends at view_[end]; its text may begin with a prefix space.
  void add_word(std::string_view word, size_t end, bool closed, bool is_match) {
    const size_t level = levels() - 1;
    const size_t begin = std::max(frames_[byte_level()].begin, end - std::min(end, word.size()));
    const bool rest = goes_on(level, begin);
    enter(level, begin, end, closed, is_match);
    size_t done = 0;
    if (!closed || rest || word.size() > kLongWord) {
      for (size_t i = 1; i < word.size(); ++i) {
        if (!rules_.may_cut_(word[i - 1], word[i])) continue;
        out_.words.push_back({.text = word.substr(done, i - done), .whole = false});
        mark(end - (word.size() - i), levels());
        done = i;
      }
    }
    if (!closed) return;
    out_.words.push_back({.text = word.substr(done), .whole = done == 0 && !rest});
    mark(end, levels());
  }

  // Marks a seam at view_[offset], if there is one. `active` is the number of levels that are inside a piece.
  void mark(size_t offset, size_t active) {
    if (verbatim_ && raw_begin_ + gap_.begin + (offset - first_) < wanted_) return;
    size_t longest = 0;
    behind_here_.assign(levels(), 0);
    for (size_t level = 0; level < active; ++level) {
      const Frame& frame = frames_[level];
      if (offset <= frame.begin) return;                 // only a prefix space has been consumed
      if (offset == frame.end && !frame.closed) return;  // it is not known whether the piece ends here
      if (offset == frame.end) break;
      if (frame.is_match) return;
      behind_here_[level] = std::min(rules_.look_back_[level], offset - frame.seen);
      longest = std::max(longest, behind_here_[level]);
    }
    if (!begins_code_point(view_, offset) || within(unbroken_, offset - frames_[0].seen)) return;
    size_t source = offset - first_;
    if (rules_.nfc_) {
      const auto cut = normalized_->cut_in_source(source);
      if (!cut) return;
      source = *cut;
    }
    add_mark(gap_.begin + source, longest > 0 ? view_.substr(offset - longest, longest) : std::string_view());
  }

  size_t next_wanted(size_t marked) const {
    const size_t stride = marked + kMarkStride;
    if (marked + 1 >= dense_until_) return stride;
    return marked + 1 >= dense_from_ ? marked + 1 : std::min(stride, dense_from_);
  }

  // Adds a mark at a place of the repaired text. `context` is what lookbehinds may see of the text before it.
  void add_mark(size_t offset, std::string_view context) {
    if (within(raw_unbroken_, offset)) return;
    const size_t raw = raw_place(offset);
    if (raw < wanted_) return;
    wanted_ = next_wanted(raw);
    Seam seam{.offset = raw};
    if (!context.empty()) {
      for (const size_t bytes : behind_here_) append_number(seam.state, bytes);
      seam.state += context;
    }
    out_.marks.push_back({std::move(seam), out_.words.size()});
  }

  const WordSplitter& rules_;
  const std::string_view text_;
  const Seam& from_;
  const size_t end_, dense_from_, dense_until_;
  std::vector<size_t> behind_;  // from_'s, by level
  std::string_view context_;    // from_'s

  std::string_view repaired_;
  size_t raw_begin_ = 0;  // where repaired_ begins in text_
  size_t start_ = 0;      // where the window begins in repaired_
  std::vector<Utf8Repair> repairs_;
  size_t next_repair_ = 0;
  AddedTokenMatcher::Intervals raw_unbroken_;  // in repaired_

  AddedPiece gap_;  // in repaired_
  std::optional<NfcText> normalized_;
  std::string_view view_;                  // what lookbehinds may see, then the gap's normalized text
  bool at_start_ = false;                  // the gap began before the window
  size_t first_ = 0;                       // where the gap begins in view_
  bool verbatim_ = false;                  // the gap is an unchanged part of the raw text
  AddedTokenMatcher::Intervals unbroken_;  // in view_
  std::vector<Frame> frames_;              // by level
  std::vector<size_t> behind_here_;        // for the mark that is being made, by level

  WindowWords out_;
  size_t wanted_ = 0;  // no mark is wanted before this place of the raw text
};

WordSplitter::WordSplitter(const WordRules& rules, MayCut may_cut)
    : raw_added_(matcher(rules, false)),
      normalized_added_(matcher(rules, true)),
      nfc_(rules.nfc),
      add_prefix_space_(rules.add_prefix_space),
      may_cut_(std::move(may_cut)) {
  for (const SplitStep& step : rules.splits) splits_.emplace_back(pcre2_pattern(step.pattern), step.keep);
  if (rules.byte_level_pattern) byte_level_split_.emplace(pcre2_pattern(kGpt2Pattern), SplitPattern::Keep::all);
  look_back_.push_back(std::max<size_t>(1, normalized_added_.bytes_behind()));
  for (const SplitPattern& split : splits_) look_back_.push_back(std::max<size_t>(1, split.bytes_behind()));
  look_back_.insert(look_back_.end(), {1, 1});
}

WindowWords WordSplitter::split(std::string_view text, const Seam& from, size_t end, size_t dense_from,
                                size_t dense_until) const {
  return TextWindow(*this, text, from, end, dense_from, dense_until).run();
}

}  // namespace shardline
