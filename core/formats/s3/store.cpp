#include "core/formats/s3/store.h"

#include <algorithm>
#include <charconv>
#include <memory>
#include <set>
#include <utility>

#include "core/base/mac.h"
#include "core/base/mutex.h"
#include "core/formats/s3/answer_xml.h"
#include "core/formats/s3/client.h"

namespace starling::s3 {
namespace {

constexpr std::uint64_t kPartBytes = std::uint64_t{32} << 20, kPartsMax = 10'000;
constexpr std::uint64_t kWholeBytesMax = 2 * kPartBytes;
constexpr std::size_t kWindowBytesMin = std::size_t{256} << 10,
                      kWindowBytesMax = std::size_t{4} << 20;
constexpr std::size_t kFaultBytes = 8192;
constexpr std::size_t kWindows = 16;  // of all objects of a store: 64 MiB
constexpr unsigned kPagesMax = 1000;  // of a list: a million objects
constexpr std::size_t kListBytesMax = std::size_t{16} << 20;

Error unexpected(const HttpReply& reply, const std::string& what, const std::string& place) {
  return Error(Code::kUnavailable,
               "the store answers " + std::to_string(reply.status) + what + "; " + place);
}

// A store that refuses to show an object says nothing of what that holds: it is not a damaged one.
Error not_shown(const Error& why) {
  return Error(Code::kUnavailable, why.text());
}

std::optional<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || read.ec != std::errc() || read.ptr != text.data() + text.size())
    return std::nullopt;
  return value;
}

class Object;

// Bytes of an object, from `begin` on.
struct Window {
  const Object* of = nullptr;
  std::uint64_t begin = 0;
  std::string bytes;
};

// The windows of all open objects of a store, so that many of them take no more memory than a few.
struct Windows {
  Mutex mutex;
  std::vector<Window> all STARLING_GUARDED_BY(mutex);  // the last used first
};

// Reads through windows, as a shard is read in many small parts that follow one another, at two or three
// places. A window is twice as large as the one that it goes on from: a worker may want little of a shard.
class Object : public StoredObject {
 public:
  Object(std::shared_ptr<Windows> windows, const Client& client, std::string key, std::string place,
         std::uint64_t size, std::string etag)
      : windows_(std::move(windows)),
        client_(client),
        key_(std::move(key)),
        place_(std::move(place)),
        size_(size),
        etag_(std::move(etag)) {}
  ~Object() override {
    const MutexLock lock(windows_->mutex);
    std::erase_if(windows_->all, [this](const Window& w) { return w.of == this; });
  }
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  std::uint64_t size() const override { return size_; }
  const std::string& place() const override { return place_; }

  Result<> read(std::uint64_t from, std::span<std::uint8_t> out) const override {
    if (from > size_ || out.size() > size_ - from) return ends_before();
    const MutexLock lock(windows_->mutex);
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

  Result<> read_alone(std::uint64_t from, std::span<std::uint8_t> out) const override {
    if (from > size_ || out.size() > size_ - from) return ends_before();
    if (out.empty()) return ok();
    STARLING_TRY(bytes, fetch(from, out.size(), /*once=*/true));
    std::copy_n(bytes.begin(), out.size(), out.begin());
    return ok();
  }

 private:
  Error ends_before() const {
    return Error(Code::kBadInput, "object ends at byte " + std::to_string(size_) + "; " + place_);
  }

  // The window that has this byte, the first of all from now on. `wanted`: bytes. Errors: as read().
  Result<const Window*> at(std::uint64_t from, std::size_t wanted) const
      STARLING_REQUIRES(windows_->mutex) {
    const auto has = [&](const Window& w) {
      return w.of == this && from >= w.begin && from - w.begin < w.bytes.size();
    };
    const auto leads = [&](const Window& w) {
      return w.of == this && w.begin + w.bytes.size() == from;
    };
    std::vector<Window>& all = windows_->all;
    auto found = std::find_if(all.begin(), all.end(), has);
    if (found == all.end()) {
      found = std::find_if(all.begin(), all.end(), leads);
      if (found != all.end()) wanted = std::max(wanted, 2 * found->bytes.size());
      wanted = std::clamp(wanted, kWindowBytesMin, kWindowBytesMax);
      STARLING_TRY(bytes, fetch(from, wanted));
      if (found == all.end()) found = all.size() < kWindows ? all.emplace(found) : found - 1;
      *found = {this, from, std::move(bytes)};
    }
    std::rotate(all.begin(), found, found + 1);
    return &all.front();
  }

  Result<std::string> fetch(std::uint64_t from, std::size_t wanted, bool once = false) const {
    const std::uint64_t last = std::min(size_, from + wanted) - 1;
    const std::string range = std::to_string(from) + "-" + std::to_string(last);
    Request request{"GET", key_, {}, {{"range", "bytes=" + range}}, {}, last - from + 1, once};
    // A weak tag matches nothing.
    if (!etag_.empty() && !etag_.starts_with("W/")) request.headers["if-match"] = etag_;
    auto sent = client_.send(request);
    if (!sent) return not_shown(sent.error());
    Answer& answer = sent.value();
    const HttpReply& reply = answer.reply;
    if (reply.status == 412 || reply.status == 404)
      return Error(Code::kUnavailable,
                   "object was replaced or removed while it was read; " + place_);
    const bool whole = reply.status == 200 && from == 0 && last + 1 == size_;
    const bool part = reply.status == 206 && reply.header("content-range") ==
                                                 "bytes " + range + "/" + std::to_string(size_);
    if (!(whole || part) || reply.body.size() != last - from + 1)
      return unexpected(reply, " and not bytes " + range, place_);
    return std::move(answer.reply.body);
  }

  const std::shared_ptr<Windows> windows_;
  const Client client_;
  const std::string key_, place_;
  const std::uint64_t size_;
  const std::string etag_;
};

class Store : public Storage {
 public:
  explicit Store(Place place) : place_(std::move(place)), client_(place_.bucket) {}

  Result<> make() override {
    const std::string probe = ".probe-" + std::to_string(fresh_nonce());
    const ByteView nothing;
    auto written = put(probe, std::span<const ByteView>(&nothing, 1));
    if (!written) return std::move(written).error().in("expected a store to write in");
    return remove(probe);
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
    // There is room for what a store says of a missing object: without it a 404 may be anybody's.
    const std::size_t room = std::max(max, kFaultBytes);
    STARLING_TRY(answer, client_.send({"GET", place_.key(name), {}, {}, {}, room}));
    if (answer.reply.status == 404) return std::optional<std::string>();
    if (answer.reply.status != 200) return unexpected(answer.reply, "", place(name));
    std::string& body = answer.reply.body;
    body.resize(std::min(body.size(), max + 1));
    return std::optional(std::move(body));
  }

  Result<std::unique_ptr<StoredObject>> open(const std::string& name) const override {
    const auto answer = head(name);
    if (!answer) return not_shown(answer.error());
    if (!answer.value()) return std::unique_ptr<StoredObject>();
    return std::make_unique<Object>(windows_, client_, place_.key(name), place(name),
                                    answer.value()->first, answer.value()->second);
  }

  Result<std::optional<std::uint64_t>> size(const std::string& name) const override {
    STARLING_TRY(answer, head(name));
    return answer ? std::optional(answer->first) : std::nullopt;
  }

  Result<std::vector<std::string>> folders() const override {
    std::set<std::string> found;
    const auto take = [&](std::string_view name) {
      if (const auto slash = name.find('/'); slash != name.npos)
        found.emplace(name.substr(0, slash));
    };
    // Keys too, as a store may not know `delimiter`.
    STARLING_TRY(list({{"delimiter", "/"}}, {"Prefix", "Key"}, take));
    return std::vector<std::string>(found.begin(), found.end());
  }

  Result<> replace(const std::string& name, const std::string& text) override {
    const ByteView bytes = as_bytes(std::span<const char>(text));
    Request request{"PUT", place_.key(name), {}, {}, std::span<const ByteView>(&bytes, 1)};
    request.once = true;
    STARLING_TRY(answer, client_.send(request));
    return answer.reply.good() ? Result<>(ok()) : unexpected(answer.reply, "", place(name));
  }

  Result<> remove(const std::string& name) override {
    STARLING_TRY(answer, client_.send({"DELETE", place_.key(name)}));
    const bool gone = answer.reply.good() || answer.reply.status == 404;
    return gone ? Result<>(ok()) : unexpected(answer.reply, "", place(name));
  }

  Result<> remove_folder(const std::string& folder) override {
    std::vector<std::string> names;
    STARLING_TRY(list(
        {}, {"Key"},
        [&](std::string_view name) {
          if (name.starts_with(folder + "/")) names.emplace_back(name);
        },
        folder + "/"));
    for (const std::string& name : names)
      if (auto gone = remove(name); !gone && gone.error().code() == Code::kUnavailable) return gone;
    return ok();
  }

  std::string place(const std::string& name) const override { return place_.text(name); }

 private:
  // Size and entity tag.
  Result<std::optional<std::pair<std::uint64_t, std::string>>> head(const std::string& name) const {
    using Head = std::optional<std::pair<std::uint64_t, std::string>>;
    STARLING_TRY(answer, client_.send({"HEAD", place_.key(name)}));
    if (answer.reply.status == 404) {
      // Whatever stands before a store may say so, and without a reason. The list says what is there.
      bool there = false;
      STARLING_TRY(list(
          {}, {"Key"}, [&](std::string_view each) { there |= each == name; }, name));
      return there ? unexpected(answer.reply, " of an object in its list", place(name))
                   : Result<Head>(Head());
    }
    const auto size = number(answer.reply.header("content-length"));
    if (!answer.reply.good() || !size) return unexpected(answer.reply, " and no size", place(name));
    return Head({*size, answer.reply.header("etag")});
  }

  // Calls back with each text of these elements in the list, from behind the store's prefix on.
  template <class Take>
  Result<> list(std::map<std::string, std::string> query, std::vector<std::string> elements,
                Take take, const std::string& below = {}) const {
    const std::string root = place_.key("");
    query["list-type"] = "2";
    query["encoding-type"] = "url";
    query["prefix"] = root + below;
    for (unsigned page = 0; page < kPagesMax; ++page) {
      STARLING_TRY(answer, client_.send({"GET", "", query, {}, {}, kListBytesMax}));
      const std::string& body = answer.reply.body;
      if (answer.reply.status != 200 || body.size() > kListBytesMax)
        return unexpected(answer.reply, " and no list", place_.text());
      for (const std::string& element : elements) {
        STARLING_TRY(texts, texts_of(body, element));
        for (const std::string& text : texts) {
          // The request asks for encoded names, and a store may not know that.
          auto name = decoded(text);
          if (!name || !name->starts_with(root)) name = text;
          if (!name->starts_with(root))
            return unexpected(answer.reply, " and a list of other names", place_.text());
          take(std::string_view(*name).substr(root.size()));
        }
      }
      const auto more = text_of(body, "IsTruncated");
      if (more == "false") return ok();
      const auto next = text_of(body, "NextContinuationToken");
      if (more != "true" || !next || query["continuation-token"] == *next)
        return unexpected(answer.reply, " and half a list", place_.text());
      query["continuation-token"] = *next;
    }
    return Error(Code::kUnavailable, "the store's list has no end; " + place_.text());
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
    // Of a try before, whose answer was lost, there is an object and no upload any more. (libcurl tries again by itself
    // where a connection that was kept is closed.)
    if (answer.reply.good() || answer.reply.status == 404) {
      STARLING_TRY(there, size(name));
      if (there == bytes) return ok();
    }
    return unexpected(answer.reply, " and does not put the parts together", place(name));
  }

  const Place place_;
  const Client client_;
  const std::shared_ptr<Windows> windows_ = std::make_shared<Windows>();
};

}  // namespace

std::unique_ptr<Storage> open_store(Place place) {
  return std::make_unique<Store>(std::move(place));
}

}  // namespace starling::s3
