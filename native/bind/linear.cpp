// Packing, unpacking and single products of the linear family for Python: the tests' and the micro-benchmark's way to every tier.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "bind/module.h"
#include "kernels/linear/amx_parts.h"
#include "kernels/linear/contract.h"

namespace nb = nanobind;

namespace roofline::bind {
namespace {

using Bytes2d = nb::ndarray<const uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Floats2d = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Floats1d = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using RowIds = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Result = nb::ndarray<nb::numpy, float, nb::ndim<2>>;

struct FreeAligned {
  void operator()(void* memory) const { std::free(memory); }
};

template <class T>
using Aligned = std::unique_ptr<T[], FreeAligned>;

template <class T>
Aligned<T> allocate_aligned(int64_t count) {
  const size_t bytes = (size_t(count) * sizeof(T) + 63) / 64 * 64 + 64;
  void* memory = std::aligned_alloc(64, bytes);
  if (!memory) throw std::bad_alloc();
  std::memset(memory, 0, bytes);
  return Aligned<T>(static_cast<T*>(memory));
}

Result own_result(std::unique_ptr<float[]> values, int64_t rows, int64_t columns) {
  float* data = values.release();
  nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<float*>(p); });
  return Result(data, {size_t(rows), size_t(columns)}, owner);
}

struct Weight {
  std::string scheme;
  Aligned<uint8_t> tiles;
  PackedWeight packed;

  int64_t num_blocks() const { return (packed.num_rows + kRowBlock - 1) / kRowBlock; }
  int64_t num_bytes() const { return num_blocks() * packed.block_stride_bytes; }
};

Weight pack(const std::string& scheme, const Bytes2d& raw, int64_t row_len) {
  const int64_t num_rows = int64_t(raw.shape(0));
  if (int64_t(raw.shape(1)) != scheme_row_bytes(scheme.c_str(), row_len)) {
    throw std::invalid_argument(scheme + " rows of " + std::to_string(row_len) + " elements don't take " +
                                std::to_string(raw.shape(1)) + " bytes");
  }
  const Format format = packed_format(scheme.c_str());
  const int64_t stride = packed_block_bytes(format, row_len);
  Weight weight;
  weight.scheme = scheme;
  weight.packed = {format, num_rows, row_len, nullptr, stride, packed_lut(scheme.c_str())};
  weight.tiles = allocate_aligned<uint8_t>(weight.num_bytes());
  weight.packed.tiles = weight.tiles.get();
  nb::gil_scoped_release release;
  pack_row_blocks(scheme.c_str(), raw.data(), num_rows, row_len, 0, weight.num_blocks(), weight.tiles.get());
  return weight;
}

Result unpack(const Weight& weight) {
  const int64_t rows = weight.packed.num_rows, row_len = weight.packed.row_len;
  std::unique_ptr<float[]> out(new float[size_t(rows * row_len)]);
  for (int64_t row = 0; row < rows; ++row) unpack_row(weight.packed, row, out.get() + row * row_len);
  return own_result(std::move(out), rows, row_len);
}

Result dequantize(const std::string& scheme, const Bytes2d& raw, int64_t row_len) {
  if (int64_t(raw.shape(1)) != scheme_row_bytes(scheme.c_str(), row_len)) throw std::invalid_argument(scheme + " rows of that length take another number of bytes");
  const int64_t rows = int64_t(raw.shape(0)), row_bytes = int64_t(raw.shape(1));
  std::unique_ptr<float[]> out(new float[size_t(rows * row_len)]);
  for (int64_t row = 0; row < rows; ++row) {
    dequantize_row(scheme.c_str(), raw.data() + row * row_bytes, row_len, out.get() + row * row_len);
  }
  return own_result(std::move(out), rows, row_len);
}

// Activations quantized by the definition in the contract, one scalar at a time.
struct Activations {
  int64_t rows, row_len, q_stride, groups;
  Aligned<int8_t> q;
  Aligned<float> scale;
  Aligned<int32_t> sum16;

  Activations(const float* x, int64_t num_rows, int64_t k)
      : rows(num_rows), row_len(k), q_stride((k + 63) / 64 * 64), groups((k + kGroupLen - 1) / kGroupLen),
        q(allocate_aligned<int8_t>(num_rows * q_stride)), scale(allocate_aligned<float>(num_rows * groups)),
        sum16(allocate_aligned<int32_t>(num_rows * groups * 2)) {
    for (int64_t m = 0; m < rows; ++m) {
      for (int64_t g = 0; g < groups; ++g) quantize_group(x + m * k, m, g);
    }
  }

  void quantize_group(const float* x, int64_t m, int64_t g) {
    const int64_t begin = g * kGroupLen, end = std::min(begin + kGroupLen, row_len);
    float largest = 0.0f;
    for (int64_t k = begin; k < end; ++k) largest = std::max(largest, std::fabs(x[k]));
    scale[m * groups + g] = largest / 127.0f;
    const float inverse = largest == 0.0f ? 0.0f : 127.0f / largest;
    for (int64_t k = begin; k < end; ++k) {
      const int code = int(std::nearbyint(x[k] * inverse));
      q[m * q_stride + k] = int8_t(code);
      sum16[m * groups * 2 + k / 16] += code;
    }
  }

  QuantizedRows view() const { return {q.get(), scale.get(), sum16.get(), q_stride, groups, groups * 2}; }
};

// "amx-emulated" is the amx tier over tiles in plain C++, so that its logic is tested where there is no AMX.
const LinearKernels& kernels_of(const std::string& isa) {
#ifdef ROOFLINE_HAS_LINEAR_AMX
  if (isa == "amx-emulated") return usable_isa("avx512"), amx::emulated_linear_kernels();
#endif
  const Isa wanted = usable_isa(isa);
  Isa chosen;
  const LinearKernels& kernels = linear_kernels(wanted, &chosen);
  if (chosen != wanted) throw std::invalid_argument("the linear family has no tier " + isa);
  return kernels;
}

void check_product(const Weight& weight, const Floats2d& x, const std::optional<Floats1d>& bias,
                   const std::optional<RowIds>& row_ids) {
  if (int64_t(x.shape(1)) != weight.packed.row_len) throw std::invalid_argument("x has the wrong row length");
  if (bias && int64_t(bias->shape(0)) != weight.packed.num_rows) throw std::invalid_argument("bias has the wrong length");
  if (!row_ids) return;
  for (size_t i = 0; i < row_ids->shape(0); ++i) {
    if (row_ids->data()[i] < 0 || size_t(row_ids->data()[i]) >= x.shape(0)) throw std::invalid_argument("row id out of range");
  }
}

Result matmul(const std::string& isa, const Weight& weight, const Floats2d& x, const std::optional<Floats1d>& bias,
              const std::optional<Floats2d>& y_in, const std::optional<RowIds>& row_ids, int64_t block_begin,
              const std::optional<int64_t>& block_end) {
  const LinearKernels& kernels = kernels_of(isa);
  check_product(weight, x, bias, row_ids);
  const int64_t num_tokens = int64_t(row_ids ? row_ids->shape(0) : x.shape(0)), num_rows = weight.packed.num_rows;
  if (y_in && (int64_t(y_in->shape(0)) != num_tokens || int64_t(y_in->shape(1)) != num_rows)) {
    throw std::invalid_argument("y_in has the wrong shape");
  }
  const int64_t blocks_end = block_end.value_or(weight.num_blocks());
  if (block_begin < 0 || block_begin > blocks_end || blocks_end > weight.num_blocks()) {
    throw std::invalid_argument("row blocks [" + std::to_string(block_begin) + ", " + std::to_string(blocks_end) + ") are not among the weight's " +
                                std::to_string(weight.num_blocks()));
  }
  std::unique_ptr<float[]> y(new float[size_t(num_tokens * num_rows)]());
  if (y_in) std::memcpy(y.get(), y_in->data(), size_t(num_tokens * num_rows) * sizeof(float));
  {
    nb::gil_scoped_release release;
    const Activations activations(x.data(), int64_t(x.shape(0)), weight.packed.row_len);
    const Aligned<uint8_t> scratch = allocate_aligned<uint8_t>(kLinearScratchBytes);
    kernels.linear({&weight.packed, activations.view(), {x.data(), weight.packed.row_len},
                    row_ids ? row_ids->data() : nullptr, num_tokens, y.get(), num_rows, bias ? bias->data() : nullptr,
                    y_in.has_value(), block_begin, blocks_end, scratch.get()});
  }
  return own_result(std::move(y), num_tokens, num_rows);
}

// CPU seconds for one pass over all weights with M tokens, the best of as many passes as fit in `seconds`.
double bench(const std::string& isa, const std::vector<const Weight*>& weights, int64_t num_tokens, double seconds) {
  const LinearKernels& kernels = kernels_of(isa);
  if (weights.empty() || num_tokens < 1 || !std::isfinite(seconds)) {
    throw std::invalid_argument("a benchmark takes weights, at least one token and a finite time");
  }
  int64_t row_len = 0, num_rows = 0;
  for (const Weight* w : weights) row_len = std::max(row_len, w->packed.row_len), num_rows = std::max(num_rows, w->packed.num_rows);
  std::vector<float> x(size_t(num_tokens * row_len)), y(size_t(num_tokens * num_rows));
  for (size_t i = 0; i < x.size(); ++i) x[i] = float(int(i * 2654435761u % 2001) - 1000) * 1e-3f;
  const Activations activations(x.data(), num_tokens, row_len);
  const Aligned<uint8_t> scratch = allocate_aligned<uint8_t>(kLinearScratchBytes);
  nb::gil_scoped_release release;
  double best = INFINITY, spent = 0.0;
  for (int pass = 0; pass < 3 || spent < seconds; ++pass) {
    const double start = thread_time_s();
    for (const Weight* w : weights) {
      kernels.linear({&w->packed, activations.view(), {x.data(), row_len}, nullptr, num_tokens, y.data(), num_rows, nullptr,
                      false, 0, w->num_blocks(), scratch.get()});
    }
    const double elapsed = thread_time_s() - start;
    best = std::min(best, elapsed), spent += elapsed;
  }
  return best;
}

std::string describe(const std::string& isa, const std::string& scheme, int64_t num_tokens) {
  return kernels_of(isa).describe(packed_format(scheme.c_str()), num_tokens);
}

}  // namespace

void register_linear(nb::module_& parent) {
  nb::module_ m = parent.def_submodule("linear", "Packed weights and y = x . W^T on every tier; see kernels/linear/contract.h.");
  nb::class_<Weight>(m, "PackedWeight", "A matrix in tiles, in its own 64-byte aligned memory.")
      .def_ro("scheme", &Weight::scheme)
      .def_prop_ro("num_rows", [](const Weight& w) { return w.packed.num_rows; })
      .def_prop_ro("row_len", [](const Weight& w) { return w.packed.row_len; })
      .def_prop_ro("num_bytes", &Weight::num_bytes)
      .def("unpack", &unpack, "float32 [num_rows, row_len]");
  m.def("pack", &pack, nb::arg("scheme"), nb::arg("raw"), nb::arg("row_len"), "File bytes uint8 [num_rows, row_bytes] to tiles.");
  m.def("dequantize", &dequantize, nb::arg("scheme"), nb::arg("raw"), nb::arg("row_len"), "File bytes to float32 rows.");
  m.def("matmul", &matmul, nb::arg("isa"), nb::arg("weight"), nb::arg("x"), nb::arg("bias") = nb::none(),
        nb::arg("y_in") = nb::none(), nb::arg("row_ids") = nb::none(), nb::arg("block_begin") = 0,
        nb::arg("block_end") = nb::none(),
        "x float32 [rows, K] -> y [M, N]. y_in: the residual to add to. row_ids [M]: which rows of x. Columns of row blocks "
        "outside [block_begin, block_end) keep y_in, or 0.");
  m.def("bench", &bench, nb::arg("isa"), nb::arg("weights"), nb::arg("num_tokens"), nb::arg("seconds"),
        "Best CPU seconds of one pass over all weights, on the calling thread.");
  m.def("describe", &describe, nb::arg("isa"), nb::arg("scheme"), nb::arg("num_tokens"), "The inner kernel that would serve.");
}

}  // namespace roofline::bind
