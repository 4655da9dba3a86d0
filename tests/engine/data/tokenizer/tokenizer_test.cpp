#include "engine/data/tokenizer/tokenizer.h"

#include <nlohmann/json.hpp>
#include <thread>

#include "core/error.h"
#include "tests/engine/data/temp_folder.h"

#include "tests/catch.h"

namespace shardline::tokenizer_test {

using nlohmann::json;

namespace {

const std::string kGolden = std::string(SHARDLINE_DATA_TESTS) + "/golden/";

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

void check_vectors(const Tokenizer& tokenizer, const std::string& vectors) {
  const json rows = json::parse(read_file(kGolden + vectors));
  REQUIRE(rows.size() > 35);
  for (const json& row : rows) {
    INFO(row["decoded"].get<std::string>());
    const auto ids = tokenizer.encode(from_hex(row["hex"]));
    CHECK(ids == row["ids"].get<std::vector<int32_t>>());
    CHECK(tokenizer.decode(ids) == row["decoded"].get<std::string>());
  }
}

// The tokenizer.json for a case in options.json.
json shape_of(const json& option) {
  json shape = json::parse(read_file(kGolden + option["base"].get<std::string>() + "/tokenizer.json"));
  for (const auto& [key, value] : option["changes"].items()) {
    if (key == "model") {
      shape["model"].update(value);
    } else if (key != "lost") {
      shape[key] = value;
    }
  }
  for (const json& lost : option["changes"].value("lost", json::array())) {
    const auto has_it = [&](const std::string& text) {
      return text.find(lost.get<std::string>()) != std::string::npos;
    };
    json kept = json::object();
    for (const auto& [token, id] : shape["model"]["vocab"].items()) {
      if (!has_it(token)) kept[token] = id;
    }
    shape["model"]["vocab"] = kept;
    json merges = json::array();
    for (const json& merge : shape["model"]["merges"]) {
      if (!has_it(merge.get<std::string>())) merges.push_back(merge);
    }
    shape["model"]["merges"] = merges;
  }
  return shape;
}

json gpt2_json() {
  return json::parse(read_file(kGolden + "gpt2/tokenizer.json"));
}

std::string refusal(const json& content) {
  const TempFolder folder;
  const std::string file = folder.write("tokenizer.json", content.dump());
  return message_of<DataError>([&] { load_tokenizer(file); });
}

}  // namespace

TEST_CASE("a tokenizer.json gives the ids of the reference library") {
  check_vectors(*load_tokenizer(kGolden + "gpt2"), "gpt2.json");
  check_vectors(*load_tokenizer(kGolden + "gpt2/tokenizer.json"), "gpt2.json");
}

TEST_CASE("vocab.json and merges.txt give the same ids as the tokenizer.json of the same tokenizer") {
  const auto tokenizer = load_tokenizer(kGolden + "pair");
  check_vectors(*tokenizer, "gpt2.json");
  CHECK(tokenizer->vocab_size() == load_tokenizer(kGolden + "gpt2")->vocab_size());
  CHECK(tokenizer->eos() == 0);
}

TEST_CASE("a split pattern, merges as pairs and ignore_merges work, and a template adds nothing") {
  check_vectors(*load_tokenizer(kGolden + "llama3"), "llama3.json");
}

TEST_CASE("every option that is accepted gives the ids of the reference library") {
  const json options = json::parse(read_file(kGolden + "options.json"));
  REQUIRE(options.size() > 15);
  const TempFolder folder;
  for (const json& option : options) {
    INFO(option["name"].get<std::string>());
    const auto tokenizer = load_tokenizer(folder.write("tokenizer.json", shape_of(option).dump()));
    REQUIRE(option["rows"].size() >= 10);
    for (const json& row : option["rows"]) {
      INFO(from_hex(row["hex"]));
      CHECK(tokenizer->encode(from_hex(row["hex"])) == row["ids"].get<std::vector<int32_t>>());
    }
  }
}

TEST_CASE("NFC does not change characters that are newer than the reference library's Unicode 9") {
  json shape = gpt2_json();
  shape["normalizer"] = {{"type", "NFC"}};
  const TempFolder folder;
  const auto tokenizer = load_tokenizer(folder.write("tokenizer.json", shape.dump()));
  for (const char* text : {"\U00011935\U00011930", "e\u1DF6\u0301"}) {  // a composition and a mark's class
    CHECK(tokenizer->decode(tokenizer->encode(text)) == text);
  }
  CHECK(tokenizer->decode(tokenizer->encode("e\u0301")) == "\u00e9");
}

TEST_CASE("<|endoftext|> is special if there are only vocab.json and merges.txt, as in GPT2Tokenizer") {
  const TempFolder folder;
  for (const char* name : {"vocab.json", "merges.txt"}) folder.write(name, read_file(kGolden + "pair/" + name));
  const json options = json::parse(read_file(kGolden + "options.json"));
  const auto check = [&](const Tokenizer& tokenizer) {
    for (const json& row : options[0]["rows"]) {
      CHECK(tokenizer.encode(from_hex(row["hex"])) == row["ids"].get<std::vector<int32_t>>());
    }
  };
  REQUIRE(options[0]["name"] == "vocab.json and merges.txt alone");
  check(*load_tokenizer(folder.path().string()));
  folder.write("tokenizer_config.json", R"({"add_prefix_space": false})");  // does not name the class either
  check(*load_tokenizer(folder.path().string()));
  folder.write("tokenizer_config.json", R"({"eos_token": "the"})");
  const auto other = load_tokenizer(folder.path().string());
  CHECK(other->encode("<|endoftext|>") == std::vector<int32_t>{0});  // bos and unk stay the same
  CHECK(other->encode("the") == std::vector<int32_t>{*other->eos()});
}

TEST_CASE("the end-of-text token is that of tokenizer_config.json, or else <|endoftext|>") {
  CHECK(load_tokenizer(kGolden + "gpt2")->eos() == 0);
  const TempFolder folder;
  folder.write("tokenizer.json", gpt2_json().dump());
  folder.write("tokenizer_config.json", R"({"eos_token": {"content": "<pad>", "lstrip": false}})");
  const auto tokenizer = load_tokenizer(folder.path().string());
  REQUIRE(tokenizer->eos());
  CHECK(tokenizer->decode(std::vector<int32_t>{*tokenizer->eos()}) == "<pad>");
  folder.write("tokenizer_config.json", R"({"eos_token": "<nobody>"})");
  CHECK_THAT(message_of<DataError>([&] { load_tokenizer(folder.path().string()); }), Catch::Contains("<nobody>"));
}

TEST_CASE(
    "BERT's tokenizer classes take options for lower case, accents and Chinese characters from tokenizer_config.json") {
  json vocabulary = json::object();
  int32_t id = 0;
  for (const char* token : {"[UNK]", "caf\u00e9", "cafe", "Caf\u00e9", "Cafe", "\u4f60", "\u597d", "\u4f60\u597d"})
    vocabulary[token] = id++;
  struct Case {
    const char *config, *model_type;
    bool lowercase;  // in tokenizer.json
    const char* tokens;
  };
  const char *lower = "cafe|\u4f60|\u597d|", *cased = "Caf\u00e9|\u4f60|\u597d|";
  for (const Case& one : std::initializer_list<Case>{
           {R"({"tokenizer_class": "BertTokenizer", "do_lower_case": false})", "", true, cased},
           {R"({"tokenizer_class": "DistilBertTokenizer", "do_lower_case": false})", "", true, cased},
           {R"({"tokenizer_class": "BertTokenizerFast", "do_lower_case": true})", "", false, lower},
           {R"({"tokenizer_class": "BertTokenizer"})", "", false, lower},
           {R"({"do_lower_case": false})", "bert", true, cased},
           {R"({"do_lower_case": true})", "distilbert", false, lower},
           {R"({"tokenizer_class": "BertTokenizer", "strip_accents": false})", "", true, "caf\u00e9|\u4f60|\u597d|"},
           {R"({"tokenizer_class": "BertTokenizer", "tokenize_chinese_chars": false})", "", true, "cafe|\u4f60\u597d|"},
           // A class that is not named has no defaults. Other classes use tokenizer.json as it is, and so does a file
           // alone.
           {"", "bert", false, cased},
           {"{}", "bert", false, cased},
           {R"({"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": false})", "bert", true, lower},
           {R"({"tokenizer_class": "TokenizersBackend"})", "bert", false, cased},
           {R"({"do_lower_case": false})", "", true, lower}}) {
    const TempFolder folder;
    if (*one.config) folder.write("tokenizer_config.json", one.config);
    if (*one.model_type) folder.write("config.json", json{{"model_type", one.model_type}}.dump());
    const json shape = {{"model", {{"type", "WordPiece"}, {"unk_token", "[UNK]"}, {"vocab", vocabulary}}},
                        {"normalizer", {{"type", "BertNormalizer"}, {"lowercase", one.lowercase}}},
                        {"pre_tokenizer", {{"type", "BertPreTokenizer"}}}};
    folder.write("tokenizer.json", shape.dump());
    const TokenizerPtr tokenizer = load_tokenizer(folder.path().string());
    std::string tokens;
    for (const int32_t token : tokenizer->encode("Caf\u00e9 \u4f60\u597d")) tokens += tokenizer->token(token) + '|';
    INFO(one.config << ' ' << one.model_type);
    CHECK(tokens == one.tokens);
  }
}

TEST_CASE("tokenizer classes with byte-level BPE take add_prefix_space from tokenizer_config.json") {
  const TokenizerPtr plain = load_tokenizer(kGolden + "gpt2");
  const auto without = plain->encode("the fox"), with = plain->encode(" the fox");
  REQUIRE(without != with);
  struct Case {
    const char* config;
    bool in_file, adds_space;
  };
  for (const Case& one : std::initializer_list<Case>{
           {R"({"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": true})", false, true},
           {R"({"tokenizer_class": "RobertaTokenizer", "add_prefix_space": true})", false, true},
           {R"({"tokenizer_class": "GPT2TokenizerFast"})", true, false},
           {R"({"tokenizer_class": "RobertaTokenizer", "add_prefix_space": false})", true, false},
           {R"({"tokenizer_class": "TokenizersBackend", "add_prefix_space": false})", true, true},
           {"{}", true, true}}) {  // the class that config.json then implies has no defaults
    const TempFolder folder;
    json shape = gpt2_json();
    shape["pre_tokenizer"]["add_prefix_space"] = one.in_file;
    folder.write("tokenizer.json", shape.dump());
    folder.write("tokenizer_config.json", one.config);
    INFO(one.config);
    const TokenizerPtr tokenizer = load_tokenizer(folder.path().string());
    CHECK(tokenizer->encode("the fox") == (one.adds_space ? with : without));
    const std::string before = tokenizer->digest();
    folder.write("config.json", R"({"model_type": "gpt2"})");  // the class if tokenizer_config.json names none
    const TokenizerPtr again = load_tokenizer(folder.path().string());
    CHECK(again->encode("the fox") == tokenizer->encode("the fox"));
    CHECK((again->digest() != before) == (one.config == std::string("{}")));
  }
}

TEST_CASE("tokens that only tokenizer_config.json has are added to those of tokenizer.json, as in transformers") {
  json vocabulary = json::object();
  int32_t next = 0;
  for (const char* token : {"[UNK]", "[MASK]", "a", "b", "<x>", "<", "x", ">"}) vocabulary[token] = next++;
  const json mask = {
      {"id", 1},         {"content", "[MASK]"}, {"lstrip", false}, {"rstrip", false}, {"normalized", false},
      {"special", true}, {"single_word", false}};
  const json shape = {{"model", {{"type", "WordPiece"}, {"unk_token", "[UNK]"}, {"vocab", vocabulary}}},
                      {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
                      {"added_tokens", json::array({mask})}};
  const auto ids_with = [&](const json& config, const char* text) {
    const TempFolder folder;
    folder.write("tokenizer.json", shape.dump());
    folder.write("tokenizer_config.json", config.dump());
    return load_tokenizer(folder.path().string())->encode(text);
  };
  using Ids = std::vector<int32_t>;
  CHECK(ids_with(json::object(), "a<x>b") == Ids{2, 5, 6, 7, 3});
  CHECK(ids_with({{"added_tokens_decoder", {{"8", {{"content", "ab"}}}}}}, "aab") == Ids{2, 8});
  for (const char* key : {"additional_special_tokens", "extra_special_tokens"})
    CHECK(ids_with({{key, {"<y>", {{"content", "<x>"}, {"lstrip", true}}}}}, "a<y><x>") == Ids{2, 8, 4});
  CHECK(ids_with({{"sep_token", "<x>"}}, "a<x>b") == Ids{2, 4, 3});
  CHECK(ids_with({{"pad_token", "<y>"}}, "<y>") == Ids{5, 0, 7});  // it would only enlarge the vocabulary
  // The flags of added_tokens_decoder count; those of a role do not.
  const json spaced = {{"content", "a"}, {"single_word", true}};
  CHECK(ids_with({{"added_tokens_decoder", {{"2", spaced}}}}, "a ab") == Ids{2, 0});
  CHECK(ids_with({{"added_tokens_decoder", {{"1", {{"content", "[MASK]"}, {"single_word", true}}}}}}, "b[MASK]b") ==
        Ids{3, 0, 0, 0, 3});
  CHECK(ids_with({{"mask_token", {{"content", "[MASK]"}, {"single_word", true}}}}, "b[MASK]b") == Ids{3, 1, 3});
  CHECK_THAT(message_of<DataError>([&] {
               ids_with({{"added_tokens_decoder", {{"10", {{"content", "ab"}}}}}}, "ab");
             }),
             Catch::Contains("tokenizer_config.json: 'ab' has id 10, but") && Catch::Contains("imply id 8"));
}

TEST_CASE("the digest changes with the files") {
  const TempFolder folder;
  folder.write("tokenizer.json", gpt2_json().dump());
  const std::string before = load_tokenizer(folder.path().string())->digest();
  CHECK(before == load_tokenizer(folder.path().string())->digest());
  folder.write("tokenizer_config.json", "{}");
  CHECK(before != load_tokenizer(folder.path().string())->digest());
  CHECK(before != load_tokenizer("bytes")->digest());
}

TEST_CASE("bytes: every byte is its id") {
  const auto tokenizer = load_tokenizer("bytes");
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  const auto ids = tokenizer->encode(all);
  REQUIRE(ids.size() == 256);
  for (int byte = 0; byte < 256; ++byte) CHECK(ids[byte] == byte);
  CHECK(tokenizer->vocab_size() == 256);
  CHECK_FALSE(tokenizer->eos());
  CHECK(tokenizer->decode(std::vector<int32_t>{72, 105, 0xE2, 0x82, 0xAC, 0xFF, 300, -1}) == "Hi\u20AC\uFFFD");
}

TEST_CASE("a token is found by its spelling in the vocabulary") {
  for (const std::string& source : {std::string("bytes"), kGolden + "gpt2", kGolden + "examples/bert"}) {
    INFO(source);
    const TokenizerPtr tokenizer = load_tokenizer(source);
    for (int32_t id = 0; id < tokenizer->vocab_size(); ++id)
      if (const std::string token = tokenizer->token(id); !token.empty()) REQUIRE(tokenizer->id(token) == id);
    CHECK_FALSE(tokenizer->id("no such token"));
    CHECK_FALSE(tokenizer->id(""));
  }
}

TEST_CASE("threads that share a tokenizer, and tokenizers that share a thread, do not disturb each other") {
  const auto gpt2 = load_tokenizer(kGolden + "gpt2");
  const auto llama3 = load_tokenizer(kGolden + "llama3");
  const std::string text = read_file(std::string(SHARDLINE_DATA_TESTS) + "/make_golden.py");
  const auto expected = gpt2->encode(text);
  const auto expected_llama3 = llama3->encode(text);
  std::vector<int> good(4);
  {
    std::vector<std::jthread> threads;
    for (int& result : good) {
      threads.emplace_back([&] {
        for (int i = 0; i < 5; ++i) result += gpt2->encode(text) == expected && llama3->encode(text) == expected_llama3;
      });
    }
  }
  for (const int result : good) CHECK(result == 5);
}

TEST_CASE("components that would give other ids are refused, and the error names them") {
  CHECK(refusal(gpt2_json()).empty());
  const auto with = [](const char* pointer, const json& value) {
    json content = gpt2_json();
    content[json::json_pointer(pointer)] = value;
    return refusal(content);
  };
  using Catch::Contains;
  CHECK_THAT(with("/model/type", "WordLevel"), Contains("'WordLevel' is not supported") && Contains("/model"));
  CHECK_THAT(with("/model/dropout", 0.1), Contains("dropout"));
  CHECK_THAT(with("/model/byte_fallback", true), Contains("byte_fallback"));
  CHECK_THAT(with("/model/end_of_word_suffix", "</w>"), Contains("end_of_word_suffix"));
  CHECK_THAT(with("/model/unk_token", "<gone>"), Contains("<gone>"));
  CHECK_THAT(with("/model/merges/0", "a"), Contains("/model/merges/0"));
  CHECK_THAT(with("/model/merges/0", "\u20ac b"), Contains("part of a merge"));
  CHECK_THAT(with("/model/vocab/new", 3.5), Contains("/model/vocab/new"));
  CHECK_THAT(with("/model/vocab/new", 7), Contains("two tokens"));
  for (const char* type : {"Nmt", "ByteLevel", "Unknown"}) {
    const json normalizer = {{"type", type}};
    CHECK_THAT(with("/normalizer", normalizer), Contains(cat("'", type, "' is not supported")));
    CHECK_THAT(with("/normalizer", json{{"type", "Sequence"}, {"normalizers", {normalizer}}}),
               Contains(cat("'", type, "' is not supported")) && Contains("/normalizer"));
  }
  for (const char* type : {"CharDelimiterSplit", "UnicodeScripts", "FixedLength"}) {
    CHECK_THAT(with("/pre_tokenizer", json{{"type", type}}), Contains(cat("'", type, "' is not supported")));
  }
  const auto split = [](const json& pattern, const char* behavior) {
    return json{{"type", "Split"}, {"pattern", pattern}, {"behavior", behavior}, {"invert", false}};
  };
  CHECK_THAT(with("/pre_tokenizer", split({{"String", " "}}, "Sideways")),
             Contains("Sideways") && Contains("Contiguous"));
  CHECK_THAT(with("/pre_tokenizer", split({{"Regex", "a*"}}, "Contiguous")), Contains("empty string"));
  const json metaspace = {{"type", "Metaspace"}, {"replacement", "__"}};
  CHECK_THAT(with("/pre_tokenizer", metaspace), Contains("one character"));
  const json after_bytes = {{"type", "Sequence"}, {"pretokenizers", {{{"type", "ByteLevel"}}, {{"type", "Digits"}}}}};
  CHECK_THAT(with("/pre_tokenizer", after_bytes), Contains("ByteLevel"));
  CHECK_THAT(with("/post_processor", json{{"type", "Unknown"}}), Contains("'Unknown' is not supported"));
  CHECK_THAT(with("/post_processor", json{{"type", "BertProcessing"}, {"cls", {"a", 1}}, {"sep", {"b", 70000}}}),
             Contains("70000"));
  CHECK_THAT(with("/decoder", json{{"type", "CTC"}}), Contains("'CTC' is not supported") && Contains("/decoder"));
  CHECK_THAT(with("/added_tokens/1/id", 5000), Contains("has id 5000"));
}

TEST_CASE("split patterns with another meaning in Oniguruma are refused, with the construct") {
  for (const auto& [pattern, construct] :
       std::vector<std::pair<std::string, std::string>>{{"\\w+", "\\w"},
                                                        {"a\\b", "\\b"},
                                                        {"\\h", "\\h"},
                                                        {"^a", "^"},
                                                        {"a$", "$"},
                                                        {"\\p{Han}+", "\\p{Han}"},
                                                        {"[a-z&&[^b]]", "&&"},
                                                        {"[^\\S]", "\\S"},
                                                        {"(?m:.)", "(?m:"},
                                                        {"(?<name>a)", "(?<n"},
                                                        {"a{,3}", "{,"},
                                                        {"(*ACCEPT)a", "(*"},
                                                        {std::string(5000, 'a'), "5000 bytes"},
                                                        {"(a", "not valid"},
                                                        {"\\", "\\"}}) {
    json content = json::parse(read_file(kGolden + "llama3/tokenizer.json"));
    content["/pre_tokenizer/pretokenizers/0/pattern/Regex"_json_pointer] = pattern;
    CHECK_THAT(refusal(content), Catch::Contains(construct));
  }
}

TEST_CASE("a byte without a token is an error, not dropped") {
  json content = gpt2_json();
  content["model"]["vocab"].erase("~");
  content["model"]["merges"] = json::array();
  content["added_tokens"] = json::array();
  const TempFolder folder;
  const auto tokenizer = load_tokenizer(folder.write("tokenizer.json", content.dump()));
  CHECK_NOTHROW(tokenizer->encode("fine"));
  CHECK_THAT(message_of<DataError>([&] { tokenizer->encode("a~b"); }), Catch::Contains("126"));
}

TEST_CASE("the error about a folder without a tokenizer lists the files that were looked for") {
  const TempFolder folder;
  const auto message = [&] { return message_of<DataError>([&] { load_tokenizer(folder.path().string()); }); };
  CHECK_THAT(message(), Catch::Contains("tokenizer.json") && Catch::Contains("merges.txt"));
  folder.write("tokenizer.model", "");
  CHECK_THAT(message(), Catch::Contains("tokenizer.model"));
  CHECK_THAT(message_of<DataError>([] { load_tokenizer("/nowhere"); }), Catch::Contains("/nowhere"));
  CHECK_THAT(refusal(json::array()), Catch::Contains("must hold a JSON object"));
}

TEST_CASE("very long words take about linear time") {
  const auto tokenizer = load_tokenizer(kGolden + "gpt2");
  const std::string word(2'000'000, 'a');
  CHECK(tokenizer->decode(tokenizer->encode(word)) == word);
  const std::string spaces = std::string(2'000'000, ' ') + "x";
  CHECK(tokenizer->decode(tokenizer->encode(spaces)) == spaces);
}

}  // namespace shardline::tokenizer_test
