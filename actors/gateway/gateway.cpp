#include "actors/gateway/gateway.h"

#include <utility>

#include "actors/gateway/poller.h"
#include "core/base/check.h"

namespace starling::actors {

Result<std::unique_ptr<Gateway>> Gateway::start(GatewayOptions options, ArrivalHandler handler) {
  STARLING_TRY(impl, Impl::make(std::move(options), std::move(handler)));
  return std::unique_ptr<Gateway>(new Gateway(std::move(impl)));
}

Gateway::Gateway(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Gateway::~Gateway() = default;

std::uint16_t Gateway::port() const {
  return impl_->port;
}

void Gateway::send_to_server(std::size_t server, Message body) {
  STARLING_CHECK(server < impl_->options.servers.size());
  impl_->enqueue({server, {}, std::make_shared<const Message>(std::move(body))});
}

void Gateway::broadcast_to_servers(Message body) {
  const auto shared = std::make_shared<const Message>(std::move(body));
  for (std::size_t i = 0; i < impl_->options.servers.size(); ++i) impl_->enqueue({i, {}, shared});
}

Result<> Gateway::dial(std::size_t server, const std::string& address) {
  STARLING_CHECK(server < impl_->options.servers.size());
  return impl_->dial(server, address);
}

bool Gateway::has_address(std::size_t server) const {
  STARLING_CHECK(server < impl_->options.servers.size());
  return impl_->has_address(server);
}

bool Gateway::send_to(const Incarnation& to, Message body) {
  auto route = impl_->routes.find(to);
  if (!route) {
    impl_->drop(Drop::kNoRoute);
    return false;
  }
  impl_->enqueue(
      {std::nullopt, *std::move(route), std::make_shared<const Message>(std::move(body))});
  return true;
}

void Gateway::broadcast_to_clients(Message body) {
  const auto shared = std::make_shared<const Message>(std::move(body));
  for (Route& route : impl_->routes.all()) impl_->enqueue({std::nullopt, std::move(route), shared});
}

std::optional<std::string> Gateway::name_of(const Incarnation& who) const {
  auto route = impl_->routes.find(who);
  if (!route) return std::nullopt;
  return std::move(route->name);
}

void Gateway::allow(AllowList allowed) {
  impl_->allow(std::move(allowed));
}

Result<std::string> Gateway::enrol(const Stranger& stranger) {
  return impl_->enrol(stranger);
}

void Gateway::refuse(const Stranger& stranger, const Error& why) {
  impl_->refuse(stranger, why);
}

std::string Gateway::refusal(std::size_t server) const {
  STARLING_CHECK(server < impl_->options.servers.size());
  return impl_->refusal(server);
}

void Gateway::set_counter(std::uint64_t counter) {
  impl_->counter = counter;
}

LinkState Gateway::link(std::size_t server) const {
  STARLING_CHECK(server < impl_->link_states.size());
  return impl_->link_states[server];
}

std::string Gateway::other_version(std::size_t server) const {
  STARLING_CHECK(server < impl_->link_states.size());
  return version_line(impl_->options.servers[server].name, impl_->other_versions[server]);
}

std::uint64_t Gateway::dropped(Drop reason) const {
  return impl_->drops[static_cast<std::size_t>(reason)];
}

std::uint64_t Gateway::refused_handshakes() const {
  return impl_->refused_handshakes;
}

void Gateway::stop() {
  impl_->stop();
}

}  // namespace starling::actors
