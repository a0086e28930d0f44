#include "tools/starling/shard.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <random>

#include "core/base/hash.h"
#include "core/base/s3_place.h"
#include "core/base/text.h"
#include "core/data/chunk_store.h"
#include "core/data/shard_index.h"
#include "core/data/token_source.h"
#include "core/formats/storage.h"
#include "core/job/words.h"
#include "core/text/tokenizer_file.h"
#include "core/text/tokenizer_place.h"
#include "core/text/tokens_note.h"
#include "tools/processes/signals.h"
#include "tools/starling/exit.h"
#include "tools/starling/new_folder.h"

namespace starling::tools {
namespace {

namespace fs = std::filesystem;

// Without --chunk-bytes: small data are cut into kChunksWanted chunks, large data into kChunksEnough at most, whose index a
// worker still reads in about a second.
constexpr std::uint64_t kChunkBytesMin = std::uint64_t{16} << 10,
                        kChunkBytesMax = std::uint64_t{64} << 10;
constexpr std::uint64_t kChunksWanted = 1024, kChunksEnough = 1u << 19;

// New objects of a store, which go again if they are not finished. Of several that begin at once, one goes on.
class NewObjects {
 public:
  explicit NewObjects(Storage& storage) : storage_(storage) {}
  ~NewObjects() {
    for (const std::string& name : names_) (void)storage_.remove(name);
  }
  NewObjects(const NewObjects&) = delete;
  NewObjects& operator=(const NewObjects&) = delete;
  Result<> begin() {
    // No other process writes the same: it could take this one's claim for its own.
    std::random_device random;
    const std::uint64_t number = std::uint64_t{random()} << 32 | random();
    STARLING_TRY(claimed,
                 storage_.put_new(kClaim, "starling shard " + hex(number) + " writes here\n"));
    if (!claimed)
      return bad_input(storage_.place(kClaim) +
                       " is there: another starling shard writes here, or one was killed and "
                       "this is to be removed");
    names_.push_back(kClaim);
    return ok();
  }
  Result<> put(const std::string& name, ByteView bytes) {
    STARLING_TRY(there, storage_.size(name));
    if (there)
      return bad_input(storage_.place(name) + " is there already, expected a place without shards");
    names_.push_back(name);
    return storage_.put(name, std::span<const ByteView>(&bytes, 1));
  }
  Result<> put(const std::string& name, const std::string& text) {
    return put(name, as_bytes(std::span<const char>(text)));
  }
  void finish() {
    (void)storage_.remove(kClaim);
    names_.clear();
  }

 private:
  static constexpr const char* kClaim = "shards.claim";
  Storage& storage_;
  std::vector<std::string> names_;
};

// The tokens that shards are made of: all, or of sequences those that have something to learn.
class Stream {
 public:
  explicit Stream(const TokenSource& source) : source_(source), all_(source.tokens()) {}

  std::uint64_t tokens() const {
    return source_.sequence == 0 ? all_ : learned_.size() * source_.sequence;
  }
  std::uint64_t left_out() const { return all_ - tokens(); }

  // Finds the sequences that are samples.
  Result<> find_learned() {
    if (source_.sequence == 0) return ok();
    Bytes room;
    const std::size_t bytes = source_.sequence * bytes_of(source_.width);
    for (std::uint64_t i = 0; i < all_ / source_.sequence; ++i) {
      STARLING_TRY(view, source_.bytes->read(i * bytes, bytes, room));
      const TokenFile tokens{view, source_.width};
      std::uint64_t t = 1;
      while (t < tokens.size() && !tokens.is_learned(t)) ++t;
      if (t < tokens.size()) learned_.push_back(i);
    }
    return ok();
  }

  // Appends `count` tokens from `first` on; of sequences whole ones.
  Result<> read(std::uint64_t first, std::uint64_t count, Bytes& out) const {
    const std::size_t width = bytes_of(source_.width);
    if (source_.sequence == 0) return copy(first * width, count * width, out);
    const std::size_t bytes = source_.sequence * width;
    for (std::uint64_t i = first / source_.sequence; count > 0; ++i, count -= source_.sequence) {
      STARLING_TRY(copy(learned_[i] * bytes, bytes, out));
    }
    return ok();
  }

 private:
  Result<> copy(std::uint64_t at, std::size_t bytes, Bytes& out) const {
    Bytes room;
    STARLING_TRY(view, source_.bytes->read(at, bytes, room));
    out.insert(out.end(), view.begin(), view.end());
    STARLING_TRY(touched, source_.bytes->touched(at, bytes));
    if (touched) return bad_input(*touched + " was changed while it was read");
    return ok();
  }

  const TokenSource& source_;
  const std::uint64_t all_;
  std::vector<std::uint64_t> learned_;
};

std::uint32_t chunk_tokens(const ShardCommand& command, const TokenSource& source,
                           std::uint64_t tokens) {
  const std::size_t width = bytes_of(source.width);
  const std::uint64_t all = tokens * width;
  const std::uint64_t unasked =
      std::max(std::clamp(all / kChunksWanted, kChunkBytesMin, kChunkBytesMax),
               std::bit_ceil(all / kChunksEnough));
  const std::uint64_t bytes = command.chunk_bytes != 0 ? command.chunk_bytes : unasked;
  const std::uint64_t wanted =
      std::clamp<std::uint64_t>(bytes / width, 1, ShardIndex::kChunkTokensMax);
  // A power of two has room for whole samples of most contexts.
  if (source.sequence == 0) return static_cast<std::uint32_t>(std::bit_floor(wanted));
  return static_cast<std::uint32_t>(std::max<std::uint64_t>(1, wanted / source.sequence) *
                                    source.sequence);
}

class Progress {
 public:
  void operator()(std::uint64_t done, std::uint64_t all) {
    if (!terminal_) return;
    std::fprintf(stderr, "\r%llu of %llu chunks\033[K", static_cast<unsigned long long>(done),
                 static_cast<unsigned long long>(all));
    shown_ = true;
  }
  ~Progress() {
    if (shown_) std::fputs("\r\033[K", stderr);
  }

 private:
  bool terminal_ = ::isatty(STDERR_FILENO) != 0, shown_ = false;
};

// Puts the shards, and fills the index. Returns a signal that has come; 0: none.
Result<int> put_shards(const Stream& stream, std::uint64_t chunks, std::uint64_t of_shard,
                       NewObjects& objects, ShardIndex& index) {
  Progress progress;
  const std::uint64_t size = index.chunk_bytes();
  for (std::uint64_t first = 0; first < chunks; first += of_shard) {
    const std::uint64_t here = std::min(of_shard, chunks - first);
    const std::uint64_t tokens = here * index.chunk_tokens + (index.sequence == 0 ? 1 : 0);
    const auto header =
        token_header(index.width, static_cast<std::uint32_t>(tokens), index.sequence);
    const ByteView head = as_bytes(std::span<const std::uint32_t>(header));
    Bytes bytes(head.begin(), head.end());
    bytes.reserve(kTokenHeader + tokens * bytes_of(index.width));
    STARLING_TRY(stream.read(first * index.chunk_tokens, tokens, bytes));
    std::vector<Digest> digests;
    for (std::uint64_t c = 0; c < here; ++c)
      digests.push_back(hash128(ByteView(bytes).subspan(
          kTokenHeader + c * index.chunk_tokens * bytes_of(index.width), size)));
    char name[32];
    std::snprintf(name, sizeof name, "shard-%06zu.bin", index.shards.size());
    STARLING_TRY(objects.put(name, bytes));
    index.add(name, std::move(digests));
    progress(first + here, chunks);
    if (const int signal = pending_signal()) return signal;
  }
  return 0;
}

Result<std::string> text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (file.bad() || !file.is_open()) return bad_input("cannot read " + path.string());
  return text;
}

// Puts the tokenizer that lies beside the tokens, and tokens.json, beside the shards.
Result<> put_tokenizer(const ShardCommand& command, const ShardIndex& index, NewObjects& objects) {
  const std::string place = place_of_tokenizer(command.tokens);
  if (!place.empty()) {
    std::vector<std::string> names = tokenizer_files(place);
    if (fs::is_regular_file(fs::path(place) / kTokenizerConfig)) names.push_back(kTokenizerConfig);
    for (const std::string& name : names) {
      STARLING_TRY(text, text_of(fs::path(place) / name));
      STARLING_TRY(objects.put(name, text));
    }
  }
  const auto places = places_of_tokens(command.tokens);
  auto note = places.size() == 1 ? TokensNote::read(places[0]) : std::nullopt;
  if (!note) return ok();
  note->tokens = index.tokens() + (index.sequence == 0 ? index.shards.size() : 0);
  return objects.put(TokensNote::kFile, note->format());
}

// Whether the new folder would lie in that of the tokens: its shards would be tokens of it then.
bool lies_in(const std::string& folder, const std::string& path) {
  std::error_code error;
  if (s3::is_place(path) || !fs::is_directory(folder, error)) return false;
  const fs::path outer = fs::weakly_canonical(folder, error),
                 inner = fs::weakly_canonical(path, error);
  return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
}

Result<int> run(const ShardCommand& command) {
  std::error_code error;
  if (fs::exists(fs::path(command.tokens) / ShardIndex::kFile, error))
    return bad_input("are shards already, by their " + std::string(ShardIndex::kFile) +
                     ", expected token files; " + command.tokens);
  if (lies_in(command.tokens, command.to))
    return bad_input(
        "--to lies in the folder of the tokens, whose tokens the shards would be, is " +
        command.to);
  std::uint32_t largest = 0;
  STARLING_TRY(source, TokenSource::open(command.tokens, command.extensions,
                                         [&](const TokenFile& file, const std::string&) {
                                           for (std::uint64_t i = 0; i < file.size(); ++i)
                                             largest = std::max(largest, file[i]);
                                           return ok();
                                         }));
  if (largest >= kNotLearned)
    return bad_input("has the token " + std::to_string(largest) + ", expected all below " +
                     std::to_string(kNotLearned) + "; " + command.tokens);
  Stream stream(source);
  STARLING_TRY(stream.find_learned());
  ShardIndex index;
  index.width = source.width;
  index.sequence = source.sequence;
  index.vocabulary = largest + 1;
  index.chunk_tokens = chunk_tokens(command, source, stream.tokens());
  const std::uint64_t there =
      stream.tokens() - (source.sequence == 0 && stream.tokens() > 0 ? 1 : 0);
  const std::uint64_t chunks = there / index.chunk_tokens;
  if (chunks == 0)
    return bad_input("has " + std::to_string(stream.tokens()) +
                     " tokens, expected more than a chunk's " + std::to_string(index.chunk_tokens) +
                     "; --chunk-bytes makes smaller ones; " + command.tokens);
  if (chunks > ShardIndex::kChunksMax)
    return bad_input("would be " + std::to_string(chunks) + " chunks, expected at most " +
                     std::to_string(ShardIndex::kChunksMax) +
                     "; --chunk-bytes makes larger ones; " + command.tokens);
  block_ending_signals();  // before there is anything to leave behind
  const bool bucket = s3::is_place(command.to);
  std::optional<NewFolder> folder;
  if (!bucket) {
    folder.emplace(command.to);
    STARLING_TRY(folder->begin());
  }
  STARLING_TRY(named, storage_named(bucket ? command.to : folder->part()));
  const auto storage = open_storage(named);
  if (bucket) {
    STARLING_TRY(storage->make());
    STARLING_TRY(size, storage->size(ShardIndex::kFile));
    if (size)
      return bad_input(storage->place(ShardIndex::kFile) +
                       " is there already, expected a place without shards");
  }
  NewObjects objects(*storage);
  STARLING_TRY(objects.begin());
  const std::uint64_t of_shard =
      std::clamp<std::uint64_t>(command.shard_bytes / (index.chunk_tokens * bytes_of(index.width)),
                                1, kTokensOfFileMax / index.chunk_tokens - 1);
  auto ended = put_shards(stream, chunks, of_shard, objects, index);
  if (!ended) {
    const int signal = pending_signal();
    if (signal != 0) return 128 + signal;
    return std::move(ended).error();
  }
  if (ended.value() != 0) return 128 + ended.value();
  // What nobody could read is not written.
  STARLING_TRY(ShardIndex::parse(index.format(), command.to));
  STARLING_TRY(put_tokenizer(command, index, objects));
  // Last: nobody takes shards without it for all.
  STARLING_TRY(objects.put(ShardIndex::kFile, index.format()));
  objects.finish();
  if (folder) {
    STARLING_TRY(folder->finish());
  }
  const std::uint64_t left = source.tokens() - index.tokens();
  std::printf(
      "%s: %llu tokens in %llu chunks of %u tokens, %llu bytes each with the one that follows, in "
      "%zu shard%s; %llu tokens are left out%s\n"
      "in a job file: [data] kind = \"tokens\", order = \"lanes\", path = %s\n",
      command.to.c_str(), static_cast<unsigned long long>(index.tokens()),
      static_cast<unsigned long long>(chunks), index.chunk_tokens,
      static_cast<unsigned long long>(index.chunk_bytes()), index.shards.size(),
      index.shards.size() == 1 ? "" : "s", static_cast<unsigned long long>(left),
      stream.left_out() > 0 ? ", those of sequences without anything to learn among them" : "",
      job_words::quoted(command.to).c_str());
  return 0;
}

}  // namespace

void add_shard(CLI::App& app, ShardCommand& command) {
  auto* sub = subcommand(app, "shard",
                         "Makes shards with an index of token files, for [data] order = "
                         "\"lanes\": each worker reads its own share of them, from a folder or "
                         "a bucket, and checks what it reads.",
                         "starling shard tokens --to s3://bucket/tokens");
  sub->add_option("tokens", command.tokens,
                  "a token file, a folder of them, or a pattern, as starling tokenize makes them")
      ->required()
      ->check(kNamed);
  sub->add_option("--to", command.to, "a new folder, or s3://BUCKET/PREFIX without shards")
      ->required()
      ->check(kNamed);
  sub->add_option("--extension", command.extensions,
                  "endings of files that count in a folder (default: .bin)");
  sub->add_option("--chunk-bytes", command.chunk_bytes,
                  "bytes of a chunk, which is read and checked as one; a worker keeps up to 64 "
                  "of them for each micro-batch that it computes in a step (default: by the "
                  "size of all, 16 to 64 KiB, of more than 32 GiB larger)")
      ->check(CLI::Range(std::uint64_t{256}, std::uint64_t{64} << 20));
  sub->add_option("--shard-bytes", command.shard_bytes, "bytes of a shard, at most about")
      ->check(CLI::Range(std::uint64_t{1} << 10, std::uint64_t{1} << 30))
      ->capture_default_str();
}

int shard(const ShardCommand& command) {
  auto done = run(command);
  return done ? done.value() : fail(done.error());
}

std::string shards_at(const std::string& path) {
  const std::string name = ShardIndex::kFile;
  if (path == name) return ".";
  if (path.ends_with("/" + name)) return path.substr(0, path.size() - name.size() - 1);
  std::error_code error;
  return fs::is_regular_file(fs::path(path) / name, error) ? path : std::string();
}

int check_shards(const std::string& place) {
  constexpr std::size_t kShown = 5;
  const auto opened = ChunkStore::open(place, "", 0);
  if (!opened) return fail(opened.error());
  ChunkStore& store = *opened.value();
  store.stop();  // a store that is away is not waited for
  const ShardIndex& index = store.index();
  std::uint64_t damaged = 0;
  std::string faults;
  std::optional<Error> away;
  const auto look = [&](auto read) {
    if (read) return;
    if (++damaged <= kShown) faults += read.error().text() + "\n";
    if (read.error().code() != Code::kBadInput) away.emplace(std::move(read).error());
  };
  {
    Progress progress;
    for (std::size_t i = 0; i < index.shards.size() && !away; ++i) look(store.check_header(i));
    for (std::uint64_t i = 0; i < index.chunks() && !away; ++i) {
      look(store.read(i));
      progress(i + 1, index.chunks());
    }
  }
  if (away) return fail(*away);
  std::fputs(faults.c_str(), stdout);
  if (damaged > 0)
    return fail(bad_input(
        std::to_string(damaged) + " of " + std::to_string(index.chunks()) +
        " chunks (and headers) cannot be used; their shards are to be copied anew, or all of "
        "them made anew (starling shard); " +
        place));
  std::printf(
      "%s: %llu tokens%s below %u in %llu chunks of %u, in %zu shard%s, all as the index says\n",
      place.c_str(), static_cast<unsigned long long>(index.tokens()),
      index.sequence == 0 ? "" : (", " + sequences_text(index.sequence) + ",").c_str(),
      index.vocabulary, static_cast<unsigned long long>(index.chunks()), index.chunk_tokens,
      index.shards.size(), index.shards.size() == 1 ? "" : "s");
  return 0;
}

Result<> check_shards_of(const Job& job) {
  if (job.data.order != DataOrder::kLanes || s3::is_place(job.data.path)) return ok();
  STARLING_TRY(store, ChunkStore::open(job.data.path, "", 0));
  for (std::size_t i = 0; i < store->index().shards.size(); ++i) {
    STARLING_TRY(store->look_at(i));
  }
  return ok();
}

}  // namespace starling::tools
