// Tokenizers: a folder with tokenizer.json, vocab.json and merges.txt, vocab.txt or a SentencePiece model, and the
// files next to them; "text" is the text that it encodes. Ids are below the vocabulary's size, decoding gives valid
// UTF-8, and a text that is encoded in parts has the ids of the whole. Examples have the same ids; their offsets are in
// the text, and windows do not exceed the maximum length and together cover the text. Pairs are cut to it, too.
#include <algorithm>
#include <utility>

#include "engine/data/text/utf8.h"
#include "engine/data/tokenizer/tokenizer.h"
#include "tests/fuzz/fuzz.h"

namespace shardline::tokenizer_fuzz {
namespace {

constexpr const char* kText = "The cat's 12 hats, <|endoftext|>\n\n  caf\xc3\xa9 \xe4\xb8\xad\xff end";

// A decoder may make a text 64 times as long, of tokens of any length.
constexpr fuzz::Allowance kDecoding{.fixed = size_t{64} << 20};

void check_encoding(const Tokenizer& tokenizer, const Encoding& encoding, const std::string& text) {
  const size_t size = encoding.size();
  FUZZ_REQUIRE(encoding.types.size() == size && encoding.offsets.size() == size && encoding.sequences.size() == size &&
                   encoding.words.size() == size,
               "sizes of ", size, " tokens");
  for (size_t i = 0; i < size; ++i) {
    FUZZ_REQUIRE(encoding.ids[i] >= 0 && encoding.ids[i] < tokenizer.vocab_size(), "id ", encoding.ids[i]);
    const TextSpan& span = encoding.offsets[i];
    FUZZ_REQUIRE(span.begin <= span.end && span.end <= text.size(), "offsets ", span.begin, " ", span.end);
    FUZZ_REQUIRE(encoding.is_special(i) == (encoding.words[i] == Encoding::kNone), "word of token ", i);
  }
}

void check_examples(const Tokenizer& tokenizer, const std::string& text, const std::vector<int32_t>& ids) {
  const TextOrWords first = std::string_view(text);
  const Encoding plain = tokenizer.encode_example(first, nullptr, {.add_special_tokens = false})[0];
  check_encoding(tokenizer, plain, text);
  FUZZ_REQUIRE(plain.ids == ids, plain.size(), " ids of the example, ", ids.size(), " of the text");
  check_encoding(tokenizer, tokenizer.encode_example(first, &first, {})[0], text);
  const std::vector<std::string> words = {text.substr(0, text.size() / 2), text.substr(text.size() / 2)};
  const TextOrWords both = std::span<const std::string>(words);
  fuzz::accepts(text.size(), [&] { check_encoding(tokenizer, tokenizer.encode_example(both, nullptr, {})[0], text); });
  const ExampleOptions options{
      .add_special_tokens = false, .truncation = Truncation::only_first, .max_length = 3, .windows = true, .stride = 1};
  std::vector<Encoding> windows = tokenizer.encode_example(first, nullptr, options);
  for (const Encoding& window : windows) {
    check_encoding(tokenizer, window, text);
    FUZZ_REQUIRE(window.size() <= 3, "a window of ", window.size());
  }
  const auto joined = [&] {
    std::vector<int32_t> all;
    for (const Encoding& window : windows)
      all.insert(all.end(), window.ids.begin() + (all.empty() ? 0 : 1), window.ids.end());
    return all;
  };
  const bool are_in_order = joined() == ids;
  std::ranges::reverse(windows);  // windows of texts that are cut on the left are in this order
  FUZZ_REQUIRE(are_in_order || joined() == ids, joined().size(), " ids of the windows, ", ids.size(), " of the text");
}

// Whatever is cut, and wherever, no window has more tokens than requested, unless that leaves no room for any. Each
// text is cut in only a few ways, because all of them take long.
void check_cuts(const Tokenizer& tokenizer, const std::string& whole) {
  constexpr fuzz::Allowance for_windows{.fixed = size_t{64} << 20};
  constexpr size_t one_in = 6;
  const std::string text = whole.substr(0, 50);
  const TextOrWords first = std::string_view(text), second = std::string_view(text).substr(0, text.size() / 3);
  size_t number = whole.size();
  const auto cut = [&](const ExampleOptions& options, const TextOrWords* pair) {
    if (++number % one_in != 0) return;
    fuzz::accepts(
        text.size(),
        [&] {
          const auto windows = tokenizer.encode_example(first, pair, options);
          const auto& words = windows[0].words;
          const bool has_room = std::ranges::any_of(words, [](auto word) { return word != Encoding::kNone; });
          for (size_t i = 0; i < windows.size(); ++i) {
            check_encoding(tokenizer, windows[i], text);
            const bool keeps_to_it = i == 0 || has_room;  // without room, the text follows as a whole
            FUZZ_REQUIRE(!keeps_to_it || std::cmp_less_equal(windows[i].size(), options.max_length), windows[i].size(),
                         " tokens, not ", options.max_length);
          }
        },
        for_windows);
  };
  for (const int64_t most : {1, 7, 20})
    for (const auto truncation : {Truncation::only_first, Truncation::only_second, Truncation::longest_first})
      for (const TextOrWords* pair : {static_cast<const TextOrWords*>(nullptr), &second})
        for (const bool windows : {false, true})
          cut({.truncation = truncation, .max_length = most, .windows = windows, .stride = most / 2}, pair);
}

// Listing the seams changes no ids, and all seams are inside the text; a part that begins in the middle of the text
// does not end before that place.
void check_seams(const Tokenizer& tokenizer, const std::string& text, const std::vector<int32_t>& ids) {
  const auto whole = tokenizer.encode_part(text, {}, {.listed_until = text.size() + 1});
  FUZZ_REQUIRE(whole.ids == ids, "other ids with a list");
  for (const auto& [seam, count] : whole.listed)
    FUZZ_REQUIRE(seam.offset <= text.size() && count <= ids.size(), "a seam at ", seam.offset, " after ", count);
  const size_t inside = text.size() / 2;
  fuzz::accepts(
      text.size(),
      [&] {
        const auto guess = tokenizer.encode_part(text, Seam{.offset = inside}, {.until = inside + 5});
        FUZZ_REQUIRE(guess.end.offset >= inside, "a part ends at ", guess.end.offset, " before its begin ", inside);
      },
      kDecoding);
}

void check_ids(const Tokenizer& tokenizer, const std::string& text, const std::vector<int32_t>& ids) {
  for (const int32_t id : ids) FUZZ_REQUIRE(id >= 0 && id < tokenizer.vocab_size(), "id ", id);
  std::string decoded;
  if (fuzz::accepts(
          text.size(), [&] { decoded = tokenizer.decode(ids); }, kDecoding))
    FUZZ_REQUIRE(is_valid_utf8(decoded), "decoded text");
  std::vector<int32_t> in_parts;
  Seam seam;
  while (seam.offset < text.size()) {
    auto part = tokenizer.encode_part(text, seam, {.until = seam.offset + 7, .window = 5});
    FUZZ_REQUIRE(part.end.offset > seam.offset, "no progress at ", seam.offset);
    in_parts.insert(in_parts.end(), part.ids.begin(), part.ids.end());
    seam = std::move(part.end);
  }
  FUZZ_REQUIRE(in_parts == ids, ids.size(), " ids of the whole, ", in_parts.size(), " of its parts");
  if (text.size() % 32 != 0) return;  // starting threads takes much longer than encoding these texts
  FUZZ_REQUIRE(tokenizer.encode_part(text, {}, {.threads = 2}).ids == ids, "two threads make other ids");
}

}  // namespace

FUZZ_TARGET(tokenizer) {
  auto files = fuzz::files_of(data, size,
                              {"tokenizer.json", "vocab.json", "merges.txt", "tokenizer_config.json",
                               "added_tokens.json", "special_tokens_map.json", "vocab.txt", "config.json",
                               "sentencepiece.bpe.model", "tokenizer.model", "spiece.model", "text"});
  const std::string text = files.contains("text") ? files["text"] : kText;
  files.erase("text");
  fuzz::fill_folder(files);
  TokenizerPtr tokenizer;
  if (!fuzz::accepts(size, [&] { tokenizer = load_tokenizer(fuzz::folder().string()); })) return false;
  FUZZ_REQUIRE(has_tokenizer(fuzz::folder().string()), "a folder without a tokenizer is loaded");
  FUZZ_REQUIRE(!fuzz::accepts(size, [] { load_tokenizer((fuzz::folder() / "absent").string()); }), "no file is loaded");
  if (files.contains("tokenizer.json")) {
    const TokenizerPtr of_file = load_tokenizer((fuzz::folder() / "tokenizer.json").string());
    FUZZ_REQUIRE(of_file->digest() == tokenizer->digest(), "the file makes another tokenizer than its folder");
  }
  FUZZ_REQUIRE(tokenizer->vocab_size() >= 0, tokenizer->vocab_size());
  if (const auto eos = tokenizer->eos()) FUZZ_REQUIRE(*eos >= 0 && *eos < tokenizer->vocab_size(), "eos ", *eos);
  // A byte without a token, or a pattern that needs too many steps, is an error of the text.
  std::vector<int32_t> ids;
  if (!fuzz::accepts(size + text.size(), [&] { ids = tokenizer->encode(text); })) return false;
  check_ids(*tokenizer, text, ids);
  check_seams(*tokenizer, text, ids);
  check_examples(*tokenizer, text, ids);
  check_cuts(*tokenizer, text);
  return true;
}

}  // namespace shardline::tokenizer_fuzz
