// Register functions of the binding, called once by module.cpp. Kernels know neither Python nor nanobind; only bind/ does.
#pragma once

#include <nanobind/nanobind.h>

namespace roofline::bind {

}  // namespace roofline::bind
