// Long texts are encoded in windows, and in parts that several threads begin at once: the ids must be those of the
// whole text, for every tokenizer.
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "core/error.h"
#include "engine/data/source/data_source.h"
#include "engine/data/tokenizer/tokenizer.h"
#include "tests/engine/data/temp_folder.h"

#include "tests/catch.h"

namespace shardline::streaming_test {

using nlohmann::json;

namespace {

using Random = std::mt19937;

template <class Choices>
auto pick(Random& random, const Choices& choices) {
  return choices[random() % choices.size()];
}

json golden(const std::string& name) {
  return json::parse(read_file(std::string(SHARDLINE_DATA_TESTS) + "/golden/" + name + "/tokenizer.json"));
}

TokenizerPtr load(const json& shape) {
  const TempFolder folder;
  return load_tokenizer(folder.write("tokenizer.json", shape.dump()));
}

std::string random_pattern(Random& random, int depth = 0) {
  static const std::vector<std::string> atoms = {"a",   "b", "\\s", "\\S",     "\\p{L}",    "\\p{N}",
                                                 "\\n", " ", "'",   "[^a\\s]", "[\\p{L}']", "[^\\p{L}]",
                                                 "\\d", ".", "x",   "\u00e9"};
  static const std::vector<std::string> groups = {"(?:", "(?:", "(?i:", "(?=", "(?!", "(?>"};
  static const std::vector<std::string> behind = {"(?<=a)",      "(?<!a)", "(?<= b)", "(?<!\\s)", "(?<=\\p{L}\\p{L})",
                                                  "(?<=(?<!x)a)"};
  static const std::vector<std::string> repeats = {"", "", "", "+", "*", "?", "{1,3}", "{2}", "++", "+?"};
  std::string pattern;
  for (int count = 1 + static_cast<int>(random() % 3); count > 0; --count) {
    if (random() % 8 == 0) pattern += pick(random, behind);
    if (depth < 2 && random() % 4 == 0) {
      const std::string group = pick(random, groups);
      const bool consumes = group[2] == ':' || group[2] == 'i' || group[2] == '>';
      pattern += group + random_pattern(random, depth + 1) + ")" + (consumes ? pick(random, repeats) : "");
    } else {
      pattern += pick(random, atoms) + pick(random, repeats);
    }
  }
  return random() % 2 == 0 && depth < 3 ? pattern + "|" + random_pattern(random, depth + 1) : pattern;
}

json random_shape(Random& random) {
  static const std::vector<std::string> contents = {"<t>",  "<t><t>", "ab",      " x", "\n",
                                                    "word", "\u00e9", "e\u0301", "'s", "aba"};
  json shape = golden(random() % 2 ? "gpt2" : "llama3");
  const auto next = static_cast<int>(shape["model"]["vocab"].size());
  shape["added_tokens"] = json::array();
  std::set<std::string> used;
  for (int count = random() % 4; count > 0; --count) {
    const std::string content = pick(random, contents);
    if (shape["model"]["vocab"].contains(content) || !used.insert(content).second) continue;
    shape["added_tokens"].push_back({{"id", next + static_cast<int>(used.size()) - 1},
                                     {"content", content},
                                     {"special", false},
                                     {"lstrip", random() % 3 == 0},
                                     {"rstrip", random() % 3 == 0},
                                     {"single_word", random() % 3 == 0},
                                     {"normalized", random() % 2 == 0}});
  }
  if (random() % 3 == 0) shape["normalizer"] = {{"type", "NFC"}};
  if (random() % 4 == 0) {  // bytes without a token
    shape["model"]["vocab"].erase("~");
    shape["model"]["vocab"].erase("'");
    shape["model"]["unk_token"] = "b";
    shape["model"]["fuse_unk"] = random() % 2 == 0;
    json& merges = shape["model"]["merges"];
    for (size_t i = merges.size(); i-- > 0;) {
      if (merges[i].dump().find_first_of("~'") != std::string::npos) merges.erase(i);
    }
  }
  json steps = json::array();
  for (int count = random() % 3; count > 0; --count) {
    static const std::vector<std::string> real = {"\\s+(?!\\S)|\\s+", "\\p{N}{1,3}", "[^\\n]+", "\\d", " ?\\p{L}+|\\s"};
    json pattern = {{"Regex", random() % 3 ? random_pattern(random) : pick(random, real)}};
    if (random() % 6 == 0) pattern = {{"String", pick(random, contents)}};
    steps.push_back({{"type", "Split"},
                     {"pattern", pattern},
                     {"behavior", random() % 2 ? "Isolated" : "Removed"},
                     {"invert", random() % 3 == 0}});
  }
  steps.push_back({{"type", "ByteLevel"}, {"add_prefix_space", random() % 2 == 0}, {"use_regex", random() % 2 == 0}});
  shape["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", steps}};
  return shape;
}

std::string random_text(Random& random, int parts) {
  static const std::vector<std::string> pieces = {"a",
                                                  "b",
                                                  "ab",
                                                  " ",
                                                  " ",
                                                  "\n",
                                                  "\n\n",
                                                  "  ",
                                                  "word",
                                                  "sword",
                                                  "<t>",
                                                  "<t>",
                                                  "x",
                                                  "'s",
                                                  "'",
                                                  "123",
                                                  "1",
                                                  "\u00e9",
                                                  "e\u0301",
                                                  "\u0301",
                                                  "\u212b",
                                                  "\u3000",
                                                  "\xff",
                                                  "\xe2\x82",
                                                  "\xe2\x82\xac",
                                                  "\x80",
                                                  "\xf0\x9f\x92\xa9",
                                                  ".",
                                                  "!?",
                                                  "~",
                                                  "~~~",
                                                  "\u1100\u1161\u11a8",
                                                  "\u037e",
                                                  "the",
                                                  " quick",
                                                  "aaaaaaaa",
                                                  "\t",
                                                  "\u0327\u0301",
                                                  "Z",
                                                  "zQ",
                                                  "abababab",
                                                  "\r\n",
                                                  "\u4e16\u754c",
                                                  "0"};
  std::string text;
  for (; parts > 0; --parts) text += random() % 30 == 0 ? std::string(300, 'a') : pick(random, pieces);
  return text;
}

// Goes from seam to seam with the smallest windows; returns all seams with the ids before them.
EncodedPart encode_by_seams(const Tokenizer& tokenizer, std::string_view text, const Seam& from, size_t window) {
  EncodedPart all{.end = from};
  while (all.end.offset < text.size()) {
    EncodedPart part = tokenizer.encode_part(
        text, all.end, {.until = all.end.offset + 1, .listed_until = text.size() + 1, .window = window});
    REQUIRE(part.end.offset > all.end.offset);
    for (auto& [seam, ids] : part.listed) all.listed.push_back({seam, all.ids.size() + ids});
    all.ids.insert(all.ids.end(), part.ids.begin(), part.ids.end());
    all.end = part.end;
  }
  return all;
}

std::vector<int32_t> encode_source(const std::string& file, TokenizerPtr tokenizer, int64_t piece_bytes) {
  const auto source =
      open_data_source({file, DataFormat::text}, {tokenizer, 1 << 20, "text", piece_bytes, /*threads=*/3});
  std::vector<int32_t> ids;
  Seam border;
  for (int64_t piece = 0; piece < source->pieces(); ++piece) {
    const auto more = source->join(piece, source->encode(piece).part, border);
    ids.insert(ids.end(), more.begin(), more.end());
  }
  return ids;
}

}  // namespace

TEST_CASE("tiny windows give the ids of the whole text, for random patterns, tokens and texts") {
  Random random(7);
  int64_t seams = 0;
  for (int round = 0; round < 600; ++round) {
    const json shape = random_shape(random);
    TokenizerPtr tokenizer;
    try {
      tokenizer = load(shape);
    } catch (const DataError&) {  // a random pattern that is not valid
      continue;
    }
    for (int i = 0; i < 4; ++i) {
      const std::string text = random_text(random, 1 + static_cast<int>(random() % 40));
      INFO(shape["pre_tokenizer"].dump() << shape["added_tokens"].dump() << shape["normalizer"].dump()
                                         << json(text).dump(-1, ' ', true, json::error_handler_t::replace));
      std::vector<int32_t> whole;
      if (!message_of<DataError>([&] { whole = tokenizer->encode(text); }).empty()) continue;  // PCRE2's limits
      const EncodedPart stepped = encode_by_seams(*tokenizer, text, {}, 1 + random() % 12);
      REQUIRE(stepped.ids == whole);
      seams += static_cast<int64_t>(stepped.listed.size());

      // A guess is right from the first seam that it shares with the proven run.
      const size_t guess = random() % (text.size() + 1);
      if (guess < text.size() && (static_cast<unsigned char>(text[guess]) & 0xC0) == 0x80) continue;
      const EncodedPart guessed = encode_by_seams(*tokenizer, text, {.offset = guess}, 1 + random() % 12);
      for (const auto& [seam, before] : guessed.listed) {
        for (const auto& [proven, proven_before] : stepped.listed) {
          if (!(proven == seam)) continue;
          REQUIRE(std::equal(whole.begin() + static_cast<int64_t>(proven_before), whole.end(),
                             guessed.ids.begin() + static_cast<int64_t>(before), guessed.ids.end()));
        }
      }
    }
  }
  CHECK(seams > 8000);
}

TEST_CASE("ids of a window are accepted only if later text cannot change them") {
  const auto shape_with = [](const std::string& pattern, const json& added, bool nfc) {
    json shape = golden("gpt2");
    shape["added_tokens"] = added;
    if (nfc) shape["normalizer"] = {{"type", "NFC"}};
    shape["pre_tokenizer"] = {
        {"type", "Sequence"},
        {"pretokenizers",
         {{{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}},
          {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"use_regex", false}}}}};
    return shape;
  };
  const json strips = {{{"id", 1200}, {"content", "<t>"}, {"lstrip", true}, {"rstrip", true}}};
  const json letter = {{{"id", 69}, {"content", "e"}, {"normalized", true}}};
  const std::vector<std::pair<json, std::string>> cases = {
      {shape_with("\\s", strips, false), "a    <t>   b   <t><t>  c  <"},            // white space that a token absorbs
      {shape_with("e", json::array(), true), "xxe\u0301xxe\u0301e"},                // a letter that changes
      {shape_with("x", letter, true), "abe\u0301abe\u0301eab"},                     // a match that normalization undoes
      {shape_with("ab(?=c)|a|b", json::array(), false), "aabcababbcabab"},          // a lookahead
      {shape_with("(?<=\\p{L}\\p{L})\\.", json::array(), false), "a.aa.1.bb..c"}};  // a lookbehind
  for (const auto& [shape, text] : cases) {
    const auto tokenizer = load(shape);
    for (size_t window = 1; window <= text.size(); ++window)
      CHECK(encode_by_seams(*tokenizer, text, {}, window).ids == tokenizer->encode(text));
  }
}

TEST_CASE("a file gives the ids of its whole text however it is cut into pieces") {
  Random random(8);
  const TempFolder folder;
  int compared = 0;
  for (int round = 0; round < 40; ++round) {
    json shape = random_shape(random);
    TokenizerPtr tokenizer;
    try {
      tokenizer = load(shape);
    } catch (const DataError&) {
      continue;
    }
    const std::string text = random_text(random, 20000);
    std::vector<int32_t> whole;
    if (!message_of<DataError>([&] { whole = tokenizer->encode(text); }).empty()) continue;  // PCRE2's limits
    const std::string file = folder.write("a.txt", text);
    INFO(shape["pre_tokenizer"].dump() << shape["added_tokens"].dump());
    for (const int64_t piece_bytes : {777, 20011, 50000}) REQUIRE(encode_source(file, tokenizer, piece_bytes) == whole);
    ++compared;
  }
  CHECK(compared >= 20);
}

TEST_CASE("wrongly guessed pieces, and words longer than a piece, do not change the ids") {
  const TempFolder folder;
  json shape = golden("llama3");
  const auto tokenizer = load(shape);
  const auto check = [&](const Tokenizer& with, const std::string& text, TokenizerPtr owner) {
    const std::string file = folder.write("a.txt", text);
    const auto whole = with.encode(text);
    for (const int64_t piece_bytes : {1000, 4099, 65536}) CHECK(encode_source(file, owner, piece_bytes) == whole);
  };
  // Digits come in groups of three: a guess hits the right phase one time in three, and nothing helps it to find the
  // phase.
  check(*tokenizer, "x" + std::string(100'000, '7') + " end", tokenizer);
  check(*tokenizer, std::string(100'000, 'a') + " " + std::string(50'000, '\n') + "x", tokenizer);
  shape["/pre_tokenizer/pretokenizers/0/pattern/Regex"_json_pointer] = "(?:\\S|\\s){7}";
  const auto sevens = load(shape);
  check(*sevens, random_text(*std::make_unique<Random>(3), 30000), sevens);
}

}  // namespace shardline::streaming_test
