// Job files of a script's model: what is in them, what is refused, and what reaches a bit.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/data/dataset.h"
#include "core/job/job.h"
#include "core/job/layout.h"

namespace starling {
namespace {

const std::string kGoodScript = R"(
[job]
name = "x"
steps = 5
[model]
kind = "python"
script = "train.py"
samples = 100
tensors = ["net.weight:3x4", "scale:"]
[optimizer]
kind = "adamw"
peak_rate = 1e-3
)";

std::string script_with(const std::string& from, const std::string& to) {
  std::string text = kGoodScript;
  text.replace(text.find(from), from.size(), to);
  return text;
}

std::string script_error(const std::string& text) {
  const auto job = parse_job(text, "/folder");
  return job ? "none" : job.error().text();
}

TEST_CASE(
    "a script's model: its path is relative to the job file, and a job is written as it was read") {
  const Job job = parse_job(kGoodScript, "/folder").value();
  const auto& python = std::get<PythonSpec>(job.model);
  CHECK(python ==
        PythonSpec{"/folder/train.py", 100, false, {"net.weight:3x4", "scale:"}, {}, 300});
  CHECK(parse_job(format_job(job), "/").value() == job);
  const Job measures =
      parse_job(script_with("samples = 100", "samples = 100\nmetrics = [\"a\", \"b\"]"), "/")
          .value();
  CHECK(metric_names(measures.model) == std::vector<std::string>{"a", "b"});
  CHECK(parse_job(format_job(measures), "/").value() == measures);
  CHECK(job_hash(measures) != job_hash(job));
}

// What decides what a script computes, all of it.
const std::string kWhole = R"(samples = 100
module = "package.train"
arguments = ["--name", "a \"b\" = c", ""]
text = ["package/parts.py:0123456789abcdef", "package/train.py:1123456789abcdef"]
call = 3
at = "train.py:31"
earlier = ["{\"at\": \"train.py:9\"}", "{\"at\": \"train.py:12\"}"])";

TEST_CASE("a script's model: text, arguments and call are in its job, as they were said") {
  const Job job = parse_job(script_with("samples = 100", kWhole), "/folder").value();
  const auto& python = std::get<PythonSpec>(job.model);
  CHECK(python.module == "package.train");
  CHECK(python.arguments == std::vector<std::string>{"--name", "a \"b\" = c", ""});
  CHECK(python.text.size() == 2);
  CHECK(python.call == 3);
  CHECK(python.at == "train.py:31");
  CHECK(python.earlier[1] == "{\"at\": \"train.py:12\"}");
  CHECK(parse_job(format_job(job), "/").value() == job);
}

TEST_CASE(
    "a script's model: another text, argument or call is another job; a checkpoint is of a call, "
    "whatever its script's text") {
  const Job job = parse_job(script_with("samples = 100", kWhole), "/folder").value();
  const auto changed = [&](auto change) {
    Job other = job;
    change(std::get<PythonSpec>(other.model));
    return other;
  };
  const Job text = changed([](PythonSpec& p) { p.text[1] = "package/train.py:2"; });
  const Job file = changed([](PythonSpec& p) { p.text.pop_back(); });
  const Job argument = changed([](PythonSpec& p) { p.arguments[0] = "--names"; });
  const Job call = changed([](PythonSpec& p) { p.call = 4; });
  for (const Job* other : {&text, &file, &argument, &call})
    CHECK(job_hash(*other) != job_hash(job));
  for (const Job* other : {&text, &file, &argument}) CHECK(state_hash(*other) == state_hash(job));
  CHECK(state_hash(call) != state_hash(job));
  CHECK(script_differences(job, job).empty());
  CHECK(script_differences(job, text) == "package/train.py has another text");
  CHECK(script_differences(job, file) == "package/train.py is not there any more");
  CHECK(script_differences(file, job) == "package/train.py is new");
  CHECK(
      script_differences(job, argument) ==
      R"(the arguments are ["--names", "a \"b\" = c", ""] and were ["--name", "a \"b\" = c", ""])");
  CHECK(job_differences(job, argument).starts_with("model.arguments is [\"--name\", "));
}

TEST_CASE("a script's model: where the workers' state lies makes no other job") {
  const auto with_isa = [](const char* isa) {
    Job job = parse_job(kGoodScript, "/folder").value();
    job.isa = isa;
    return job;
  };
  const Job job = with_isa("auto");
  for (const char* isa : {"cuda", "emulated"}) {
    CHECK(job_hash(with_isa(isa)) == job_hash(job));
    CHECK(state_hash(with_isa(isa)) == state_hash(job));
    CHECK(job_differences(job, with_isa(isa)).empty());
  }
  CHECK(job_hash(with_isa("avx2")) != job_hash(job));
  CHECK(state_hash(with_isa("avx2")) != state_hash(job));
}

TEST_CASE("bad job files of a script's model: the message says what, where and what was expected") {
  struct Row {
    const char *from, *to, *message;
  };
  const Row rows[] = {
      {"script = \"train.py\"\n", "", "script is missing; [model].script"},
      {"samples = 100", "samples = 0",
       "samples must be an integer from 1 to 281474976710656, is 0"},
      {"\"scale:\"", "\"scale\"",
       "tensors must be texts like \"encoder.weight:64x128\", is \"scale\"; [model].tensors"},
      {"\"scale:\"", "7", "tensors must be texts like"},
      {"tensors = [\"net.weight:3x4\", \"scale:\"]", "tensors = []",
       "tensors must be at least one"},
      {"\"scale:\"", "\"a:60000000000\", \"b:60000000000\"",
       "the model must have at most 2^36 parameters, has more"},
      {"samples = 100", "samples = 100\nwidth = 3", "width does not apply to kind \"python\""},
      {"samples = 100", "samples = 100\nmetrics = [\"\"]",
       "metrics must be names of 1 to 64 bytes"},
      {"samples = 100",
       "samples = 100\nmetrics = [\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\"]",
       "metrics must be an array of at most 8 entries"},
      {"samples = 100", "samples = 100\ncall = 3\nearlier = [\"\"]",
       "earlier must be what the calls before call 3 came to, has 1"},
      {"samples = 100", "samples = 100\narguments = [1]",
       "arguments must be texts of at most 4096 bytes, is 1"},
      {"samples = 100", "samples = 100\npatience_s = 0", "patience_s must be an integer from 1"},
      {"[optimizer]", "[data]\nkind = \"text\"\npath = \"core\"\n[optimizer]",
       "section does not apply to a model of kind \"python\"; [data], line 10"},
  };
  for (const Row& row : rows) {
    const std::string error = script_error(script_with(row.from, row.to));
    CHECK_MESSAGE(error.find(row.message) != std::string::npos,
                  "got: " << error << "\nwanted: " << std::string(row.message));
  }
}

TEST_CASE(
    "where a script lies and how long it is waited for reach no bit; its tensors and samples do") {
  const auto hash = [](const std::string& text) {
    return job_hash(parse_job(text, "/folder").value());
  };
  CHECK(hash(script_with("train.py", "other.py")) == hash(kGoodScript));
  CHECK(hash(script_with("samples = 100", "samples = 100\npatience_s = 7")) == hash(kGoodScript));
  CHECK(hash(script_with("samples = 100", "samples = 101")) != hash(kGoodScript));
  CHECK(hash(script_with("scale:", "scale:1")) != hash(kGoodScript));
  CHECK(hash(script_with("samples = 100", "samples = 100\nown_order = false")) ==
        hash(kGoodScript));
  CHECK(hash(script_with("samples = 100", "samples = 100\nown_order = true")) != hash(kGoodScript));
}

TEST_CASE("tensors are spelled as name and sizes, and nothing else is read as one") {
  for (const std::string text : {"a:", "a:1", "layer.0.weight:3x4x5", "x-y_z/1:68719476736"}) {
    const auto tensor = parse_tensor(text);
    REQUIRE_MESSAGE(tensor, text);
    CHECK(tensor_text(*tensor) == text);
  }
  CHECK(parse_tensor("a:2x3")->shape == std::vector<std::uint64_t>{2, 3});
  CHECK(parse_tensor("a:")->elements() == 1);
  for (const std::string text : {"", ":", ":3", "a", "a:x", "a:3x", "a:x3", "a:0", "a:-1", "a:+1",
                                 "a:3 ", "a:1x1x1x1x1x1x1x1x1", "a:68719476737",
                                 "a:4294967296x4294967296", "a b:3", "a\":3", "a\n:3"})
    CHECK_MESSAGE(!parse_tensor(text), text);
  CHECK(!parse_tensor(std::string(513, 'a') + ":3"));
}

TEST_CASE("data of a script are numbers: each sample once in a pass over them") {
  Job job = parse_job(kGoodScript, "/folder").value();
  job.micro_batches = 5, job.micro_batch_sequences = 4;
  const auto data = Dataset::open(job).value();
  CHECK(data->samples() == 100);
  std::vector<int> times(100);
  for (std::uint64_t step = 0; step < 5; ++step)
    for (MicroBatch m = 0; m < 5; ++m) {
      const auto batch = data->micro_batch(step, m);
      REQUIRE(batch);
      CHECK(batch.value().tokens.empty());
      for (const std::uint64_t sample : batch.value().samples) ++times[sample];
    }
  CHECK(std::ranges::count(times, 1) == 100);
}

}  // namespace
}  // namespace starling
