// The pointwise family for Python, on arrays that the caller owns: the tests' way to every tier.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <stdexcept>
#include <string>

#include "bind/module.h"
#include "kernels/pointwise/contract.h"
#include "runtime/cpu_features.h"

namespace nb = nanobind;

namespace roofline::bind {
namespace {

template <class T>
using Array = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using In = Array<const float>;
using Out = Array<float>;

const PointwiseKernels& kernels_of(const std::string& isa) {
  Isa wanted, chosen;
  if (!parse_isa(isa, &wanted)) throw std::invalid_argument("unknown tier: " + isa + " (known: ref, avx2, avx512, amx)");
  for (const std::string& gap : isa_gaps(wanted)) throw std::invalid_argument("tier " + isa + " can't run here, missing: " + gap);
  return pointwise_kernels(wanted, &chosen);
}

void require(bool good, const char* message) {
  if (!good) throw std::invalid_argument(message);
}

template <class Array>
int64_t len_of(const Array& x) {
  return static_cast<int64_t>(x.shape(0));
}

void rms_norm(const std::string& isa, In x, std::optional<In> weight, float eps, int64_t num_groups, Out y) {
  const int64_t len = num_groups > 0 ? len_of(x) / num_groups : 0;
  require(num_groups > 0 && len * num_groups == len_of(x), "x doesn't divide into num_groups groups");
  require(!weight || len_of(*weight) == len, "weight has another length than a group");
  require(len_of(y) == len_of(x), "y has another length than x");
  kernels_of(isa).rms_norm(x.data(), weight ? weight->data() : nullptr, eps, num_groups, len, y.data());
}

void quantize(const std::string& isa, In x, Array<int8_t> q, Out scale, Array<int32_t> sum16) {
  const int64_t len = len_of(x);
  require(len % kGroupLen == 0, "len must be a multiple of 32");
  require(len_of(q) >= (len + 63) / 64 * 64, "q is shorter than len rounded up to 64");
  require(len_of(scale) == len / 32 && len_of(sum16) == len / 16, "scale takes len / 32 values and sum16 len / 16");
  kernels_of(isa).quantize(x.data(), len, q.data(), scale.data(), sum16.data());
}

void rope(const std::string& isa, Out x, int64_t head_size, In cos, In sin, const std::string& style) {
  require(head_size > 0 && len_of(x) % head_size == 0, "x is not a whole number of heads");
  require(len_of(cos) == len_of(sin) && 2 * len_of(cos) <= head_size, "cos and sin take rotary_len / 2 values each");
  require(style == "half" || style == "interleaved", "style is half or interleaved");
  const RopeStyle pairs = style == "half" ? RopeStyle::half : RopeStyle::interleaved;
  kernels_of(isa).rope(x.data(), len_of(x) / head_size, head_size, 2 * len_of(cos), cos.data(), sin.data(), pairs);
}

void gated_act(const std::string& isa, In gate, In up, const std::string& act, Out y) {
  require(len_of(gate) == len_of(up) && len_of(up) == len_of(y), "gate, up and y have one length");
  require(act == "silu" || act == "gelu_tanh", "act is silu or gelu_tanh");
  const Activation activation = act == "silu" ? Activation::silu : Activation::gelu_tanh;
  kernels_of(isa).gated_act(gate.data(), up.data(), activation, len_of(y), y.data());
}

void add(const std::string& isa, In a, In b, Out y) {
  require(len_of(a) == len_of(b) && len_of(b) == len_of(y), "a, b and y have one length");
  kernels_of(isa).add(a.data(), b.data(), len_of(y), y.data());
}

void scale(const std::string& isa, In x, float factor, Out y) {
  require(len_of(x) == len_of(y), "x and y have one length");
  kernels_of(isa).scale(x.data(), factor, len_of(y), y.data());
}

void scaled_add(const std::string& isa, In x, float factor, Out y) {
  require(len_of(x) == len_of(y), "x and y have one length");
  kernels_of(isa).scaled_add(x.data(), factor, len_of(y), y.data());
}

float dot(const std::string& isa, In a, In b) {
  require(len_of(a) == len_of(b), "a and b have one length");
  return kernels_of(isa).dot(a.data(), b.data(), len_of(a));
}

}  // namespace

void register_pointwise(nb::module_& parent) {
  nb::module_ m = parent.def_submodule("pointwise", "float32 row operations on every tier; see kernels/pointwise/contract.h.");
  m.def("rms_norm", &rms_norm, nb::arg("isa"), nb::arg("x"), nb::arg("weight").none(), nb::arg("eps"), nb::arg("num_groups"),
        nb::arg("y"));
  m.def("quantize", &quantize, nb::arg("isa"), nb::arg("x"), nb::arg("q"), nb::arg("scale"), nb::arg("sum16"));
  m.def("rope", &rope, nb::arg("isa"), nb::arg("x"), nb::arg("head_size"), nb::arg("cos"), nb::arg("sin"), nb::arg("style"));
  m.def("gated_act", &gated_act, nb::arg("isa"), nb::arg("gate"), nb::arg("up"), nb::arg("act"), nb::arg("y"));
  m.def("add", &add, nb::arg("isa"), nb::arg("a"), nb::arg("b"), nb::arg("y"));
  m.def("scale", &scale, nb::arg("isa"), nb::arg("x"), nb::arg("factor"), nb::arg("y"));
  m.def("scaled_add", &scaled_add, nb::arg("isa"), nb::arg("x"), nb::arg("factor"), nb::arg("y"));
  m.def("soft_cap", [](const std::string& isa, Out x, float cap) { kernels_of(isa).soft_cap(x.data(), cap, len_of(x)); },
        nb::arg("isa"), nb::arg("x"), nb::arg("cap"));
  m.def("softmax", [](const std::string& isa, Out x) { kernels_of(isa).softmax(x.data(), len_of(x)); }, nb::arg("isa"),
        nb::arg("x"));
  m.def("sigmoid", [](const std::string& isa, float x) { return kernels_of(isa).sigmoid(x); }, nb::arg("isa"), nb::arg("x"));
  m.def("dot", &dot, nb::arg("isa"), nb::arg("a"), nb::arg("b"));
  m.def("argmax", [](const std::string& isa, In x) { return kernels_of(isa).argmax(x.data(), len_of(x)); }, nb::arg("isa"),
        nb::arg("x"), "Lowest index of the largest value; -1 when a value is NaN or x is empty.");
}

}  // namespace roofline::bind
