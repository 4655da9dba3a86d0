// Damaged files either work or cause one of our errors; they never cause a crash, a hang or absurd memory use. This
// test is meant to be run with address and undefined-behaviour sanitizers, too.
#include <nlohmann/json.hpp>
#include <random>

#include "core/error.h"
#include "engine/data/cache/token_cache.h"
#include "engine/data/source/data_source.h"
#include "engine/data/tokenizer/tokenizer.h"
#include "tests/engine/data/temp_folder.h"

#include "tests/catch.h"

namespace shardline::fuzz_test {

using nlohmann::json;

namespace {

std::string damaged(std::string bytes, std::mt19937& random) {
  for (int changes = 1 + static_cast<int>(random() % 4); changes > 0 && !bytes.empty(); --changes) {
    const size_t at = random() % bytes.size();
    switch (random() % 5) {
      case 0:
        bytes[at] = static_cast<char>(random());
        break;
      case 1:
        bytes.erase(at, 1 + random() % 8);
        break;
      case 2:
        bytes.insert(at, bytes.substr(random() % bytes.size(), random() % 16));
        break;
      case 3:
        bytes.resize(at);
        break;
      default:
        bytes[at] = "\"{}[],:\\0-9etfn\xFF"[random() % 17];
    }
  }
  return bytes;
}

// Replaces, removes or copies a random value below `node`.
void damage(json& node, std::mt19937& random, int depth = 0) {
  const bool deeper = node.is_structured() && !node.empty() && (depth == 0 || random() % 4 != 0);
  if (deeper) {
    auto child = node.begin();
    std::advance(child, random() % node.size());
    if (random() % 8 == 0) {
      node.erase(child);
    } else {
      damage(*child, random, depth + 1);
    }
    return;
  }
  const json values = {
      nullptr,
      true,
      false,
      -1,
      0,
      7,
      1e300,
      18446744073709551615u,
      "",
      "x",
      "ByteLevel",
      "Sequence",
      "NFC",
      "\\p{L}+|",
      "(((",
      "[",
      "(?i:a)*",
      json::array(),
      json::object(),
      json::array({json::array({"a", "b"})}),
      json{{"type", "Split"}, {"pattern", {{"Regex", "(a*)*b|.?"}}}, {"behavior", "Removed"}, {"invert", true}}};
  node = values[random() % values.size()];
}

template <class Call>
bool works(Call&& call) {
  try {
    call();
    return true;
  } catch (const DataError& error) {
    CHECK(std::string(error.what()).size() > 10);
    return false;
  }
}

const std::string kText = "Hello wor\u00e9d 123\n\n  <|endoftext|>word \xff\u3000x <strip> aaaaaaaaaaaaaaaaaaaaaaaa!";

}  // namespace

TEST_CASE("a damaged tokenizer is refused or gives valid ids", "[fuzz]") {
  const TempFolder folder;
  std::mt19937 random(11);
  int good = 0;
  int bad = 0;
  for (const char* name : {"gpt2", "llama3"}) {
    const std::string bytes = read_file(std::string(SHARDLINE_DATA_TESTS) + "/golden/" + name + "/tokenizer.json");
    json content = json::parse(bytes);
    for (json* list : {&content["model"]["merges"]}) {  // short merges, so that damage hits other parts, too
      while (list->size() > 20) list->erase(list->size() - 1);
    }
    for (int round = 0; round < 2000; ++round) {
      std::string text;
      if (round % 10 == 0) {
        text = damaged(bytes, random);
      } else {
        json copy = content;
        json kept = copy["model"]["vocab"];
        if (round % 2 == 0) copy["model"]["vocab"] = nullptr;  // most changes would affect the vocabulary
        damage(copy, random);
        if (round % 2 == 0 && copy.is_object() && copy["model"].is_object()) copy["model"]["vocab"] = std::move(kept);
        text = copy.dump();
      }
      const std::string file = folder.write("tokenizer.json", text);
      const bool fine = works([&] {
        const auto tokenizer = load_tokenizer(file);
        tokenizer->decode(tokenizer->encode(kText));
        tokenizer->encode_part(kText, {.offset = 3}, {.until = 9, .listed_until = 99, .window = 4});
      });
      (fine ? good : bad) += 1;
    }
  }
  CHECK(good > 200);
  CHECK(bad > 200);
}

TEST_CASE("damaged merges.txt and configs next to a vocabulary are refused or give valid ids", "[fuzz]") {
  const TempFolder folder;
  const std::string golden = std::string(SHARDLINE_DATA_TESTS) + "/golden/pair/";
  std::mt19937 random(12);
  for (const char* victim : {"merges.txt", "tokenizer_config.json", "vocab.json"}) {
    for (const char* name : {"merges.txt", "tokenizer_config.json", "vocab.json"})
      folder.write(name, read_file(golden + name));
    for (int round = 0; round < 200; ++round) {
      folder.write(victim, damaged(read_file(golden + victim), random));
      works([&] { load_tokenizer(folder.path().string())->encode(kText); });
    }
  }
}

TEST_CASE("damaged JSONL", "[fuzz]") {
  const TempFolder folder;
  std::mt19937 random(13);
  const std::string lines =
      "{\"text\": \"one \\u20ac\", \"n\": [1, {\"a\": null}]}\n{\"text\": \"two\"}\n\n{\"x\": 1e5, \"text\": \"\"}\n";
  const DataSourceOptions options{load_tokenizer("bytes"), 256, "text", 8};
  for (int round = 0; round < 5000; ++round) {
    const std::string file = folder.write("x.jsonl", damaged(lines, random));
    works([&] {
      const auto source = open_data_source({file, DataFormat::jsonl}, options);
      for (int64_t piece = 0; piece < source->pieces(); ++piece) source->encode(piece);
    });
  }
  const std::string deep = folder.write("deep.jsonl", std::string(1'000'000, '['));
  CHECK_FALSE(works([&] { open_data_source({deep, DataFormat::jsonl}, options)->encode(0); }));
}

TEST_CASE("damaged token files", "[fuzz]") {
  const TempFolder folder;
  std::mt19937 random(14);
  std::string index("MMIDIDX\0\0", 9);
  index += bytes_of(uint64_t{1}, uint8_t{8}, uint64_t{2}, uint64_t{3}, int32_t{3}, int32_t{1}, int64_t{0}, int64_t{6},
                    int64_t{0}, int64_t{1}, int64_t{2});
  const std::string tokens = bytes_of(uint64_t{0x0004000300020001});
  const std::string llmc = bytes_of(std::array<int32_t, 256>{20240520, 1, 4}) + tokens;
  const auto read = [&](const std::string& file) {
    return works([&] {
      const auto source = open_data_source({file, DataFormat::tokens}, {nullptr, 50257});
      for (int64_t piece = 0; piece < source->pieces(); ++piece) source->encode(piece);
    });
  };
  const std::string pair = folder.write("pair.bin", tokens);
  folder.write("pair.idx", index);
  CHECK(read(pair));
  const std::string single = folder.write("single.bin", llmc);
  CHECK(read(single));
  for (int round = 0; round < 5000; ++round) {
    folder.write("pair.idx", damaged(index, random));
    read(pair);
    std::string header = damaged(llmc.substr(0, 16), random);
    folder.write("single.bin", header + llmc.substr(16));
    read(single);
  }
}

TEST_CASE("damaged token caches", "[fuzz]") {
  const TempFolder folder;
  std::mt19937 random(15);
  TokenDataOptions options;
  options.paths = {folder.write("a.txt", "some text of a data set")};
  options.tokenizer = load_tokenizer("bytes");
  options.vocab_size = 256;
  options.cache_folder = folder.path();
  const std::string good = read_file(prepare_token_cache(options));
  for (int round = 0; round < 3000; ++round) {
    const std::string file = folder.write("x.bin", damaged(good, random));
    works([&] {
      const TokenCache cache(file);
      std::vector<int64_t> ids(cache.size());
      cache.read(0, cache.size(), ids.data());
    });
  }
}

}  // namespace shardline::fuzz_test
