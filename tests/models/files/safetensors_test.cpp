#include "models/files/safetensors.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/sum.h>
#include <sys/stat.h>

#include <random>

#include "tests/models/files/files.h"
#include "tests/models/golden.h"

#include "tests/catch.h"

namespace shardline::safetensors_test {

using Catch::Contains;

namespace {

// Opens the bytes as a file and accesses everything in it.
std::string open_and_read(const std::string& path, const std::string& bytes) {
  put(path, bytes);
  return message_of<DataError>([&] {
    const SafetensorsFile file(path);
    for (const auto& [name, entry] : file.tensors()) (void)file.tensor(name).to(at::kDouble).sum();
  });
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

}  // namespace

TEST_CASE("every dtype of the reference is read", "[safetensors]") {
  const SafetensorsFile file(golden("all_dtypes.safetensors"));
  CHECK(file.tensors().size() == 12);
  const auto counted = [](at::ScalarType dtype, at::IntArrayRef shape) {
    return at::arange(-3, c10::multiply_integers(shape) - 3, at::kDouble).view(shape).to(dtype);
  };
  CHECK(at::equal(file.tensor("f64"), counted(at::kDouble, {2, 3})));
  CHECK(at::equal(file.tensor("f32"), counted(at::kFloat, {3})));
  CHECK(at::equal(file.tensor("f16"), counted(at::kHalf, {5})));
  CHECK(at::equal(file.tensor("bf16"), counted(at::kBFloat16, {2, 2})));
  CHECK(at::equal(file.tensor("i64"), counted(at::kLong, {2})));
  CHECK(at::equal(file.tensor("i32"), counted(at::kInt, {3})));
  CHECK(at::equal(file.tensor("i16"), counted(at::kShort, {3})));
  CHECK(at::equal(file.tensor("i8"), counted(at::kChar, {5})));
  CHECK(at::equal(file.tensor("u8"), at::arange(3, at::kByte)));
  CHECK(file.tensor("bool").dtype() == at::kBool);
  CHECK(file.tensor("bool").sum().item<int64_t>() == 2);
  CHECK(file.tensor("scalar").dim() == 0);
  CHECK(file.tensor("scalar").item<float>() == 0.5f);
  CHECK(file.tensor("empty").sizes() == at::IntArrayRef({0, 4}));
}

TEST_CASE("a tensor is a view of the file and keeps it mapped", "[safetensors]") {
  const ScratchDirectory scratch;
  put(scratch / "a", safetensors_bytes("{" + entry("x", "U8", "[4]", "[0,4]") + "}", "abcd"));
  at::Tensor x, again;
  {
    const SafetensorsFile file(scratch / "a");
    x = file.tensor("x");
    again = file.tensor("x");
  }
  CHECK(x.data_ptr() == again.data_ptr());
  CHECK(x[3].item<int>() == 'd');
}

TEST_CASE("a tensor at an odd place of the file is copied", "[safetensors]") {
  const ScratchDirectory scratch;
  std::string header = "{" + entry("byte", "U8", "[1]", "[0,1]") + "," + entry("x", "F64", "[1]", "[1,9]") + "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const double value = 2.5;
  put(scratch / "a", safetensors_bytes(header, "z" + std::string(reinterpret_cast<const char*>(&value), 8)));
  const auto x = SafetensorsFile(scratch / "a").tensor("x");
  CHECK(reinterpret_cast<uintptr_t>(x.data_ptr()) % 8 == 0);
  CHECK(x.item<double>() == 2.5);
}

TEST_CASE("each wrong entry of a header is refused by name", "[safetensors]") {
  const ScratchDirectory scratch;
  const std::string path = scratch / "liar.safetensors", data(8, 'x');
  const auto lie = [&](const std::string& entries) {
    const auto message = open_and_read(path, safetensors_bytes("{" + entries + "}", data));
    CHECK_THAT(message, Contains(path));
    return message;
  };
  const std::string good = entry("a", "F32", "[2]", "[0,8]");
  REQUIRE(open_and_read(path, safetensors_bytes("{" + good + "}  ", data)).empty());

  CHECK_THAT(lie(entry("a", "F32", "[3]", "[0,8]")), Contains("tensor a") && Contains("span 8 bytes, but shape [3]"));
  CHECK_THAT(lie(entry("a", "F32", "[4]", "[0,16]")), Contains("must lie in the data, which has 8 bytes"));
  CHECK_THAT(lie(entry("a", "F32", "[2]", "[8,0]")), Contains("must lie in the data"));
  CHECK_THAT(lie(entry("a", "F32", "[2]", "[0,18446744073709551615]")), Contains("integers from 0"));
  CHECK_THAT(lie(entry("a", "F32", "[2]", "[0]")), Contains("must be [begin, end]"));
  CHECK_THAT(lie(entry("a", "F32", "[-2]", "[0,8]")), Contains("shape must hold integers from 0") && Contains("-2"));
  CHECK_THAT(lie(entry("a", "F32", "[2.0]", "[0,8]")), Contains("2.0"));
  CHECK_THAT(lie(entry("a", "F32", "\"2\"", "[0,8]")), Contains("shape must be a list"));
  CHECK_THAT(lie(entry("a", "F32", "[4611686018427387906]", "[0,8]")), Contains("overflow"));
  CHECK_THAT(lie(entry("a", "F32", "[4294967296,4294967296,2]", "[0,8]")), Contains("overflow"));
  CHECK_THAT(lie(entry("a", "F32", "[4294967296,4294967296,0]", "[0,0]")), Contains("overflow"));
  CHECK_THAT(lie(entry("a", "F8_E4M3", "[8]", "[0,8]")), Contains("F64, F32, F16, BF16") && Contains("F8_E4M3"));
  CHECK_THAT(lie(R"("a":{"dtype":"F32","shape":[2]})"), Contains("data_offsets is missing"));
  CHECK_THAT(lie(R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1})"), Contains("unknown key \"x\""));
  CHECK_THAT(lie(R"("a":[])"), Contains("must be an object"));
  CHECK_THAT(lie(R"("__metadata__":{"format":1},)" + good), Contains("__metadata__ may hold only strings"));
  CHECK_THAT(lie(R"("__metadata__":[],)" + good), Contains("__metadata__ must be an object"));
  CHECK_THAT(lie(good + "," + good), Contains("given twice"));
  CHECK_THAT(lie(R"("a":{"dtype":"F32","shape":[2],"shape":[2],"data_offsets":[0,8]})"), Contains("given twice"));
  CHECK_THAT(lie(entry("a", "U8", "[5]", "[0,5]") + "," + entry("b", "U8", "[4]", "[4,8]")), Contains("overlap"));
  CHECK_THAT(lie(entry("a", "U8", "[3]", "[0,3]") + "," + entry("b", "U8", "[4]", "[4,8]")), Contains("leave a gap"));
  CHECK_THAT(lie(entry("a", "U8", "[7]", "[1,8]")), Contains("leave a gap"));
  CHECK_THAT(lie(entry("a", "U8", "[7]", "[0,7]")), Contains("the data has 8 bytes, but its tensors end at 7"));
  CHECK_THAT(lie(entry(std::string(2000, 'n'), "U8", "[8]", "[0,8]")), Contains("at most 1024 bytes"));
  CHECK_THAT(lie(""), Contains("its tensors end at 0"));
}

TEST_CASE("a file that is not a safetensors file is refused", "[safetensors]") {
  const ScratchDirectory scratch;
  const std::string path = scratch / "file";
  CHECK_THAT(open_and_read(path, ""), Contains("at least 8 bytes"));
  CHECK_THAT(open_and_read(path, std::string(8, '\xff')), Contains("the header may have"));
  CHECK_THAT(open_and_read(path, std::string("\x10\0\0\0\0\0\0\0{}", 10)), Contains("has 16 bytes, but only 2 follow"));
  CHECK_THAT(open_and_read(path, safetensors_bytes("", "")), Contains("JSON object"));
  CHECK_THAT(open_and_read(path, safetensors_bytes(" {}", "")), Contains("JSON object"));
  CHECK_THAT(open_and_read(path, safetensors_bytes(std::string("{}\0{", 4), "")), Contains("zero bytes"));
  CHECK_THAT(open_and_read(path, safetensors_bytes("{} x", "")), Contains("not JSON"));
  CHECK_THAT(open_and_read(path, safetensors_bytes("{\"\xff\":1}", "")), Contains("not JSON"));
  CHECK(open_and_read(path, safetensors_bytes("{}", "")).empty());

  std::string deep = "{\"a\":";
  deep += std::string(1'000'000, '[');
  CHECK_THAT(open_and_read(path, safetensors_bytes(deep, "")), Contains("nesting"));

  const auto open = [](const std::string& p) { return message_of<DataError>([&] { SafetensorsFile file(p); }); };
  CHECK_THAT(open(scratch / "absent"), Contains("cannot be opened: No such file"));
  CHECK_THAT(open(scratch.path()), Contains("regular file"));
  REQUIRE(::mkfifo((scratch / "pipe").c_str(), 0600) == 0);
  CHECK_THAT(open(scratch / "pipe"), Contains("regular file"));
}

TEST_CASE("a file that is truncated at any position is an error", "[safetensors]") {
  const ScratchDirectory scratch;
  const auto whole = contents(golden("all_dtypes.safetensors"));
  for (size_t length = 0; length < whole.size(); ++length) {
    INFO("cut to " << length << " bytes");
    REQUIRE_FALSE(open_and_read(scratch / "cut", whole.substr(0, length)).empty());
  }
  CHECK_FALSE(open_and_read(scratch / "longer", whole + "x").empty());
}

TEST_CASE("random damage is an error or a value, never more", "[safetensors]") {
  const ScratchDirectory scratch;
  const auto whole = contents(golden("all_dtypes.safetensors"));
  const size_t head = whole.find("}}") + 2;
  std::mt19937 random(7);
  const auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  const std::string marks = R"({}[],:"0123456789-eE.\ )";
  int refused = 0;
  for (int round = 0; round < 10'000; ++round) {
    auto damaged = whole;
    for (size_t change = 0; change <= below(3); ++change) {
      const size_t at = below(10) ? below(head) : below(8);
      switch (below(5)) {
        case 0:
          damaged[at] = static_cast<char>(below(256));
          break;
        case 1:
          damaged[at] = marks[below(marks.size())];
          break;
        case 2:
          damaged.erase(at, below(8) + 1);
          break;
        case 3:
          damaged.insert(at, damaged.substr(below(head), below(40)));
          break;
        default:
          damaged[at] = static_cast<char>(damaged[at] ^ (1 << below(8)));
      }
    }
    refused += !open_and_read(scratch / "damaged", damaged).empty();
  }
  CHECK(refused > 9'000);
}

}  // namespace shardline::safetensors_test
