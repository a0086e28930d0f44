#include "actors/tokenizers.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "core/text/tokenizer_file.h"
#include "core/text/tokens_note.h"
#include "tests/core/data_folder.h"
#include "tests/core/has.h"

namespace starling::actors {
namespace {

const std::string kFixture = "tests/fixtures/bpe/gpt2.json";

nlohmann::json fixture() {
  std::ifstream file(kFixture);
  return nlohmann::json::parse(file);
}

std::string said(const Job& job) {
  const auto checked = check_tokenizers(job);
  return checked ? "no error" : checked.error().text();
}

}  // namespace

TEST_CASE("tokenizers: of tokens that are trained on, of held-out ones and of weights") {
  const DataFolder folder;
  Job job;
  job.data.kind = DataKind::kTokens;
  job.data.path = folder.path() + "/tokens";
  job.evaluate.path = folder.path() + "/held-out";
  job.evaluate.every = 1;
  GptSpec gpt;
  gpt.from = folder.path() + "/weights/model.safetensors";
  job.model = gpt;
  for (const char* name : {"tokens/a.bin", "held-out/a.bin", "weights/model.safetensors"})
    folder.write(name, "");
  const auto put = [&](const std::string& where, const nlohmann::json& tokenizer, int indent = -1) {
    folder.write(where + "/tokenizer.json", tokenizer.dump(indent));
  };
  // Nobody knows of which they are.
  CHECK(said(job) == "no error");
  put("tokens", fixture());
  CHECK(said(job) == "no error");
  // The same, written otherwise.
  put("held-out", fixture(), 1);
  put("weights", fixture(), 2);
  CHECK(said(job) == "no error");

  nlohmann::json more = fixture();
  const auto next = read_tokenizer(kFixture).value().tokens.size();
  more["added_tokens"].push_back({{"id", next}, {"content", "<|turn|>"}, {"special", true}});
  put("tokens", more);
  CHECK(has(said(job), "[evaluate] " + folder.path() + "/held-out has another tokenizer"));
  put("held-out", more);
  CHECK(said(job) == "no error");  // the weights' lacks an added one
  put("tokens", fixture());
  put("held-out", fixture());
  put("weights", more);
  CHECK(has(said(job), "[model].from " + folder.path() + "/weights has another tokenizer"));

  nlohmann::json swapped = fixture();
  std::swap(swapped["model"]["vocab"]["a"], swapped["model"]["vocab"]["b"]);
  put("weights", swapped);
  CHECK(has(said(job), "has another tokenizer than the tokens of [data]"));
  nlohmann::json merged = fixture();
  std::swap(merged["model"]["merges"][0], merged["model"]["merges"][1]);
  put("weights", merged);
  CHECK(has(said(job), "has another tokenizer than the tokens of [data]"));
  put("weights", {{"model", {{"type", "Unigram"}}}});
  CHECK(has(said(job), "has another tokenizer than the tokens of [data]"));
  gpt.from.clear();
  job.model = gpt;
  CHECK(said(job) == "no error");
}

namespace {

// A job on the tokens of a path, with held-out ones where there is another.
Job job_of(const std::string& tokens, const std::string& held_out = "") {
  Job job;
  job.data.kind = DataKind::kTokens;
  job.data.path = tokens;
  job.evaluate.path = held_out;
  job.evaluate.every = held_out.empty() ? 0 : 1;
  job.model = GptSpec{.vocabulary = 500};
  return job;
}

nlohmann::json other_kind() {
  nlohmann::json other = fixture();
  std::swap(other["model"]["merges"][0], other["model"]["merges"][1]);
  return other;
}

}  // namespace

TEST_CASE("tokenizers: those of folders below, of patterns and behind links count") {
  const DataFolder folder;
  const std::string all = folder.path() + "/all";
  for (const char* const name : {"all/a/0.bin", "all/b/0.bin", "held/x/0.bin"})
    folder.write(name, "");
  folder.write("all/a/tokenizer.json", fixture().dump());
  CHECK(said(job_of(all)) == "no error");
  folder.write("all/b/tokenizer.json", other_kind().dump());
  CHECK(has(said(job_of(all)), "[data] " + all + "/b has another tokenizer"));
  CHECK(said(job_of(all + "/b")) == "no error");
  folder.write("held/x/tokenizer.json", other_kind().dump());
  for (const char* const held_out : {"/held", "/held/x", "/held/x/*.bin", "/held/x/0.bin"})
    CHECK(has(said(job_of(all + "/a", folder.path() + held_out)), "[evaluate] "));
  std::filesystem::create_directories(folder.path() + "/links");
  std::filesystem::create_symlink("../held/x/0.bin", folder.path() + "/links/0.bin");
  for (const char* const held_out : {"/links/0.bin", "/links/*.bin"})
    CHECK(has(said(job_of(all + "/a", folder.path() + held_out)), "[evaluate] "));
  // Weights that are links, as a cache of models has them.
  std::filesystem::create_directories(folder.path() + "/weights");
  folder.write("run/model.safetensors", "");
  folder.write("run/tokenizer.json", other_kind().dump());
  std::filesystem::create_symlink("../run/model.safetensors",
                                  folder.path() + "/weights/model.safetensors");
  Job job = job_of(all + "/a");
  job.model = GptSpec{.vocabulary = 500, .from = folder.path() + "/weights"};
  CHECK(has(said(job), "[model].from " + folder.path()));
}

TEST_CASE("tokenizers: an added token that text becomes otherwise is another tokenizer") {
  const DataFolder folder;
  folder.write("tokens/0.bin", "");
  folder.write("tokens/tokenizer.json", fixture().dump());
  folder.write("held/0.bin", "");
  const Job job = job_of(folder.path() + "/tokens", folder.path() + "/held");
  Job begun = job_of(folder.path() + "/tokens");
  begun.model = GptSpec{.vocabulary = 500, .from = folder.path() + "/held"};
  const auto both = [&](const nlohmann::json& held, bool job_fits, bool weights_fit) {
    folder.write("held/tokenizer.json", held.dump());
    CHECK((said(job) == "no error") == job_fits);
    CHECK((said(begun) == "no error") == weights_fit);
  };
  nlohmann::json held = fixture();
  both(held, true, true);
  held["added_tokens"][0]["special"] =
      false;  // text with its mark becomes other tokens; others do not
  both(held, false, true);
  held = fixture();
  held["added_tokens"].push_back(
      {{"id", held["model"]["vocab"]["a"]}, {"content", "a"}, {"special", false}});
  both(held, false, false);
}

TEST_CASE("tokenizers: a note says which one made the tokens, and how many there are") {
  const DataFolder folder;
  const std::string tokens = folder.path() + "/tokens";
  folder.write("tokens/0.bin", std::string(20, '\0'));
  folder.write("tokens/tokenizer.json", fixture().dump());
  TokensNote note{.vocabulary = 400, .tokens = 10, .tokenizer = tokenizer_digest(tokens)};
  const auto said_with = [&] {
    folder.write("tokens/tokens.json", note.format());
    return said(job_of(tokens));
  };
  CHECK(said_with() == "no error");
  note.tokens = 9;
  CHECK(has(said_with(), "have 10 tokens, expected at most the 9 that were made together"));
  folder.write("tokens/other.bin", std::string(2000, '\0'));  // which a pattern leaves out
  note.tokens = 10;
  CHECK(has(said_with(), "have 1010 tokens"));
  CHECK(said(job_of(tokens + "/0*.bin")) == "no error");
  std::filesystem::remove(tokens + "/other.bin");
  note.tokens = 11;  // some of the files may be elsewhere
  CHECK(said_with() == "no error");
  note.vocabulary = 501;
  CHECK(has(said_with(), "the model must have as much, has 500"));
  note.vocabulary = 400;
  folder.write("tokens/tokenizer.json", fixture().dump(1));
  CHECK(has(said_with(), "is not, byte for byte, the one that made them"));
  note.tokenizer.clear();  // of a build that did not say
  CHECK(said_with() == "no error");
}

TEST_CASE("tokenizers: two of a kind that is not read here may be the same") {
  const DataFolder folder;
  nlohmann::json unigram{{"model", {{"type", "Unigram"}, {"vocab", {1, 2}}}}};
  folder.write("tokens/0.bin", "");
  folder.write("tokens/tokenizer.json", unigram.dump());
  folder.write("held/0.bin", "");
  folder.write("held/tokenizer.json", unigram.dump(2));
  const Job job = job_of(folder.path() + "/tokens", folder.path() + "/held");
  CHECK(said(job) == "no error");
  unigram["model"]["vocab"] = {2, 1};
  folder.write("held/tokenizer.json", unigram.dump());
  CHECK(has(said(job), "[evaluate] " + folder.path() +
                           "/held has another tokenizer than the tokens of [data]"));
  // No file of a tokenizer at all.
  std::filesystem::remove(folder.path() + "/held/tokenizer.json");
  std::filesystem::create_directories(folder.path() + "/held/tokenizer.json");
  CHECK(has(said(job), "has another tokenizer"));
}

}  // namespace starling::actors
