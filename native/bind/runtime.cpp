// CPU features, tiers and the thread pool for Python. A tier crosses the border by name: "ref", "avx2", "avx512", "amx".
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "bind/module.h"
#include "runtime/cpu_features.h"
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

// `cap` itself: a cap that the machine lacks is an error, never a quiet step down.
std::string allowed_isa(const std::string& cap) {
  std::string missing;
  for (const std::string& gap : isa_gaps(isa_from_name(cap))) missing += (missing.empty() ? "" : ", ") + gap;
  if (!missing.empty()) throw std::invalid_argument("tier " + cap + " can't run here, missing: " + missing);
  return cap;
}

}  // namespace

void register_runtime(nb::module_& m) {
  m.def("cpu_features", &feature_dict, "Usable CPU features (CPUID and operating system) by /proc/cpuinfo name.");
  m.def("best_isa", [] { return std::string(isa_name(best_isa())); }, "The highest tier that runs here.");
  m.def("isa_gaps", [](const std::string& isa) { return isa_gaps(isa_from_name(isa)); }, nb::arg("isa"),
        "What keeps the tier from running here: CPU flags, 'not built', the AMX permission. Empty: it runs.");
  m.def("allowed_isa", &allowed_isa, nb::arg("cap"), "`cap` when it runs here, else ValueError naming what is missing.");
  nb::class_<ThreadPool>(m, "ThreadPool", "num_threads - 1 workers and the caller; see runtime/thread_pool.h.")
      .def(nb::init<int>(), nb::arg("num_threads"))
      .def_prop_ro("num_threads", &ThreadPool::num_threads);
}

}  // namespace roofline::bind
