#include "core/wire/convert.h"
#include "core/wire/limits.h"

// What admins ask of a run, and the answers.

namespace starling::wire {
namespace {

// Returns the enumerator of this number, which the schema and the struct share; `first` if there is none.
template <class Enum>
Enum known(Reading& r, std::uint16_t number, Enum first, Enum last, const char* unset,
           const char* unknown) {
  const bool is_known =
      number >= static_cast<std::uint16_t>(first) && number <= static_cast<std::uint16_t>(last);
  r.need(number != 0, unset);
  if (number != 0 && !is_known) r.unknown(unknown);
  return is_known ? static_cast<Enum>(number) : first;
}

AdminAction action(Reading& r, schema::AdminAction in) {
  static_assert(static_cast<int>(schema::AdminAction::RATE) ==
                static_cast<int>(AdminAction::kRate));
  return known(r, static_cast<std::uint16_t>(in), AdminAction::kDrain, AdminAction::kRate,
               "action of an admin is unset", "action of an admin that this build does not know");
}

}  // namespace

void write(const AdminAsked& in, schema::AdminAsked::Builder out) {
  out.setAction(static_cast<schema::AdminAction>(in.action));
  out.setWorker(text(in.worker, limits::kNameBytes));
  out.setMark(in.mark);
  out.setPeakRate(in.peak_rate);
}

AdminAsked read(Reading& r, schema::AdminAsked::Reader in) {
  AdminAsked out{action(r, in.getAction()),
                 r.text(in.getWorker(), limits::kNameBytes, "name of a worker"), in.getMark(),
                 in.getPeakRate()};
  r.need((out.action == AdminAction::kRate) == (out.peak_rate != 0) &&
             (out.peak_rate == 0 || is_peak_rate(out.peak_rate)),
         "peak rate of an admin is out of range");
  return out;
}

void write(const AdminAnswered& in, schema::AdminAnswered::Builder out) {
  static_assert(static_cast<int>(schema::AdminState::REFUSED) ==
                static_cast<int>(AdminState::kRefused));
  out.setAction(static_cast<schema::AdminAction>(in.action));
  out.setState(static_cast<schema::AdminState>(in.state));
  out.setMark(in.mark);
  const auto said = cut(in.text, limits::kLineBytes);
  out.setText(text(said, limits::kLineBytes));
}

AdminAnswered read(Reading& r, schema::AdminAnswered::Reader in) {
  return {action(r, in.getAction()),
          known(r, static_cast<std::uint16_t>(in.getState()), AdminState::kUnderWay,
                AdminState::kRefused, "state of an admin's action is unset",
                "state of an admin's action that this build does not know"),
          in.getMark(), r.text(in.getText(), limits::kLineBytes, "answer to an admin")};
}

}  // namespace starling::wire
