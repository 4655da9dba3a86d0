// Texts and options on which tokenizers are compared with the reference library: the same as in example_cases.py.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/data/text/utf8.h"
#include "engine/data/tokenizer/tokenizer.h"

namespace shardline {

// SplitMix64.
class ExampleRandom {
 public:
  explicit ExampleRandom(uint64_t seed) : state_(seed) {}
  size_t below(size_t limit) {
    state_ += 0x9E3779B97F4A7C15;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return ((z ^ (z >> 31)) >> 11) % limit;
  }
  template <class List>
  const auto& one_of(const List& list) {
    return list[below(std::size(list))];
  }

 private:
  uint64_t state_;
};

class ExampleTextMaker {
 public:
  // `snippets` is a JSON list of texts.
  explicit ExampleTextMaker(const nlohmann::json& snippets) : snippets_(snippets.get<std::vector<std::string>>()) {}

  // Bytes that may be invalid UTF-8.
  std::string make(ExampleRandom& random) const {
    const size_t kind = random.below(8);
    std::string text;
    if (kind == 0) {
      for (size_t left = random.below(120); left > 0; --left) text += random.below(256);
      return text;
    }
    if (kind == 1) return code_points(random, 60, [&] { return random.below(0x110000); });
    if (kind == 2) {
      const size_t base = random.one_of(kBlocks);
      return code_points(random, 100, [&] { return base + random.below(256); });
    }
    if (kind == 3) return code_points(random, 40, [&] { return random.one_of(kSpaces); });
    if (kind == 4) {
      for (size_t left = random.below(300); left > 0; --left) text += random.one_of(kPieces);
      return text;
    }
    for (size_t left = random.below(10); left > 0; --left) {
      text += random.one_of(snippets_);
      text += random.one_of(kSeparators);
    }
    if (kind == 5 && !text.empty()) {
      for (size_t left = 1 + random.below(5); left > 0; --left) {
        const size_t place = random.below(text.size());
        text[place] = random.below(256);
      }
    } else if (kind == 6 && !text.empty()) {
      const size_t begin = random.below(text.size());
      text = text.substr(begin, 1 + random.below(100));
    }
    return text;
  }

 private:
  static constexpr size_t kBlocks[] = {0,       0x80,    0x300,   0x370,   0x400,   0x590,   0x900,
                                       0x1C80,  0x2000,  0x3000,  0x4E00,  0xA700,  0xFE00,  0xFF00,
                                       0x10500, 0x10D40, 0x11F00, 0x1D400, 0x1E000, 0x1F300, 0x20000};
  static constexpr size_t kSpaces[] = {0x20,   0x9,    0xA,    0xD,    0xB,  0xC,  0x85, 0xA0, 0x2003,
                                       0x2028, 0x3000, 0x180E, 0x200B, 0x61, 0x2E, 0x27, 0x31, 0x2581};
  static constexpr const char* kPieces[] = {"ab", "e", "th", "xyz", "9", "Q"};
  static constexpr const char* kSeparators[] = {"", " ", "\n", "'s", " ", "  ", ", "};

  template <class Choose>
  static std::string code_points(ExampleRandom& random, size_t limit, const Choose& choose) {
    std::string text;
    for (size_t left = random.below(limit); left > 0; --left) {
      const size_t chosen = choose();
      if (chosen < 0xD800 || chosen >= 0xE000) append_utf8(text, chosen);
    }
    return text;
  }

  std::vector<std::string> snippets_;
};

struct RandomExample {
  std::string first, second;
  std::vector<std::string> words;  // of the first text, then of `splits`
  bool pair = false, splits = false;
  ExampleOptions options;

  RandomExample(ExampleRandom& random, const ExampleTextMaker& texts) : first(texts.make(random)) {
    const size_t kind = random.below(8);
    pair = kind >= 3 && kind <= 5;
    if (kind == 0) {
      options.add_special_tokens = false;
    } else if (kind == 2) {
      options.truncation = Truncation::longest_first;
      options.windows = random.below(2) == 1;
      options.max_length = 6 + random.below(30);
    } else if (pair) {
      second = texts.make(random);
      if (kind == 5) cut_pair(random);
    } else if (kind >= 6) {
      split();
    }
    if (options.windows) options.stride = random.below(3);
  }

  std::vector<Encoding> encode(const Tokenizer& tokenizer) const {
    const TextOrWords one = splits ? TextOrWords(std::span<const std::string>(words)) : std::string_view(first);
    const TextOrWords other = std::string_view(second);
    return tokenizer.encode_example(one, pair ? &other : nullptr, options);
  }

 private:
  void cut_pair(ExampleRandom& random) {
    static constexpr Truncation kKinds[] = {Truncation::longest_first, Truncation::only_first, Truncation::only_second};
    options.truncation = random.one_of(kKinds);
    options.windows = options.truncation != Truncation::longest_first;
    options.max_length = 10 + random.below(60);
  }
  void split() {
    splits = true;
    for (size_t begin = 0; begin < first.size();) {
      const size_t end = std::min(first.find(' ', begin), first.size());
      if (begin < end) words.push_back(first.substr(begin, end - begin));
      begin = end + 1;
    }
  }
};

}  // namespace shardline
