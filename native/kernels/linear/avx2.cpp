// Tier `avx2` of the linear family: which inner kernel serves which format and number of tokens.
#include "kernels/linear/avx2_parts.h"
#include "kernels/linear/tile_layout.h"

namespace roofline::avx2 {
namespace {

void linear(const LinearArgs& args) {
  if (is_float(args.weight->format)) return linear_float(args);
  linear_quantized(args);
}

const char* describe(Format format, int64_t num_tokens) {
  if (is_float(format)) return "avx2 fma, 1 block x 3 tokens";
  return num_tokens <= 2 ? "avx2 maddubs gemv, 4 streams" : "avx2 maddubs gemm, 1 block x 4 tokens";
}

}  // namespace

const LinearKernels& linear_kernels() {
  static constexpr LinearKernels kernels{linear, describe};
  return kernels;
}

}  // namespace roofline::avx2
