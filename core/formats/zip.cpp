#include "core/formats/zip.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/base/bytes.h"

namespace starling {
namespace {

// Of each record its signature and the length of its fixed part.
constexpr std::uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50,
                        kEnd64 = 0x06064b50, kLocator64 = 0x07064b50;
constexpr std::uint64_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22, kEnd64Bytes = 56,
                        kLocator64Bytes = 20;
constexpr std::uint64_t kCommentMax = 0xffff, kDirectoryMax = 1u << 26;
constexpr std::uint32_t kIn64 = 0xffffffff;  // a number that the zip64 field has
constexpr std::uint16_t kEncrypted = 1;

Result<Bytes> read(const StoredObject& archive, std::uint64_t from, std::uint64_t bytes) {
  if (from > archive.size() || bytes > archive.size() - from)
    return bad_input("its directory points beyond its end");
  Bytes there(bytes);
  STARLING_TRY(archive.read(from, there));
  return there;
}

struct Directory {
  std::uint64_t members = 0, offset = 0, bytes = 0;
};

Result<Directory> find_directory(const StoredObject& archive) {
  const std::uint64_t size = archive.size();
  const std::uint64_t tail_bytes = std::min(size, kEndBytes + kCommentMax);
  STARLING_TRY(tail, read(archive, size - tail_bytes, tail_bytes));
  for (std::uint64_t at = tail.size() < kEndBytes ? 0 : tail.size() - kEndBytes + 1; at-- > 0;) {
    ByteReader end(ByteView(tail).subspan(at));
    if (end.get<std::uint32_t>() != kEnd) continue;
    end.get_bytes(6);  // disks
    Directory directory;
    directory.members = end.get<std::uint16_t>();
    directory.bytes = end.get<std::uint32_t>();
    directory.offset = end.get<std::uint32_t>();
    if (end.get<std::uint16_t>() != end.remaining()) continue;  // the signature within a comment
    const std::uint64_t end_at = size - tail_bytes + at;
    if (end_at < kLocator64Bytes) return directory;
    STARLING_TRY(locator_bytes, read(archive, end_at - kLocator64Bytes, kLocator64Bytes));
    ByteReader locator(locator_bytes);
    if (locator.get<std::uint32_t>() != kLocator64) return directory;
    locator.get_bytes(4);
    STARLING_TRY(end64_bytes, read(archive, locator.get<std::uint64_t>(), kEnd64Bytes));
    ByteReader end64(end64_bytes);
    if (end64.get<std::uint32_t>() != kEnd64) return bad_input("its zip64 record is none");
    end64.get_bytes(28);  // sizes, versions, disks, members of this disk
    directory.members = end64.get<std::uint64_t>();
    directory.bytes = end64.get<std::uint64_t>();
    directory.offset = end64.get<std::uint64_t>();
    return directory;
  }
  return bad_input("no zip archive, or one that was cut");
}

// Takes the numbers that stand in the zip64 field of a member, in this order.
Result<> take_zip64(ByteView extra, std::initializer_list<std::uint64_t*> numbers) {
  ByteReader fields(extra);
  while (fields.remaining() >= 4) {
    const auto id = fields.get<std::uint16_t>();
    ByteReader field(fields.get_bytes(fields.get<std::uint16_t>()));
    if (id != 1) continue;
    for (std::uint64_t* const number : numbers)
      if (*number == kIn64) *number = field.get<std::uint64_t>();
    if (field.good()) return ok();
  }
  if (std::ranges::any_of(numbers, [](const auto* number) { return *number == kIn64; }))
    return bad_input("a member of 4 GiB has no zip64 field");
  return ok();
}

}  // namespace

Result<std::vector<ZipMember>> stored_members(const StoredObject& archive) {
  STARLING_TRY(directory, find_directory(archive));
  if (directory.bytes > kDirectoryMax)
    return bad_input("its directory has more than " + std::to_string(kDirectoryMax) + " bytes");
  STARLING_TRY(bytes, read(archive, directory.offset, directory.bytes));
  ByteReader entries(bytes);
  std::vector<ZipMember> members;
  std::set<std::string> names;
  for (std::uint64_t i = 0; i < directory.members; ++i) {
    if (entries.remaining() < kCentralBytes || entries.get<std::uint32_t>() != kCentral)
      return bad_input("its directory was cut");
    entries.get_bytes(4);  // versions
    const auto flags = entries.get<std::uint16_t>(), method = entries.get<std::uint16_t>();
    entries.get_bytes(8);  // time, checksum
    std::uint64_t packed = entries.get<std::uint32_t>(), plain = entries.get<std::uint32_t>();
    const auto name_bytes = entries.get<std::uint16_t>(),
               extra_bytes = entries.get<std::uint16_t>(),
               comment_bytes = entries.get<std::uint16_t>();
    entries.get_bytes(8);  // disk, attributes
    std::uint64_t local_at = entries.get<std::uint32_t>();
    const ByteView name = entries.get_bytes(name_bytes);
    const ByteView extra = entries.get_bytes(extra_bytes);
    entries.get_bytes(comment_bytes);
    if (!entries.good()) return bad_input("its directory was cut");
    STARLING_TRY(take_zip64(extra, {&plain, &packed, &local_at}));
    if (method != 0 || packed != plain || (flags & kEncrypted) != 0)
      return bad_input("has members that are compressed or encrypted, which torch never makes");
    STARLING_TRY(local_bytes, read(archive, local_at, kLocalBytes));
    ByteReader local(local_bytes);
    if (local.get<std::uint32_t>() != kLocal) return bad_input("a member of it begins as none");
    local.get_bytes(22);
    const std::uint64_t of_name = local.get<std::uint16_t>(), of_extra = local.get<std::uint16_t>();
    ZipMember member{
        {name.begin(), name.end()}, local_at + kLocalBytes + of_name + of_extra, plain};
    if (member.offset > archive.size() || member.bytes > archive.size() - member.offset)
      return bad_input("a member of it ends beyond its " + std::to_string(archive.size()) +
                       " bytes");
    if (!names.insert(member.name).second) return bad_input("has a member twice");
    members.push_back(std::move(member));
  }
  return members;
}

}  // namespace starling
