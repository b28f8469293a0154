// Tier `avx512` of the linear family: which inner kernel serves which format and number of tokens.
#include "kernels/linear/avx512_parts.h"
#include "kernels/linear/tile_layout.h"

namespace roofline::avx512 {
namespace {

// Where the panel has paid for its unpacking. MEASURED Xeon Ice Lake 2.8 GHz, Q5_0 K = 896: M = 8 135 against 113 GMAC/s for the
// small kernel, M = 12 equal, M = 16 135 against 153.
inline constexpr int kMaxSmallTokens = 8;
inline constexpr int kMaxGemvTokens = 2;

void linear(const LinearArgs& args) {
  if (is_float(args.weight->format)) return args.num_tokens == 1 ? gemv_float(args) : gemm_float(args);
  if (args.num_tokens <= kMaxGemvTokens) return gemv_quantized(args);
  return args.num_tokens <= kMaxSmallTokens ? small_quantized(args) : gemm_quantized(args);
}

const char* describe(Format format, int64_t num_tokens) {
  if (is_float(format)) return num_tokens == 1 ? "avx512 fma gemv, 8 streams" : "avx512 fma panel gemm, 4 blocks x 6 tokens";
  if (num_tokens <= kMaxGemvTokens) return num_tokens == 1 ? "avx512 vnni gemv, 8 streams" : "avx512 vnni gemv, 8 streams x 2 tokens";
  if (num_tokens <= kMaxSmallTokens) return "avx512 vnni small gemm, 2 blocks x 4 tokens in registers";
  return "avx512 vnni panel gemm, 4 blocks x 6 tokens";
}

}  // namespace

const LinearKernels& linear_kernels() {
  static constexpr LinearKernels kernels{linear, describe};
  return kernels;
}

}  // namespace roofline::avx512
