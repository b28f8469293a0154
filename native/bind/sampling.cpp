// Sampling for Python: the state of a request, and one call that draws for all rows of a step without the GIL.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "bind/module.h"
#include "kernels/sampling/contract.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace roofline::bind {
namespace {

using Logits = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Tokens = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Bias = std::vector<std::pair<int32_t, float>>;

std::string status_name(DrawStatus status) {
  switch (status) {
    case DrawStatus::ok: return "ok";
    case DrawStatus::not_finite: return "not_finite";
    case DrawStatus::nothing_left: return "nothing_left";
  }
  throw std::logic_error("unknown draw status");
}

void construct_state(SamplingState* self, Tokens prompt, float temperature, int64_t top_k, double top_p, float min_p, float repetition,
                     float presence, float frequency, int64_t min_tokens, uint64_t seed, int num_top, Bias bias,
                     std::vector<int32_t> end_ids) {
  SamplingSpec spec{.temperature = temperature, .top_k = top_k, .top_p = top_p, .min_p = min_p, .repetition = repetition,
                    .presence = presence, .frequency = frequency, .min_tokens = min_tokens, .seed = seed, .num_top = num_top,
                    .bias = std::move(bias), .end_ids = std::move(end_ids)};
  new (self) SamplingState(std::move(spec), prompt.data(), static_cast<int64_t>(prompt.shape(0)));
}

// The sampler writes at the ids of biases and bans.
void check_ids(const SamplingSpec& spec, int64_t vocab_size) {
  const auto check = [&](int32_t token) {
    if (token < 0 || token >= vocab_size)
      throw std::invalid_argument("token id " + std::to_string(token) + " has no logit among " + std::to_string(vocab_size));
  };
  for (const auto& [token, bias] : spec.bias) check(token);
  for (const int32_t token : spec.end_ids) check(token);
}

std::vector<Draw> sample(Logits logits, const std::vector<const SamplingState*>& states, ThreadPool* pool) {
  if (logits.shape(0) != states.size())
    throw std::invalid_argument(std::to_string(logits.shape(0)) + " rows of logits for " + std::to_string(states.size()) + " states");
  const auto vocab_size = static_cast<int64_t>(logits.shape(1));
  for (const SamplingState* state : states) {
    if (state == nullptr) throw std::invalid_argument("a state is None");
    check_ids(state->spec(), vocab_size);
  }
  std::vector<Draw> draws(states.size());
  nb::gil_scoped_release unlocked;
  sample_rows(logits.data(), static_cast<int64_t>(logits.shape(0)), vocab_size, states.data(), pool, draws.data());
  return draws;
}

}  // namespace

void register_sampling(nb::module_& m) {
  nb::class_<SamplingState>(m, "SamplingState", "What a request asked of the sampler and which tokens it has seen.")
      .def("__init__", &construct_state, "prompt"_a, nb::kw_only(), "temperature"_a, "top_k"_a, "top_p"_a, "min_p"_a, "repetition"_a,
           "presence"_a, "frequency"_a, "min_tokens"_a, "seed"_a, "num_top"_a, "bias"_a, "end_ids"_a)
      .def("observe", &SamplingState::observe, "token"_a, "`token` was generated: the next draw is one further.")
      .def_prop_ro("num_generated", &SamplingState::num_generated);
  nb::class_<Draw>(m, "Draw", "What the sampler chose for one row.")
      .def_prop_ro("status", [](const Draw& draw) { return status_name(draw.status); })
      .def_ro("token", &Draw::token)
      .def_ro("logprob", &Draw::logprob)
      .def_ro("top", &Draw::top);
  m.def("sample", &sample, "logits"_a, "states"_a, "pool"_a.none(), "One draw for each row of logits [L, V] and its state.");
  m.def("philox_uniform", &philox_uniform, "seed"_a, "counter"_a, "Uniform in [0, 1): number `counter` of the stream `seed`.");
}

}  // namespace roofline::bind
