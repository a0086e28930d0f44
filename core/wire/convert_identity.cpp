#include "core/wire/convert.h"
#include "core/wire/limits.h"

// How a worker without a listed key asks to be let in, and the answer.

namespace starling::wire {

void write(const Enrol& in, schema::Enrol::Builder out) {
  out.setToken(text(in.token, limits::kTokenBytes));
}

Enrol read(Reading& r, schema::Enrol::Reader in) {
  return {r.text(in.getToken(), limits::kTokenBytes, "token of an identity")};
}

void write(const Enrolled& in, schema::Enrolled::Builder out) {
  out.setName(text(in.name, limits::kNameBytes));
  const auto refusal = cut(in.refusal, limits::kLineBytes);
  out.setRefusal(text(refusal, limits::kLineBytes));
  out.setAgain(in.again);
}

Enrolled read(Reading& r, schema::Enrolled::Reader in) {
  Enrolled out{r.text(in.getName(), limits::kNameBytes, "name of an enrolled key"),
               r.text(in.getRefusal(), limits::kLineBytes, "reason of a refused token"),
               in.getAgain()};
  r.need(out.name.empty() != out.refusal.empty(), "an enrolment is neither taken nor refused");
  return out;
}

}  // namespace starling::wire
