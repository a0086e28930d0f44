#include "tools/starling/tokenize.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/base/data_files.h"
#include "core/data/token_file.h"
#include "core/job/words.h"
#include "core/text/documents.h"
#include "core/text/packer.h"
#include "core/text/tokenizer.h"
#include "core/text/tokens_note.h"
#include "tools/processes/signals.h"
#include "tools/starling/exit.h"
#include "tools/starling/new_folder.h"

namespace starling::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kAtOnce = 32u << 20;  // bytes of the documents that are in memory

struct Encoded {
  std::vector<std::uint32_t> tokens;  // with kNotLearned where they are read alone
  std::uint64_t bytes = 0;
  std::optional<Error> error;
  bool unknown = false;  // has characters that this version of Unicode does not have
};

// Encodes the documents of each batch, whose marks the tokenizer has, on all threads, in the order of the documents.
class Encoding {
 public:
  Encoding(const Tokenizer& tokenizer, Marks marks, std::uint32_t threads)
      : unassigned_(Pattern::compile("\\p{Cn}").value()) {
    for (std::uint32_t i = 0; i < threads; ++i)
      lanes_.push_back(std::make_unique<Lane>(tokenizer, marks, unassigned_));
  }

  std::vector<Encoded> operator()(const std::vector<Document>& documents) {
    std::vector<Encoded> all(documents.size());
    std::atomic<std::size_t> next = 0;
    const auto work = [&](Lane& lane) {
      for (std::size_t i = next++; i < documents.size(); i = next++) lane(documents[i], all[i]);
    };
    std::vector<std::jthread> threads;
    for (std::size_t i = 1; i < std::min(lanes_.size(), documents.size()); ++i)
      threads.emplace_back([&, i] { work(*lanes_[i]); });
    work(*lanes_[0]);
    threads.clear();
    return all;
  }

 private:
  struct Lane {
    const Tokenizer& tokenizer;
    Encoder encoder;
    Pattern::Scan unassigned;
    Lane(const Tokenizer& with, Marks marks, const Pattern& pattern)
        : tokenizer(with), encoder(with, marks), unassigned(pattern) {}
    void operator()(const Document& document, Encoded& encoded) {
      for (const Stretch& stretch : document.stretches) {
        const std::size_t first = encoded.tokens.size();
        if (stretch.mark) {
          encoded.tokens.push_back(tokenizer.find(stretch.text).value());
        } else if (auto done = encoder.encode(stretch.text, encoded.tokens); !done) {
          encoded.error = std::move(done).error().in(document.place);
          return;
        }
        for (std::size_t i = first; !stretch.learned && i < encoded.tokens.size(); ++i)
          encoded.tokens[i] |= kNotLearned;
        encoded.bytes += stretch.text.size();
        const auto found = unassigned.next(stretch.text, 0);
        encoded.unknown = encoded.unknown || (found && found.value());
      }
    }
  };

  Pattern unassigned_;
  std::vector<std::unique_ptr<Lane>> lanes_;
};

// The token that a document ends with: as it was said, or the tokenizer's own.
Result<std::optional<std::uint32_t>> mark(const Tokenizer& tokenizer, const std::string& name) {
  if (name == "none") return std::optional<std::uint32_t>();
  const auto token = tokenizer.find(name);
  if (!token) return bad_input("the tokenizer has no token " + name);
  return token;
}

Result<std::optional<std::uint32_t>> end_of_document(const Tokenizer& tokenizer,
                                                     const std::optional<std::string>& said,
                                                     const ChatForm* chat) {
  if (chat != nullptr && said)
    return bad_input("--end goes with texts; a chat of " + std::string(chat->name) + " ends with " +
                     std::string(chat->end));
  if (chat != nullptr) return mark(tokenizer, std::string(chat->end));
  if (said) return mark(tokenizer, *said);
  if (const auto token = tokenizer.end_of_document()) return token;
  return bad_input(
      "the tokenizer has no <|endoftext|>, <|end_of_text|> or </s> for the end of a document; "
      "--end says "
      "which token it is, or none");
}

std::string millions(std::uint64_t count) {
  char text[32];
  if (count < 1'000'000) return std::to_string(count);
  std::snprintf(text, sizeof text, "%.1f million", static_cast<double>(count) / 1e6);
  return text;
}

std::uint64_t learned_of(std::span<const std::uint32_t> tokens) {
  return static_cast<std::uint64_t>(std::ranges::count_if(
      tokens, [](std::uint32_t token) { return (token & kNotLearned) == 0; }));
}

struct Counts {
  std::uint64_t documents = 0, bytes = 0, learned = 0, filling = 0, unknown = 0;
  std::uint64_t unlearned = 0, longer = 0;  // documents
  std::string first_unknown;                // document
};

// Says on a terminal how far it is.
class Progress {
 public:
  void operator()(const Counts& counts, std::uint64_t tokens) {
    if (!terminal_) return;
    std::fprintf(stderr, "\r%llu documents, %.1f MB, %s tokens \033[K",
                 static_cast<unsigned long long>(counts.documents),
                 static_cast<double>(counts.bytes) / 1e6, millions(tokens).c_str());
    shown_ = true;
  }
  ~Progress() {
    if (shown_) std::fputs("\r\033[K", stderr);
  }

 private:
  bool terminal_ = ::isatty(STDERR_FILENO) != 0, shown_ = false;
};

Result<std::vector<std::string>> files_of(const TokenizeCommand& command) {
  std::vector<std::string> files;
  for (const std::string& text : command.texts) {
    STARLING_TRY(found, data_files(text, command.extensions));
    for (const std::string& link : found.links)
      std::fprintf(stderr, "starling: %s is a symbolic link, which is not followed\n",
                   link.c_str());
    files.insert(files.end(), found.files.begin(), found.files.end());
  }
  return files;
}

Result<> copy_tokenizer(const std::vector<std::string>& files, const std::string& folder) {
  for (const std::string& file : files) {
    // A tokenizer.json may have had any name.
    const std::string name =
        files.size() == 1 ? "tokenizer.json" : fs::path(file).filename().string();
    std::error_code error;
    fs::copy_file(file, fs::path(folder) / name, error);
    if (error) return bad_input("cannot copy " + file + ": " + error.message());
  }
  return ok();
}

// How transformers reads the tokenizer: by the model's kind it would take a class that cuts text otherwise.
Result<> write_tokenizer_config(const Tokenizer& tokenizer, std::optional<std::uint32_t> begin,
                                std::optional<std::uint32_t> end, const ChatForm* chat,
                                const std::string& folder) {
  const auto text = [&](std::optional<std::uint32_t> token) {
    return token ? nlohmann::ordered_json(tokenizer.decode({&*token, 1})) : nullptr;
  };
  const bool whole = tokenizer_files(folder) == std::vector<std::string>{"tokenizer.json"};
  nlohmann::ordered_json config{
      {"tokenizer_class", whole ? "PreTrainedTokenizerFast" : "GPT2Tokenizer"},
      {"bos_token", text(begin)},
      {"eos_token", text(end)},
      {"clean_up_tokenization_spaces", false}};
  if (chat != nullptr) config["chat_template"] = chat->in_jinja;
  std::ofstream file(folder + "/" + kTokenizerConfig);
  file << config.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << "\n";
  file.close();
  if (!file) return bad_input("cannot write " + std::string(kTokenizerConfig) + " in " + folder);
  return ok();
}

// What a document is. Errors: kBadInput  options that do not go together, or marks that the tokenizer has not.
Result<LineForm> form_of(const TokenizeCommand& command, const Tokenizer& tokenizer) {
  LineForm form;
  form.chat = find_chat_form(command.chat);
  form.field = command.field.value_or(form.chat != nullptr ? "messages" : form.field);
  form.prompt = command.prompt_field;
  if (form.chat == nullptr) return form;
  if (!form.prompt.empty())
    return bad_input("--chat and --prompt-field are two kinds of documents");
  if (command.begin) return bad_input("--begin goes with texts; --chat says how a chat begins");
  for (const std::string& name : marks_of(*form.chat))
    if (!tokenizer.find(name))
      return bad_input("the tokenizer has no token " + name + ", with which --chat " +
                       command.chat + " writes; --prompt-field and --field need none");
  // Else a text that is quoted could end its message and speak for another role.
  Encoder encoder(tokenizer, Marks::kText);
  for (const std::string& name : marks_of(*form.chat)) {
    std::vector<std::uint32_t> tokens;
    STARLING_TRY(encoder.encode("a" + name + "b", tokens));
    if (std::ranges::find(tokens, *tokenizer.find(name)) != tokens.end())
      return bad_input("the tokenizer makes the mark " + name +
                       " of a text that has it, expected \"special\": true in its added_tokens");
  }
  return form;
}

// What is around a document, and what fills the sequence in which it ends.
struct Frame {
  std::optional<std::uint32_t> begin, end;
  bool masks = false;  // tokens may have kNotLearned
  std::uint32_t sequence =
      0;              // documents lie in sequences of so many tokens; 0: one behind the other
  bool pads = false;  // a document fills its last one

  std::uint32_t filling() const { return end.value_or(0) | kNotLearned; }
  // Puts it around the tokens of a document. Returns how many fill a sequence.
  std::uint64_t around(std::vector<std::uint32_t>& tokens) const {
    if (begin) tokens.insert(tokens.begin(), *begin | (masks ? kNotLearned : 0));
    if (end) tokens.push_back(*end);
    if (sequence == 0 || tokens.empty()) return 0;
    tokens.front() |= kNotLearned;  // by what was said before it
    const std::size_t said = tokens.size();
    while (pads && tokens.size() % sequence != 0) tokens.push_back(filling());
    return tokens.size() - said;
  }
};

Result<int> run(const TokenizeCommand& command) {
  std::vector<std::string> of_tokenizer;
  STARLING_TRY(read, read_tokenizer(command.tokenizer, &of_tokenizer));
  const Tokenizer tokenizer(std::move(read));
  STARLING_TRY(form, form_of(command, tokenizer));
  STARLING_TRY(begin, mark(tokenizer, command.begin.value_or("none")));
  STARLING_TRY(end, end_of_document(tokenizer, command.end, form.chat));
  const std::uint32_t sequence = std::max(command.pad_to, command.pack);
  const bool masks = form.masks() || sequence > 0;
  // A chat has its marks already.
  const Frame frame{begin, form.chat == nullptr ? end : std::nullopt, masks, sequence,
                    command.pad_to > 0};
  STARLING_TRY(files, files_of(command));
  block_ending_signals();  // before there is anything to leave behind
  NewFolder folder(command.out);
  STARLING_TRY(folder.begin());
  const std::uint32_t threads =
      command.threads ? command.threads : std::max(1u, std::thread::hardware_concurrency());
  Encoding encode(tokenizer, command.marks ? Marks::kTokens : Marks::kText, threads);
  Documents documents(std::move(files), form);
  const TokenWidth width = masks ? TokenWidth::kMasked32 : width_for(tokenizer.vocabulary());
  TokenFiles out(folder.part(), width, command.tokens_of_file, sequence);
  Counts counts;
  const auto write = [&](std::span<const std::uint32_t> tokens) {
    counts.learned += learned_of(tokens);
    return out.append(tokens);
  };
  Packer packer(std::max(1u, command.pack), frame.filling(), write);
  const auto started = std::chrono::steady_clock::now();
  {
    Progress progress;
    for (;;) {
      STARLING_TRY(batch, documents.next(kAtOnce));
      if (batch.empty()) break;
      auto encoded = encode(batch);
      for (std::size_t i = 0; i < batch.size(); ++i) {
        if (encoded[i].error) return std::move(*encoded[i].error);
        const std::vector<std::uint32_t>& tokens = encoded[i].tokens;
        counts.filling += frame.around(encoded[i].tokens);
        STARLING_TRY(command.pack > 0 ? packer.add(tokens, kNotLearned) : write(tokens));
        ++counts.documents;
        counts.bytes += encoded[i].bytes;
        if (learned_of(tokens) == 0) ++counts.unlearned;
        if (sequence > 0 && tokens.size() > sequence) ++counts.longer;
        if (encoded[i].unknown && counts.unknown++ == 0) counts.first_unknown = batch[i].place;
      }
      progress(counts, out.tokens());
      if (const int signal = pending_signal()) return 128 + signal;
    }
  }
  STARLING_TRY(packer.finish());
  counts.filling += packer.filling();
  if (counts.documents == 0)
    return bad_input(
        "no text is there, expected at least one document" +
        std::string(
            command.extensions.empty()
                ? ""
                : "; of a folder only files whose names end as --extension says are taken"));
  if (masks && counts.learned == 0)
    return bad_input("nothing is to be learned, expected answers of the assistant");
  STARLING_TRY(out.finish());
  STARLING_TRY(copy_tokenizer(of_tokenizer, folder.part()));
  STARLING_TRY(write_tokenizer_config(tokenizer, begin, end, form.chat, folder.part()));
  const TokensNote about{tokenizer.vocabulary(),
                         static_cast<std::uint32_t>(8 * bytes_of(width)),
                         out.tokens(),
                         counts.documents,
                         counts.bytes,
                         begin,
                         end,
                         masks ? std::optional(counts.learned) : std::nullopt,
                         tokenizer_digest(folder.part())};
  std::ofstream note(folder.part() + "/" + TokensNote::kFile);
  note << about.format();
  note.close();
  if (!note) return bad_input("cannot write tokens.json in " + command.out);
  STARLING_TRY(folder.finish());
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  if (counts.unknown > 0)
    std::fprintf(
        stderr,
        "starling: %llu of the documents, the first of them %s, have characters that are not in "
        "Unicode %s: a tokenizer of a later one may cut there otherwise\n",
        static_cast<unsigned long long>(counts.unknown), counts.first_unknown.c_str(),
        Pattern::unicode().c_str());
  if (counts.unlearned > 0)
    std::fprintf(stderr, "starling: %llu of the documents have nothing to learn\n",
                 static_cast<unsigned long long>(counts.unlearned));
  if (counts.longer > 0)
    std::fprintf(stderr,
                 "starling: %llu of the documents are longer than %u tokens, and go on in further "
                 "sequences without what they begin with\n",
                 static_cast<unsigned long long>(counts.longer), sequence);
  std::string learned;
  if (masks) learned = millions(counts.learned) + " of the tokens are learned, ";
  if (sequence > 0) learned += millions(counts.filling) + " fill sequences, ";
  if (masks) learned += "the others are read\n";
  std::printf(
      "%s: %s tokens of %zu bits in %u file%s, of %llu document%s, %.2f bytes a token, %.1f MB/s\n"
      "%sin a job file: [model] vocabulary = %u%s; [data] kind = \"tokens\", path = %s\n",
      command.out.c_str(), millions(out.tokens()).c_str(), 8 * bytes_of(width), out.files(),
      out.files() == 1 ? "" : "s", static_cast<unsigned long long>(counts.documents),
      counts.documents == 1 ? "" : "s",
      static_cast<double>(counts.bytes) / static_cast<double>(out.tokens() - counts.filling),
      static_cast<double>(counts.bytes) / 1e6 / seconds, learned.c_str(), tokenizer.vocabulary(),
      sequence == 0 ? "" : (", context = " + std::to_string(sequence)).c_str(),
      job_words::quoted(command.out).c_str());
  return 0;
}

}  // namespace

void add_tokenize(CLI::App& app, TokenizeCommand& command) {
  auto* sub = subcommand(app, "tokenize",
                         "Makes token files of texts, for [data] kind = \"tokens\", by the "
                         "byte-level BPE of GPT-2, Llama-3 or "
                         "Qwen's kind.",
                         "starling tokenize books/ news.jsonl --tokenizer gpt2/ --out tokens");
  sub->add_option(
         "texts", command.texts,
         "texts in UTF-8: files, each a document; .jsonl, a document in each line; folders; "
         "patterns")
      ->required()
      ->check(kNamed);
  sub->add_option("--tokenizer", command.tokenizer,
                  "tokenizer.json, or a folder with it, or with vocab.json and merges.txt")
      ->required()
      ->check(kNamed);
  sub->add_option("--out", command.out, "new folder of the token files and the tokenizer")
      ->required()
      ->check(kNamed);
  sub->add_option(
         "--extension", command.extensions,
         "of folders only files that end so, as .txt; may come several times (default: all)")
      ->allow_extra_args(false);
  sub->add_option("--field", command.field,
                  "of a line's object, which has the text, or the messages of a chat (default: "
                  "text, messages)");
  sub->add_option("--prompt-field", command.prompt_field,
                  "of a line's object: a text that is read before that of --field and not learned");
  std::vector<std::string> forms;
  for (const ChatForm& form : chat_forms()) forms.emplace_back(form.name);
  sub->add_option(
         "--chat", command.chat,
         "lines are chats, [{\"role\": .., \"content\": ..}, ..], written so; the answers of "
         "the assistant are learned")
      ->check(CLI::IsMember(forms));
  sub->add_option(
         "--pad-to", command.pad_to,
         "documents begin in sequences of so many tokens, the job's context, and what is left of "
         "the last is filled (default: one behind the other)")
      ->check(CLI::Range(2u, 65536u));
  sub->add_option(
         "--pack", command.pack,
         "sequences of so many tokens, the job's context, have whole documents: each goes where it "
         "leaves least room, and what is left is filled")
      ->check(CLI::Range(2u, 65536u))
      ->excludes("--pad-to");
  sub->add_option("--begin", command.begin, "token before each document, as <|begin_of_text|>");
  sub->add_option(
      "--end", command.end,
      "token behind each document, or none; not said: <|endoftext|>, <|end_of_text|> or </s>");
  sub->add_flag(
      "--marks", command.marks,
      "<|..|> in a text is the token of that name, and not text: of texts that you trust");
  sub->add_option("--tokens-per-file", command.tokens_of_file, "tokens of a file")
      ->check(CLI::Range(1u, kTokensOfFileMax))
      ->capture_default_str();
  sub->add_option("--threads", command.threads, "threads; 0: one for each processor")
      ->check(CLI::Range(0u, 1024u))
      ->capture_default_str();
}

int tokenize(const TokenizeCommand& command) {
  auto done = run(command);
  return done ? done.value() : fail(done.error());
}

}  // namespace starling::tools
