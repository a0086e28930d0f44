#include "core/formats/torch_file.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <utility>

#include "core/formats/state_dict.h"
#include "core/formats/zip.h"

namespace starling {
namespace {

constexpr std::uint64_t kPickleMax = 32u << 20;
constexpr std::string_view kPickle = "/data.pkl";
constexpr std::array<std::uint8_t, 4> kZip{'P', 'K', 3, 4};
// A pickle of protocol 2 that begins with the number by which torch told its older form.
constexpr std::array<std::uint8_t, 6> kOlder{0x80, 0x02, 0x8a, 0x0a, 0x6c, 0xfc};

Result<std::string> text_of(const StoredObject& archive, const ZipMember& member) {
  if (member.bytes > kPickleMax)
    return bad_input("its pickle has " + std::to_string(member.bytes) + " bytes, at most " +
                     std::to_string(kPickleMax) + " are read");
  std::string text(member.bytes, '\0');
  STARLING_TRY(
      archive.read(member.offset, {reinterpret_cast<std::uint8_t*>(text.data()), text.size()}));
  return text;
}

// The tensors, with places in the archive.
Result<std::vector<SafetensorsEntry>> entries_of(const StoredObject& archive) {
  std::array<std::uint8_t, kOlder.size()> head{};
  if (archive.size() >= head.size()) {
    STARLING_TRY(archive.read(0, head));
  }
  if (head == kOlder)
    return bad_input(
        "is of the form before torch 1.6; torch.load() and torch.save() make one of it that is "
        "read");
  STARLING_TRY(listed, stored_members(archive));
  std::map<std::string, ZipMember> members;
  std::string folder;  // all of torch's members lie in one
  for (ZipMember& member : listed) {
    if (member.name.ends_with(kPickle) &&
        member.name.find('/') == member.name.size() - kPickle.size())
      folder = member.name.substr(0, member.name.size() - kPickle.size() + 1);
    members.emplace(member.name, std::move(member));
  }
  if (folder.empty()) return bad_input("has no data.pkl, expected what torch.save() writes");
  if (const auto order = members.find(folder + "byteorder"); order != members.end()) {
    STARLING_TRY(text, text_of(archive, order->second));
    if (text != "little") return bad_input("has numbers of another byte order than little");
  }
  STARLING_TRY(pickle, text_of(archive, members.at(folder + "data.pkl")));
  STARLING_TRY(tensors, parse_state_dict(pickle));
  std::vector<SafetensorsEntry> entries;
  for (const StateDictTensor& tensor : tensors) {
    const auto storage = members.find(folder + "data/" + tensor.storage);
    if (storage == members.end()) return bad_input("has no storage for tensor " + tensor.name);
    const std::uint64_t size = dtype_size(tensor.dtype), there = storage->second.bytes / size;
    std::uint64_t elements = 1;
    for (const std::uint64_t d : tensor.shape)
      elements *= d;  // which parse_state_dict() has seen to fit
    if (tensor.offset > there || elements > there - tensor.offset)
      return bad_input("the storage of tensor " + tensor.name + " is too short for it");
    entries.push_back({tensor.name, tensor.dtype, tensor.shape,
                       storage->second.offset + tensor.offset * size, elements * size});
  }
  std::ranges::stable_sort(entries, {}, &SafetensorsEntry::offset);
  return entries;
}

}  // namespace

bool is_torch_file(const std::string& path) {
  std::array<char, kOlder.size()> head{};
  std::ifstream file(path, std::ios::binary);
  file.read(head.data(), head.size());
  const auto begins = [&](const auto& with) {
    return std::equal(with.begin(), with.end(), head.begin(),
                      [](std::uint8_t a, char b) { return a == static_cast<std::uint8_t>(b); });
  };
  return begins(kZip) || begins(kOlder);
}

Result<SafetensorsFile> open_torch_file(std::unique_ptr<const StoredObject> object) {
  auto entries = entries_of(*object);
  if (!entries) return std::move(entries).error().in("reading " + object->place());
  return SafetensorsFile::of(std::move(object), std::move(entries).value());
}

Result<SafetensorsFile> open_torch_file(const std::string& path) {
  STARLING_TRY(object, open_file(path));
  if (!object) return bad_input("cannot open " + path + ": no such file");
  return open_torch_file(std::move(object));
}

}  // namespace starling
