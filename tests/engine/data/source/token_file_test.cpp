#include "engine/data/source/token_file.h"

#include <numeric>

#include "core/error.h"
#include "tests/engine/data/temp_folder.h"

#include "tests/catch.h"

namespace shardline::token_file_test {

using Catch::Contains;
using Ids = std::vector<int32_t>;

namespace {

struct Index {
  std::string magic = std::string("MMIDIDX\0\0", 9);
  uint64_t version = 1;
  uint8_t type = 8;
  std::vector<int32_t> lengths = {3, 0, 2};
  std::vector<int64_t> offsets = {0, 6, 6};
  std::vector<int64_t> bounds = {0, 2, 3};

  std::string bytes() const {
    std::string out =
        magic + bytes_of(version, type, static_cast<uint64_t>(lengths.size()), static_cast<uint64_t>(bounds.size()));
    for (const auto value : lengths) out += bytes_of(value);
    for (const auto value : offsets) out += bytes_of(value);
    for (const auto value : bounds) out += bytes_of(value);
    return out;
  }
};

const std::string kFiveTokens = bytes_of(std::array<uint16_t, 5>{1, 2, 3, 4, 65535});

std::string llmc(int32_t magic, int32_t version, int32_t count) {
  std::array<int32_t, 256> header{magic, version, count};
  return bytes_of(header);
}

std::string open_error(const std::string& path) {
  return message_of<DataError>([&] { TokenFile file(path); });
}

}  // namespace

TEST_CASE("a Megatron pair is read by its index") {
  const TempFolder folder;
  const std::string bin = folder.write("data.bin", kFiveTokens);
  folder.write("data.idx", Index{}.bytes());
  const TokenFile file(bin);
  CHECK(std::string(file.format()) == "Megatron");
  CHECK(file.size() == 5);
  CHECK(file.documents() == 2);
  CHECK(file.read(0, 5, 65536) == Ids{1, 2, 3, 4, 65535});
  CHECK(file.read(3, 1, 65536) == Ids{4});
  CHECK_THAT(message_of<DataError>([&] { file.read(0, 5, 50257); }),
             Contains("token 4 is 65535") && Contains("50257") && Contains("Megatron"));
}

TEST_CASE("a Megatron index may have wider ids and modes") {
  const TempFolder folder;
  Index index{.type = 4, .lengths = {2}, .offsets = {0}, .bounds = {0, 1}};
  folder.write("data.idx", index.bytes() + '\1');
  const std::string bin = folder.write("data.bin", bytes_of(int32_t{100000}, int32_t{-1}));
  CHECK(TokenFile(bin).read(0, 1, 200000) == Ids{100000});
  CHECK_THAT(message_of<DataError>([&] { TokenFile(bin).read(0, 2, 200000); }), Contains("token 1 is -1"));
}

TEST_CASE("a Megatron index that does not match its data is refused, and the error gives the numbers") {
  const TempFolder folder;
  const std::string bin = folder.write("data.bin", kFiveTokens);
  const auto with = [&](auto&& change) {
    Index index;
    change(index);
    folder.write("data.idx", index.bytes());
    return open_error(bin);
  };
  CHECK_THAT(with([](Index& i) { i.magic[0] = 'X'; }), Contains("MMIDIDX"));
  CHECK_THAT(with([](Index& i) { i.version = 2; }), Contains("version 2"));
  CHECK_THAT(with([](Index& i) { i.type = 7; }), Contains("type 7"));
  CHECK_THAT(with([](Index& i) { i.lengths[0] = 4; }), Contains("sequence 1"));
  CHECK_THAT(with([](Index& i) { i.lengths[0] = -1; }), Contains("length -1"));
  CHECK_THAT(with([](Index& i) { i.lengths[2] = 3; }), Contains("12 bytes") && Contains("has 10"));
  CHECK_THAT(with([](Index& i) { i.offsets[2] = INT64_MAX; }), Contains("sequence 2"));
  CHECK_THAT(with([](Index& i) { i.bounds = {1, 3}; }), Contains("bound 0"));
  CHECK_THAT(with([](Index& i) { i.bounds = {0, 4}; }), Contains("bound 1 is 4"));
  CHECK_THAT(with([](Index& i) { i.bounds = {0, 2}; }), Contains("end at sequence 2 of 3"));
  CHECK_THAT(with([](Index& i) { i.lengths.pop_back(); }), Contains("bytes, but"));

  std::string huge = Index{}.bytes();
  const auto count = bytes_of(uint64_t{1} << 62);
  huge.replace(18, 8, count);
  folder.write("data.idx", huge);
  CHECK_THAT(open_error(bin), Contains("more than"));
  folder.write("data.idx", "MMIDIDX");
  CHECK_THAT(open_error(bin), Contains("at least 34"));
}

TEST_CASE("llm.c files of both magics are read") {
  const TempFolder folder;
  const TokenFile gpt2(folder.write("gpt2.bin", llmc(20240520, 1, 5) + kFiveTokens));
  CHECK(gpt2.read(0, 5, 65536) == Ids{1, 2, 3, 4, 65535});
  const TokenFile llama(folder.write("llama.bin", llmc(20240801, 7, 2) + bytes_of(uint32_t{128000}, uint32_t{9})));
  CHECK(llama.read(0, 2, 128256) == Ids{128000, 9});
  const TokenFile wide(folder.write("wide.bin", llmc(20240801, 7, 1) + bytes_of(UINT32_MAX)));
  CHECK_THAT(message_of<DataError>([&] { wide.read(0, 1, 128256); }), Contains("4294967295"));

  CHECK_THAT(open_error(folder.write("a.bin", llmc(20240520, 2, 5) + kFiveTokens)), Contains("version 2"));
  CHECK_THAT(open_error(folder.write("b.bin", llmc(20240520, 1, 6) + kFiveTokens)), Contains("6 tokens"));
  CHECK_THAT(open_error(folder.write("c.bin", llmc(20240520, 1, -1) + kFiveTokens)), Contains("-1 tokens"));
  CHECK_THAT(open_error(folder.write("d.bin", bytes_of(20240520, 1, 0))), Contains("begins with 1024"));
}

TEST_CASE("any other file is read as nanoGPT's raw u16") {
  const TempFolder folder;
  const TokenFile file(folder.write("train.bin", kFiveTokens));
  CHECK(std::string(file.format()) == "raw u16");
  CHECK(file.documents() == 1);
  CHECK(file.read(1, 4, 65536) == Ids{2, 3, 4, 65535});
  CHECK_THAT(open_error(folder.write("odd.bin", "abc")), Contains("3 bytes, an odd number"));
  CHECK_THAT(message_of<DataError>([&] { file.read(0, 5, 300); }), Contains("token 4") && Contains("raw u16"));
}

}  // namespace shardline::token_file_test
