#include "models/files/torch_file.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sum.h>

#include <random>

#include "core/comm/clock.h"
#include "tests/models/files/files.h"
#include "tests/models/files/torch_bytes.h"
#include "tests/models/golden.h"

#include "tests/catch.h"

namespace shardline::torch_file_test {

using Catch::Contains;
using namespace torch_bytes;

namespace {

at::Tensor counted(at::ScalarType dtype, at::IntArrayRef shape) {
  return at::arange(-3, c10::multiply_integers(shape) - 3, at::kDouble).view(shape).to(dtype);
}

// Opens the bytes as a file and accesses everything in it.
std::string open_and_read(const std::string& path, const std::string& bytes) {
  put(path, bytes);
  return message_of<DataError>([&] {
    const TorchFile file(path);
    for (const auto& [name, entry] : file.tensors())
      if (c10::multiply_integers(entry.shape) < 1 << 20) (void)file.tensor(name).to(at::kDouble).sum();
  });
}

const std::string kFour(16, '\1');  // four fp32 numbers

// The error message for an archive with this pickle and two storages of four fp32 numbers.
std::string said_of(const std::string& pickle) {
  const ScratchDirectory scratch;
  return open_and_read(scratch / "pytorch_model.bin", archive(pickle, {kFour, kFour}));
}

std::string said_of_tensor(const std::string& value) {
  return said_of(state_dict("w", value));
}

const std::string kStorage = storage("FloatStorage", "0", 4);

void check_damage(const std::string& name, int least_refused) {
  const ScratchDirectory scratch;
  const auto whole = contents(golden("torch/" + name));
  std::mt19937 random(11);
  const auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  int refused = 0;
  for (int round = 0; round < 2'000; ++round) {
    auto damaged = whole;
    for (size_t change = 0; change <= below(3); ++change) {
      const size_t at = below(damaged.size());
      switch (below(4)) {
        case 0:
          damaged[at] = static_cast<char>(below(256));
          break;
        case 1:
          damaged[at] = static_cast<char>(damaged[at] ^ (1 << below(8)));
          break;
        case 2:
          damaged.erase(at, below(8) + 1);
          break;
        default:
          damaged.insert(at, damaged.substr(below(damaged.size()), below(40)));
      }
    }
    refused += !open_and_read(scratch / "damaged", damaged).empty();
  }
  CHECK(refused > least_refused);
}

}  // namespace

TEST_CASE("every tensor that torch.save writes is read, in both formats and all protocols", "[torch_file]") {
  const std::string format = GENERATE("archive", "older");
  const int protocol = GENERATE(2, 3, 4, 5);
  const std::string name = cat("torch/", format, '_', protocol, ".bin");
  INFO(name);
  const TorchFile file(golden(name));
  CHECK(file.tensors().size() == 19);
  const auto is = [&](const std::string& tensor, const at::Tensor& expected) {
    const auto read = file.tensor(tensor);
    return read.dtype() == expected.dtype() && read.sizes() == expected.sizes() && at::equal(read, expected);
  };
  CHECK(is("f64", counted(at::kDouble, {2, 3})));
  CHECK(is("f32", counted(at::kFloat, {3})));
  CHECK(is("f16", counted(at::kHalf, {5})));
  CHECK(is("bf16", counted(at::kBFloat16, {2, 2})));
  CHECK(is("i64", counted(at::kLong, {2})));
  CHECK(is("i32", counted(at::kInt, {3})));
  CHECK(is("i16", counted(at::kShort, {3})));
  CHECK(is("i8", counted(at::kChar, {5})));
  CHECK(is("u8", at::arange(3, at::kByte)));
  CHECK(is("bool", at::arange(3, at::kInt).remainder(2).eq(0)));
  CHECK(is("scalar", at::full({}, 0.5, at::kFloat)));
  CHECK(is("empty", at::ones({0, 4}, at::kFloat)));
  const auto base = counted(at::kFloat, {4, 6});
  CHECK(is("base", base));
  CHECK(is("part", base.narrow(0, 1, 2).narrow(1, 2, 3)));
  CHECK(is("transposed", base.t()));
  CHECK(is("expanded", counted(at::kFloat, {3}).expand({2, 3})));
  CHECK(is("parameter", counted(at::kFloat, {2, 2})));
  CHECK(is("wte.weight", counted(at::kFloat, {7, 4})));
  CHECK(is("lm_head.weight", counted(at::kFloat, {7, 4})));

  // Tensors that share a storage share its bytes.
  CHECK(file.bytes_of("lm_head.weight").data() == file.bytes_of("wte.weight").data());
  CHECK(file.bytes_of("transposed") == file.bytes_of("base"));
  CHECK(file.bytes_of("part").data() == file.bytes_of("base").data() + 4 * 8);
  CHECK(file.bytes_of("part").size() == 4 * (6 + 3));
  CHECK(file.bytes_of("expanded").size() == 4 * 3);
}

TEST_CASE("a tensor of an archive is a view of the file and keeps it mapped", "[torch_file]") {
  at::Tensor x, again;
  {
    const TorchFile file(golden("torch/archive_2.bin"));
    x = file.tensor("transposed");
    again = file.tensor("base");
  }
  CHECK(x.data_ptr() == again.data_ptr());
  CHECK(at::equal(x.t(), counted(at::kFloat, {4, 6})));
}

TEST_CASE("a tensor that the older format does not align is viewed as bytes", "[torch_file]") {
  const ScratchDirectory scratch;
  const auto value = tensor(storage("FloatStorage", "0", 6), 0, {3, 2}, {1, 3});
  const std::string end = "\x80\x02]" + text("0") + "a." + number_bytes(6, 8);
  std::string data;
  for (int i = 0; i < 6; ++i) {
    const float number = static_cast<float>(i);
    data.append(reinterpret_cast<const char*>(&number), 4);
  }
  int of_bytes = 0;
  for (int padding = 1; padding <= 4; ++padding) {
    const std::string name(padding, 'n');
    put(scratch / "a", older(state_dict(name, value), end + data));
    const TorchFile file(scratch / "a");
    const auto view = file.view(name);
    of_bytes += view.scalar_type() == at::kByte;
    if (view.scalar_type() == at::kByte) CHECK(view.sizes() == at::IntArrayRef({3, 2, 4}));
    CHECK(at::equal(file.tensor(name), at::arange(6, at::kFloat).view({2, 3}).t()));
    CHECK(at::equal(elements_of(view.narrow(0, 1, 2), at::kFloat),
                    at::arange(6, at::kFloat).view({2, 3}).t().narrow(0, 1, 2)));
  }
  CHECK(of_bytes == 3);
}

TEST_CASE("a file of torch.save that is truncated at any position is an error", "[torch_file]") {
  const ScratchDirectory scratch;
  const std::string name = GENERATE("archive_2.bin", "older_4.bin");
  const auto whole = contents(golden("torch/" + name));
  REQUIRE(open_and_read(scratch / "whole", whole).empty());
  for (size_t length = 0; length < whole.size(); ++length) {
    INFO(name << " cut to " << length << " bytes");
    REQUIRE_FALSE(open_and_read(scratch / "cut", whole.substr(0, length)).empty());
  }
  CHECK_FALSE(open_and_read(scratch / "longer", whole + "x").empty());
}

TEST_CASE("random damage of a file of torch.save is an error or a value, never more", "[torch_file]") {
  check_damage("archive_2.bin", 700);
  check_damage("older_4.bin", 1'000);
}

TEST_CASE("a file that torch.save has not written is refused", "[torch_file]") {
  const ScratchDirectory scratch;
  const auto said = [&](const std::string& bytes) { return open_and_read(scratch / "file", bytes); };
  CHECK_THAT(said(""), Contains("is not a file of torch.save"));
  CHECK_THAT(said("{}"), Contains("is not a file of torch.save"));
  CHECK_THAT(said("\x80\x02}."), Contains("is not a file of torch.save"));
  CHECK_THAT(said("\x80\x02K\1."), Contains("is not a file of torch.save"));
  CHECK_THAT(said("PK\3\4"), Contains("must have an end of its central directory"));
  CHECK_THAT(message_of<DataError>([&] { TorchFile file(scratch / "absent"); }), Contains("absent: cannot be opened"));
  CHECK_THAT(message_of<DataError>([&] { TorchFile file(scratch.path()); }), Contains("regular file"));
}

TEST_CASE("a pickle that names or runs anything else is refused by that name", "[torch_file]") {
  REQUIRE(said_of_tensor(tensor(kStorage, 0, {4}, {1})).empty());
  CHECK_THAT(said_of("cos\nsystem\n(" + text("touch owned") + "tR."),
             Contains("names os.system") && Contains("no code of the file is run") && Contains("safetensors"));
  CHECK_THAT(said_of("\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x05owned\x85R."), Contains("names posix.system"));
  CHECK_THAT(said_of_tensor(global("builtins", "eval") + tuple({text("1")}) + "R"), Contains("names builtins.eval"));
  CHECK_THAT(said_of_tensor(global("torch", "load") + tuple({text("1")}) + "R"), Contains("names torch.load"));
  CHECK_THAT(said_of_tensor(global("torch._utils", "_rebuild_tensor_v3") + ")R"), Contains("_rebuild_tensor_v3"));
  CHECK_THAT(said_of_tensor(storage("ComplexFloatStorage", "0", 2)), Contains("names torch.ComplexFloatStorage"));
  CHECK_THAT(said_of_tensor(global("numpy.core.multiarray", "_reconstruct")), Contains("multiarray._reconstruct"));
  CHECK_THAT(said_of_tensor(global("torch._utils._rebuild_tensor_v2", "__globals__")), Contains("__globals__"));
  CHECK_THAT(said_of_tensor(global(std::string(1000, 'm'), "\x1b[31m")), Contains("mmm....?[31m"));
  CHECK_THAT(said_of("(ios\nsystem\n."), Contains("has the opcode INST"));
  CHECK_THAT(said_of("(cos\nsystem\no."), Contains("names os.system"));
  CHECK_THAT(said_of_tensor(ordered_dict() + ")\x81"), Contains("has the opcode NEWOBJ"));
  CHECK_THAT(said_of_tensor("\x82\x01"), Contains("has the opcode EXT1"));
  CHECK_THAT(said_of_tensor("C\x01z"), Contains("has the opcode SHORT_BINBYTES"));
  CHECK_THAT(said_of_tensor("\x97"), Contains("has the opcode NEXT_BUFFER"));
  CHECK_THAT(said_of_tensor("\xff"), Contains("unknown opcode 255"));
  CHECK_THAT(said_of("\x80\x06}."), Contains("has protocol 6; protocols 2 to 5 are read"));
  CHECK_THAT(said_of("\x80\x01}."), Contains("has protocol 1"));

  // Calls of known functions, with other arguments or in other places.
  CHECK_THAT(said_of_tensor(global("collections", "OrderedDict") + tuple({"]"}) + "R"),
             Contains("calls collections.OrderedDict with arguments"));
  CHECK_THAT(said_of_tensor(global("torch", "FloatStorage") + "]R"),
             Contains("the arguments of a call cannot be a list"));
  CHECK_THAT(said_of_tensor(text("os.system") + ")R"), Contains("what is called cannot be \"os.system\""));
  CHECK_THAT(said_of_tensor(global("torch", "FloatStorage") + tuple({integer(4)}) + "R"),
             Contains("tensor w: a tensor cannot be a call of torch.FloatStorage"));
  CHECK_THAT(said_of_tensor("}}b"), Contains("a dict has no attributes"));
  CHECK_THAT(said_of_tensor(ordered_dict() + "Nb"), Contains("attributes cannot be None"));
  CHECK_THAT(said_of_tensor(kStorage + "}b"), Contains("what has attributes cannot be a reference"));
}

TEST_CASE("anything but tensors in a state dict is refused by its kind", "[torch_file]") {
  CHECK_THAT(said_of("\x80\x02]."), Contains("must hold a dict of tensors; got a list"));
  CHECK_THAT(said_of("\x80\x02" + kStorage + "."), Contains("got a reference"));
  CHECK_THAT(said_of_tensor(integer(3)), Contains("tensor w: a tensor cannot be 3"));
  CHECK_THAT(said_of_tensor("\x88"), Contains("a tensor cannot be True"));
  CHECK_THAT(said_of_tensor(ordered_dict()), Contains("a tensor cannot be a dict"));
  CHECK_THAT(said_of_tensor("]"), Contains("a tensor cannot be a list"));
  CHECK_THAT(said_of_tensor(kStorage), Contains("a tensor cannot be a reference"));
  const std::string good = tensor(kStorage, 0, {4}, {1});
  CHECK_THAT(said_of("\x80\x02}K\1" + good + "s."), Contains("names of tensors must be strings") && Contains("got 1"));
  CHECK_THAT(said_of(state_dict("", good)), Contains("names of tensors must be strings"));
  CHECK_THAT(said_of(state_dict("a\nb", good)), Contains("plain characters") && Contains("a?b"));
  CHECK_THAT(said_of(state_dict(std::string(2000, 'n'), good)), Contains("1 to 1024"));
  CHECK_THAT(said_of("\x80\x02}" + text("w") + good + "s" + text("w") + good + "s."),
             Contains("tensor w: occurs twice"));
  CHECK(said_of("\x80\x02}.").empty());
}

TEST_CASE("each wrong statement about a tensor is refused by name", "[torch_file]") {
  const auto lie = [](int64_t offset, std::initializer_list<int64_t> sizes, std::initializer_list<int64_t> strides) {
    return said_of_tensor(tensor(kStorage, offset, sizes, strides));
  };
  CHECK(lie(1, {2}, {2}).empty());
  CHECK_THAT(lie(1, {2}, {3}),
             Contains("sizes [2] and strides [3] from element 1 must stay in the storage, which has 4"));
  CHECK_THAT(lie(0, {5}, {1}), Contains("must stay in the storage"));
  CHECK_THAT(lie(4, {1}, {1}), Contains("from element 4"));
  CHECK_THAT(lie(4, {}, {}), Contains("from element 4"));
  CHECK(lie(9, {0}, {1}).empty());
  CHECK_THAT(lie(-1, {2}, {1}), Contains("an offset cannot be -1"));
  CHECK_THAT(lie(0, {-2}, {1}), Contains("sizes cannot be -2"));
  CHECK_THAT(lie(3, {2}, {-1}), Contains("strides cannot be -1"));
  CHECK_THAT(lie(0, {2, 2}, {2}), Contains("there cannot be 1 strides"));
  CHECK_THAT(lie(0, {1, 1, 1, 1, 1, 1, 1, 1, 1}, {1}), Contains("there cannot be 9 sizes"));
  const int64_t most = std::numeric_limits<int64_t>::max(), large = int64_t{1} << 32;
  CHECK_THAT(lie(0, {large, large}, {0, 0}), Contains("overflow"));
  CHECK_THAT(lie(0, {large, large, 0}, {0, 0, 0}), Contains("overflow"));
  CHECK_THAT(lie(0, {most}, {0}), Contains("overflow"));
  CHECK_THAT(lie(0, {3}, {most}), Contains("must stay in the storage"));
  CHECK_THAT(lie(most, {2}, {1}), Contains("must stay in the storage"));
  CHECK(lie(0, {1, 2}, {most, 1}).empty());
  CHECK(lie(0, {large, 2}, {0, 1}).empty());  // repeats the same two numbers very often

  const auto with_storage = [](const std::string& value) { return said_of_tensor(tensor(value, 0, {1}, {1})); };
  CHECK_THAT(with_storage(storage("FloatStorage", "0", 5)),
             Contains("the storage \"0\" must have 5 elements of 4 bytes; it has 16 bytes"));
  CHECK_THAT(with_storage(storage("FloatStorage", "0", most)), Contains("it has 16 bytes"));
  CHECK_THAT(with_storage(storage("FloatStorage", "0", -1)), Contains("the elements of a storage cannot be -1"));
  CHECK_THAT(with_storage(storage("FloatStorage", "2", 4)), Contains("no entry for the storage \"2\""));
  CHECK_THAT(with_storage(storage("FloatStorage", "../data.pkl", 4)), Contains("no entry for the storage"));
  CHECK_THAT(with_storage(integer(0)), Contains("a storage cannot be 0"));
  CHECK_THAT(with_storage(text("storage") + "Q"), Contains("a reference cannot be \"storage\""));
  CHECK_THAT(with_storage(tuple({text("module"), "N", "N", "N", "N"}) + "Q"), Contains("a reference to \"module\""));
  CHECK_THAT(with_storage(tuple({text("storage")}) + "Q"), Contains("there cannot be 1 items"));
  const auto with_type = [&](const std::string& type, const std::string& part) {
    return with_storage(tuple({text("storage"), type, text("0"), text("cpu"), integer(4), part}) + "Q");
  };
  CHECK(with_type(global("torch", "FloatStorage"), "N").empty());
  CHECK_THAT(with_type(global("torch", "FloatStorage"), tuple({text("1"), integer(0), integer(2)})),
             Contains("a part of a storage"));
  CHECK_THAT(with_type(global("collections", "OrderedDict"), "N"),
             Contains("the type of a storage cannot be collections.OrderedDict"));
  CHECK_THAT(with_type(text("FloatStorage"), "N"), Contains("the type of a storage cannot be \"FloatStorage\""));
  CHECK_THAT(said_of("\x80\x02}(" + text("a") + tensor(kStorage, 0, {4}, {1}) + text("b") +
                     tensor(storage("HalfStorage", "0", 4), 0, {4}, {1}) + "u."),
             Contains("tensor b: another tensor has another type or size for the same storage"));

  const auto call = [](const std::vector<std::string>& arguments) {
    return said_of_tensor(global("torch._utils", "_rebuild_tensor_v2") + tuple(arguments) + "R");
  };
  std::vector<std::string> arguments = {kStorage, integer(0), integers({4}), integers({1}), "\x89", "}"};
  REQUIRE(call(arguments).empty());
  arguments.push_back("}");
  CHECK(call(arguments).empty());
  arguments.back() = "}" + text("neg") + "\x88s";
  CHECK_THAT(call(arguments), Contains("has metadata that changes its values"));
  arguments.resize(5);
  CHECK_THAT(call(arguments), Contains("there cannot be 5 arguments of a tensor"));
  const std::string parameter = global("torch._utils", "_rebuild_parameter");
  CHECK(said_of_tensor(parameter + tuple({tensor(kStorage, 0, {4}, {1}), "\x88", "}"}) + "R").empty());
  CHECK_THAT(said_of_tensor(parameter + tuple({kStorage, "\x88", "}"}) + "R"),
             Contains("the tensor of a parameter cannot be a reference"));
  CHECK_THAT(said_of_tensor(parameter + ")R"), Contains("there cannot be 0 arguments of a parameter"));
}

TEST_CASE("a pickle that contradicts itself is an error", "[torch_file]") {
  CHECK_THAT(said_of(""), Contains("needs 1 bytes"));
  CHECK_THAT(said_of("."), Contains("a value is missing"));
  CHECK_THAT(said_of("}}."), Contains("more than one value"));
  CHECK_THAT(said_of("}.}"), Contains("model/data.pkl has 1 bytes after its pickle"));
  CHECK_THAT(said_of("t."), Contains("a mark is missing"));
  CHECK_THAT(said_of("N(\x85."), Contains("a value is missing"));  // values below a mark cannot be taken
  CHECK_THAT(said_of("}(K\1u."), Contains("a key has no value"));
  CHECK_THAT(said_of("]N\x88s."), Contains("what has items cannot be a list"));
  CHECK_THAT(said_of("}Na."), Contains("what is appended to cannot be a dict"));
  CHECK_THAT(said_of("h\5."), Contains("the memo has no value 5"));
  CHECK_THAT(said_of("q\1."), Contains("a value is missing"));
  CHECK_THAT(said_of("cos"), Contains("must end with a line break"));
  CHECK_THAT(said_of("NN\x93."), Contains("the name of a global cannot be None"));
  CHECK_THAT(said_of("X" + number_bytes(0xffffffff, 4) + "abc"), Contains("needs 4294967295 bytes"));
  CHECK_THAT(said_of("\x8d" + std::string(8, '\xff')), Contains("needs 18446744073709551615 bytes"));
  // Texts, containers and memos, as deep or as many as a file allows, take memory only in proportion to the file.
  const ScratchDirectory scratch;
  const std::string many(1 << 20, ']');
  for (const auto& pickle : {many, "(" + many + "t", std::string(1 << 20, '('), "]" + std::string(1 << 20, '\x94'),
                             "]" + many + std::string(1 << 20, 'a'), "N" + std::string(1 << 20, '\x85')}) {
    const double start = steady_seconds();
    CHECK_FALSE(open_and_read(scratch / "many", archive(pickle + ".", {})).empty());
    CHECK(steady_seconds() - start < 5);
  }
  // A list that contains itself, and a memo of memos.
  CHECK_THAT(said_of("]q\1h\1a."), Contains("got a list"));
}

TEST_CASE("numbers of all sizes are read", "[torch_file]") {
  const auto with_offset = [](const std::string& opcodes) {
    return said_of_tensor(global("torch._utils", "_rebuild_tensor_v2") +
                          tuple({kStorage, opcodes, integers({}), integers({}), "\x89", "}"}) + "R");
  };
  CHECK_THAT(with_offset("K\xff"), Contains("from element 255"));
  CHECK_THAT(with_offset("M\xff\xff"), Contains("from element 65535"));
  CHECK_THAT(with_offset("J\xff\xff\xff\x7f"), Contains("from element 2147483647"));
  CHECK_THAT(with_offset("J\xfe\xff\xff\xff"), Contains("an offset cannot be -2"));
  CHECK_THAT(with_offset("\x8a\x01\x80"), Contains("an offset cannot be -128"));
  CHECK_THAT(with_offset("\x8a\x02\xff\x7f"), Contains("from element 32767"));
  CHECK(with_offset(std::string("\x8a\0", 2)).empty());  // 0
  CHECK_THAT(with_offset("\x8a\x09" + std::string(9, '\x7f')), Contains("an offset cannot be an integer of 9 bytes"));
}

TEST_CASE("an older file whose parts contradict each other is an error", "[torch_file]") {
  const ScratchDirectory scratch;
  const auto said = [&](const std::string& end) {
    return open_and_read(scratch / "file", older(state_dict("w", tensor(kStorage, 0, {4}, {1})), end));
  };
  const std::string keys = "\x80\x02]" + text("0") + "a.", four = number_bytes(4, 8) + kFour;
  REQUIRE(said(keys + four).empty());
  CHECK_THAT(said("}."), Contains("the keys of storages must be a list; got a dict"));
  CHECK_THAT(said("]."), Contains("tensors are in 1 storages, but the file has 0"));
  CHECK_THAT(said("]" + text("1") + "a."), Contains("no tensor is in the storage \"1\""));
  CHECK_THAT(said("]K\1a."), Contains("no tensor is in the storage 1"));
  CHECK_THAT(said(keys + "abc"), Contains("ends before the storage \"0\""));
  CHECK_THAT(said(keys + number_bytes(5, 8) + kFour), Contains("would have 5 elements of 4 bytes, but only 16"));
  CHECK_THAT(said(keys + number_bytes(uint64_t{1} << 62, 8) + kFour), Contains("but only 16 bytes follow"));
  CHECK_THAT(said(keys + number_bytes(3, 8) + kFour), Contains("4 bytes follow the last storage"));
  CHECK_THAT(said(keys + number_bytes(3, 8) + kFour.substr(4)), Contains("must have 4 elements"));
  CHECK_THAT(said("](" + text("0") + text("0") + "e." + four + four), Contains("the storage \"0\" occurs twice"));
  auto other = older("}.", "].");
  REQUIRE(open_and_read(scratch / "file", other).empty());
  other[18] = 'x';
  CHECK_THAT(open_and_read(scratch / "file", other), Contains("the version of the format must be 1001; got "));
  other = older("}.", "].");
  other[23] = 'N';
  CHECK_THAT(open_and_read(scratch / "file", other),
             Contains("the description of the writer must be a dict; got None"));
}

TEST_CASE("an archive without the entries that torch.save writes is refused", "[torch_file]") {
  const ScratchDirectory scratch;
  const auto said = [&](const std::vector<ZipEntry>& entries) { return open_and_read(scratch / "a", zip(entries)); };
  CHECK(said({{"x/data.pkl", "}."}}).empty());
  CHECK_THAT(said({{"data.pkl", "}."}}), Contains("must have exactly one entry NAME/data.pkl"));
  CHECK_THAT(said({{"x/y/data.pkl", "}."}}), Contains("must have exactly one entry NAME/data.pkl"));
  CHECK_THAT(said({{"x/data.pkl", "}."}, {"y/data.pkl", "}."}}), Contains("must have exactly one entry NAME/data.pkl"));
  CHECK_THAT(said({{"x/data.pkl", "}."}, {"x/byteorder", "big"}}), Contains("byte order \"little\"; got \"big\""));
}

}  // namespace shardline::torch_file_test
