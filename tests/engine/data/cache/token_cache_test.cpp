#include "engine/data/cache/token_cache.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/error.h"
#include "engine/data/cache/document_ends.h"
#include "engine/data/cache/file_lock.h"
#include "engine/data/cache/ordered_work.h"
#include "engine/data/cache/partial_file.h"
#include "engine/data/cache/token_cache_header.h"
#include "engine/data/source/data_source.h"
#include "tests/engine/data/temp_folder.h"

#include "tests/catch.h"

namespace shardline::token_cache_test {

using Catch::Contains;

namespace {

TokenDataOptions options_for(const TempFolder& folder, std::vector<std::string> paths) {
  TokenDataOptions options;
  options.paths = std::move(paths);
  options.tokenizer = load_tokenizer("bytes");
  options.vocab_size = 256;
  options.cache_folder = folder.path() / "cache/deep";
  return options;
}

std::string text_of(const TokenCache& cache) {
  std::vector<int64_t> ids(cache.size());
  cache.read(0, cache.size(), ids.data());
  return {ids.begin(), ids.end()};
}

// Returns the documents of the cache for these options.
std::vector<std::string> documents_of(const TokenDataOptions& options) {
  const auto cache = open_token_cache(prepare_token_cache(options));
  const DocumentEnds ends(*cache);
  std::vector<std::string> documents;
  for (int64_t i = 0; i < ends.documents(); ++i) {
    std::vector<int64_t> ids(ends.end(i) - ends.begin(i));
    cache->read(ends.begin(i), std::ssize(ids), ids.data());
    documents.push_back(options.tokenizer->decode(std::vector<int32_t>(ids.begin(), ids.end())));
  }
  return documents;
}

class CountingTokenizer final : public Tokenizer {
 public:
  explicit CountingTokenizer(TokenizerPtr tokenizer) : tokenizer_(std::move(tokenizer)) {}

  std::vector<int32_t> encode(std::string_view text) const override { return encode_part(text, {}, {}).ids; }
  EncodedPart encode_part(std::string_view text, const Seam& from, const PartOptions& options) const override {
    most_at_once = std::max(most_at_once.load(), ++at_once);
    EncodedPart part = tokenizer_->encode_part(text, from, options);
    --at_once;
    bytes += static_cast<int64_t>(part.end.offset - std::max(from.offset, options.listed_from));
    return part;
  }
  std::string decode(std::span<const int32_t> ids) const override { return tokenizer_->decode(ids); }
  std::string token(int32_t id) const override { return tokenizer_->token(id); }
  std::optional<int32_t> id(std::string_view token) const override { return tokenizer_->id(token); }
  std::string joined(std::vector<std::string> tokens) const override { return tokenizer_->joined(std::move(tokens)); }
  bool marks_continuations() const override { return tokenizer_->marks_continuations(); }
  bool is_special(int32_t id) const override { return tokenizer_->is_special(id); }
  int64_t vocab_size() const override { return tokenizer_->vocab_size(); }
  std::vector<Encoding> encode_example(const TextOrWords& first, const TextOrWords* second,
                                       const ExampleOptions& options) const override {
    return tokenizer_->encode_example(first, second, options);
  }
  std::optional<int32_t> special(SpecialToken role) const override { return tokenizer_->special(role); }
  const std::string& digest() const override { return tokenizer_->digest(); }

  mutable std::atomic<int64_t> bytes{0};
  mutable std::atomic<int> at_once{0}, most_at_once{0};

 private:
  TokenizerPtr tokenizer_;
};

// The memory of this process, without mapped files.
int64_t own_memory_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) return 1024 * std::stoll(line.substr(8));
  }
  return -1;
}

int files_in(const std::filesystem::path& folder) {
  return static_cast<int>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

}  // namespace

TEST_CASE("the cache holds all documents in order and is found again") {
  const TempFolder folder;
  auto options = options_for(folder, {folder.write("b.txt", "second "), folder.write("a.txt", "first")});
  const auto path = prepare_token_cache(options);
  const auto cache = open_token_cache(path);
  CHECK(text_of(*cache) == "second first");
  CHECK(cache->documents() == 2);
  CHECK(cache->is_intact());
  CHECK(std::filesystem::file_size(path) == 128 + 2 * 12);
  const auto written = std::filesystem::last_write_time(path);
  CHECK(prepare_token_cache(options) == path);
  CHECK(std::filesystem::last_write_time(path) == written);
  CHECK(files_in(options.cache_folder) == 3);  // also the ends of documents and the lock
  const DocumentEnds ends(*cache);
  CHECK(ends.documents() == 2);
  CHECK(ends.end(0) == 7);
  CHECK(ends.begin(1) == 7);
  CHECK(ends.end(1) == 12);
  CHECK(ends.document_of(6) == 0);
  CHECK(ends.document_of(7) == 1);
}

TEST_CASE("a document ends with its row, its file or an end-of-text token, and no document is empty") {
  const TempFolder folder;
  auto options = options_for(folder, {folder.write("a.jsonl", R"({"text": "one"}
{"text": ""}
{"text": "three<|endoftext|>"}
{"text": "<|endoftext|>two<|endoftext|><|endoftext|>"})"),
                                      folder.write("b.txt", "end")});
  options.tokenizer = load_tokenizer(SHARDLINE_DATA_TESTS "/golden/gpt2");
  options.vocab_size = options.tokenizer->vocab_size();
  const auto eos = options.tokenizer->eos();
  REQUIRE(eos);
  CHECK(documents_of(options) == std::vector<std::string>{"one", "three<|endoftext|>", "<|endoftext|>",
                                                          "two<|endoftext|>", "<|endoftext|>", "end"});
  options.end_documents = true;
  CHECK(documents_of(options) == std::vector<std::string>{"one<|endoftext|>", "three<|endoftext|>", "<|endoftext|>",
                                                          "two<|endoftext|>", "<|endoftext|>", "end<|endoftext|>"});
}

TEST_CASE("token files and pieces of a text get an end-of-text token where a document lacks it") {
  const TempFolder folder;
  std::string index("MMIDIDX\0\0", 9);  // sequences of 2, 1 and 3 tokens; the first two form a document
  index += bytes_of(uint64_t{1}, uint8_t{8}, uint64_t{3}, uint64_t{3}, int32_t{2}, int32_t{1}, int32_t{3}, int64_t{0},
                    int64_t{4}, int64_t{6}, int64_t{0}, int64_t{2}, int64_t{3});
  folder.write("x.idx", index);
  const auto tokenizer = load_tokenizer(SHARDLINE_DATA_TESTS "/golden/gpt2");
  const auto eos = static_cast<uint16_t>(tokenizer->eos().value());
  const auto word = [](int i) { return static_cast<uint16_t>(40 + i); };
  std::string text;
  while (text.size() < 3 << 20) text += "a line of some words\n";  // several pieces
  auto options = options_for(folder, {folder.write("x.bin", bytes_of(word(1), word(2), eos, word(3), word(4), word(5))),
                                      folder.write("a.txt", text)});
  options.tokenizer = tokenizer;
  options.vocab_size = tokenizer->vocab_size();
  options.end_documents = true;
  const auto decoded = [&](std::vector<int32_t> ids) { return tokenizer->decode(ids) + "<|endoftext|>"; };
  CHECK(documents_of(options) == std::vector<std::string>{decoded({word(1), word(2)}),
                                                          decoded({word(3), word(4), word(5)}),
                                                          text + "<|endoftext|>"});
}

TEST_CASE("a cache is rebuilt if its file with the ends of documents is missing or damaged") {
  const TempFolder folder;
  const auto options = options_for(folder, {folder.write("b.txt", "second "), folder.write("a.txt", "first")});
  const auto path = prepare_token_cache(options), ends = DocumentEnds::path_of(path);
  const std::string good = read_file(ends);
  std::filesystem::remove(ends);
  CHECK_THROWS_AS(DocumentEnds(TokenCache(path)), DataError);
  prepare_token_cache(options);
  CHECK(read_file(ends) == good);
  for (const std::string& bad : {good.substr(8), good + good, good.substr(8) + good.substr(0, 8), std::string()}) {
    std::ofstream(ends, std::ios::binary | std::ios::trunc) << bad;
    CHECK_THROWS_AS(DocumentEnds(TokenCache(path)), DataError);
    prepare_token_cache(options);
    CHECK(read_file(ends) == good);
  }
}

TEST_CASE("a change of anything that the ids depend on leads to another cache") {
  const TempFolder folder;
  const std::string file = folder.write("a.txt", "{\"text\": \"x\", \"other\": \"y\"}");
  const auto base = prepare_token_cache(options_for(folder, {file}));
  const auto changed = [&](auto&& change) {
    auto options = options_for(folder, {file});
    change(options);
    return prepare_token_cache(options) != base;
  };
  CHECK_FALSE(changed([](auto&) {}));
  CHECK_FALSE(changed([](auto& options) { options.threads = 3; }));
  CHECK(changed([](auto& options) { options.format = DataFormat::jsonl; }));
  CHECK(changed([](auto& options) { options.text_column = "other"; }));
  CHECK(changed([](auto& options) { options.vocab_size = 300; }));
  CHECK(changed([&](auto& options) { options.paths.push_back(file); }));
  const auto use_gpt2 = [](auto& options) {
    options.tokenizer = load_tokenizer(SHARDLINE_DATA_TESTS "/golden/gpt2");
    options.vocab_size = 2000;
  };
  CHECK(changed(use_gpt2));
  auto options = options_for(folder, {file});
  use_gpt2(options);
  const auto with_gpt2 = prepare_token_cache(options);
  options.end_documents = true;
  CHECK(prepare_token_cache(options) != with_gpt2);
  folder.write("a.txt", "{\"text\": \"z\", \"other\": \"y\"}");  // the same size
  CHECK(changed([](auto&) {}));
}

TEST_CASE("a large vocabulary takes four bytes per id") {
  const TempFolder folder;
  std::string index("MMIDIDX\0\0", 9);
  index += bytes_of(uint64_t{1}, uint8_t{4}, uint64_t{1}, uint64_t{2}, int32_t{3}, int64_t{0}, int64_t{0}, int64_t{1});
  folder.write("x.idx", index);
  auto options = options_for(folder, {folder.write("x.bin", bytes_of(int32_t{70000}, int32_t{1}, int32_t{65536}))});
  options.tokenizer = nullptr;
  options.vocab_size = 70001;
  const auto cache = open_token_cache(prepare_token_cache(options));
  std::vector<int64_t> ids(2);
  cache->read(1, 2, ids.data());
  CHECK(ids == std::vector<int64_t>{1, 65536});
  options.vocab_size = 70000;
  CHECK_THAT(message_of<DataError>([&] { prepare_token_cache(options); }),
             Contains("x.bin: token 0 is 70000, outside the vocabulary of 70000") && Contains("Megatron"));
}

TEST_CASE("ids that the model does not have are refused") {
  const TempFolder folder;
  auto options = options_for(folder, {folder.write("a.txt", "ab\xFF")});
  options.vocab_size = 200;
  CHECK_THAT(message_of<DataError>([&] { prepare_token_cache(options); }), Contains("255") && Contains("200"));
  CHECK(files_in(options.cache_folder) == 1);  // only the lock
}

TEST_CASE("an id of a token file that the model does not have is refused with its file and place") {
  const TempFolder folder;
  const auto error = [&](const std::string& bytes) {
    auto options = options_for(folder, {folder.write("good.bin", bytes_of(uint16_t{1})), folder.write("x.bin", bytes)});
    options.tokenizer = nullptr;
    return message_of<DataError>([&] { prepare_token_cache(options); });
  };
  std::vector<uint16_t> ids(3'000'000, 255);  // more than one piece
  ids[2'500'000] = 256;
  const std::string raw(reinterpret_cast<const char*>(ids.data()), 2 * ids.size());
  CHECK_THAT(error(raw), Contains("x.bin: token 2500000 is 256, outside the vocabulary of 256") && Contains("raw u16"));
  const std::array<int32_t, 256> header{20240520, 1, 3'000'000};
  CHECK_THAT(error(bytes_of(header) + raw), Contains("x.bin: token 2500000 is 256") && Contains("llm.c"));
}

TEST_CASE("the number of threads does not change the cache, and progress ends at the total") {
  const TempFolder folder;
  std::string lines;
  for (int i = 0; i < 200000; ++i) lines += "line " + std::to_string(i * 7919) + " of it\n";
  auto options = options_for(folder, {folder.write("a.txt", lines), folder.write("b.txt", lines + lines)});
  options.tokenizer = load_tokenizer(SHARDLINE_DATA_TESTS "/golden/llama3");
  options.vocab_size = options.tokenizer->vocab_size();
  std::vector<int64_t> expected = {};
  for (const int threads : {1, 4}) {
    int64_t last = 0;
    int64_t total = -1;
    int calls = 0;
    options.threads = threads;
    options.progress = [&](int64_t done, int64_t all) {
      CHECK(done > last);
      last = done;
      total = all;
      ++calls;
    };
    const auto path = prepare_token_cache(options);
    CHECK(last == total);
    CHECK(total == static_cast<int64_t>(2 * 3 * lines.size()));  // hashed and tokenized
    CHECK(calls > 8);
    const auto cache = open_token_cache(path);
    std::vector<int64_t> ids(cache->size());
    cache->read(0, cache->size(), ids.data());
    if (expected.empty()) expected = ids;
    CHECK(ids == expected);
    std::filesystem::remove(path);
  }
  auto once = options.tokenizer->encode(lines);
  const auto twice = options.tokenizer->encode(lines + lines);
  once.insert(once.end(), twice.begin(), twice.end());
  CHECK(std::equal(expected.begin(), expected.end(), once.begin(), once.end()));
}

TEST_CASE("tokenizing uses all threads, and memory that does not grow with the text, for any tokenizer") {
  const TempFolder folder;
  std::string text;
  while (text.size() < 40'000'000) {
    for (const char* word :
         {"the ", "quick ", "brown fox", "; it's ", "1234567 ", "\n", "  x", "caf\u00e9 ", "<|endoftext|>"})
      text += word;
  }
  const std::string file = folder.write("a.txt", text);
  auto options = options_for(folder, {file});
  std::string().swap(text);
  nlohmann::json shape = nlohmann::json::parse(read_file(SHARDLINE_DATA_TESTS "/golden/gpt2/tokenizer.json"));
  shape["normalizer"] = {{"type", "NFC"}};
  shape["pre_tokenizer"] = {{"type", "Sequence"},
                            {"pretokenizers",
                             {{{"type", "Split"},
                               {"pattern", {{"Regex", "(?<=x) |\\p{N}{1,2}"}}},
                               {"behavior", "Isolated"},
                               {"invert", false}},
                              {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"use_regex", true}}}}};
  const auto counted =
      std::make_shared<CountingTokenizer>(load_tokenizer(folder.write("tokenizer.json", shape.dump())));
  options.tokenizer = counted;
  options.vocab_size = counted->vocab_size();
  options.threads = 3;
  const int64_t before = own_memory_bytes();
  int64_t most = before;
  options.progress = [&](int64_t, int64_t) { most = std::max(most, own_memory_bytes()); };
  const auto cache = open_token_cache(prepare_token_cache(options));
  CHECK(cache->size() > 20'000'000);
  CHECK(counted->bytes < 42'000'000);  // every piece once; almost no seam was guessed wrong
  CHECK(counted->most_at_once == 3);
  CHECK(most - before < 80'000'000);
}

TEST_CASE("a damaged or truncated cache is detected and rebuilt") {
  const TempFolder folder;
  const auto options = options_for(folder, {folder.write("a.txt", "some text")});
  const auto path = prepare_token_cache(options);
  const std::string good = read_file(path);
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] ^= 1;
    folder.write("cache/deep/" + path.filename().string(), bad);
    if (at < 128) CHECK_THAT(message_of<DataError>([&] { TokenCache cache(path); }), Contains("token cache"));
    prepare_token_cache(options);
    CHECK(read_file(path) == good);
  }
  for (const size_t size : {size_t{0}, size_t{100}, size_t{128}, good.size() - 1}) {
    std::filesystem::resize_file(path, size);
    CHECK_THAT(message_of<DataError>([&] { TokenCache cache(path); }), Contains(std::to_string(size) + " bytes"));
    prepare_token_cache(options);
    CHECK(read_file(path) == good);
  }
  for (const size_t offset : {offsetof(TokenCacheHeader, documents), offsetof(TokenCacheHeader, vocab_size)}) {
    TokenCacheHeader header;
    std::memcpy(&header, good.data(), sizeof header);
    std::memset(reinterpret_cast<char*>(&header) + offset, 0xff, sizeof(uint64_t));
    header.checksum = header.expected_checksum();
    std::string bad = good;
    std::memcpy(bad.data(), &header, sizeof header);
    folder.write("cache/deep/" + path.filename().string(), bad);
    CHECK_THAT(message_of<DataError>([&] { TokenCache cache(path); }), Contains("it has ") && Contains("documents"));
  }
  std::string outside = good;
  outside[129] = 1;  // the high byte of the first id: beyond the vocabulary
  folder.write("cache/deep/" + path.filename().string(), outside);
  const TokenCache cache(path);
  CHECK_FALSE(cache.is_intact());
  CHECK_THAT(message_of<DataError>([&] { text_of(cache); }), Contains("token 0") && Contains("damaged"));
}

TEST_CASE("a full disk is an error and leaves nothing behind") {
  const TempFolder folder;
  const auto options = options_for(folder, {folder.write("a.txt", std::string(100000, 'x'))});
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{50000, old.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string message = message_of<RunError>([&] { prepare_token_cache(options); });
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, old_handler);
  CHECK_THAT(message, Contains("cannot be written") && Contains("cache/deep"));
  CHECK(files_in(options.cache_folder) == 1);
  CHECK(open_token_cache(prepare_token_cache(options))->size() == 100000);
}

TEST_CASE("a cache folder that cannot be created is an error") {
  const TempFolder folder;
  auto options = options_for(folder, {folder.write("a.txt", "x")});
  options.cache_folder = folder.path() / "a.txt" / "below a file";
  CHECK_THAT(message_of<RunError>([&] { prepare_token_cache(options); }), Contains("below a file"));
}

TEST_CASE("if several processes request a cache at the same time, one makes it and all open it") {
  const TempFolder folder;
  const auto options = options_for(folder, {folder.write("a.txt", std::string(3'000'000, 'x'))});
  const auto counted = std::make_shared<CountingTokenizer>(options.tokenizer);
  std::vector<std::filesystem::path> paths(6);
  {
    std::vector<std::jthread> threads;
    for (auto& path : paths) {
      threads.emplace_back([&] {
        auto mine = options;
        mine.tokenizer = counted;
        path = prepare_token_cache(mine);
      });
    }
  }
  CHECK(counted->bytes == 3'000'000);
  for (const auto& path : paths) CHECK(open_token_cache(path)->size() == 3'000'000);
}

TEST_CASE("an existing cache is opened without taking its lock") {
  const TempFolder folder;
  auto options = options_for(folder, {folder.write("a.txt", "x")});
  const auto path = prepare_token_cache(options);
  const FileLock held(path.string() + ".lock", std::chrono::seconds(1), [] { return 0; });
  options.lock_limit = std::chrono::milliseconds(50);
  CHECK(prepare_token_cache(options) == path);
}

TEST_CASE("the time limit for waiting for another process starts again whenever its file grows") {
  const TempFolder folder;
  auto options = options_for(folder, {folder.write("a.txt", "x")});
  const auto path = prepare_token_cache(options);
  std::filesystem::remove(path);
  options.lock_limit = std::chrono::milliseconds(200);
  std::vector<int64_t> seen;
  options.progress = [&](int64_t done, int64_t total) {
    if (total == 0) seen.push_back(done);
  };
  PartialFile others(path, "elsewhere");
  others.append("12345");
  auto held = std::make_unique<FileLock>(path.string() + ".lock", std::chrono::seconds(1), [] { return 0; });
  CHECK_THAT(message_of<RunError>([&] { prepare_token_cache(options); }),
             Contains("no progress for 0.2 s") && Contains(".lock"));
  CHECK(seen == std::vector<int64_t>{5});

  // A process that rereads what it wrote touches the lock, to show that it makes progress.
  std::jthread reader([&, lock = path.string() + ".lock"] {
    for (int i = 0; i < 10; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      std::filesystem::last_write_time(lock, std::filesystem::file_time_type::clock::now());
    }
    held.reset();
  });
  CHECK(prepare_token_cache(options) == path);
  reader.join();
  std::filesystem::remove(path);
  held = std::make_unique<FileLock>(path.string() + ".lock", std::chrono::seconds(1), [] { return 0; });

  std::jthread maker([&] {  // five times as long as the limit
    for (int i = 0; i < 20; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      others.append("12345");
    }
    held.reset();
  });
  CHECK(prepare_token_cache(options) == path);
  CHECK(seen.back() > 50);
}

TEST_CASE("the process that makes a cache updates its lock whenever it progresses, even while it looks for lines") {
  const TempFolder folder;
  const std::string line = "{\"text\": \"" + std::string(1000, 'x') + "\"}\n";
  std::string lines;
  while (lines.size() < size_t{70} << 20) lines += line;
  auto options = options_for(folder, {folder.write("a.jsonl", lines)});
  int at_half = 0;  // where the text is hashed, and again for every 64 MiB of lines
  options.progress = [&](int64_t done, int64_t all) {
    if (done == all / 2 && ++at_half % 2 == 0) throw DistributedError("lines were read");
  };
  const auto said = [&] { return message_of<DistributedError>([&] { prepare_token_cache(options); }); };
  CHECK(said() == "lines were read");
  REQUIRE(files_in(options.cache_folder) == 1);
  const auto lock = std::filesystem::directory_iterator(options.cache_folder)->path();
  REQUIRE(lock.extension() == ".lock");
  const auto before = std::filesystem::last_write_time(lock) - std::chrono::hours(1);
  std::filesystem::last_write_time(lock, before);
  CHECK(said() == "lines were read");
  CHECK(std::filesystem::last_write_time(lock) > before);
}

TEST_CASE("the work of a killed process continues where it last saved, and the cache has the same bits") {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 400'000; ++i) text += "number " + std::to_string(i * 4001) + (i % 7 == 0 ? "\n" : " ");
  auto options = options_for(folder, {folder.write("a.txt", text), folder.write("b.txt", text)});
  options.tokenizer = load_tokenizer(SHARDLINE_DATA_TESTS "/golden/llama3");
  options.vocab_size = options.tokenizer->vocab_size();
  options.threads = 2;
  options.save_every_bytes = 1 << 20;
  const auto total = static_cast<int64_t>(2 * text.size());
  auto elsewhere = options;
  elsewhere.cache_folder = folder.path() / "whole";
  const std::string whole = read_file(prepare_token_cache(elsewhere));

  // Hashing is the first half of the work: the process is killed when three quarters of the text are tokenized.
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    options.progress = [](int64_t done, int64_t all) {
      if (done > all / 8 * 7) ::kill(::getpid(), SIGKILL);
    };
    prepare_token_cache(options);
    ::_exit(1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  REQUIRE(WIFSIGNALED(status));
  CHECK(files_in(options.cache_folder) == 5);  // lock, partial files and their notes

  SECTION("the rest alone is tokenized") {
    const auto counted = std::make_shared<CountingTokenizer>(options.tokenizer);
    options.tokenizer = counted;
    const auto path = prepare_token_cache(options);
    CHECK(counted->bytes < total / 3);
    CHECK(counted->bytes > total / 8);
    CHECK(read_file(path) == whole);
    CHECK(files_in(options.cache_folder) == 3);
  }
  SECTION("what does not have the ids that were noted is made again") {
    for (const auto& entry : std::filesystem::directory_iterator(options.cache_folder)) {
      if (entry.path().extension() == ".note" || entry.path().extension() == ".lock") continue;
      std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(5000);
      file.put('\x7f');
    }
    CHECK(read_file(prepare_token_cache(options)) == whole);
  }
}

TEST_CASE("tokenized text is kept if another rank fails") {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 1'000'000; ++i) text += "line\n";
  auto options = options_for(folder, {folder.write("a.txt", text)});
  options.save_every_bytes = 1 << 20;
  options.progress = [](int64_t done, int64_t all) {
    if (done > all / 8 * 7) throw DistributedError("rank 3 has failed");
  };
  CHECK_THAT(message_of<DistributedError>([&] { prepare_token_cache(options); }), Contains("rank 3"));
  const auto counted = std::make_shared<CountingTokenizer>(options.tokenizer);
  options.tokenizer = counted;
  int at_half = 0;
  options.progress = [&](int64_t done, int64_t all) { at_half += done == all / 2; };
  CHECK(open_token_cache(prepare_token_cache(options))->size() == static_cast<int64_t>(text.size()));
  CHECK(counted->bytes < static_cast<int64_t>(text.size()) / 2);
  CHECK(at_half == 2);  // when the text is hashed, and when what was written is read again
}

TEST_CASE("a folder of empty files is an error") {
  const TempFolder folder;
  folder.write("texts/a.txt", "");
  folder.write("texts/b.txt", "");
  CHECK_THAT(message_of<DataError>([&] { prepare_token_cache(options_for(folder, {folder.path() / "texts"})); }),
             Contains("texts"));
}

TEST_CASE("progress is reported while the lines of a large file are located") {
  const TempFolder folder;
  const std::string line = "{\"text\": \"" + std::string(1000, 'x') + "\"}\n";
  std::string lines;
  while (lines.size() < size_t{200} << 20) lines += line;
  const DataFile file{folder.write("a.jsonl", lines), DataFormat::jsonl};
  int reports = 0;
  open_data_source(file, {.tokenizer = load_tokenizer("bytes"), .vocab_size = 256, .scanned = [&] { ++reports; }});
  CHECK(reports == 3);  // every 64 MiB
}

TEST_CASE("ordered work throws the first error and stops") {
  std::atomic<int> made{0};
  std::vector<int64_t> used;
  const auto make = [&](int64_t i) {
    ++made;
    if (i == 5 || i == 7) throw DataError(cat("piece ", i));
    return EncodedPiece{.part = {.ids = {static_cast<int32_t>(i)}}, .document_ends = {}};
  };
  const auto use = [&](int64_t i, const EncodedPiece& piece) {
    CHECK(piece.part.ids == std::vector<int32_t>{static_cast<int32_t>(i)});
    used.push_back(i);
  };
  CHECK(message_of<DataError>([&] { ordered_work(1000, 4, make, use); }) == "piece 5");
  CHECK(used == std::vector<int64_t>{0, 1, 2, 3, 4});
  CHECK(made < 100);
  CHECK_THROWS_AS(
      ordered_work(
          10, 2, [](int64_t) { return EncodedPiece{}; }, [](int64_t, const EncodedPiece&) { throw RunError("use"); }),
      RunError);
}

}  // namespace shardline::token_cache_test
