// Tokenizers: a folder with tokenizer.json, or with vocab.json and merges.txt, and the files next to them; "text" is
// what the tokenizer is tried on. Ids are below the vocabulary's size, decoding gives valid UTF-8, and a text that is
// encoded in parts has the ids of the whole.
#include <algorithm>

#include "engine/data/text/utf8.h"
#include "engine/data/tokenizer/tokenizer.h"
#include "tests/fuzz/fuzz.h"

namespace shardline::tokenizer_fuzz {
namespace {

constexpr const char* kText = "The cat's 12 hats, <|endoftext|>\n\n  caf\xc3\xa9 \xe4\xb8\xad\xff end";

void check_ids(const Tokenizer& tokenizer, const std::string& text, const std::vector<int32_t>& ids) {
  for (const int32_t id : ids) FUZZ_REQUIRE(id >= 0 && id < tokenizer.vocab_size(), "id ", id);
  FUZZ_REQUIRE(is_valid_utf8(tokenizer.decode(ids)), "decoded text");
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
                               "added_tokens.json", "special_tokens_map.json", "vocab.txt", "text"});
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
  return true;
}

}  // namespace shardline::tokenizer_fuzz
