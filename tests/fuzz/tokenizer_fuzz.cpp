// Tokenizers: a folder with tokenizer.json, vocab.json and merges.txt, vocab.txt or a SentencePiece model, and the
// files next to them; "text" is what the tokenizer is tried on. Ids are below the vocabulary's size, decoding gives
// valid UTF-8, and a text that is encoded in parts has the ids of the whole. Examples have the same ids; their offsets
// are in the text, and windows keep to the maximum length and together have all of the text.
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
  std::vector<int32_t> joined;
  for (const Encoding& window : tokenizer.encode_example(first, nullptr, options)) {
    check_encoding(tokenizer, window, text);
    FUZZ_REQUIRE(window.size() <= 3, "a window of ", window.size());
    joined.insert(joined.end(), window.ids.begin() + (joined.empty() ? 0 : 1), window.ids.end());
  }
  FUZZ_REQUIRE(joined == ids, joined.size(), " ids of the windows, ", ids.size(), " of the text");
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
  if (text.size() % 32 != 0) return;  // threads take much longer than these texts
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
  check_examples(*tokenizer, text, ids);
  return true;
}

}  // namespace shardline::tokenizer_fuzz
