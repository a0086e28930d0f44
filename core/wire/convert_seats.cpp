#include "core/base/check.h"
#include "core/wire/convert.h"
#include "core/wire/limits.h"

// Where coordinators are, and what is asked of their group.

namespace starling::wire {

void write(const Seats& in, capnp::List<schema::Seat>::Builder out) {
  for (unsigned i = 0; i < out.size(); ++i) {
    STARLING_CHECK(in.seats[i].place < limits::kSeats);
    out[i].setPlace(in.seats[i].place);
    out[i].setAddress(text(in.seats[i].address, limits::kAddressBytes));
  }
}

Seats read(Reading& r, capnp::List<schema::Seat>::Reader in) {
  Seats out;
  out.seats.resize(r.bounded(in, limits::kSeats, "seats"));
  for (unsigned i = 0; i < out.seats.size(); ++i) {
    out.seats[i] = {in[i].getPlace(),
                    r.text(in[i].getAddress(), limits::kAddressBytes, "address of a seat")};
    r.need(out.seats[i].place < limits::kSeats, "place of a seat is out of range");
  }
  return out;
}

void write(const ChangeAsked& in, schema::ChangeAsked::Builder out) {
  out.setAdd(in.add ? *in.add + 1 : 0);
  out.setAddress(text(in.address, limits::kAddressBytes));
  out.setLife(in.life);
  out.setRemove(in.remove ? *in.remove + 1 : 0);
  out.setJobHash(in.job_hash);
}

ChangeAsked read(Reading& r, schema::ChangeAsked::Reader in) {
  ChangeAsked out;
  r.need(in.getAdd() <= limits::kSeats && in.getRemove() <= limits::kSeats,
         "place of a change is out of range");
  if (in.getAdd() != 0) out.add = in.getAdd() - 1;
  if (in.getRemove() != 0) out.remove = in.getRemove() - 1;
  out.address = r.text(in.getAddress(), limits::kAddressBytes, "address of a change");
  out.life = Nonce(in.getLife());
  out.job_hash = in.getJobHash();
  return out;
}

void write(const ChangeAnswered& in, schema::ChangeAnswered::Builder out) {
  static_assert(static_cast<int>(schema::ChangeState::REFUSED) ==
                static_cast<int>(ChangeState::kRefused));
  out.setState(static_cast<schema::ChangeState>(in.state));
  const auto reason = cut(in.reason, limits::kLineBytes);
  out.setReason(text(reason, limits::kLineBytes));
}

ChangeAnswered read(Reading& r, schema::ChangeAnswered::Reader in) {
  const auto state = static_cast<std::uint16_t>(in.getState());
  const bool known = state >= static_cast<std::uint16_t>(ChangeState::kUnderWay) &&
                     state <= static_cast<std::uint16_t>(ChangeState::kRefused);
  r.need(state != 0, "state of a change is unset");
  if (state != 0 && !known) r.unknown("state of a change that this build does not know");
  return {known ? static_cast<ChangeState>(state) : ChangeState::kUnderWay,
          r.text(in.getReason(), limits::kLineBytes, "reason of a change's refusal")};
}

void write(const CoordinatorAt& in, schema::CoordinatorAt::Builder out) {
  STARLING_CHECK(in.place < limits::kSeats);
  out.setPlace(in.place);
  out.setAddress(text(in.address, limits::kAddressBytes));
  out.setLife(in.life);
}

CoordinatorAt read(Reading& r, schema::CoordinatorAt::Reader in) {
  r.need(in.getPlace() < limits::kSeats, "place of a coordinator is out of range");
  return {in.getPlace(), r.text(in.getAddress(), limits::kAddressBytes, "address of a coordinator"),
          Nonce(in.getLife())};
}

}  // namespace starling::wire
