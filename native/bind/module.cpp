// The extension module `roofline._native`: one register function per subject, each in its own file.
#include "bind/module.h"

NB_MODULE(_native, m) {
  m.doc() = "Roofline's native side: probe, thread pool, kernels, executor";
  roofline::bind::register_runtime(m);
  roofline::bind::register_sampling(m);
  roofline::bind::register_linear(m);
  roofline::bind::register_pointwise(m);
  roofline::bind::register_attention(m);
  roofline::bind::register_executor(m);
}
