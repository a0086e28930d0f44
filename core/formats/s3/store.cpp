#include "core/formats/s3/store.h"

#include <algorithm>
#include <charconv>
#include <mutex>
#include <utility>

#include "core/base/mac.h"
#include "core/formats/s3/answer_xml.h"
#include "core/formats/s3/client.h"

namespace starling::s3 {
namespace {

constexpr std::uint64_t kPartBytes = std::uint64_t{32} << 20, kPartsMax = 10'000;
constexpr std::uint64_t kWholeBytesMax = 2 * kPartBytes;
constexpr std::size_t kWindowBytesMin = std::size_t{256} << 10,
                      kWindowBytesMax = std::size_t{8} << 20;
constexpr std::size_t kWindows = 3;
constexpr std::size_t kListBytesMax = std::size_t{16} << 20;

Error unexpected(const HttpReply& reply, const std::string& what, const std::string& place) {
  return Error(Code::kUnavailable,
               "the store answers " + std::to_string(reply.status) + what + "; " + place);
}

std::optional<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || read.ec != std::errc() || read.ptr != text.data() + text.size())
    return std::nullopt;
  return value;
}

// Reads through windows, as a shard is read in many small parts that follow one another, at two or three
// places. A window is twice as large as the one that it goes on from: a worker may want little of a shard.
class Object : public StoredObject {
 public:
  Object(const Client& client, std::string key, std::string place, std::uint64_t size,
         std::string etag)
      : client_(client),
        key_(std::move(key)),
        place_(std::move(place)),
        size_(size),
        etag_(std::move(etag)) {}

  std::uint64_t size() const override { return size_; }
  const std::string& place() const override { return place_; }

  Result<> read(std::uint64_t from, std::span<std::uint8_t> out) const override {
    if (from > size_ || out.size() > size_ - from)
      return Error(Code::kBadInput, "object ends at byte " + std::to_string(size_) + "; " + place_);
    const std::lock_guard lock(mutex_);
    while (!out.empty()) {
      STARLING_TRY(window, at(from, out.size()));
      const std::string_view there = std::string_view(window->bytes).substr(from - window->begin);
      const std::size_t n = std::min(out.size(), there.size());
      std::copy_n(there.begin(), n, out.begin());
      from += n;
      out = out.subspan(n);
    }
    return ok();
  }

 private:
  struct Window {
    std::uint64_t begin = 0;
    std::string bytes;
  };

  // The window that has this byte, the first of all from now on. `wanted`: bytes. Errors: as read().
  Result<const Window*> at(std::uint64_t from, std::size_t wanted) const {
    const auto has = [&](const Window& w) {
      return from >= w.begin && from - w.begin < w.bytes.size();
    };
    const auto leads = [&](const Window& w) { return w.begin + w.bytes.size() == from; };
    auto found = std::find_if(windows_.begin(), windows_.end(), has);
    if (found == windows_.end()) {
      found = std::find_if(windows_.begin(), windows_.end(), leads);
      if (found != windows_.end())
        wanted = std::max(wanted, 2 * found->bytes.size());
      else if (windows_.size() < kWindows)
        found = windows_.emplace(found);
      else
        found = windows_.end() - 1;
      wanted = std::clamp(wanted, kWindowBytesMin, kWindowBytesMax);
      STARLING_TRY(bytes, fetch(from, wanted));
      *found = {from, std::move(bytes)};
    }
    std::rotate(windows_.begin(), found, found + 1);
    return &windows_.front();
  }

  Result<std::string> fetch(std::uint64_t from, std::size_t wanted) const {
    const std::uint64_t last = std::min(size_, from + wanted) - 1;
    const std::string range = std::to_string(from) + "-" + std::to_string(last);
    Request request{"GET", key_, {}, {{"range", "bytes=" + range}}, {}, last - from + 1};
    if (!etag_.empty()) request.headers["if-match"] = etag_;
    STARLING_TRY(answer, client_.send(request));
    const HttpReply& reply = answer.reply;
    if (reply.status == 412 || reply.status == 404)
      return Error(Code::kBadInput, "object was replaced or removed while it was read; " + place_);
    const bool whole = reply.status == 200 && from == 0 && last + 1 == size_;
    const bool part = reply.status == 206 && reply.header("content-range") ==
                                                 "bytes " + range + "/" + std::to_string(size_);
    if (!(whole || part) || reply.body.size() != last - from + 1)
      return unexpected(reply, " and not bytes " + range, place_);
    return std::move(answer.reply.body);
  }

  const Client client_;
  const std::string key_, place_;
  const std::uint64_t size_;
  const std::string etag_;
  mutable std::mutex mutex_;             // protects:
  mutable std::vector<Window> windows_;  // the last used first
};

class Store : public Storage {
 public:
  explicit Store(Place place) : place_(std::move(place)), client_(place_.bucket) {}

  Result<> make() override {
    const std::string probe = ".probe-" + std::to_string(fresh_nonce());
    const ByteView nothing;
    auto written = put(probe, std::span<const ByteView>(&nothing, 1));
    if (!written) return std::move(written).error().in("expected a store to write in");
    remove(probe);
    return ok();
  }

  Result<> put(const std::string& name, std::span<const ByteView> pieces) override {
    std::uint64_t bytes = 0;
    for (const ByteView piece : pieces) bytes += piece.size();
    if (bytes > kWholeBytesMax) return put_in_parts(name, pieces, bytes);
    STARLING_TRY(answer, client_.send({"PUT", place_.key(name), {}, {}, pieces}));
    return answer.reply.good() ? Result<>(ok()) : unexpected(answer.reply, "", place(name));
  }

  Result<bool> put_new(const std::string& name, const std::string& text) override {
    STARLING_TRY(there, get(name, text.size()));
    if (there) return false;
    const ByteView bytes = as_bytes(std::span<const char>(text));
    const std::span<const ByteView> body(&bytes, 1);
    Request request{"PUT", place_.key(name), {}, {{"if-none-match", "*"}}, body};
    STARLING_TRY(answer, client_.send(request));
    if (answer.reply.good()) return true;
    if (answer.reply.status != 412) return unexpected(answer.reply, "", place(name));
    if (!answer.again) return false;
    STARLING_TRY(mine, get(name, text.size()));  // it may be that of an earlier try
    return mine == text;
  }

  Result<std::optional<std::string>> get(const std::string& name, std::size_t max) const override {
    STARLING_TRY(answer, client_.send({"GET", place_.key(name), {}, {}, {}, max}));
    if (answer.reply.status == 404) return std::optional<std::string>();
    if (answer.reply.status != 200) return unexpected(answer.reply, "", place(name));
    return std::optional(std::move(answer.reply.body));
  }

  Result<std::unique_ptr<StoredObject>> open(const std::string& name) const override {
    STARLING_TRY(answer, head(name));
    if (!answer) return std::unique_ptr<StoredObject>();
    return std::make_unique<Object>(client_, place_.key(name), place(name), answer->first,
                                    answer->second);
  }

  Result<std::optional<std::uint64_t>> size(const std::string& name) const override {
    STARLING_TRY(answer, head(name));
    return answer ? std::optional(answer->first) : std::nullopt;
  }

  Result<std::vector<std::string>> folders() const override {
    std::vector<std::string> found;
    STARLING_TRY(list({{"delimiter", "/"}}, "Prefix", [&](std::string_view name) {
      if (name.ends_with('/')) found.emplace_back(name.substr(0, name.size() - 1));
    }));
    return found;
  }

  void remove(const std::string& name) override {
    (void)client_.send({"DELETE", place_.key(name)});
  }

  void remove_folder(const std::string& folder) override {
    std::vector<std::string> names;
    const auto listed = list(
        {}, "Key",
        [&](std::string_view name) {
          if (name.starts_with(folder + "/")) names.emplace_back(name);
        },
        folder + "/");
    if (!listed) return;
    for (const std::string& name : names) remove(name);
  }

  std::string place(const std::string& name) const override { return place_.text(name); }

 private:
  // Size and entity tag.
  Result<std::optional<std::pair<std::uint64_t, std::string>>> head(const std::string& name) const {
    using Head = std::optional<std::pair<std::uint64_t, std::string>>;
    STARLING_TRY(answer, client_.send({"HEAD", place_.key(name)}));
    if (answer.reply.status == 404) return Head();
    const auto size = number(answer.reply.header("content-length"));
    if (!answer.reply.good() || !size) return unexpected(answer.reply, " and no size", place(name));
    return Head({*size, answer.reply.header("etag")});
  }

  // Calls back with each text of <ELEMENT> in the list, from behind the store's prefix on.
  template <class Take>
  Result<> list(std::map<std::string, std::string> query, const std::string& element, Take take,
                const std::string& below = {}) const {
    const std::string root = place_.key("");
    query["list-type"] = "2";
    query["encoding-type"] = "url";
    query["prefix"] = root + below;
    for (;;) {
      STARLING_TRY(answer, client_.send({"GET", "", query, {}, {}, kListBytesMax}));
      const std::string& body = answer.reply.body;
      if (answer.reply.status != 200 || body.size() > kListBytesMax || !body.ends_with(">"))
        return answer.reply.status == 404
                   ? Error(Code::kBadInput, "there is no such bucket; " + place_.text())
                   : unexpected(answer.reply, " and no list", place_.text());
      STARLING_TRY(texts, texts_of(body, element));
      for (const std::string& text : texts) {
        const auto name = decoded(text);
        if (!name)
          return Error(Code::kCorrupt, "a name in the store's list is no name; " + place_.text());
        if (name->starts_with(root)) take(std::string_view(*name).substr(root.size()));
      }
      const auto more = text_of(body, "IsTruncated");
      if (!more) return unexpected(answer.reply, " and half a list", place_.text());
      if (*more != "true") return ok();
      const auto next = text_of(body, "NextContinuationToken");
      if (!next || query["continuation-token"] == *next)
        return unexpected(answer.reply, " and a list without an end", place_.text());
      query["continuation-token"] = *next;
    }
  }

  Result<> put_in_parts(const std::string& name, std::span<const ByteView> pieces,
                        std::uint64_t bytes) {
    const std::string key = place_.key(name);
    STARLING_TRY(begun, client_.send({"POST", key, {{"uploads", ""}}}));
    const auto id = text_of(begun.reply.body, "UploadId");
    if (!begun.reply.good() || !id || id->empty())
      return unexpected(begun.reply, " and begins no upload", place(name));
    auto done = put_parts(name, pieces, bytes, *id);
    if (!done) (void)client_.send({"DELETE", key, {{"uploadId", *id}}});
    return done;
  }

  Result<> put_parts(const std::string& name, std::span<const ByteView> pieces, std::uint64_t bytes,
                     const std::string& id) {
    const std::string key = place_.key(name);
    const std::uint64_t part_bytes = std::max(kPartBytes, (bytes + kPartsMax - 1) / kPartsMax);
    std::string parts = "<CompleteMultipartUpload>";
    std::size_t piece = 0, at = 0;
    std::uint64_t sent = 0;
    for (unsigned part = 1; sent < bytes; ++part) {
      std::vector<ByteView> body;
      const std::uint64_t end = std::min(bytes, sent + part_bytes);
      while (sent < end) {
        const ByteView rest = pieces[piece].subspan(at);
        const std::size_t n = std::min<std::uint64_t>(end - sent, rest.size());
        body.push_back(rest.first(n));
        sent += n;
        at += n;
        if (at == pieces[piece].size()) ++piece, at = 0;
      }
      const std::string number = std::to_string(part);
      STARLING_TRY(
          answer, client_.send({"PUT", key, {{"partNumber", number}, {"uploadId", id}}, {}, body}));
      const std::string etag = answer.reply.header("etag");
      if (!answer.reply.good() || etag.empty() || etag.find_first_of("<&>") != etag.npos)
        return unexpected(answer.reply, " and takes no part " + number, place(name));
      parts += "<Part><PartNumber>" + number + "</PartNumber><ETag>" + etag + "</ETag></Part>";
    }
    parts += "</CompleteMultipartUpload>";
    const ByteView body = as_bytes(std::span<const char>(parts));
    STARLING_TRY(answer, client_.send({"POST",
                                       key,
                                       {{"uploadId", id}},
                                       {{"content-type", "application/xml"}},
                                       std::span<const ByteView>(&body, 1)}));
    // Of a try before, whose answer was lost, there is an object and no upload any more.
    if (answer.reply.good() || answer.again) {
      STARLING_TRY(there, size(name));
      if (there == bytes) return ok();
    }
    return unexpected(answer.reply, " and does not put the parts together", place(name));
  }

  const Place place_;
  const Client client_;
};

}  // namespace

std::unique_ptr<Storage> open_store(Place place) {
  return std::make_unique<Store>(std::move(place));
}

}  // namespace starling::s3
