#include "core/formats/torch_file.h"

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "core/formats/pretrained.h"
#include "core/formats/state_dict.h"
#include "core/formats/zip.h"
#include "tests/core/data_folder.h"
#include "tests/core/has.h"

namespace starling {
using namespace std::string_literals;

namespace {

std::string number(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i)
    text += static_cast<char>(i < 8 ? value >> 8 * i : 0);  // wider fields end with zeros
  return text;
}

struct Member {
  std::string name, data;
};

// A zip archive of members that are stored. `zip64`: all numbers stand where large ones do.
std::string archive_of(const std::vector<Member>& members, bool zip64 = false) {
  std::string archive, directory;
  const std::string wide = number(0xffffffff, 4);
  for (const auto& [name, data] : members) {
    const auto size = number(data.size(), 4), name_size = number(name.size(), 2);
    const std::string extra = zip64 ? number(1, 2) + number(24, 2) + number(data.size(), 8) +
                                          number(data.size(), 8) + number(archive.size(), 8)
                                    : "";
    directory += "PK\1\2" + number(0, 8) + number(0, 8);
    directory += zip64 ? wide + wide : size + size;
    directory += name_size + number(extra.size(), 2) + number(0, 10);
    directory += zip64 ? wide : number(archive.size(), 4);
    directory += name + extra;
    archive +=
        "PK\3\4" + number(0, 14) + size + size + name_size + number(3, 2) + name + "pad" + data;
  }
  const auto at = archive.size();
  archive += directory;
  if (zip64) {
    const auto record = archive.size();
    archive += "PK\6\6" + number(44, 8) + number(0, 20) + number(members.size(), 8) +
               number(directory.size(), 8) + number(at, 8);
    archive += "PK\6\7" + number(0, 4) + number(record, 8) + number(1, 4);
  }
  archive += "PK\5\6" + number(0, 6) + number(members.size(), 2);
  archive += zip64 ? wide + wide : number(directory.size(), 4) + number(at, 4);
  return archive + number(0, 2);
}

// Parts of pickles.
std::string text(const std::string& value) {
  return "X" + number(value.size(), 4) + value;
}
std::string global(const std::string& module, const std::string& name) {
  return "c" + module + "\n" + name + "\n";
}
std::string pickle(const std::string& body) {
  return "\x80\2" + body + ".";
}
// A call that makes a tensor of storage "0".
std::string tensor(const std::string& shape, const std::string& strides,
                   const std::string& offset = "K" + std::string(1, '\0'),
                   const std::string& storage = "FloatStorage") {
  return global("torch._utils", "_rebuild_tensor_v2") + "((" + text("storage") +
         global("torch", storage) + text("0") + text("cpu") + "K\4tQ" + offset + shape + strides +
         "\x89}tR";
}
const std::string kFour = "K\4\x85", kOne = "K\1\x85";
std::string dict_of(const std::string& name, const std::string& value) {
  return "}(" + text(name) + value + "u";
}

std::string floats(std::initializer_list<float> values) {
  return {reinterpret_cast<const char*>(std::data(values)), values.size() * sizeof(float)};
}

// The error of a file with this pickle and a storage of four floats.
std::string error_of(const std::string& data_pkl) {
  const DataFolder folder;
  const std::string path = folder.write(
      "m.bin", archive_of({{"m/data.pkl", data_pkl}, {"m/data/0", floats({1, 2, 3, 4})}}));
  const auto file = open_torch_file(path);
  if (file) return "no error";
  CHECK(file.error().code() == Code::kBadInput);
  CHECK(has(file.error().text(), path));
  return file.error().text();
}

std::string error_of_file(const std::string& content) {
  const DataFolder folder;
  const auto file = open_torch_file(folder.write("m.bin", content));
  return file ? "no error" : file.error().text();
}

}  // namespace

// fixtures/torch/state_dict.bin is torch 2.15's: a of 5 x 4 with 0, 0.25 and so on, `tied` the same tensor, `view` its rows 1
// and 2; b of bfloat16 and c of float16; a scalar, a Parameter, int64 and an empty tensor; with the _metadata of a
// module.
TEST_CASE("torch file: the tensors of a state_dict are read as torch wrote them") {
  const std::string path = "tests/fixtures/torch/state_dict.bin";
  CHECK(is_torch_file(path));
  const auto file = open_torch_file(path).value();
  std::vector<float> all(20);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<float>(i) / 4;
  CHECK(file.floats("a").value() == all);
  CHECK(file.floats("tied").value() == all);
  CHECK(file.floats("view").value() == std::vector<float>(all.begin() + 4, all.begin() + 12));
  CHECK(file.floats("b").value() == std::vector<float>{1.5f, -2.0f, 0.25f});
  CHECK(file.floats("c").value() == std::vector<float>{1.5f, -2.0f});
  CHECK(file.floats("one").value() == std::vector<float>{1.5f});
  CHECK(file.floats("parameter").value() == std::vector<float>{3, 4});
  CHECK(file.find("numbers")->dtype == Dtype::kI64);
  CHECK(file.find("none")->shape == std::vector<std::uint64_t>{0, 3});
  CHECK(file.find("view")->shape == std::vector<std::uint64_t>{2, 4});
  CHECK(file.tensors().size() == 9);
}

TEST_CASE("torch file: a folder has one, or shards that an index names") {
  const DataFolder folder;
  const auto shard = [&](const std::string& name, const std::string& tensor_name, float first) {
    folder.write(name,
                 archive_of({{"m/data.pkl", pickle(dict_of(tensor_name, tensor(kFour, kOne)))},
                             {"m/byteorder", "little"},
                             {"m/data/0", floats({first, 2, 3, 4})}}));
  };
  shard("one.bin", "a", 1);
  shard("two.bin", "b", 7);
  folder.write("pytorch_model.bin.index.json",
               R"({"weight_map": {"a": "one.bin", "b": "two.bin"}})");
  const auto shards = PretrainedWeights::open(folder.path()).value();
  CHECK(shards.tensors().size() == 2);
  std::vector<float> values(2);
  REQUIRE(shards.read(shards.tensors().at("b"), 0, values));
  CHECK(values == std::vector<float>{7, 2});
  shard("pytorch_model.bin", "c", 9);
  CHECK(PretrainedWeights::open(folder.path()).value().tensors().contains("c"));
}

TEST_CASE("torch file: archives beyond 4 GiB have their numbers elsewhere") {
  const DataFolder folder;
  const auto path =
      folder.write("m.bin", archive_of({{"m/data.pkl", pickle(dict_of("a", tensor(kFour, kOne)))},
                                        {"m/data/0", floats({1, 2, 3, 4})}},
                                       /*zip64=*/true));
  CHECK(open_torch_file(path).value().floats("a").value() == std::vector<float>{1, 2, 3, 4});
}

TEST_CASE("torch file: nothing that a pickle names is called") {
  const std::string code = global("posix", "system") + text("touch x") + "\x85R";
  CHECK(has(error_of(pickle(code)), "its pickle names posix.system, which no state_dict"));
  CHECK(has(error_of(pickle(dict_of("a", code))), "nothing of it was run"));
  CHECK(has(error_of(pickle(text("builtins") + text("eval") + "\x93")), "builtins.eval"));
  // INST, OBJ, NEWOBJ, EXT1, a text by lines
  for (const char* const op : {"(ios\nsystem\n", "(o", "}}\x81", "\x82\1", "S'a'\n"})
    CHECK(has(error_of(pickle(op)), "has the instruction 0x"));
  CHECK(has(error_of(pickle(global("torch._utils", "_rebuild_qtensor"))), "_rebuild_qtensor"));
  CHECK(has(error_of(pickle(global("torch", "ComplexFloatStorage"))), "ComplexFloatStorage"));
  // A view of negated values: torch.load() reads it otherwise than it lies there.
  std::string negated = tensor(kFour, kOne);
  negated.insert(negated.size() - 2, "}" + text("neg") + "\x88s");
  CHECK(has(error_of(pickle(dict_of("a", negated))), "is not that of a state_dict"));
}

TEST_CASE("torch file: what is no state_dict is refused") {
  const std::string fits = tensor(kFour, kOne);
  REQUIRE(error_of(pickle(dict_of("a", fits))) == "no error");
  CHECK(has(error_of(pickle(fits)), "is not that of a state_dict"));
  CHECK(has(error_of(pickle(dict_of("model", dict_of("a", fits)))),
            "has no tensor at \"model\", expected a state_dict"));
  CHECK(has(error_of(pickle(dict_of("step", "K\1"))), "has no tensor at \"step\""));
  CHECK(has(error_of(pickle("}(K\1" + fits + "u")), "a key that is no name"));
  CHECK(has(error_of(pickle("}(" + text("a") + fits + text("a") + fits + "u")), "tensor a twice"));
  CHECK(has(error_of(pickle(dict_of("a", tensor("K\2K\2\x86", "K\1K\2\x86")))),
            "tensor a do not lie in the order of its shape"));
  CHECK(has(error_of(pickle(dict_of("a", tensor("K\5\x85", kOne)))), "tensor a is too short"));
  CHECK(has(error_of(pickle(dict_of("a", tensor(kFour, kOne, "K\1")))), "tensor a is too short"));
  CHECK(has(error_of(pickle(dict_of("a", tensor(kFour, kOne, "K\0"s, "DoubleStorage")))),
            "too short"));
  // sizes below zero, and beyond 64 bits
  CHECK(
      has(error_of(pickle(dict_of("a", tensor("J\xff\xff\xff\xff\x85", kOne)))), "is not that of"));
  CHECK(has(
      error_of(pickle(dict_of("a", tensor("J\xff\xff\xff\x7fJ\xff\xff\xff\x7fJ\xff\xff\xff\x7f\x87",
                                          "K\1K\1K\1\x87")))),
      "is not that of"));
  // a memo that refers to its own dictionary, and places of the memo and the stack that are none
  CHECK(has(error_of(pickle("}q\1(" + text("a") + "h\1u")), "has no tensor at \"a\""));
  for (const char* const body : {"h\1", "t", "u", "R", "\x87", "K\1", "(", "q\1", "Q", "b"})
    CHECK(has(error_of(pickle(body)), "is not that of a state_dict"));
  const std::string whole = pickle(dict_of("a", fits));
  for (std::size_t length = 0; length < whole.size(); ++length)
    CHECK(error_of(whole.substr(0, length)) != "no error");
  CHECK(has(error_of(whole + "."), "is not that of a state_dict"));
}

TEST_CASE("torch file: a bomb of values ends at a bound") {
  for (const char repeated : {'\x94', '('})  // the memo, marks
    CHECK(has(error_of(pickle("N" + std::string(3u << 20, repeated))),
              "has more than 1048576 values"));
  std::string many(3u << 20, '}');
  CHECK(has(error_of(pickle(many)), "has more than 1048576 values"));
  // A tuple of a million, which is taken for a storage a million times.
  std::string again = "(" + std::string(1u << 19, 'N') + "tq\1";
  for (int i = 0; i < 1 << 19; ++i) again += "h\1";
  CHECK(has(error_of(pickle(again + "Q")), "is not that of a state_dict"));
}

TEST_CASE("torch file: damaged archives are refused") {
  const std::string good = archive_of({{"m/data.pkl", pickle(dict_of("a", tensor(kFour, kOne)))},
                                       {"m/data/0", floats({1, 2, 3, 4})}});
  REQUIRE(error_of_file(good) == "no error");
  for (std::size_t length = 0; length < good.size(); ++length)
    CHECK(error_of_file(good.substr(0, length)) != "no error");
  CHECK(has(error_of_file(archive_of({{"m/data/0", "abcd"}})), "has no data.pkl"));
  CHECK(has(error_of_file(archive_of({{"m/data.pkl", pickle(dict_of("a", tensor(kFour, kOne)))}})),
            "has no storage for tensor a"));
  CHECK(has(error_of_file(archive_of({{"m/data.pkl", ""}, {"m/data.pkl", ""}})), "a member twice"));
  CHECK(has(error_of_file(archive_of({{"m/data.pkl", ""}, {"m/byteorder", "big"}})), "byte order"));
  std::string packed = good;
  packed[packed.find("PK\1\2") + 10] = 8;  // deflated
  CHECK(has(error_of_file(packed), "compressed or encrypted"));
  std::string beyond = good;
  beyond.replace(beyond.find("PK\1\2") + 42, 4, number(good.size(), 4));
  CHECK(has(error_of_file(beyond), "points beyond its end"));
  CHECK(has(error_of_file("\x80\2\x8a\nl\xfc\x9c"
                          "F\xf9 j\xa8P\x19."),
            "before torch 1.6"));
}

}  // namespace starling
