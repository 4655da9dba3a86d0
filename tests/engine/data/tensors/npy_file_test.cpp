#include "engine/data/tensors/npy_file.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>

#include "tests/models/files/files.h"

#include "tests/catch.h"

namespace shardline::npy_file_test {
namespace {

using Catch::Contains;

// The header as numpy.save writes it: it ends with a new line, at a multiple of 64 bytes.
std::string npy(std::string header, const std::string& data, int version = 1) {
  const size_t begin = version == 1 ? 10 : 12;
  while ((begin + header.size() + 1) % 64 != 0) header += ' ';
  header += '\n';
  std::string bytes = std::string("\x93NUMPY") + char(version) + '\0';
  for (size_t i = 0; i < begin - 8; ++i) bytes += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return bytes + header + data;
}

std::string header(const std::string& descr, const std::string& shape) {
  return "{'descr': " + descr + ", 'fortran_order': False, 'shape': " + shape + ", }";
}

std::string refusal(const std::string& bytes) {
  const ScratchDirectory scratch;
  put(scratch / "array.npy", bytes);
  return message_of<DataError>([&] { NpyFile(scratch / "array.npy"); });
}

at::Tensor read(const std::string& bytes) {
  const ScratchDirectory scratch;
  put(scratch / "array.npy", bytes);
  return NpyFile(scratch / "array.npy").tensor(kNpyArray).clone();
}

}  // namespace

TEST_CASE("arrays of the usual types and of all versions are read", "[npy]") {
  const std::string one_and_half("\0\0\xc0\x3f", 4), two("\0\0\0\x40", 4);
  for (const int version : {1, 2, 3})
    CHECK(at::equal(read(npy(header("'<f4'", "(1, 2)"), one_and_half + two, version)),
                    at::tensor({1.5f, 2.0f}).view({1, 2})));
  CHECK(at::equal(read(npy(header("'<i8'", "(1,)"), std::string("\xfe\xff\xff\xff\xff\xff\xff\xff", 8))),
                  at::tensor({int64_t{-2}})));
  CHECK(at::equal(read(npy(header("'|u1'", "(2,)"), "\x7f\xff")), at::tensor({127, 255}, at::kByte)));
  CHECK(read(npy(header("'<f8'", "()"), std::string(8, '\0'))).dim() == 0);
  CHECK(read(npy(header("'<f2'", "(0, 3)"), "")).sizes() == at::IntArrayRef({0, 3}));
  CHECK(read(npy("{'shape': (1,), 'fortran_order': False, 'descr': '<i4'}", std::string(4, '\1'))).dtype() == at::kInt);
}

TEST_CASE("other arrays are refused, and the error states the reason", "[npy]") {
  CHECK_THAT(refusal(npy(header("'|O'", "(1,)"), "pickle")), Contains("pickles are not read"));
  CHECK_THAT(refusal(npy(header("[('a', '<f4')]", "(1,)"), "")), Contains("has records with fields"));
  CHECK_THAT(refusal(npy(header("'>f4'", "(1,)"), "abcd")), Contains("elements of the type '>f4'"));
  CHECK_THAT(refusal(npy("{'descr': '<f4', 'fortran_order': True, 'shape': (1,), }", "abcd")),
             Contains("is in Fortran order"));
  CHECK_THAT(refusal(npy(header("'<f4'", "(2,)"), "abcd")), Contains("has 8 bytes, but it has 4"));
  CHECK_THAT(refusal(npy(header("'<f4'", "(2,)"), "abcdefghi")), Contains("has 8 bytes, but it has 9"));
  CHECK_THAT(refusal(npy(header("'<f8'", "(4611686018427387904, 4)"), "")), Contains("overflow 64 bits"));
  CHECK_THAT(refusal(npy(header("'<f8'", "(99999999999999999999,)"), "")), Contains("more than 63 bits"));
  CHECK_THAT(refusal(npy(header("'<f8'", "(-1,)"), "")), Contains("something other than sizes"));
  CHECK_THAT(refusal(npy("{'descr': '<f4', 'shape': (1,), }", "abcd")), Contains("lacks descr"));
  CHECK_THAT(refusal(npy("{'descr': '<f4', 'descr': '<f4', }", "")), Contains("the same key twice"));
  CHECK_THAT(refusal(npy(header("'<f4'", "(1,)") + "x", "abcd")), Contains("continues after the }"));
  CHECK_THAT(refusal(npy("{'descr", "")), Contains("an unterminated string"));
  CHECK_THAT(refusal("\x93NUMPX"), Contains("does not begin with"));
  CHECK_THAT(refusal(std::string("\x93NUMPY\x04\0\0\0", 10)), Contains("version 4"));
  CHECK_THAT(refusal(std::string("\x93NUMPY\x01\0\xff\xff", 10)), Contains("65535 bytes, but 0 follow"));
}

}  // namespace shardline::npy_file_test
