#include "core/formats/safetensors_header.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

namespace starling {
namespace {

struct DtypeRow {
  std::string_view name;
  std::size_t size;
};
// In the order of Dtype.
constexpr std::array<DtypeRow, 13> kDtypes{{{"BOOL", 1},
                                            {"U8", 1},
                                            {"I8", 1},
                                            {"U16", 2},
                                            {"I16", 2},
                                            {"F16", 2},
                                            {"BF16", 2},
                                            {"U32", 4},
                                            {"I32", 4},
                                            {"F32", 4},
                                            {"U64", 8},
                                            {"I64", 8},
                                            {"F64", 8}}};
constexpr std::size_t kDimensionsMax = 32;

// Escapes and cuts foreign bytes for a message.
std::string quoted_bytes(std::string_view text) {
  std::string out = "\"";
  for (const char c : text.substr(0, 64)) {
    const auto u = static_cast<unsigned char>(c);
    if (u >= 0x20 && u < 0x7f && c != '"' && c != '\\') {
      out += c;
    } else {
      constexpr char kHex[] = "0123456789abcdef";
      out += {'\\', 'x', kHex[u >> 4], kHex[u & 15]};
    }
  }
  return out + (text.size() > 64 ? "...\"" : "\"");
}

// Takes the parser's events; the only shape that is let through is the format's. A state per place:
//   kTop { name: kTensor { "dtype": kDtypeValue, "shape": kShape [..],
//                          "data_offsets": kOffsets [..] },
//          "__metadata__": kMetadata { key: value } }
// "Before" states wait for the bracket that the key asks for.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  SafetensorsHeader header;
  std::string problem;  // set when an event was refused

  bool start_object(std::size_t) override {
    if (place_ == Place::kStart) return go(Place::kTop);
    if (place_ == Place::kBeforeTensor) {
      entry_ = {};
      entry_.name = key_;
      fields_ = 0;
      return go(Place::kTensor);
    }
    if (place_ == Place::kBeforeMetadata) return go(Place::kMetadata);
    return refuse("an object");
  }
  bool end_object() override {
    if (place_ == Place::kTensor) return end_tensor();
    if (place_ == Place::kMetadata) return go(Place::kTop);
    return go(Place::kEnd);
  }
  bool start_array(std::size_t) override {
    if (place_ == Place::kBeforeShape) return go(Place::kShape);
    if (place_ == Place::kBeforeOffsets) return go(Place::kOffsets);
    return refuse("an array");
  }
  bool end_array() override {
    if (place_ == Place::kOffsets && offsets_.size() != 2)
      return fail("data_offsets of " + quoted_bytes(key_) + " has " +
                  std::to_string(offsets_.size()) + " numbers; expected 2");
    return go(Place::kTensor);
  }
  bool key(std::string& name) override {
    if (place_ == Place::kTop) return key_of_top(name);
    if (place_ == Place::kMetadata) {
      metadata_key_ = name;
      if (header.metadata.contains(name))
        return fail("metadata key " + quoted_bytes(name) + " twice");
      return go(Place::kMetadataValue);
    }
    return key_of_tensor(name);
  }
  bool string(std::string& value) override {
    if (place_ == Place::kMetadataValue) {
      header.metadata.emplace(metadata_key_, value);
      return go(Place::kMetadata);
    }
    if (place_ == Place::kDtypeValue) return take_dtype(value);
    return refuse("a string");
  }
  bool number_unsigned(std::uint64_t value) override {
    if (place_ == Place::kShape) {
      if (entry_.shape.size() == kDimensionsMax)
        return fail("shape of " + quoted_bytes(key_) + " has more than " +
                    std::to_string(kDimensionsMax) + " dimensions");
      entry_.shape.push_back(value);
      return true;
    }
    if (place_ == Place::kOffsets) {
      if (offsets_.size() == 2)
        return fail("data_offsets of " + quoted_bytes(key_) + " has a third number");
      offsets_.push_back(value);
      return true;
    }
    return refuse("a number");
  }
  bool null() override { return refuse("null"); }
  bool boolean(bool) override { return refuse("a truth value"); }
  bool number_integer(std::int64_t) override { return refuse("a negative number"); }
  bool number_float(double, const std::string& text) override {
    return refuse("the number " + quoted_bytes(text) + ", no unsigned 64-bit integer");
  }
  bool binary(nlohmann::json::binary_t&) override { return refuse("binary data"); }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception& e) override {
    return fail("header is not JSON at byte " + std::to_string(position) + ": " +
                quoted_bytes(e.what()));
  }

 private:
  enum class Place {
    kStart,
    kTop,
    kEnd,
    kBeforeMetadata,
    kMetadata,
    kMetadataValue,
    kBeforeTensor,
    kTensor,
    kDtypeValue,
    kBeforeShape,
    kShape,
    kBeforeOffsets,
    kOffsets,
  };
  static constexpr unsigned kHasDtype = 1, kHasShape = 2, kHasOffsets = 4;

  bool go(Place place) {
    place_ = place;
    return true;
  }
  bool fail(std::string text) {
    problem = std::move(text);
    return false;
  }
  bool refuse(const std::string& what) {
    return fail(
        "unexpected " + what +
        (key_.empty() ? " at the top of the header" : " at or after " + quoted_bytes(key_)));
  }

  bool key_of_top(const std::string& name) {
    if (name.empty()) return fail("a tensor with an empty name");
    key_ = name;
    if (!names_.insert(name).second) return fail(quoted_bytes(name) + " appears twice");
    return go(name == "__metadata__" ? Place::kBeforeMetadata : Place::kBeforeTensor);
  }
  bool key_of_tensor(const std::string& name) {
    unsigned field = 0;
    if (name == "dtype") field = kHasDtype;
    if (name == "shape") field = kHasShape;
    if (name == "data_offsets") field = kHasOffsets;
    if (field == 0)
      return fail("unknown field " + quoted_bytes(name) + " in tensor " + quoted_bytes(key_));
    if (fields_ & field)
      return fail("field " + quoted_bytes(name) + " twice in tensor " + quoted_bytes(key_));
    fields_ |= field;
    offsets_.reserve(2);
    if (field == kHasDtype) return go(Place::kDtypeValue);
    if (field == kHasShape) return go(Place::kBeforeShape);
    offsets_.clear();
    return go(Place::kBeforeOffsets);
  }
  bool take_dtype(const std::string& name) {
    for (std::size_t i = 0; i < kDtypes.size(); ++i) {
      if (kDtypes[i].name != name) continue;
      entry_.dtype = static_cast<Dtype>(i);
      return go(Place::kTensor);
    }
    static constexpr std::string_view kOthers[] = {"C64",     "F8_E4M3",     "F8_E5M2",
                                                   "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ",
                                                   "F4",      "F6_E2M3",     "F6_E3M2"};
    const bool known = std::find(std::begin(kOthers), std::end(kOthers), name) != std::end(kOthers);
    return fail((known ? "dtype not supported here: " : "unknown dtype ") + quoted_bytes(name) +
                " in tensor " + quoted_bytes(key_));
  }
  bool end_tensor() {
    if (fields_ != (kHasDtype | kHasShape | kHasOffsets))
      return fail("tensor " + quoted_bytes(key_) + " lacks one of dtype, shape, data_offsets");
    if (offsets_[0] > offsets_[1])
      return fail("tensor " + quoted_bytes(key_) + " ends at " + std::to_string(offsets_[1]) +
                  ", before its begin " + std::to_string(offsets_[0]));
    entry_.offset = offsets_[0];
    entry_.bytes = offsets_[1] - offsets_[0];
    header.tensors.push_back(std::move(entry_));
    return go(Place::kTop);
  }

  Place place_ = Place::kStart;
  std::string key_, metadata_key_;
  std::set<std::string> names_;
  SafetensorsEntry entry_;
  std::vector<std::uint64_t> offsets_;
  unsigned fields_ = 0;
};

Result<> check_size(const SafetensorsEntry& entry) {
  std::uint64_t bytes = dtype_size(entry.dtype);
  bool overflow = false, empty = false;
  for (const std::uint64_t d : entry.shape) {
    empty |= d == 0;
    overflow |= __builtin_mul_overflow(bytes, d, &bytes);
  }
  if (empty) bytes = 0;
  if (overflow && !empty)
    return bad_input("shape of " + quoted_bytes(entry.name) + " overflows 64 bits");
  if (bytes != entry.bytes)
    return bad_input("tensor " + quoted_bytes(entry.name) + " has " + std::to_string(entry.bytes) +
                     " bytes; its shape needs " + std::to_string(bytes));
  return ok();
}

// Ranges in order, without hole or overlap, from 0 to the end of the data.
Result<> check_cover(const std::vector<SafetensorsEntry>& tensors, std::uint64_t data_bytes) {
  std::uint64_t at = 0;
  for (const SafetensorsEntry& entry : tensors) {
    if (entry.offset != at)
      return bad_input(
          "tensor " + quoted_bytes(entry.name) + " begins at " + std::to_string(entry.offset) +
          (entry.offset > at ? " after a hole; expected " : ", inside another; expected ") +
          std::to_string(at));
    if (entry.bytes > data_bytes - at)
      return bad_input("tensor " + quoted_bytes(entry.name) + " ends beyond the file's " +
                       std::to_string(data_bytes) + " bytes of data");
    at += entry.bytes;
  }
  if (at != data_bytes)
    return bad_input(std::to_string(data_bytes - at) + " bytes after the last tensor");
  return ok();
}

}  // namespace

std::size_t dtype_size(Dtype dtype) {
  return kDtypes[static_cast<std::size_t>(dtype)].size;
}
std::string_view dtype_name(Dtype dtype) {
  return kDtypes[static_cast<std::size_t>(dtype)].name;
}

Result<SafetensorsHeader> parse_safetensors_header(std::string_view text,
                                                   std::uint64_t data_bytes) {
  if (text.empty() || text.front() != '{') return bad_input("header does not begin with \"{\"");
  while (text.back() == ' ') text.remove_suffix(1);
  if (text.back() != '}') return bad_input("header does not end with \"}\" and spaces");
  if (text.find('\0') != text.npos) return bad_input("header has a byte 0");
  HeaderReader reader;
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &reader))
    return bad_input(reader.problem);
  auto& tensors = reader.header.tensors;
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return std::tie(a.offset, a.bytes, a.name) < std::tie(b.offset, b.bytes, b.name);
  });
  for (const SafetensorsEntry& entry : tensors) {
    STARLING_TRY(check_size(entry));
  }
  STARLING_TRY(check_cover(tensors, data_bytes));
  return std::move(reader.header);
}

Result<Bytes> format_safetensors_header(const SafetensorsHeader& header) {
  std::string text;
  try {
    const auto quoted = [](const std::string& s) { return nlohmann::json(s).dump(); };
    if (!header.metadata.empty()) {
      for (const auto& [key, value] : header.metadata)
        text += (text.empty() ? "" : ",") + quoted(key) + ":" + quoted(value);
      text = "\"__metadata__\":{" + text + "}";
    }
    for (const SafetensorsEntry& e : header.tensors) {
      text += (text.empty() ? "" : ",") + quoted(e.name) + ":{\"dtype\":\"";
      text += dtype_name(e.dtype);
      text += "\",\"shape\":" + nlohmann::json(e.shape).dump() + ",\"data_offsets\":[" +
              std::to_string(e.offset) + "," + std::to_string(e.offset + e.bytes) + "]}";
    }
  } catch (const nlohmann::json::exception&) {
    return bad_input("a tensor's name or a metadata string is not UTF-8");
  }
  text = "{" + text + "}";
  text.append((8 - text.size() % 8) % 8, ' ');
  ByteWriter out;
  out.put(std::uint64_t{text.size()});
  out.put_bytes({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
  return std::move(out).take();
}

}  // namespace starling
