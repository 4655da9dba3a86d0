#include "engine/config/rules/shell_words.h"

#include <cctype>

#include "core/error.h"

namespace shardline {
namespace {

// Reads a text from left to right.
class WordReader {
 public:
  explicit WordReader(const std::string& text) : text_(text) {}

  std::vector<std::string> read() {
    while (at_ < text_.size()) {
      const char c = text_[at_++];
      if (std::isspace(static_cast<unsigned char>(c))) {
        finish_word();
      } else if (c == '\'' || c == '"') {
        quoted(c);
      } else if (c == '\\') {
        if (at_ == text_.size()) throw ConfigError("ends with a backslash, which escapes nothing; remove or double it");
        add(text_[at_++]);
      } else {
        add(c);
      }
    }
    finish_word();
    return std::move(words_);
  }

 private:
  void add(char c) {
    word_ += c;
    in_word_ = true;
  }
  void finish_word() {
    if (in_word_) words_.push_back(word_);
    word_.clear();
    in_word_ = false;
  }
  // Reads up to the closing quote. '' is a word, too.
  void quoted(char quote) {
    const size_t begin = at_;
    in_word_ = true;
    for (; at_ < text_.size() && text_[at_] != quote; ++at_) {
      const bool escapes = quote == '"' && text_[at_] == '\\' && at_ + 1 < text_.size() &&
                           std::string("\\\"$`").find(text_[at_ + 1]) != std::string::npos;
      if (escapes) ++at_;
      word_ += text_[at_];
    }
    if (at_++ >= text_.size())
      throw ConfigError(cat("has a ", quote, " at character ", begin, " that is not closed; close it, or write \\",
                            quote, " for the character itself"));
  }

  const std::string& text_;
  size_t at_ = 0;
  std::string word_;
  bool in_word_ = false;
  std::vector<std::string> words_;
};

}  // namespace

std::vector<std::string> shell_words(const std::string& text) {
  return WordReader(text).read();
}

std::string shell_quoted(const std::string& word) {
  const auto is_plain = [](unsigned char c) {
    return std::isalnum(c) || std::string("_-+=.,:/@%^").find(c) != std::string::npos;
  };
  bool plain = !word.empty();
  std::string quoted = "'";
  for (const char c : word) {
    plain = plain && is_plain(c);
    quoted += c == '\'' ? "'\\''" : std::string(1, c);
  }
  return plain ? word : quoted + "'";
}

}  // namespace shardline
