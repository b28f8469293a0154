// CPU features, tiers, the thread pool and the measurements on it for Python. A tier crosses the border by name: "ref", "avx2", "avx512", "amx".
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <time.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "bind/module.h"
#include "kernels/attention/contract.h"
#include "kernels/linear/contract.h"
#include "kernels/pointwise/contract.h"
#include "runtime/cpu_features.h"
#include "runtime/measure.h"
#include "runtime/thread_pool.h"

namespace nb = nanobind;

namespace roofline::bind {
namespace {

Isa isa_from_name(const std::string& name) {
  Isa isa;
  if (!parse_isa(name, &isa)) throw std::invalid_argument("unknown tier: " + name + " (known: ref, avx2, avx512, amx)");
  return isa;
}

nb::dict feature_dict() {
  nb::dict result;
  for (const CpuFeature& feature : cpu_features()) result[feature.name] = feature.usable;
  return result;
}

MacKind mac_kind(const std::string& name) {
  if (name == "int8") return MacKind::int8;
  if (name == "fp32") return MacKind::fp32;
  throw std::invalid_argument("unknown arithmetic: " + name + " (known: int8, fp32)");
}

// Each family steps down on its own to the nearest tier that was built for it.
nb::dict kernel_tiers(const std::string& cap) {
  const Isa isa = isa_from_name(cap);
  Isa linear, pointwise, attention;
  linear_kernels(isa, &linear);
  pointwise_kernels(isa, &pointwise);
  attention_kernels(isa, &attention);
  nb::dict tiers;
  tiers["linear"] = isa_name(linear);
  tiers["pointwise"] = isa_name(pointwise);
  tiers["attention"] = isa_name(attention);
  return tiers;
}

std::string linear_kernel(const std::string& cap, const std::string& scheme, int64_t num_tokens) {
  Isa chosen;
  return linear_kernels(isa_from_name(cap), &chosen).describe(packed_format(scheme.c_str()), num_tokens);
}

void register_measurements(nb::module_& m) {
  m.def("measure_read_bytes_per_s",
        [](ThreadPool& pool, const std::string& isa, int64_t working_set_bytes, double duration_s) {
          const Isa tier = usable_isa(isa);
          nb::gil_scoped_release release;
          return measure_read_bytes_per_s(pool, tier, working_set_bytes, duration_s);
        },
        nb::arg("pool"), nb::arg("isa"), nb::arg("working_set_bytes"), nb::arg("duration_s"), "One rate a trial.");
  m.def("measure_macs_per_s",
        [](ThreadPool& pool, const std::string& isa, const std::string& kind, double duration_s) {
          const Isa tier = usable_isa(isa);
          const MacKind arithmetic = mac_kind(kind);
          nb::gil_scoped_release release;
          return measure_macs_per_s(pool, tier, arithmetic, duration_s);
        },
        nb::arg("pool"), nb::arg("isa"), nb::arg("kind"), nb::arg("duration_s"), "kind: 'int8' or 'fp32'. One rate a trial.");
  m.def("measure_barrier_s", &measure_barrier_s, nb::arg("pool"), nb::arg("num_trials"),
        nb::call_guard<nb::gil_scoped_release>(), "Seconds a barrier, one value a trial.");
  m.def("measure_wake_s", &measure_wake_s, nb::arg("pool"), nb::arg("num_trials"),
        nb::call_guard<nb::gil_scoped_release>(), "Seconds to wake a parked pool, one value a trial.");
}

}  // namespace

Isa usable_isa(const std::string& name) {
  const Isa isa = isa_from_name(name);
  std::string missing;
  for (const std::string& gap : isa_gaps(isa)) missing += (missing.empty() ? "" : ", ") + gap;
  if (!missing.empty()) throw std::invalid_argument("tier " + name + " can't run here, missing: " + missing);
  return isa;
}

double thread_time_s() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void register_runtime(nb::module_& m) {
  m.def("cpu_features", &feature_dict, "Usable CPU features (CPUID and operating system) by /proc/cpuinfo name.");
  m.def("best_isa", [] { return std::string(isa_name(best_isa())); }, "The highest tier that runs here.");
  m.def("isa_gaps", [](const std::string& isa) { return isa_gaps(isa_from_name(isa)); }, nb::arg("isa"),
        "What keeps the tier from running here: CPU flags, 'not built', the AMX permission. Empty: it runs.");
  m.def("allowed_isa", [](const std::string& cap) { return std::string(isa_name(usable_isa(cap))); }, nb::arg("cap"),
        "`cap` when it runs here, else ValueError naming what is missing.");
  m.def("kernel_tiers", &kernel_tiers, nb::arg("cap"), "Kernel family -> the tier that serves it under this cap.");
  m.def("linear_kernel", &linear_kernel, nb::arg("cap"), nb::arg("scheme"), nb::arg("num_tokens"),
        "The inner kernel that multiplies weights of a GGUF scheme in a step of so many tokens.");
  nb::class_<ThreadPool>(m, "ThreadPool", "num_threads - 1 workers and the caller; see runtime/thread_pool.h.")
      .def(nb::init<int, const std::vector<int>&>(), nb::arg("num_threads"), nb::arg("cpus") = std::vector<int>{})
      .def_prop_ro("num_threads", &ThreadPool::num_threads);
  register_measurements(m);
}

}  // namespace roofline::bind
