#include "engine/data/text/regex_dialect.h"

#include <cctype>
#include <cstdio>
#include <set>

#include "core/error.h"
#include "engine/data/text/unicode_additions.h"

namespace shardline {
namespace {

constexpr size_t kLongest = 4096;  // bytes; the five of \p{L} alone become hundreds

// Unicode White_Space; PCRE2's own \s also takes U+180E.
constexpr const char* kWhiteSpace =
    "\\t-\\r\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}";

// Class content for a general category: "L" or "Lu".
std::string category_members(const std::string& name) {
  std::string members = "\\p{" + name + "}";
  for (const UnicodeRange& range : unicode_additions()) {
    if (range.category[0] != name[0] || (name.size() == 2 && range.category[1] != name[1])) continue;
    char text[48];
    std::snprintf(text, sizeof text, "\\x{%x}-\\x{%x}", range.first, range.last);
    members += text;
  }
  return members;
}

bool is_category(const std::string& name) {
  static const std::set<std::string> names = {"L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "N",
                                              "Nd", "Nl", "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po",
                                              "S",  "Sm", "Sc", "Sk", "So", "Z",  "Zs", "Zl", "Zp"};
  return names.count(name) > 0;
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  std::string run() {
    while (at_ < in_.size()) {
      const char c = in_[at_];
      if (c == '\\') {
        escape();
      } else if (in_class_) {
        class_character(c);
      } else {
        plain_character(c);
      }
    }
    return out_;
  }

 private:
  void plain_character(char c) {
    if (c == '^' || c == '$') refuse(1);
    if (c == '(' && follows("(*")) refuse(2);
    if (c == '(' && follows("(?")) check_group();
    if (c == '{' && follows("{,")) refuse(2);
    if (c == '}' && follows("}+")) refuse(2);
    copy(1);
    if (c != '[') return;
    in_class_ = true;
    if (at_ < in_.size() && in_[at_] == '^') copy(1);
    if (at_ < in_.size() && in_[at_] == ']') refuse(1);
  }

  void class_character(char c) {
    if (c == '[') refuse(1);
    if (follows("&&")) refuse(2);
    if (c == ']') in_class_ = false;
    copy(1);
  }

  void check_group() {
    for (const char* known : {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>"}) {
      if (follows(known)) return;
    }
    refuse(4);
  }

  void escape() {
    if (at_ + 1 >= in_.size()) refuse(1);
    const unsigned char kind = in_[at_ + 1];
    const bool punctuation = kind > ' ' && kind < 0x7F && !std::isalnum(kind);
    if (punctuation || kind == 'r' || kind == 'n' || kind == 't' || kind == 'f') {
      copy(2);
    } else if (kind == 's' || kind == 'S') {
      members(kWhiteSpace, kind == 'S', 2);
    } else if (kind == 'd' || kind == 'D') {
      members(category_members("Nd"), kind == 'D', 2);
    } else if (kind == 'p' || kind == 'P') {
      property(kind == 'P');
    } else if (follows("\\x{")) {
      copy(3);
    } else {
      refuse(2);
    }
  }

  void property(bool negated) {
    const size_t close = in_.find('}', at_);
    if (close == std::string_view::npos || at_ + 2 >= in_.size() || in_[at_ + 2] != '{') refuse(4);
    const std::string name(in_.substr(at_ + 3, close - at_ - 3));
    if (!is_category(name)) refuse(close + 1 - at_);
    members(category_members(name), negated, close + 1 - at_);
  }

  void members(const std::string& content, bool negated, size_t consumed) {
    if (in_class_ && negated) refuse(consumed);
    out_ += in_class_ ? content : (negated ? "[^" : "[") + content + "]";
    at_ += consumed;
  }

  bool follows(std::string_view text) const { return in_.substr(at_, text.size()) == text; }

  void copy(size_t count) {
    out_ += in_.substr(at_, count);
    at_ += count;
  }

  [[noreturn]] void refuse(size_t length) const {
    throw DataError(cat("the split pattern ", in_, " has '", in_.substr(at_, length), "' at character ", at_,
                        ", which is not supported; use literals, classes, \\s \\d, \\p{general category}, "
                        "quantifiers and the groups (?: (?i: (?= (?! (?<= (?<! (?>"));
  }

  std::string_view in_;
  std::string out_;
  size_t at_ = 0;
  bool in_class_ = false;
};

}  // namespace

std::string pcre2_pattern(std::string_view oniguruma) {
  if (oniguruma.size() > kLongest)
    throw DataError(cat("a split pattern of ", oniguruma.size(), " bytes is not supported; use at most ", kLongest));
  return Translator(oniguruma).run();
}

std::string literal_pattern(std::string_view text) {
  std::string pattern;
  for (const unsigned char byte : text) {
    if (byte < 0x80 && !std::isalnum(byte) && byte > ' ') pattern += '\\';
    pattern += byte;
  }
  return pattern;
}

}  // namespace shardline
