#include "tools/judge/audit/difference.h"

#include <doctest/doctest.h>

#include "tests/judge/histories.h"

namespace starling::audit {

TEST_CASE("equal runs are the same, whoever computed and however they were disturbed") {
  const History other = changed([](Lines& l) {
    edit(0, "\"t\\\"", "\"other\\\"")(l);
    edit(0, "path = \\\"/x", "path = \\\"/y")(l);
    edit(9, "[1,2]", "[1,1]")(l);
    l.erase(l.begin() + 4);
  });
  const Comparison c = compare(good(), other);
  CHECK(c.other_job.empty());
  CHECK_FALSE(c.first);
  CHECK(c.steps == 6);
  CHECK(c.digests == 4);  // versions 0, 2, 4 and the final one
  CHECK(c.same_state == 6);
  CHECK(c.same_end == true);
}

TEST_CASE("the first version at which two runs part") {
  const auto first = [](const std::function<void(Lines&)>& change) {
    return compare(good(), changed(change));
  };
  const auto loss = first([](Lines& l) {
    edit(15, "4.7", "4.7000000000000002")(l);  // the same double
    edit(18, "4.6", "4.6000000000000005")(l);  // the next one
    edit(20, "4.5", "4.4")(l);
  });
  REQUIRE(loss.first);
  CHECK(loss.first->version == 4);
  CHECK(loss.first->what == "loss");
  CHECK(loss.first->b == "4.6000000000000005");
  CHECK(loss.same_state == 4);
  CHECK(loss.same_end == true);

  const auto digest = first(edit(13, digest_of(2), digest_of(7)));
  REQUIRE(digest.first);
  CHECK(digest.first->version == 2);
  CHECK(digest.first->what == "digest");
  CHECK(digest.same_state == 0);

  const auto norm = first(edit(6, "\"norm\":2.0", "\"norm\":null"));
  REQUIRE(norm.first);
  CHECK(norm.first->what == "norm");
  CHECK(norm.first->version == 0);

  const auto end = first(edit(22, digest_of(6), digest_of(9)));
  REQUIRE(end.first);
  CHECK(end.first->version == 6);
  CHECK(end.same_end == false);
}

TEST_CASE("metrics of a step are compared as its loss is") {
  const auto with = [](const std::string& metrics) {
    return changed(edit(13, "\"norm\"", "\"metrics\":" + metrics + ",\"norm\""));
  };
  CHECK_FALSE(compare(with("[0.5,null]"), with("[0.5,null]")).first);
  const auto other = compare(with("[0.5,0.25]"), with("[0.5,0.125]"));
  REQUIRE(other.first);
  CHECK(other.first->version == 2);
  CHECK(other.first->what == "metric 1");
  CHECK(other.first->b == "0.125");
}

TEST_CASE("evaluations of two runs are compared where both have one") {
  const auto with = [](const std::string& loss, const std::string& metrics) {
    return changed([=](Lines& l) {
      l.insert(l.begin() + 14,
               R"({"t":2,"ev":"evaluation","version":2,"loss":)" + loss + metrics + "}");
    });
  };
  const History a = with("4.7", R"(,"metrics":[0.5])");
  CHECK(compare(a, good()).evaluations == 0);
  CHECK_FALSE(compare(a, good()).first);
  CHECK(compare(a, a).evaluations == 1);
  CHECK_FALSE(compare(a, a).first);
  const auto loss = compare(a, with("4.8", R"(,"metrics":[0.5])"));
  REQUIRE(loss.first);
  CHECK(loss.first->what == "held-out loss");
  CHECK(loss.first->version == 2);
  const auto metric = compare(a, with("4.7", R"(,"metrics":[0.25])"));
  REQUIRE(metric.first);
  CHECK(metric.first->what == "held-out metric 0");
}

TEST_CASE("a shorter run is compared as far as it goes") {
  const Comparison c = compare(good(), changed([](Lines& l) { l.resize(17); }));
  CHECK_FALSE(c.first);
  CHECK(c.steps == 4);
  CHECK(c.digests == 2);
  CHECK_FALSE(c.same_end.has_value());
}

TEST_CASE("runs of different jobs are not compared") {
  const auto other = [](const std::function<void(Lines&)>& change) {
    const Comparison c = compare(good(), changed(change));
    CHECK_FALSE(c.first);
    return c.other_job.empty() ? std::string() : c.other_job.front();
  };
  CHECK(other(edit(0, "seed = 9", "seed = 8")) == "job.seed is 9 and 8");
  CHECK(other(edit(0, "seed = 9\\n", "")) == "job.seed is 9 and not set");
  CHECK(has(other(edit(0, "dddd", "dddc")), "the data differ"));
  CHECK(other(edit(0, "digest_every = 2", "digest_every = 1")).empty());
  // Without a schedule of its own the learning rate follows the number of steps.
  CHECK(other(edit(0, "steps = 6", "steps = 7")) == "job.steps is 6 and 7");
  const Comparison scheduled =
      compare(changed(edit(0, "schedule_steps = 0", "schedule_steps = 9")), changed([](Lines& l) {
                edit(0, "schedule_steps = 0", "schedule_steps = 9")(l);
                edit(0, "steps = 6", "steps = 7")(l);
              }));
  CHECK(scheduled.other_job.empty());
  // A job that went on with --steps names the schedule that it had from its steps before.
  const Comparison went_on = compare(good(), changed([](Lines& l) {
                                       edit(0, "schedule_steps = 0", "schedule_steps = 6")(l);
                                       edit(0, "\\nsteps = 6", "\\nsteps = 9")(l);
                                     }));
  CHECK(went_on.other_job.empty());
  CHECK(other(edit(0, "schedule_steps = 0", "schedule_steps = 9")) ==
        "the schedule's length is 6 and 9");
  const Comparison isa = compare(good(), changed(edit(0, "isa avx2", "isa avx512")));
  CHECK(isa.other_job.empty());
  CHECK(isa.notes.size() == 1);
  // A script's arguments may say what it computes, or only where to write.
  History scaled = good();
  scaled.start.job["model.arguments"] = "[\"--scale\", \"2\"]";
  const Comparison of_scripts = compare(good(), scaled);
  CHECK(of_scripts.other_job.empty());
  CHECK(of_scripts.notes ==
        std::vector<std::string>{"the script's arguments differ: none and [\"--scale\", \"2\"]"});
  // A coordinator that was started by hand does not tell.
  const History view = changed(edit(0, "isa avx2", ""));
  CHECK(compare(good(), view).notes.empty());
  CHECK(compare(view, good()).notes.empty());
}

}  // namespace starling::audit
