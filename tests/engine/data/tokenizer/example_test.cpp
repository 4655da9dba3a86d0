// Encodes examples of one or two texts and compares them with the reference library by the digests that
// compare_examples.py --write makes.
#include <xxhash.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/hex.h"
#include "engine/data/tokenizer/tokenizer.h"
#include "tests/engine/data/example_cases.h"
#include "tests/engine/data/temp_folder.h"

#include "tests/catch.h"

namespace shardline::example_test {

using nlohmann::json;

namespace {

const std::string kGolden = std::string(SHARDLINE_DATA_TESTS) + "/golden/";
constexpr size_t kPerDigest = 500;

ExampleTextMaker text_maker() {
  return ExampleTextMaker(json::parse(read_file(kGolden + "snippets.json")));
}

class Digest {
 public:
  Digest() : state_(XXH3_createState(), XXH3_freeState) { XXH3_64bits_reset(state_.get()); }
  void add(const std::vector<int32_t>& values) {
    const int32_t count = values.size();
    XXH3_64bits_update(state_.get(), &count, sizeof count);
    XXH3_64bits_update(state_.get(), values.data(), values.size() * sizeof values[0]);
  }
  void add(const Encoding& encoding) {
    std::vector<int32_t> begins;
    std::vector<int32_t> ends;
    for (const TextSpan& span : encoding.offsets) {
      begins.push_back(span.begin);
      ends.push_back(span.end);
    }
    for (const auto& values : {encoding.ids, encoding.types, begins, ends, encoding.sequences, encoding.words})
      add(values);
  }
  std::string value() const { return hex_digits(XXH3_64bits_digest(state_.get())); }

 private:
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state_;
};

void check_digests(const Tokenizer& tokenizer, const json& item, bool windows) {
  const ExampleTextMaker texts = text_maker();
  ExampleRandom random(1);
  for (const std::string& expected : item["digests"].get<std::vector<std::string>>()) {
    Digest digest;
    for (size_t i = 0; i < kPerDigest; ++i) {
      RandomExample example(random, texts);
      if (!windows) {
        example.options.windows = false;
        example.options.stride = 0;
      }
      try {
        for (const Encoding& encoding : example.encode(tokenizer)) digest.add(encoding);
      } catch (const DataError&) {
        digest.add({-2});  // the library refuses it, too
      }
    }
    INFO(item["name"].get<std::string>() << "; compare_examples.py finds the first example that differs");
    CHECK(digest.value() == expected);
  }
}

// The tokenizer of a case: the vocabulary of examples/bert with other components around it.
TokenizerPtr with_parts(json shape) {
  const std::string text = read_file(kGolden + "examples/bert/vocab.txt");
  json vocabulary = json::object();
  int32_t id = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    vocabulary[text.substr(begin, end - begin)] = id++;
    begin = end + 1;
  }
  shape["model"] = {{"type", "WordPiece"}, {"unk_token", "[UNK]"}, {"vocab", vocabulary}};
  const TempFolder folder;
  return load_tokenizer(folder.write("tokenizer.json", shape.dump()));
}

TokenizerPtr bert() {
  return load_tokenizer(kGolden + "examples/bert");
}

std::string text_at(const std::string& text, const TextSpan& span) {
  return text.substr(span.begin, span.end - span.begin);
}

}  // namespace

TEST_CASE("examples of each kind of tokenizer equal the reference library's") {
  int kinds = 0;
  int options = 0;
  for (const json& item : json::parse(read_file(kGolden + "examples.json"))) {
    const bool is_option = item.contains("parts");
    const TokenizerPtr tokenizer =
        is_option ? with_parts(item["parts"]) : load_tokenizer(kGolden + "examples/" + item["name"].get<std::string>());
    REQUIRE(item["digests"].size() == (is_option ? 1 : 20));
    check_digests(*tokenizer, item, !is_option);
    ++(is_option ? options : kinds);
  }
  CHECK(kinds == 6);
  CHECK(options >= 30);
}

TEST_CASE("an example has special tokens, types, and the places of its tokens") {
  const TokenizerPtr tokenizer = bert();
  const std::string question = "The Fox's tail?";
  const std::string context = "caf\u00e9 \xff fox";
  const TextOrWords first = std::string_view(question);
  const TextOrWords second = std::string_view(context);
  const std::vector<Encoding> all = tokenizer->encode_example(first, &second, {});
  REQUIRE(all.size() == 1);
  const Encoding& example = all[0];
  const int32_t cls = tokenizer->special(SpecialToken::cls).value();
  const int32_t sep = tokenizer->special(SpecialToken::sep).value();
  CHECK(example.ids.front() == cls);
  CHECK(example.ids.back() == sep);
  CHECK(std::count(example.ids.begin(), example.ids.end(), sep) == 2);
  CHECK(example.is_special(0));
  CHECK(example.words.front() == Encoding::kNone);
  std::string seen;
  for (size_t i = 0; i < example.size(); ++i) {
    if (example.is_special(i)) continue;
    CHECK(example.types[i] == example.sequences[i]);
    seen += text_at(example.sequences[i] == 0 ? question : context, example.offsets[i]) + "|";
  }
  // The damaged byte is U+FFFD, which the normalizer removes.
  std::erase(seen, '|');
  CHECK(seen == "TheFox'stail?caf\u00e9fox");
}

TEST_CASE("special tokens have the ids that the folder states, or those of the usual names") {
  const TokenizerPtr tokenizer = bert();
  CHECK(tokenizer->special(SpecialToken::pad) == 0);
  CHECK(tokenizer->special(SpecialToken::unk) == 1);
  CHECK(tokenizer->special(SpecialToken::mask) == 4);
  CHECK_FALSE(tokenizer->special(SpecialToken::bos));
  const TokenizerPtr roberta = load_tokenizer(kGolden + "examples/roberta");
  CHECK(roberta->special(SpecialToken::cls) == 0);
  CHECK(roberta->special(SpecialToken::eos) == roberta->special(SpecialToken::sep));
}

TEST_CASE("windows overlap by the stride and cover the whole text") {
  const TokenizerPtr tokenizer = bert();
  const std::string text = "one two three four five six seven eight nine ten eleven twelve";
  const TextOrWords first = std::string_view("what");
  const TextOrWords second = std::string_view(text);
  const Encoding whole = tokenizer->encode_example(second, nullptr, {.add_special_tokens = false})[0];
  const ExampleOptions options{.truncation = Truncation::only_second, .max_length = 16, .windows = true, .stride = 3};
  const std::vector<Encoding> windows = tokenizer->encode_example(first, &second, options);
  REQUIRE(windows.size() > 2);
  std::vector<int32_t> ids;
  for (const Encoding& window : windows) {
    CHECK(window.size() <= 16);
    std::vector<int32_t> mine;
    for (size_t i = 0; i < window.size(); ++i) {
      if (window.sequences[i] == 1) mine.push_back(window.ids[i]);
    }
    REQUIRE(mine.size() > 3);
    const size_t common = ids.empty() ? 0 : 3;
    CHECK(std::equal(mine.begin(), mine.begin() + common, ids.end() - common));
    ids.insert(ids.end(), mine.begin() + common, mine.end());
  }
  CHECK(ids == whole.ids);
  const ExampleOptions first_only{.truncation = Truncation::only_second, .max_length = 16};
  CHECK(tokenizer->encode_example(first, &second, first_only).size() == 1);
}

// The tokenizer of examples/bert with additional files.
TokenizerPtr bert_with(const std::map<std::string, json>& files) {
  const TempFolder folder;
  folder.write("vocab.txt", read_file(kGolden + "examples/bert/vocab.txt"));
  for (const auto& [name, content] : files) folder.write(name, content.dump());
  return load_tokenizer(folder.path().string());
}

TEST_CASE("truncation removes tokens from the side that the files specify") {
  // The ids of transformers' BertTokenizer with truncation_side "left".
  const TokenizerPtr left = bert_with({{"tokenizer_config.json", {{"truncation_side", "left"}}}});
  CHECK(left->digest() != bert_with({{"tokenizer_config.json", {{"truncation_side", "right"}}}})->digest());
  const TextOrWords fox = std::string_view("the fox and the dog"),
                    numbers = std::string_view("one two three four five");
  const ExampleOptions longest{.truncation = Truncation::longest_first, .max_length = 6};
  const auto ids_of = [](const Encoding& encoding) { return encoding.ids; };
  CHECK(ids_of(left->encode_example(numbers, nullptr, longest)[0]) == std::vector<int32_t>{2, 212, 48, 735, 221, 3});
  const Encoding pair =
      left->encode_example(fox, &numbers, {.truncation = Truncation::longest_first, .max_length = 9})[0];
  CHECK(pair.ids == std::vector<int32_t>{2, 367, 851, 222, 3, 48, 735, 221, 3});
  CHECK(pair.types == std::vector<int32_t>{0, 0, 0, 0, 0, 1, 1, 1, 1});
  const TextOrWords word = std::string_view("fox");
  const auto windows = left->encode_example(
      word, &numbers, {.truncation = Truncation::only_second, .max_length = 9, .windows = true, .stride = 2});
  REQUIRE(windows.size() == 10);
  CHECK(windows[0].ids == std::vector<int32_t>{2, 48, 211, 225, 3, 48, 735, 221, 3});
  CHECK(windows[0].offsets[5] == TextSpan{19, 20});
  CHECK(windows[9].ids == std::vector<int32_t>{2, 48, 211, 225, 3, 824, 1134, 211, 3});

  const json vocabulary = {{"[UNK]", 0}, {"a", 1}, {"b", 2}, {"c", 3}};
  const json file = {{"model", {{"type", "WordPiece"}, {"unk_token", "[UNK]"}, {"vocab", vocabulary}}},
                     {"pre_tokenizer", {{"type", "Whitespace"}}},
                     {"truncation", {{"direction", "Left"}, {"max_length", 2}}}};
  const TextOrWords letters = std::string_view("a b c");
  const ExampleOptions two{.truncation = Truncation::longest_first, .max_length = 2};
  CHECK(ids_of(bert_with({{"tokenizer.json", file}})->encode_example(letters, nullptr, two)[0]) ==
        std::vector<int32_t>{2, 3});
  const TokenizerPtr right =
      bert_with({{"tokenizer.json", file}, {"tokenizer_config.json", {{"truncation_side", "right"}}}});
  CHECK(ids_of(right->encode_example(letters, nullptr, two)[0]) == std::vector<int32_t>{1, 2});
  CHECK_THAT(message_of<DataError>([&] {
               bert_with({{"tokenizer_config.json", {{"truncation_side", "top"}}}});
             }),
             Catch::Contains("truncation_side") && Catch::Contains("must be \"left\" or \"right\""));
}

TEST_CASE("token types are 0 if transformers passes none to the model") {
  const TextOrWords first = std::string_view("the fox"), second = std::string_view("the dog");
  const auto has_types = [&](const TokenizerPtr& tokenizer) {
    const Encoding pair = tokenizer->encode_example(first, &second, {})[0];
    return std::ranges::count(pair.types, 1) > 0;
  };
  const json names = {"input_ids", "attention_mask"}, all = {"input_ids", "token_type_ids", "attention_mask"};
  CHECK(has_types(bert_with({})));
  CHECK(has_types(bert_with({{"tokenizer_config.json", {{"model_input_names", all}}}})));
  CHECK_FALSE(has_types(bert_with({{"tokenizer_config.json", {{"model_input_names", names}}}})));

  const auto text = [](const char* id, int type) { return json{{"Sequence", {{"id", id}, {"type_id", type}}}}; };
  const json file = {{"model", {{"type", "WordPiece"}, {"unk_token", "the"}, {"vocab", {{"the", 0}, {"fox", 1}}}}},
                     {"pre_tokenizer", {{"type", "Whitespace"}}},
                     {"post_processor",
                      {{"type", "TemplateProcessing"},
                       {"single", {text("A", 0)}},
                       {"pair", {text("A", 0), text("B", 1)}},
                       {"special_tokens", json::object()}}}};
  CHECK(has_types(bert_with({{"tokenizer.json", file}})));
  CHECK(has_types(bert_with({{"tokenizer.json", file}, {"config.json", {{"model_type", "bert"}}}})));
  CHECK_FALSE(has_types(bert_with({{"tokenizer.json", file}, {"config.json", {{"model_type", "roberta"}}}})));
  for (const char* name : {"RobertaTokenizerFast", "TokenizersBackend"})
    CHECK_FALSE(
        has_types(bert_with({{"tokenizer.json", file}, {"tokenizer_config.json", {{"tokenizer_class", name}}}})));
}

TEST_CASE("words passed as a list keep their numbers and have offsets of their own") {
  const std::vector<std::string> words = {"Unbelievable", "", "fox", "it's"};
  const TextOrWords source = std::span<const std::string>(words);
  const Encoding example = bert()->encode_example(source, nullptr, {})[0];
  for (size_t i = 1; i + 1 < example.size(); ++i) {
    const std::string& word = words.at(example.words[i]);
    CHECK(example.offsets[i].end <= word.size());
    CHECK(example.offsets[i].begin < example.offsets[i].end);
  }
  CHECK(std::count(example.words.begin(), example.words.end(), 1) == 0);
  CHECK(std::count(example.words.begin(), example.words.end(), 3) == 3);
}

TEST_CASE("examples that cannot be truncated are refused, and the error gives the numbers") {
  const TokenizerPtr tokenizer = bert();
  const TextOrWords text = std::string_view("one two three four five six seven");
  const TextOrWords none = std::string_view("");
  const auto refusal = [&](const TextOrWords& first, const TextOrWords* second, const ExampleOptions& options) {
    return message_of<DataError>([&] { tokenizer->encode_example(first, second, options); });
  };
  using Catch::Contains;
  CHECK_THAT(refusal(text, nullptr, {.truncation = Truncation::longest_first, .max_length = 1}),
             Contains("1 tokens") && Contains("2 special"));
  CHECK_THAT(refusal(text, nullptr, {.truncation = Truncation::only_second, .max_length = 4}), Contains("only_second"));
  CHECK_THAT(refusal(text, &none, {.truncation = Truncation::only_second, .max_length = 6}), Contains("0 tokens"));
  CHECK_THAT(refusal(text, &text, {.truncation = Truncation::longest_first, .max_length = 6, .windows = true}),
             Contains("only_first or only_second"));
  CHECK_THAT(
      refusal(text, nullptr, {.truncation = Truncation::only_first, .max_length = 6, .windows = true, .stride = 4}),
      Contains("4 tokens") && Contains("stride of 4"));
}

TEST_CASE("a stream of lines can be divided between lines if white space separates words") {
  const TokenizerPtr tokenizer = bert();
  const std::string text = "The fox\nand the [MASK] dog\n\nend";
  const EncodedPart all = tokenizer->encode_part(text, {}, {.listed_until = text.size() + 1});
  CHECK(all.ids == tokenizer->encode(text));
  CHECK(all.listed.size() == 5);
  const EncodedPart part = tokenizer->encode_part(text, {}, {.until = 3});
  CHECK(part.end.offset == 8);
  const TokenizerPtr llama = load_tokenizer(kGolden + "examples/llama");
  CHECK(llama->encode_part(text, {}, {.until = 3}).end.offset == text.size());
  CHECK(llama->encode_part(text, {.offset = 9}, {.until = 20}).ids.empty());
}

TEST_CASE("a JSON file without a tokenizer's model is not a tokenizer.json") {
  const TempFolder folder;
  const auto file = folder.write("config.json", R"({"model_type": "gpt2"})");
  CHECK_THAT(message_of<DataError>([&] { load_tokenizer(file); }),
             Catch::Contains("config.json: is not a tokenizer.json, because it has no \"model\""));
}

TEST_CASE("bytes: each byte is a token of an example") {
  const TokenizerPtr tokenizer = load_tokenizer("bytes");
  const std::vector<std::string> words = {"ab", "c"};
  const TextOrWords source = std::span<const std::string>(words);
  const Encoding example = tokenizer->encode_example(source, nullptr, {})[0];
  CHECK(example.ids == std::vector<int32_t>{'a', 'b', 'c'});
  CHECK(example.words == std::vector<int32_t>{0, 0, 1});
  CHECK(example.offsets[1] == TextSpan{1, 2});
}

TEST_CASE("tokens are decoded to the same text as by the reference library") {
  const auto round = [](const char* name, const std::string& text) {
    const TokenizerPtr tokenizer = load_tokenizer(kGolden + "examples/" + name);
    return tokenizer->decode(tokenizer->encode(text));
  };
  CHECK(round("bert", "The Fox's tail, isn't it?") == "the fox ' s tail, isn ' t it?");
  CHECK(round("roberta", " The  fox \xe2\x82\xac") == " The  fox \u20ac");
  CHECK(round("unigram", "The fox") == "The fox");
  CHECK(round("llama", "The  fox \xf0\x9f\x98\x80") == "The  fox \U0001F600");
}

TEST_CASE("if the files say so, spaces before punctuation are removed from decoded texts, as in transformers") {
  const auto round = [](const std::string& name, bool cleans_up) {
    const TempFolder folder;
    json config;
    for (const auto& file : std::filesystem::directory_iterator(kGolden + "examples/" + name)) {
      const std::string file_name = file.path().filename().string(), content = read_file(file.path().string());
      if (file_name == "tokenizer_config.json") config = json::parse(content);
      folder.write(file_name, content);
    }
    config["clean_up_tokenization_spaces"] = cleans_up;
    folder.write("tokenizer_config.json", config.dump());
    const TokenizerPtr tokenizer = load_tokenizer(folder.path().string());
    return tokenizer->decode(tokenizer->encode("I 'm sure they do not , do n't they ' ll ."));
  };
  CHECK(round("bert", true) == "i'm sure they do not, don't they'll.");
  CHECK(round("bert", false) == "i ' m sure they do not, do n ' t they ' ll.");
  CHECK(round("unigram", true) == "I'm sure they do not, don't they'll.");
  CHECK(round("unigram", false) == "I 'm sure they do not , do n't they ' ll .");
  CHECK(round("roberta", true) == "I 'm sure they do not , do n't they ' ll .");  // BPE keeps its spaces
}

}  // namespace shardline::example_test
