#include "core/data/classified.h"

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "core/base/bytes.h"
#include "core/base/data_files.h"
#include "core/data/bytes_source.h"

namespace starling {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kHeaderBytesMax = 1 << 20;  // two tensors and some metadata
constexpr std::uint64_t kRowsMax = 1ull << 31;

// A Column is one tensor as its header describes it: the bytes, and how many rows they are.
struct Column {
  std::uint64_t begin = 0, end = 0, rows = 0;
};

// The safetensors header: N (u64), N bytes of JSON.
Result<Json> read_header(ByteView file, const std::string& path) {
  ByteReader reader(file);
  const auto bytes = reader.get<std::uint64_t>();
  if (!reader.good() || bytes > kHeaderBytesMax || bytes > reader.remaining())
    return bad_data("no safetensors header of at most 1 MiB at byte 0", path);
  const ByteView text = reader.get_bytes(bytes);
  std::set<std::string> names, fields;  // of the header; of the tensor being read
  bool twice = false;                   // nlohmann keeps the last of equal keys
  const auto seen = [&](int depth, Json::parse_event_t event, Json& value) {
    if (event != Json::parse_event_t::key) return true;
    if (depth == 1) fields.clear();
    auto& keys = depth == 1 ? names : fields;
    twice = !keys.insert(value.get<std::string>()).second || twice;
    return true;
  };
  Json header = Json::parse(text.begin(), text.end(), seen, /*allow_exceptions=*/false);
  if (header.is_discarded() || !header.is_object() || text.front() != '{')
    return bad_data("the safetensors header at byte 8 is not a JSON object", path);
  if (twice) return bad_data("the safetensors header has a key twice", path);
  for (const auto& name : names)
    if (name != "x" && name != "y" && name != "__metadata__")
      return bad_data("must hold the tensors x and y only, has another", path);
  return header;
}

bool is_unsigned_array(const Json& value, std::size_t size) {
  if (!value.is_array() || value.size() != size) return false;
  for (const auto& v : value)
    if (!v.is_number_unsigned()) return false;
  return true;
}

// Tensor `name` must be [rows, width], or [rows] if width is 0, of 4-byte elements.
Result<Column> column(const Json& header, const char* name, const char* dtype, std::uint64_t width,
                      const std::string& path) {
  const std::string wanted = std::string(name) + " must be " + dtype + " of shape [n" +
                             (width ? ", " + std::to_string(width) : "") + "]";
  const auto it = header.find(name);
  if (it == header.end()) return bad_data(wanted + ", is missing", path);
  const Json& tensor = *it;
  if (!tensor.is_object() || !tensor.contains("dtype") || tensor["dtype"] != dtype ||
      !tensor.contains("shape") || !is_unsigned_array(tensor["shape"], width ? 2 : 1) ||
      !tensor.contains("data_offsets") || !is_unsigned_array(tensor["data_offsets"], 2)) {
    std::string found = tensor.dump(-1, ' ', /*ensure_ascii=*/true);
    if (found.size() > 64) found = found.substr(0, 64) + "...";
    return bad_data(wanted + ", header has " + found, path);
  }
  const Column c{tensor["data_offsets"][0], tensor["data_offsets"][1], tensor["shape"][0]};
  if (width && tensor["shape"][1] != width)
    return bad_data(
        wanted + " for the model's inputs, has " + tensor["shape"][1].dump() + " columns", path);
  const std::uint64_t row_bytes = (width ? width : 1) * 4;  // width is at most 2^20
  if (c.rows < 1 || c.rows > kRowsMax || c.end < c.begin || c.end - c.begin != c.rows * row_bytes)
    return bad_data(wanted + " with n from 1 to 2^31 and as many bytes, has n = " +
                        std::to_string(c.rows) + " and offsets " + tensor["data_offsets"].dump(),
                    path);
  return c;
}

template <class T>
std::vector<T> copied(ByteView bytes) {
  std::vector<T> out(bytes.size() / sizeof(T));
  std::memcpy(out.data(), bytes.data(), bytes.size());  // the file need not align its tensors
  return out;
}

}  // namespace

Result<ClassifiedRows> read_classified(const std::string& path, std::uint32_t inputs,
                                       std::uint32_t classes) {
  STARLING_TRY(source, BytesSource::open(path, {}));
  Bytes room;
  STARLING_TRY(file, source->read(0, source->size(), room));
  STARLING_TRY(header, read_header(file, path));
  STARLING_TRY(x, column(header, "x", "F32", inputs, path));
  STARLING_TRY(y, column(header, "y", "I32", 0, path));
  std::uint64_t header_bytes;
  std::memcpy(&header_bytes, file.data(), 8);
  const ByteView data = file.subspan(8 + header_bytes);
  const Column &first = x.begin == 0 ? x : y, &second = x.begin == 0 ? y : x;
  if (first.begin != 0 || second.begin != first.end || second.end != data.size())
    return bad_data("x and y must fill the " + std::to_string(data.size()) +
                        " bytes after the header, one after the other",
                    path);
  if (x.rows != y.rows)
    return bad_data("x and y must have as many rows, have " + std::to_string(x.rows) + " and " +
                        std::to_string(y.rows),
                    path);
  ClassifiedRows rows{copied<float>(data.subspan(x.begin, x.end - x.begin)),
                      copied<std::int32_t>(data.subspan(y.begin, y.end - y.begin))};
  for (std::size_t i = 0; i < rows.x.size(); ++i)
    if (!std::isfinite(rows.x[i]))
      return bad_data("x must be finite, row " + std::to_string(i / inputs) + " column " +
                          std::to_string(i % inputs) + " is not",
                      path);
  for (std::size_t i = 0; i < rows.y.size(); ++i)
    if (rows.y[i] < 0 || static_cast<std::uint32_t>(rows.y[i]) >= classes)
      return bad_data("y must be from 0 to " + std::to_string(classes - 1) +
                          " (the model's classes), row " + std::to_string(i) + " is " +
                          std::to_string(rows.y[i]),
                      path);
  return rows;
}

}  // namespace starling
