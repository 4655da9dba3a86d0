#include "engine/generate/stop_texts.h"

#include "tests/engine/tiny_run.h"

#include "tests/catch.h"

namespace shardline::stop_texts_test {
namespace {

// The number of tokens after which a sequence of these ends; 0: it does not.
size_t end_of(const TokenizerPtr& tokenizer, const std::vector<int32_t>& ids, const std::vector<std::string>& texts,
              size_t prompt = 0) {
  const StopTexts stops(tokenizer, texts);
  for (size_t count = prompt + 1; count <= ids.size(); ++count)
    if (stops.are_completed_by(std::span(ids).first(count))) return count;
  return 0;
}

}  // namespace

TEST_CASE("a sequence ends with the token that completes a stop text") {
  const TokenizerPtr bytes = load_tokenizer("bytes");
  const auto end = [&](const std::string& text, const std::vector<std::string>& texts, size_t prompt = 0) {
    return end_of(bytes, bytes->encode(text), texts, prompt);
  };
  CHECK(end("one stop, two", {"stop"}) == 8);
  CHECK(end("one stop, two", {"two", "stop"}) == 8);
  CHECK(end("one", {"stop"}) == 0);
  CHECK(end("ststop", {"stop"}) == 6);
  CHECK(end("aaa", {"aa"}) == 2);
  // The prompt may have the beginning of a text, but not all of it.
  CHECK(end("one stop, two", {"stop"}, 7) == 8);
  CHECK(end("one stop, two", {"stop"}, 8) == 0);
  CHECK(end("a stop stop", {"stop"}, 6) == 11);
  // A character of three bytes is complete with the last one.
  CHECK(end("a \xe6\x9d\xb1 b", {"\xe6\x9d\xb1"}) == 5);
  CHECK(end("a \xe6\x9d\xb1 b", {" \xe6\x9d\xb1"}, 4) == 5);
  CHECK(end("a \xe6\x9d\xb1 b", {"\xe6\x9d\xb1"}, 5) == 0);
}

TEST_CASE("the last token may continue beyond the end of a stop text") {
  const RunFolder folder("stop-texts");
  folder.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nst\n##op\n##opper\nlas\n##topper\na\n");
  const TokenizerPtr words = load_tokenizer(folder / "");
  const auto end = [&](const std::vector<std::string>& tokens) {
    std::vector<int32_t> ids;
    for (const std::string& token : tokens) ids.push_back(words->id(token).value());
    return end_of(words, ids, {"stop"});
  };
  CHECK(end({"a", "st", "##op", "a"}) == 3);
  CHECK(end({"st", "##opper", "a"}) == 2);
  CHECK(end({"a", "las", "##topper"}) == 3);
  CHECK(end({"st", "a", "##op"}) == 0);
  CHECK_FALSE(words->id("stop"));
}

}  // namespace shardline::stop_texts_test
