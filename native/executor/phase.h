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
  virtual void prepare(const Step&) {}                 // the caller's thread alone, before the step starts
  virtual void run(const Step& step, const Lane& lane) = 0;

  const std::string name;
};

}  // namespace roofline
