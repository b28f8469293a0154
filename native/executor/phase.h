// A phase: a part of a step whose chunks may run in any order on any thread. All chunks of a phase are done before the next begins.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "executor/step.h"

namespace roofline {

// Whose chunk is whose: thread t is at home in chunks [first[t], first[t + 1]) and takes others' only when its own are gone.
using Homes = std::vector<int32_t>;

class Phase {
 public:
  explicit Phase(std::string name) : name(std::move(name)) {}
  virtual ~Phase() = default;
  // True when this step's share of the phase is too little to split: whoever finishes the phase before runs it at once.
  virtual bool is_serial(const Step&) const { return false; }
  virtual void prepare(const Step&) {}                   // the caller's thread alone, before the step starts
  virtual const Homes& homes(const Step& step) const = 0;
  virtual void run_chunk(const Step& step, const Lane& lane, int64_t chunk) = 0;

  const std::string name;
};

}  // namespace roofline
