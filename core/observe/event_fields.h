#pragma once
// The fields of each kind of event in the order of its line, for the writer and the reader alike: a
// Fields object is asked for one after the other, with
//   f(name, value)         in the form of its type (event_line.cpp, event_reader.cpp)
//   f.hex(name, value)     16 hex digits
//   f.or_null(name, text)  null instead of an empty text
//   f.due(name, digest)    left out instead of zeros, nothing, false, both or an unknown machine
// Inside core/observe only. A kind without its function here compiles nowhere.

#include <concepts>
#include <type_traits>

#include "core/observe/event.h"

namespace starling {

// E or const E: the reader fills what the writer looks at.
template <class T, class E>
concept Is = std::same_as<std::remove_const_t<T>, E>;

template <class F>
void fields(F& f, Is<event::Started> auto& e) {
  f("job", e.job);
  f.hex("job_hash", e.job_hash);
  f("fingerprint", e.fingerprint);
  f("name", e.name);
  f("steps", e.steps);
  f("micro_batches", e.micro_batches);
  f("sequences", e.sequences);
  f("seed", e.seed);
  f("samples", e.samples);
  f.due("chunk_samples", e.chunk_samples);
  f("from", e.from);
  f("tokens_per_step", e.tokens_per_step);
  f("data", e.data);
  f("monotonic_ns", e.monotonic_ns);
  f("address", e.address);
  f("keys", e.keys);
  f("coordinator", e.coordinator);
}

template <class F>
void fields(F& f, Is<event::Continued> auto& e) {
  f("coordinator", e.coordinator);
  f("monotonic_ns", e.monotonic_ns);
  f("cut_bytes", e.cut_bytes);
}

template <class F>
void fields(F& f, Is<event::Dropped> auto& e) {
  f("lines", e.lines);
  f("why", e.why);
}

template <class F>
void fields(F& f, Is<event::WorkerChanged> auto& e) {
  f("id", e.id);
  f("what", e.what);
  f("name", e.name);
  f("pid", e.pid);
  f("phase", e.phase);
  f.or_null("reason", e.reason);
  f.due("machine", e.machine);
}

template <class F>
void fields(F& f, Is<Machine> auto& e) {
  f("processors", e.processors);
  f("memory", e.memory);
  f("memory_free", e.memory_free);
  f("open_files", e.open_files);
  f("disk_free", e.disk_free);
  f("first_gradient_ns", e.first_gradient_ns);
  f("clock_ms", e.clock_ms);
  f("clock_ahead_ms", e.clock_ahead_ms);
  f.or_null("device", e.device);
}

template <class F>
void fields(F& f, Is<event::Preparing> auto& e) {
  f("name", e.name);
  f("pid", e.pid);
}

template <class F>
void fields(F& f, Is<event::EpochMember> auto& e) {
  f("id", e.id);
  f("name", e.name);
  f("joiner", e.joiner);
  f("draining", e.draining);
  f.due("role", e.role);
}

template <class F>
void fields(F& f, Is<Pause> auto& e) {
  f("report", e.report_ms);
  f("plan", e.plan_ms);
  f("connect", e.connect_ms);
  f("compute", e.compute_ms);
  f("reduce", e.reduce_ms);
  f("vote", e.vote_ms);
}

template <class F>
void fields(F& f, Is<event::EpochFormed> auto& e) {
  f("id", e.id);
  f("kind", e.kind);
  f("predecessor", e.predecessor);
  f("members", e.members);
  f("base", e.base);
  f("begin", e.begin);
  f("cause", e.cause);
  f("holders", e.holders);
  f("owned", e.owned);
  f("moves", e.moves);
  f("detect_ms", e.detect_ms);
  f("form_ms", e.form_ms);
  f("resume_ms", e.resume_ms);
  f("pause", e.pause);
}

template <class F>
void fields(F& f, Is<event::TransportChosen> auto& e) {
  f("epoch", e.epoch);
  f("direct", e.on_device);
  f("why", e.why);
}

template <class F>
void fields(F& f, Is<event::StepPassed> auto& e) {
  f("version", e.record.version);
  f("epoch", e.epoch);
  f("loss", e.record.loss);
  f("norm", e.record.norm);
  f.due("rate", e.rate);
  f("tokens", e.record.tokens);
  f("ms", e.ms);
  f("world", e.world);
  f("skipped", e.record.skipped);
  f.hex("ledger_hash", e.record.ledger_hash);
  f.due("digest", e.record.digest);
  f.due("metrics", e.record.metrics);
  f.due("scale", e.record.scale);
  f.due("direct", e.on_device);
}

template <class F>
void fields(F& f, Is<event::Evaluated> auto& e) {
  f("version", e.version);
  f("loss", e.loss);
  f.due("metrics", e.metrics);
}

template <class F>
void fields(F& f, Is<event::LedgerPassed> auto& e) {
  f("version", e.version);
  f("epoch", e.epoch);
  f("workers", e.workers);
}

template <class F>
void fields(F& f, Is<event::LeaderElected> auto& e) {
  f("term", e.term);
  f("coordinator", e.coordinator);
  f("pid", e.pid);
  f("election_ms", e.election_ms);
}

template <class F>
void fields(F& f, Is<event::Exposed> auto& e) {
  f("epoch", e.epoch);
  f("segments", e.segments);
  f("copies_min", e.copies_min);
  f("wanted", e.wanted);
}

template <class F>
void fields(F& f, Is<event::CheckpointWritten> auto& e) {
  f("version", e.version);
  f("path", e.path);
}

template <class F>
void fields(F& f, Is<event::Restarted> auto& e) {
  f("version", e.version);
  f("lost", e.lost);
  f("cause", e.cause);
}

template <class F>
void fields(F& f, Is<event::NoticeGiven> auto& e) {
  f("id", e.id);
  f("name", e.name);
  f("source", e.source);
  f("leave", e.leave);
  f("seconds", e.seconds);
  f("text", e.text);
}

template <class F>
void fields(F& f, Is<event::CoordinatorsChanged> auto& e) {
  f("index", e.index);
  f("places", e.places);
}

template <class F>
void fields(F& f, Is<event::AdminActed> auto& e) {
  f("by", e.by);
  f("action", e.action);
  f("worker", e.worker);
  f.due("peak_rate", e.peak_rate);
}

template <class F>
void fields(F& f, Is<event::Tainted> auto& e) {
  f("id", e.id);
  f("name", e.name);
  f("first", e.first);
  f("last", e.last);
  f("reason", e.reason);
}

template <class F>
void fields(F& f, Is<event::Mismatch> auto& e) {
  f("version", e.version);
  f("micro_batch", e.micro_batch);
  f("worker", e.worker);
  f("by", e.by);
  f("wrong", e.wrong);
}

template <class F>
void fields(F& f, Is<event::Warning> auto& e) {
  f("text", e.text);
}

template <class F>
void fields(F& f, Is<event::Done> auto& e) {
  f("version", e.version);
  f("digest", e.digest);
  f("loss", e.loss);
}

template <class F>
void fields(F& f, Is<event::Ended> auto& e) {
  f("signal", e.signal);
  f("version", e.version);
  f("checkpoint", e.checkpoint);
  f("reason", e.reason);
}

template <class F>
void fields(F& f, Is<event::Failed> auto& e) {
  f("code", e.code);
  f("reason", e.reason);
}

}  // namespace starling
