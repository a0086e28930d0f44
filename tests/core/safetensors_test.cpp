#include "core/formats/safetensors.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/formats/safetensors_header.h"

namespace starling {
namespace {

// A folder of this test's own that goes with it.
struct TensorFolder {
  std::string path;
  TensorFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "safetensors-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~TensorFolder() { std::filesystem::remove_all(path); }
  std::string file(const std::string& name) const { return path + "/" + name; }
};

void write_raw(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string with_length(const std::string& header, const std::string& data) {
  std::uint64_t n = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &n, 8);
  return bytes + header + data;
}

template <class T>
ByteView view(const std::vector<T>& values) {
  return as_bytes(std::span<const T>(values));
}

TEST_CASE("safetensors: a tensor of BF16 is read as the floats that its values are") {
  const TensorFolder folder;
  const std::vector<std::uint16_t> halves{0x3f80, 0xc000, 0x0000, 0x8000, 0x7f80, 0x0001};
  const std::string path = folder.file("halves.safetensors");
  REQUIRE(write_safetensors(path, {{"w", Dtype::kBf16, {2, 3}, view(halves)}}, {}));
  auto opened = SafetensorsFile::open(path);
  REQUIRE(opened);
  const auto floats = opened.value().floats("w").value();
  REQUIRE(floats.size() == halves.size());
  for (std::size_t i = 0; i < halves.size(); ++i)
    CHECK(std::bit_cast<std::uint32_t>(floats[i]) == std::uint32_t{halves[i]} << 16);
}

TEST_CASE("safetensors: what is written is read back, metadata and order of elements included") {
  const TensorFolder folder;
  const std::vector<float> w{1.5f, -2.0f, 0.0f, 3.0f, 4.0f, -0.0f};
  const std::vector<std::int32_t> y{7, -1};
  const std::vector<std::uint8_t> b{1, 0, 1};
  const std::map<std::string, std::string> metadata{{"format", "pt"},
                                                    {"note", "a \"b\"\n\xc3\xa9"}};
  const std::string path = folder.file("a.safetensors");
  REQUIRE(write_safetensors(path,
                            {{"mask", Dtype::kBool, {3}, view(b)},
                             {"w", Dtype::kF32, {2, 3}, view(w)},
                             {"none", Dtype::kF32, {0, 4}, {}},
                             {"y", Dtype::kI32, {2}, view(y)}},
                            metadata));
  auto opened = SafetensorsFile::open(path);
  REQUIRE(opened);
  const SafetensorsFile& file = opened.value();
  CHECK(file.metadata() == metadata);
  CHECK(file.tensors().size() == 4);
  REQUIRE(file.find("w"));
  CHECK(file.find("w")->shape == std::vector<std::uint64_t>{2, 3});
  CHECK(file.find("absent") == nullptr);
  CHECK(file.floats("w").value() == w);
  CHECK(file.ints("y").value() == y);
  CHECK(file.floats("none").value().empty());
  CHECK_FALSE(file.floats("y"));
  CHECK_FALSE(file.floats("absent"));
  std::uint8_t two[2];
  REQUIRE(file.read(*file.find("mask"), 1, two));
  CHECK(two[0] == 0);
  CHECK(two[1] == 1);
  // Nothing is left beside the file.
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path), {}) == 1);
}

// The bytes of the format's own example: header padded to a multiple of 8, metadata first.
TEST_CASE("safetensors: the writer gives the reference writer's bytes") {
  const TensorFolder folder;
  const std::vector<float> w{1.0f, 2.0f};
  const std::string path = folder.file("w.safetensors");
  REQUIRE(write_safetensors(path, {{"w", Dtype::kF32, {2}, view(w)}}, {{"k", "v"}}));
  std::ifstream in(path, std::ios::binary);
  const std::string got((std::istreambuf_iterator<char>(in)), {});
  const std::string data("\x00\x00\x80\x3f\x00\x00\x00\x40", 8);
  CHECK(got == with_length("{\"__metadata__\":{\"k\":\"v\"},\"w\":{\"dtype\":\"F32\",\"shape\":[2],"
                           "\"data_offsets\":[0,8]}} ",
                           data));
}

TEST_CASE("safetensors: writing over a file replaces it, and a failed write leaves it alone") {
  const TensorFolder folder;
  const std::vector<float> one{1.0f}, two{2.0f};
  const std::string path = folder.file("a.safetensors");
  REQUIRE(write_safetensors(path, {{"a", Dtype::kF32, {1}, view(one)}}));
  REQUIRE(write_safetensors(path, {{"a", Dtype::kF32, {1}, view(two)}}));
  CHECK(SafetensorsFile::open(path).value().floats("a").value() == two);
  CHECK_FALSE(write_safetensors(path, {{"\xff", Dtype::kF32, {1}, view(one)}}));
  CHECK_FALSE(write_safetensors(folder.file("no/such/folder"), {}));
  CHECK(SafetensorsFile::open(path).value().floats("a").value() == two);
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path), {}) == 1);
}

// Goal: nothing that the format forbids is let through, and the message says what it was.
// Method: a table of headers over 8 bytes of data, each with a part of the message.
TEST_CASE("safetensors: forbidden headers are refused") {
  struct Case {
    const char* name;
    std::string header;
    const char* message;
  };
  const auto tensor = [](const std::string& dtype, const std::string& shape,
                         const std::string& offsets) {
    return "{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
  };
  const std::string good = tensor("F32", "[2]", "[0,8]");
  const Case cases[] = {
      {"empty", "", "does not begin"},
      {"space first", " {\"a\":" + good + "}", "does not begin"},
      {"tab last", "{\"a\":" + good + "}\t", "does not end"},
      {"NUL last", "{\"a\":" + good + "}" + std::string(1, '\0'), "does not end"},
      {"array", "[]", "does not begin"},
      {"two values", "{}{}", "not JSON"},
      {"bad UTF-8", "{\"\xff\":" + good + "}", "not JSON"},
      {"open end", "{\"__metadata__\":{}", "not JSON"},
      {"nothing at all", "{}", "8 bytes after the last tensor"},
      {"tensor no object", "{\"a\":7}", "unexpected a number"},
      {"tensor null", "{\"a\":null}", "unexpected null"},
      {"name empty", "{\"\":" + good + "}", "empty name"},
      {"name twice", "{\"a\":" + good + ",\"a\":" + good + "}", "appears twice"},
      {"dtype twice", "{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", "twice in tensor"},
      {"field missing", "{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", "lacks one of"},
      {"field unknown", "{\"a\":{\"strides\":[1]}}", "unknown field"},
      {"dtype unknown", "{\"a\":" + tensor("f32", "[2]", "[0,8]") + "}", "unknown dtype"},
      {"dtype of others", "{\"a\":" + tensor("F8_E4M3", "[8]", "[0,8]") + "}", "not supported"},
      {"dtype a number", "{\"a\":{\"dtype\":4}}", "unexpected a number"},
      {"shape negative", "{\"a\":" + tensor("F32", "[-2]", "[0,8]") + "}", "negative"},
      {"shape fraction", "{\"a\":" + tensor("F32", "[2.0]", "[0,8]") + "}", "no unsigned"},
      {"shape nested", "{\"a\":" + tensor("F32", "[[2]]", "[0,8]") + "}", "unexpected an array"},
      {"shape beyond 64 bits", "{\"a\":" + tensor("F32", "[18446744073709551616]", "[0,8]") + "}",
       "no unsigned"},
      {"shape product overflows",
       "{\"a\":" + tensor("F32", "[4294967296,4294967296]", "[0,8]") + "}", "overflows"},
      {"shape wraps to the right size",
       "{\"a\":" + tensor("F32", "[9223372036854775809,2]", "[0,8]") + "}", "overflows"},
      {"size wrong", "{\"a\":" + tensor("F32", "[3]", "[0,8]") + "}", "its shape needs 12"},
      {"offsets one", "{\"a\":" + tensor("F32", "[2]", "[0]") + "}", "has 1 numbers"},
      {"offsets three", "{\"a\":" + tensor("F32", "[2]", "[0,8,8]") + "}", "third number"},
      {"offsets backwards", "{\"a\":" + tensor("F32", "[2]", "[8,0]") + "}", "before its begin"},
      {"beyond the data", "{\"a\":" + tensor("F32", "[4]", "[0,16]") + "}", "ends beyond"},
      {"hole first", "{\"a\":" + tensor("F32", "[1]", "[4,8]") + "}", "after a hole"},
      {"hole between",
       "{\"a\":" + tensor("U8", "[2]", "[0,2]") + ",\"b\":" + tensor("U8", "[4]", "[4,8]") + "}",
       "after a hole"},
      {"overlap", "{\"a\":" + good + ",\"b\":" + tensor("F32", "[1]", "[4,8]") + "}",
       "inside another"},
      {"same range", "{\"a\":" + good + ",\"b\":" + good + "}", "inside another"},
      {"bytes left over", "{\"a\":" + tensor("F32", "[1]", "[0,4]") + "}", "4 bytes after"},
      {"metadata null", "{\"__metadata__\":null,\"a\":" + good + "}", "unexpected null"},
      {"metadata number", "{\"__metadata__\":{\"k\":1},\"a\":" + good + "}", "unexpected a number"},
      {"metadata key twice", "{\"__metadata__\":{\"k\":\"a\",\"k\":\"b\"},\"a\":" + good + "}",
       "metadata key"},
      {"metadata twice", "{\"__metadata__\":{},\"__metadata__\":{},\"a\":" + good + "}",
       "appears twice"},
      {"deep", "{\"a\":" + std::string(100000, '[') + "}", "unexpected an array"},
  };
  const TensorFolder folder;
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const std::string path = folder.file("bad.safetensors");
    write_raw(path, with_length(c.header, std::string(8, '\0')));
    const auto opened = SafetensorsFile::open(path);
    REQUIRE_FALSE(opened);
    CHECK(opened.error().code() == Code::kBadInput);
    CAPTURE(opened.error().text());
    CHECK(opened.error().text().find(c.message) != std::string::npos);
    CHECK(opened.error().text().find(path) != std::string::npos);
  }
}

TEST_CASE("safetensors: lawful oddities are read") {
  const char* const headers[] = {
      // Trailing spaces, a scalar, tensors in any order, an empty one between.
      "{\"b\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[4,8]},"
      "\"a\":{\"dtype\":\"I16\",\"shape\":[1,2],\"data_offsets\":[0,4]}}   ",
      "{\"a\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]},"
      "\"e\":{\"dtype\":\"F64\",\"shape\":[5,0],\"data_offsets\":[8,8]},"
      "\"f\":{\"dtype\":\"F64\",\"shape\":[0],\"data_offsets\":[0,0]}}",
      // Huge dimensions beside a zero.
      "{\"e\":{\"dtype\":\"F64\",\"shape\":[18446744073709551615,18446744073709551615,0],"
      "\"data_offsets\":[0,0]},\"u\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[0,8]}}",
  };
  const TensorFolder folder;
  for (const char* header : headers) {
    CAPTURE(header);
    const std::string path = folder.file("odd.safetensors");
    write_raw(path, with_length(header, std::string(8, '\0')));
    const auto opened = SafetensorsFile::open(path);
    if (!opened) FAIL_CHECK(opened.error().text());
  }
}

TEST_CASE("safetensors: lengths, folders, pipes and shortened files are refused") {
  const TensorFolder folder;
  const std::string path = folder.file("x");
  CHECK_FALSE(SafetensorsFile::open(path));         // absent
  CHECK_FALSE(SafetensorsFile::open(folder.path));  // a folder
  REQUIRE(mkfifo(folder.file("pipe").c_str(), 0600) == 0);
  CHECK_FALSE(SafetensorsFile::open(folder.file("pipe")));
  for (const std::string& bytes : {std::string(), std::string(7, '\0'), std::string(8, '\0'),
                                   std::string(8, '\xff'), with_length("{}", "").substr(0, 9)}) {
    CAPTURE(bytes.size());
    write_raw(path, bytes);
    CHECK_FALSE(SafetensorsFile::open(path));
  }
  write_raw(path, with_length("{}", ""));
  CHECK(SafetensorsFile::open(path));

  const std::vector<float> w(1000, 1.0f);
  REQUIRE(write_safetensors(path, {{"w", Dtype::kF32, {1000}, view(w)}}));
  auto opened = SafetensorsFile::open(path);
  REQUIRE(opened);
  std::filesystem::resize_file(path, 2000);
  CHECK_FALSE(opened.value().floats("w"));  // an error, no signal
}

// Every prefix and every flipped byte of a good file is refused or read, and never ends the
// process.
TEST_CASE("safetensors: damaged files do no harm") {
  const std::string header =
      "{\"__metadata__\":{\"k\":\"v\"},\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,"
      "8]}}";
  REQUIRE(parse_safetensors_header(header, 8));
  for (std::size_t n = 0; n < header.size(); ++n)
    CHECK_FALSE(parse_safetensors_header(std::string_view(header).substr(0, n), 8));
  for (std::size_t i = 0; i < header.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = header;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
      const auto parsed = parse_safetensors_header(damaged, 8);
      if (parsed) CHECK(parsed.value().tensors.size() == 1);
    }
  }
}

}  // namespace
}  // namespace starling
