// A phase: the part of a step between two barriers. Every thread of the pool calls `run` of every phase in the same order.
#pragma once

#include <string>
#include <utility>

#include "executor/step.h"

namespace roofline {

class Phase {
 public:
  explicit Phase(std::string name) : name(std::move(name)) {}
  virtual ~Phase() = default;
  // True when this step's share of the phase is too little to split: the last thread out of the phase before runs it alone.
  virtual bool is_serial(const Step&) const { return false; }
  virtual void prepare(const Step&) {}                 // the caller's thread alone, before the step starts
  virtual void run(const Step& step, const Lane& lane) = 0;

  const std::string name;
};

}  // namespace roofline
