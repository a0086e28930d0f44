#pragma once
// An EventSink takes the events that an EventWriter writes to events.jsonl, and makes something else
// of them: a picture, metrics. A sink is one file, and one line where a program adds it to its EventWriter.

#include "core/observe/event.h"

namespace starling {

// Threads: on() is called by the writer's owner, which must not wait: what a sink writes to a disk or
// to the network while a run goes on, a thread of its own writes (line_file.h).
class EventSink {
 public:
  virtual ~EventSink() = default;
  // Takes an event that is written to events.jsonl: each once, in the same order.
  virtual void on(const Event& event) = 0;
};

}  // namespace starling
